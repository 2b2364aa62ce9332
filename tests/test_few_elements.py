"""Tensors of a few elements are combined at once, with the results of recorded work, and in few calls."""

import contextlib
import copy
import io
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.errors import ShapeError
from tilegrad.functions.pointwise import few

CALLS = {
    "x + y": 17, "x * 0.9": 16, "2 - x": 17, "x < y": 16, "-x": 13, "x.sum().item()": 18, "x.mean()": 14,
    "(x + y).tolist()": 36, "z + z": 14, "z * 0.9": 14, "z.sum().item()": 17, "x[2, 1].item()": 14,
}  # fmt: skip
"""The most Python functions that each takes; z has numbers and no memory."""


def in_memory(*numbers: float, dtype: Any = None) -> tg.Tensor:
    return tg.tensor(numbers, dtype=dtype)


def is_computed(x: tg.Tensor) -> bool:
    return x._numbers is not None or x._value.buffer is not None


def calls_of(use: Callable[[], Any]) -> int:
    """Count the calls of Python functions, without the one that is counted."""
    for _ in range(3):
        use()
    count = -1

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        use()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("text", CALLS)
def test_calls(text: str) -> None:
    x, y = (tg.tensor(np.arange(16, dtype=np.float32).reshape(4, 4) + n) for n in range(2))
    z = tg.tensor(np.arange(16, dtype=np.float32)) * 0.5
    assert calls_of(eval(f"lambda: {text}", {"x": x, "y": y, "z": z})) <= CALLS[text]


def test_sums_are_rounded_once() -> None:
    rng = np.random.default_rng(0)
    for count in (1, 3, 16, 250):
        x = (rng.standard_normal(count) * 10.0 ** rng.integers(-3, 4, count)).astype(np.float32)
        t = tg.tensor(x)
        assert is_computed(t.sum())
        assert t.sum().item() == np.float32(x.astype(np.longdouble).sum())
        assert t.mean().item() == pytest.approx(x.astype(np.float64).mean(), rel=1e-6)
    assert in_memory(200, 100, dtype=tg.uint8).sum().item() == 300
    assert in_memory(True, False, True).sum().item() == 2
    assert in_memory(float("inf"), 1).sum().item() == float("inf")
    assert np.isnan(in_memory(float("inf"), -float("inf")).sum().item())


def test_what_is_not_python_s_is_recorded() -> None:
    x, y = in_memory(1.0, 2.0), in_memory(3.0, 0.0)
    recorded = [
        x / y, x.exp() + y, tg.tensor([1.0, 2.0], requires_grad=True) * y,
        in_memory(250, 250, dtype=tg.uint8) + in_memory(10, 10, dtype=tg.uint8), tg.ones(17) + 1, x.sum(0),
        x.half() * 2, tg.arange(6.0).reshape(2, 3).T + 1, tg.tensor([1.0] * 300) + 1, x + tg.ones(2, 1).T.T,
    ]  # fmt: skip
    assert [is_computed(z) for z in recorded] == [False] * len(recorded)
    found = [z.tolist() for z in recorded[:4]]
    assert found[0] == [pytest.approx(1 / 3), float("inf")]
    assert found[3] == [4, 4]
    with pytest.raises(ShapeError):
        x + in_memory(1.0, 2.0, 3.0)


def test_all_elementwise_ops_that_python_has_are_computed_at_once() -> None:
    x, n = in_memory(-1.5, 2.0, 0.25), in_memory(7, -3, 2)
    truth = x > 0
    made = [
        x.abs(), abs(n), x.sign(), x.square(), x.relu(), x.clamp(0, 1), x.clamp(min=0.5), tg.maximum(x, x * 2), n % 4,
        tg.minimum(n, n * 2), tg.where(truth, x, x + 1), x.floor(), x.round(), x.abs().sqrt(), x.isnan(), n.float(),
        truth & (x < 1), ~truth, n & 3, n // 2, x * n, x + in_memory(1.0), tg.lerp(x, x + 1, 0.5), x**2, x.long(),
        x.reciprocal(), tg.addcmul(x, x, x), truth.float(), tg.nn.functional.leaky_relu(x), tg.hypot(x, x), x.double(),
    ]  # fmt: skip
    assert [is_computed(y) for y in made] == [True] * len(made)


