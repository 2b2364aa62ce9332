"""Within a profile everything works as outside: each operation is computed as it is made, and nothing is traced."""

import io
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

import tilegrad as tg
import tilegrad.language as tl
import tilegrad.torch as torch
from tilegrad.torch.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
torch::Tensor twice(torch::Tensor x) {
  auto y = torch::empty_like(x);
  auto a = x.accessor<float, 1>(), b = y.accessor<float, 1>();
  for (int i = 0; i < x.size(0); ++i) b[i] = 2 * a[i];
  return y;
}
void add_one(torch::Tensor x) {
  float *p = x.data_ptr<float>();
  for (int i = 0; i < x.numel(); ++i) p[i] += 1;
}
torch::Tensor product(torch::Tensor x) { return torch::mm(x, x).add(1); }
"""


@pytest.fixture(scope="module")
def made() -> ModuleType:
    return load_inline("profiled", [SOURCE], functions=["twice", "add_one", "product"])


@tg.kernel
def double(x: Any, out: Any, n: Any, B: tl.constexpr) -> None:
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


doubled = tg.op("tests::profiled(x: F[*s]) -> F[*s]")(lambda x: x * 2)


def written(change: Callable[[Any], Any], *shape: int) -> Any:
    x = tg.arange(6).float().reshape(*(shape or (6,)))
    change(x)
    return x


def trained() -> Any:
    layer = tg.nn.Linear(2, 2)
    with tg.no_grad():
        layer.weight.fill_(0.5)
    step = tg.optim.SGD(layer.parameters(), 0.1)
    layer(tg.ones(1, 2)).sum().backward()
    step.step()
    return layer.weight.detach()


def saved() -> Any:
    file = io.BytesIO()
    tg.save(tg.ones(3) * 2, file)
    return tg.load(io.BytesIO(file.getvalue()))


X = tg.arange(6).float()
CALLS: dict[str, Callable[[ModuleType], Any]] = {
    "twice": lambda m: m.twice(X + 1),
    "add one": lambda m: written(m.add_one),
    "product": lambda m: m.product(tg.ones(2, 2)),
    "kernel": lambda m: written(lambda x: double[(1,)](X, x, 6, B=8)),
    "squeeze": lambda m: written(lambda x: x.squeeze_(), 6, 1),
    "transposed": lambda m: written(lambda x: x.t_(), 2, 3),
    "item": lambda m: written(lambda x: x.__setitem__(0, X[3].item())),
    "jit": lambda m: tg.jit(lambda x: x * 3)(X),
    "grad": lambda m: tg.grad(lambda x: (x * x).sum())(X),
    "vmap": lambda m: tg.vmap(lambda row: row.softmax(0))(X.reshape(2, 3)),
    "cond": lambda m: tg.cond(X.sum() > 3, lambda x: x * 2, lambda x: x, X),
    "while": lambda m: tg.while_loop(lambda x: x.sum() < 50, lambda x: x + 1, X),
    "scan": lambda m: tg.scan(lambda c, x: (c + x, c), X[:1], X.reshape(6, 1))[0],
    "mask": lambda m: X[X > 2],
    "operator": lambda m: doubled(X),
    "trained": lambda m: trained(),
    "saved": lambda m: saved(),
    "array": lambda m: tg.tensor((X * 2).numpy()),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_same_within_a_profile(name: str, made: ModuleType) -> None:
    wanted = CALLS[name](made)
    shown, elements = str(wanted), wanted.tolist()
    with torch.profiler.profile():
        found = CALLS[name](made)
        assert str(found).partition("grad_fn")[0] == shown.partition("grad_fn")[0]
    assert found.tolist() == elements
