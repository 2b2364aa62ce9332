"""Bools, integers and 0-d tensors wherever PyTorch computes with them, and its less usual names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch

torch = pytorch()

Case = Callable[[Any, Any], Any]


def whole(t: Any, *shape: int) -> Any:
    return t.arange(int(np.prod(shape))).reshape(*shape)


def bools(t: Any, *shape: int) -> Any:
    return whole(t, *shape) % 2 == 0


def small(t: Any, *shape: int) -> Any:
    return whole(t, *shape).to(t.uint8)


PLACES = [0, 1, 1]
KINDS: dict[str, Callable[..., Any]] = {"bools": bools, "integers": whole, "bytes": small}
OF_EVERY_KIND: dict[str, Callable[..., Any]] = {
    "scatter_add": lambda t, F, k: k(t, 3).scatter_add(0, t.tensor(PLACES), k(t, 3)),
    "index_add": lambda t, F, k: k(t, 3).index_add(0, t.tensor(PLACES), k(t, 3)),
    "index_put": lambda t, F, k: k(t, 3).index_put((t.tensor(PLACES),), k(t, 3), accumulate=True),
    "index_put of a mask": lambda t, F, k: k(t, 2, 2).index_put((bools(t, 2, 2),), k(t, 2), accumulate=True),
    "index_put from the end": lambda t, F, k: k(t, 3).index_put((t.tensor([-1, 0, -1]),), k(t, 3), accumulate=True),
    "index_fill from the end": lambda t, F, k: k(t, 3).index_fill(0, t.tensor([-1]), 1),
    "put from the end": lambda t, F, k: k(t, 3).put(t.tensor([-1, -3]), k(t, 2)),
    "index_put of a row's mask": lambda t, F, k: k(t, 2, 2).index_put((bools(t, 2),), k(t, 2)),
    "diff": lambda t, F, k: t.diff(k(t, 5)),
    "outer": lambda t, F, k: t.outer(k(t, 3), k(t, 2)),
    "kron": lambda t, F, k: t.kron(k(t, 2, 2), k(t, 2, 2)),
    "take_along_dim": lambda t, F, k: t.take_along_dim(k(t, 2, 3), t.tensor([[-1], [0]]), 1),
    "cumsum": lambda t, F, k: k(t, 4).cumsum(0),
    "cumprod": lambda t, F, k: k(t, 4).cumprod(0),
    "prod": lambda t, F, k: k(t, 4).prod(),
    "amax": lambda t, F, k: k(t, 4).amax(),
    "sort": lambda t, F, k: k(t, 4).sort().values,
    "cat": lambda t, F, k: t.cat([k(t, 2), whole(t, 2)]),
    "flip": lambda t, F, k: k(t, 4).flip(0).roll(1),
    "einsum with one operand": lambda t, F, k: t.einsum("ij->j", k(t, 2, 3)),
    "einsum beside an extent of 1": lambda t, F, k: t.einsum("ij,jk->ki", k(t, 2, 3), k(t, 1, 2)),
    "einsum without sums": lambda t, F, k: t.einsum("i,ij,j->ij", k(t, 2), k(t, 2, 3), k(t, 3)),
    "square": lambda t, F, k: k(t, 4).square(),
    "vander": lambda t, F, k: t.vander(k(t, 4)),
    "add with alpha": lambda t, F, k: t.add(k(t, 4), k(t, 4).flip(0), alpha=2),
    "add with alpha 0": lambda t, F, k: t.add(k(t, 4), k(t, 4).flip(0), alpha=0),
    "tensordot": lambda t, F, k: t.tensordot(whole(t, 2, 1), whole(t, 3, 4), dims=([1], [0])),
}
OF_INTEGERS: dict[str, Case] = {
    "conv1d": lambda t, F: F.conv1d(whole(t, 1, 2, 5), whole(t, 3, 2, 2)),
    "conv2d": lambda t, F: F.conv2d(whole(t, 1, 2, 5, 5), whole(t, 3, 2, 2, 2), whole(t, 3), 2, 1),
    "grouped conv2d": lambda t, F: F.conv2d(whole(t, 1, 2, 5, 5), whole(t, 4, 1, 2, 2), groups=2),
    "conv_transpose2d": lambda t, F: F.conv_transpose2d(whole(t, 1, 2, 3, 3), whole(t, 2, 3, 2, 2)),
    "max_pool2d": lambda t, F: F.max_pool2d(whole(t, 1, 2, 6, 6) - 40, 2, padding=1),
    "avg_pool1d": lambda t, F: F.avg_pool1d(whole(t, 1, 2, 6) - 7, 2),
    "avg_pool2d": lambda t, F: F.avg_pool2d(whole(t, 1, 2, 5, 5) - 25, 2, 1, 1, count_include_pad=False),
    "addmm": lambda t, F: t.addmm(whole(t, 3, 3), whole(t, 3, 3), whole(t, 3, 3)),
    "linear": lambda t, F: F.linear(whole(t, 3, 3), whole(t, 2, 3), whole(t, 2)),
    "einsum": lambda t, F: t.einsum("bij,bjk->bik", whole(t, 2, 3, 3), whole(t, 2, 3, 3)),
}
OF_ONE_NUMBER: dict[str, Case] = {
    "gather": lambda t, F: t.gather(t.tensor(5.0), 0, t.tensor(0)),
    "scatter": lambda t, F: t.scatter(t.tensor(5.0), 0, t.tensor(0), t.tensor(2.0)),
    "scatter_add": lambda t, F: t.scatter_add(t.tensor(5.0), 0, t.tensor(0), t.tensor(2.0)),
    "index_select": lambda t, F: t.index_select(t.tensor(5.0), 0, t.tensor([0])),
    "index_add": lambda t, F: t.index_add(t.tensor(5.0), 0, t.tensor(0), t.tensor(2.0)),
    "index_copy": lambda t, F: t.index_copy(t.tensor(5.0), 0, t.tensor(0), t.tensor(2.0)),
    "index_fill": lambda t, F: t.index_fill(t.tensor(5.0), 0, t.tensor(0), 2.0),
    "sort": lambda t, F: t.sort(t.tensor(5.0)).indices,
    "topk": lambda t, F: t.topk(t.tensor(5.0), 1).values,
}
NAMES: dict[str, Case] = {
    "gradient": lambda t, F: t.gradient(t.tensor([1.0, 4, 9, 16]))[0],
    "gradient of a dimension": lambda t, F: t.gradient(whole(t, 2, 4) * 2.0, spacing=2.0, dim=1)[0],
    "gradient to second order": lambda t, F: t.gradient(t.tensor([1.0, 4, 9, 16]), edge_order=2)[0],
    "gradient at coordinates": lambda t, F: t.gradient(
        t.tensor([1.0, 4, 9, 16, 2]), spacing=(t.tensor([0.0, 1, 3, 4, 9]),), edge_order=2
    )[0],
    "gradient of two numbers": lambda t, F: t.gradient(t.tensor([1.0, 4]), spacing=0.5)[0],
    "i0": lambda t, F: t.i0(t.tensor([0.0, 1.0, -2.0, 14.0, 20.0], dtype=t.float64)),
    "angle": lambda t, F: t.angle(t.tensor([-1.0, 1.0, 0.0, -float("inf"), float("inf"), float("nan")])),
    "angle of integers": lambda t, F: t.angle(t.tensor([-3, 0, 2])),
    "ldexp of float16": lambda t, F: t.ldexp(t.ones(2, dtype=t.float16), t.tensor([1, -3])),
    "real": lambda t, F: t.real(t.tensor([-1.0, 1.0])),
    "constant_pad_nd": lambda t, F: t.constant_pad_nd(t.ones(2, 2), (1, 0), 3.0),
    "native_layer_norm": lambda t, F: t.native_layer_norm(
        whole(t, 2, 3) ** 2.0, (3,), t.tensor([1.0, 2, 3]), t.ones(3), 1e-5
    )[0],
    "its statistics": lambda t, F: t.native_layer_norm(whole(t, 2, 3) ** 2.0, (3,), None, None, 1e-5)[2],
    "native_batch_norm": lambda t, F: t.native_batch_norm(
        whole(t, 2, 3) ** 2.0, t.ones(3), None, t.zeros(3), t.ones(3), True, 0.1, 1e-5
    )[0],
    "native_batch_norm at rest": lambda t, F: t.native_batch_norm(
        whole(t, 2, 3) ** 2.0, None, t.ones(3), t.ones(3), t.ones(3) * 2, False, 0.1, 1e-5
    )[0],
    "native_group_norm": lambda t, F: t.native_group_norm(whole(t, 2, 4, 3) * 1.0, None, None, 2, 4, 3, 2, 1e-5)[0],
    "unsafe_chunk": lambda t, F: t.unsafe_chunk(whole(t, 4), 2)[1],
    "unsafe_split": lambda t, F: t.unsafe_split(whole(t, 4), 3)[1],
    "unsafe_split_with_sizes": lambda t, F: t.unsafe_split_with_sizes(whole(t, 4), [1, 3])[1],
    "rsub": lambda t, F: t.rsub(t.tensor(1.0), t.tensor(5.0), alpha=2),
    "is_complex": lambda t, F: t.tensor([t.float32.is_complex, t.int64.is_complex]),
}
COPIES: dict[str, Case] = {
    "view_copy": lambda t, x: t.view_copy(x, (4, 3)),
    "expand_copy": lambda t, x: t.expand_copy(x, (2, 3, 4)),
    "permute_copy": lambda t, x: t.permute_copy(x, (1, 0)),
    "squeeze_copy": lambda t, x: t.squeeze_copy(x.unsqueeze(1)),
    "t_copy": lambda t, x: t.t_copy(x),
    "select_copy": lambda t, x: t.select_copy(x, 1, -1),
    "split_copy": lambda t, x: t.split_copy(x, 2)[1],
    "split_with_sizes_copy": lambda t, x: t.split_with_sizes_copy(x, [1, 2])[1],
    "unbind_copy": lambda t, x: t.unbind_copy(x)[1],
    "slice_copy": lambda t, x: t.slice_copy(x, 1, 1, 4, 2),
    "diagonal_copy": lambda t, x: t.diagonal_copy(x),
    "unfold_copy": lambda t, x: t.unfold_copy(x, 1, 2, 1),
    "transpose_copy": lambda t, x: t.transpose_copy(x, 0, 1),
    "unsqueeze_copy": lambda t, x: t.unsqueeze_copy(x, 0),
    "narrow_copy": lambda t, x: t.narrow_copy(x, 1, 1, 2),
    "detach_copy": lambda t, x: t.detach_copy(x),
    "alias_copy": lambda t, x: t.alias_copy(x),
}


def compare(case: Case) -> None:
    expected, actual = case(torch, torch.nn.functional).numpy(), case(tg, tg.nn.functional).numpy()
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, 1e-6, 1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", OF_EVERY_KIND)
def test_elements_of_every_kind(name: str, kind: str) -> None:
    compare(lambda t, F: OF_EVERY_KIND[name](t, F, KINDS[kind]))


@pytest.mark.parametrize("name", OF_INTEGERS)
def test_integers(name: str) -> None:
    compare(OF_INTEGERS[name])


@pytest.mark.parametrize("name", OF_ONE_NUMBER)
def test_one_number(name: str) -> None:
    compare(OF_ONE_NUMBER[name])


@pytest.mark.parametrize("name", NAMES)
def test_less_usual_names(name: str) -> None:
    compare(NAMES[name])


@pytest.mark.parametrize("name", COPIES)
def test_copies_do_not_follow_their_source(name: str) -> None:
    def changed(t: Any, F: Any) -> Any:
        x = whole(t, 3, 4)
        made = COPIES[name](t, x)
        x += 100
        return made

    compare(changed)


def test_running_statistics_follow() -> None:
    mean, variance = tg.zeros(3), tg.ones(3)
    x = whole(tg, 4, 3) ** 2.0
    tg.native_batch_norm(x, None, None, mean, variance, True, 0.1, 1e-5)
    np.testing.assert_allclose(mean.numpy(), x.numpy().mean(0) * 0.1, 1e-6)
    np.testing.assert_allclose(variance.numpy(), 0.9 + 0.1 * x.numpy().var(0, ddof=1), 1e-5)


@pytest.mark.parametrize("norm", [lambda x: x.norm(0), lambda x: tg.nn.functional.pdist(x, 0).sum()])
def test_the_count_of_numbers_that_are_not_0_has_slope_0(norm: Callable[[tg.Tensor], tg.Tensor]) -> None:
    x = tg.tensor([[1.0, 0.0], [2.0, float("nan")]], requires_grad=True)
    norm(x).backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[0, 0], [0, 0]]