def test_what_was_computed_is_not_recorded_again() -> None:
    x, y = in_memory(-1.5, 2.0, 0.0), in_memory(3.0, -2.5, 0.5)
    functions: list[Callable[[Any, Any], Any]] = [
        lambda x, y: x.abs(), lambda x, y: tg.copysign(x, y), lambda x, y: tg.copysign(y, x), lambda x, y: x.ceil(),
        lambda x, y: tg.maximum(x, y), lambda x, y: x.isnan(), lambda x, y: x.relu(), lambda x, y: x.floor(),
        lambda x, y: tg.maximum(x.long(), y.long()), lambda x, y: x.long().abs(), lambda x, y: tg.copysign(x, 2.0),
        lambda x, y: x.long() // y.ceil().long(), lambda x, y: tg.copysign(x[:2], y[1:]), lambda x, y: x.reciprocal(),
    ]  # fmt: skip
    for n, f in enumerate(functions):
        with (
            mock.patch.object(few, "computed", return_value=None),
            mock.patch.object(few, "combined", return_value=None),
        ):
            recorded = f(x, y) if n < 10 else f(x + 0, y + 0)
        found = [f(x, y), f(x, y), f(x * 1, y * 1)]
        assert [z.tolist() for z in found] == [recorded.tolist()] * 3
        assert [z.dtype for z in found] == [recorded.dtype] * 3
    with mock.patch("tilegrad.functions.pointwise.elementwise", side_effect=AssertionError):
        assert (x.abs().tolist(), tg.copysign(x, y).tolist()) == ([1.5, 2.0, 0.0], [1.5, -2.0, 0.0])
    tracked = tg.tensor([-1.0, 2.0], requires_grad=True)
    tracked.abs().sum().backward()
    assert tracked.grad is not None
    assert tracked.grad.tolist() == [-1, 1]
    with pytest.raises(ZeroDivisionError):
        x.long() // tg.tensor([1, 0, 1])


def test_truths_and_integers_are_integers_also_after_truths_and_truths() -> None:
    x = in_memory(True, False)
    functions = tg.bitwise_or, tg.bitwise_and, tg.bitwise_xor
    for f in functions:
        assert [f(x, y).dtype for y in (x, x, in_memory(False, True), True)] == [tg.bool] * 4
    found = [f(x, y) for f in functions for y in (0, 1, 2)]
    assert [z.dtype for z in found] == [tg.int64] * 9
    assert [z.tolist() for z in found] == [[1, 0], [1, 1], [3, 2], [0, 0], [1, 0], [0, 0], [1, 0], [0, 1], [3, 2]]


def test_whoever_observes_programs_sees_all() -> None:
    x = in_memory(1.0, 2.0)
    with config.changed(tier="compiled"):
        assert not is_computed(x + x)
    with tg.profiler.profile() as seen:
        assert not is_computed(x + x)
        (x + x).tolist()
    assert seen is not None
    assert is_computed(x + x)
    assert not is_computed(tg.jit(lambda x: x + x)(x) * x.exp())


def test_the_elements_are_those_of_the_moment() -> None:
    x, y = in_memory(1.0, 2.0, 3.0), tg.zeros(3)
    z, w = x + y, y + x[0]
    x[0] = 9
    y += x
    array = np.ones(3, np.float32)
    shared = tg.from_numpy(array)
    before = shared * 2
    array[:] = 5
    assert (z.tolist(), w.tolist(), y.tolist()) == ([1, 2, 3], [1, 1, 1], [9, 2, 3])
    assert (before.tolist(), (shared * 2).tolist(), x._version, y._version) == ([2, 2, 2], [10, 10, 10], 1, 1)


def test_nothing_is_compiled() -> None:
    x = in_memory(*range(16), dtype=tg.float32)
    with mock.patch("tilegrad.lazy.realize.realize") as ran:
        for _ in range(50):
            x = x * 0.5 + 0.25
            assert x.sum().item() > 0
        assert not ran.called


class Sum(tg.nn.Module):
    def __init__(self, x: tg.Tensor) -> None:
        super().__init__()
        self.weight, self.mean = tg.nn.Parameter(x), tg.nn.Buffer(x)

    def forward(self) -> tg.Tensor:
        return (self.weight * self.mean).sum()


def differentiated(x: tg.Tensor) -> Any:
    x.requires_grad_()
    (x * x + 1).sum().backward()
    return x.grad


def replaced(x: tg.Tensor) -> None:
    x.data = tg.ones(2, 2)


def turned(x: tg.Tensor) -> Any:
    with tg.no_grad():
        return x.reshape_(4) if hasattr(x, "reshape_") else x.t_()


def assigned(x: tg.Tensor, value: Any) -> None:
    x[0] = value


def through_view(x: tg.Tensor) -> Any:
    view = x[1]
    view += 3
    return view, x[1, 0]


def through_module(x: tg.Tensor) -> Any:
    module = Sum(x)
    module().backward()
    return module.weight.grad, module.state_dict()


def through_file(x: tg.Tensor) -> Any:
    file = io.BytesIO()
    tg.save(x, file)
    file.seek(0)
    return tg.load(file), pickle.loads(pickle.dumps(x))


USES: dict[str, Callable[[tg.Tensor], Any]] = {
    "printed": repr,
    "numpy": lambda x: x.numpy(),
    "listed": lambda x: x.tolist(),
    "shape": lambda x: (x.shape, x.dtype, x.device),
    "differentiated": differentiated,
    "module": through_module,
    "file": through_file,
    "view": through_view,
    "turned": turned,
    "replaced": replaced,
    "assigned": lambda x: assigned(x, 5.0),
    "row": lambda x: assigned(x, x[1]),
    "item": lambda x: assigned(x, x[1, 1]),
    "copied": lambda x: (copy.copy(x), copy.deepcopy(x)),
    "added": lambda x: x.add_(2),
    "multiplied": lambda x: x.mul_(x),
    "out": lambda x: tg.exp(x, out=x),
    "resized": lambda x: tg.cat([tg.ones(3), tg.ones(2)], out=x),
    "zero": lambda x: x.zero_(),
    "detached": lambda x: x.detach_(),
    "detached view": lambda x: x.detach().add_(1),
    "data": lambda x: x.data.mul_(2),
    "jit": tg.jit(lambda x: x * 2 + x[0]),
    "jit in place": tg.jit(lambda x: x.add_(1)),
    "vmap": tg.vmap(lambda x: x * x.sum()),
    "grad": tg.grad(lambda x: (x * x).sum()),
    "exported": lambda x: np.from_dlpack(x),
    "cat": lambda x: tg.cat([x, x]),
    "large": lambda x: x.repeat(4, 4).matmul(tg.ones(8, 8)),
    "exp": lambda x: (x.exp() - x).sum(0),
    "iterated": lambda x: [y * 2 for y in x],
    "truth": lambda x: bool((x == x).all()),
    "mixed": lambda x: x.double() + x.long() + x.half(),
    "copy_": lambda x: x.copy_(x.t().clone()),
    "where": lambda x: tg.where(x > 1, x, 0 - x),
    "threads": lambda x: [y.tolist() for y in ThreadPoolExecutor(4).map(lambda n: x * n, range(8))],
}


def shown(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return [shown(y) for y in x]
    if isinstance(x, dict):
        return {key: shown(y) for key, y in x.items()}
    return (x.tolist(), x.dtype, x.requires_grad, x._version, x.stride()) if isinstance(x, tg.Tensor) else str(x)


@pytest.mark.parametrize("how", USES)
@pytest.mark.parametrize("made", ["chain", "read", "item"])
def test_numbers_are_tensors_like_others(how: str, made: str) -> None:
    """Whatever is done with a tensor that has numbers gives what it gives for one with memory."""
    found = []
    for has_numbers in (True, False):
        whole = tg.tensor([[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]])
        if made == "chain":
            x = whole[0] * 1.0 if has_numbers else tg.tensor([[0.0, 1.0], [2.0, 3.0]])
        else:
            x = whole[1]
            if made == "item":
                x, whole = whole[1] * 0.5 + whole[0], whole * 1
            if not has_numbers:
                assert x._value is not None
        assert (x._numbers is not None) is has_numbers
        result: Any = None
        try:
            result = shown(USES[how](x))
        except tg.errors.TilegradError as problem:
            result = type(problem)
        found.append((result, shown(x), shown(whole), shown(x * 1), shown(x[0])))
    assert found[0] == found[1]


REDUCTIONS: dict[str, Callable[[tg.Tensor], Any]] = {
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max along": lambda x: x.max(1),
    "min along": lambda x: x.min(0, keepdim=True),
    "amax": lambda x: x.amax((0, 1), keepdim=True),
    "amin": lambda x: x.amin(1),
    "argmax": lambda x: x.argmax(),
    "argmin": lambda x: x.argmin(0),
    "all": lambda x: x.all(),
    "any": lambda x: (x > 1).any(1),
    "count": lambda x: x.count_nonzero(),
    "sum": lambda x: x.long().sum(1) if x.dtype.is_integer else (x > 0).sum(0),
    "equal": lambda x: tg.equal(x, x.clone()),
}


@pytest.mark.parametrize("name", ["float32", "float64", "int64", "uint8", "bool"])
@pytest.mark.parametrize("how", REDUCTIONS)
def test_reductions_are_those_of_recorded_work(how: str, name: str) -> None:
    dtype = getattr(tg, name)
    numbers = [0.0, 2.0, 1.0, 2.0, 0.0, 7.0, 3.0, 250.0, 250.0, 0.0, 1.0, 5.0]
    rows = [numbers, [1.0] * 12, [0.0] * 12]
    if dtype.is_float:
        rows += [[*numbers[:5], float("nan"), *numbers[6:]], [-0.0, *numbers[1:]], [float("inf"), -1.0] * 6]
    for row in rows:
        found: list[Any] = []
        for at_once in (True, False):
            x = tg.tensor(row).reshape(3, 4) * 1
            x = x > 1 if dtype is tg.bool else x.to(dtype)
            with contextlib.nullcontext() if at_once else mock.patch.object(few, "computed", return_value=None):
                try:
                    made = REDUCTIONS[how](x)
                except tg.errors.TilegradError as problem:
                    made = type(problem)
                found.append([y.numpy().tobytes() for y in made] if isinstance(made, tuple) else repr(made))
        assert found[0] == found[1], row


@pytest.mark.parametrize("shape", [(0,), (0, 0), (2, 0), (0, 3), (3, 0, 2)])
def test_reductions_of_nothing_are_recorded(shape: tuple[int, ...]) -> None:
    for dtype in (tg.float32, tg.bool, tg.int64, tg.bfloat16):
        x = tg.zeros(*shape, dtype=dtype)
        assert (x.any().item(), (x == 0).all().item(), (x == -1).sum().item(), x.sum().item()) == (False, True, 0, 0)
        assert x.any(0).tolist() == np.zeros(shape, bool).any(0).tolist()
        assert (x == 1).sum(-1).tolist() == np.zeros(shape, int).sum(-1).tolist()


def test_reductions_of_few_elements_compile_nothing() -> None:
    x = tg.tensor([[1.0, 5.0, 2.0], [4.0, 3.0, 6.0]]) * 1
    with mock.patch("tilegrad.lazy.realize.realize") as ran:
        for how, reduce in REDUCTIONS.items():
            made = reduce(x) if how != "equal" else x.max()
            for y in made if isinstance(made, tuple) else [made]:
                assert is_computed(y), how
        assert not ran.called
