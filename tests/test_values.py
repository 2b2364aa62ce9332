"""Values at the edges of types and of definitions, as PyTorch has them; what is written here was printed by it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.config import changed
from tilegrad.errors import DivisionError, DTypeError, ShapeError
from tilegrad.ir.functions import FUNCTIONS
from tilegrad.lazy.evaluation import pending

F = tg.nn.functional
U8 = {"dtype": tg.uint8}
INTEGERS = ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("name", INTEGERS)
def test_shifts_as_python_shifts(name: str, device: str) -> None:
    """As shifts of unbounded integers, truncated afterwards."""
    dtype = getattr(tg, name)
    numbers = [dtype.min, -7 if dtype.min else 200, 1, dtype.max]
    distances = [*range(dtype.bits + 1), dtype.bits + 1, min(dtype.max, 127)]
    x = tg.tensor(numbers, dtype=dtype, device=device).reshape(-1, 1)
    by = tg.tensor(distances, dtype=dtype, device=device)
    assert (x >> by).cpu().tolist() == [[n >> k for k in distances] for n in numbers]
    wrapped = [[(n << k) - dtype.min & (1 << dtype.bits) - 1 for k in distances] for n in numbers]
    wrapped = [[w + dtype.min for w in row] for row in wrapped]
    assert (x << by).cpu().tolist() == wrapped


def test_what_a_function_means_shifts_as_python_does() -> None:
    shifted = FUNCTIONS["shr"].evaluate
    assert shifted is not None
    for kind in ("uint8", "int8"):
        x = np.array([200, 7], np.uint8).view(kind)
        for by in (0, 1, 7, 8, 9, 100):
            assert shifted(x, np.full(2, by, kind)).tolist() == [int(n) >> by for n in x]


NAN = float("nan")
VALUES: dict[str, tuple[Callable[[], Any], Any]] = {
    "heaviside": (lambda: tg.heaviside(tg.tensor([NAN, -1.0, 0.0, 2.0]), tg.tensor(0.5)), [0.0, 0.0, 0.5, 1.0]),
    "heaviside of bools": (lambda: tg.heaviside(tg.tensor([True, False]), tg.tensor([False, True])), [True, True]),
    "uint8 + 300": (lambda: tg.tensor([1], **U8) + 300, [45]),
    "uint8 * -1": (lambda: tg.tensor([1], **U8) * -1, [255]),
    "int32 + 2**40": (lambda: tg.tensor([1], dtype=tg.int32) + 2**40, [1]),
    "uint8 / 300": (lambda: tg.tensor([150], **U8) / 300, [0.5]),
    "300 / uint8": (lambda: 300 / tg.tensor([200], **U8), [1.5]),
    "fill_ of uint8": (lambda: tg.tensor([5], **U8).fill_(-1), [255]),
    "var(False)": (lambda: tg.arange(4.0).var(False), 1.25),
    "std(False)": (lambda: tg.arange(4.0).std(False), 1.25**0.5),
    "var_mean(False)": (lambda: tg.var_mean(tg.arange(4.0), False)[0], 1.25),
    "var(0, False)": (lambda: tg.arange(4.0).var(0, False), 1.25),
    "cosine of vectors that are repeated": (
        lambda: F.cosine_similarity(tg.ones(1, 2), tg.ones(3, 2), dim=0), [1.0, 1.0],
    ),
    "cosine of shapes of two ranks": (
        lambda: F.cosine_similarity(tg.tensor([3.0, 4.0]), tg.tensor([[3.0, 4.0], [4.0, 3.0]]), dim=0), [0.99, 0.99],
    ),
    "bilinear uint8": (
        lambda: F.interpolate((tg.arange(16, **U8) * 16).reshape(1, 1, 4, 4), size=(3, 3), mode="bilinear"),
        [[[[14, 35, 56], [99, 120, 141], [184, 205, 226]]]],
    ),
    "bicubic uint8": (
        lambda: F.interpolate(tg.tensor([[[[0, 255], [255, 0]]]], **U8), scale_factor=2, mode="bicubic"),
        [[[[0, 43, 212, 255], [58, 89, 166, 197], [197, 166, 89, 58], [255, 212, 43, 0]]]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    call, wanted = VALUES[name]
    np.testing.assert_allclose(np.array(call().tolist()), np.array(wanted), rtol=1e-4)


def test_a_number_that_a_type_does_not_hold_is_above_or_below_all() -> None:
    for name in INTEGERS:
        dtype = getattr(tg, name)
        x = tg.tensor([dtype.min, 44, dtype.max], dtype=dtype)
        for number in (dtype.max + 1, dtype.max + 256, -dtype.max - 2):
            wanted = [n < number for n in x.tolist()]
            assert (x < number).tolist() == (x <= number).tolist() == (number > x).tolist() == wanted
            assert (x > number).tolist() == (x >= number).tolist() == [not w for w in wanted]
            assert (x == number).tolist() == [False] * 3
            assert (x != number).tolist() == [True] * 3
    with pytest.raises(DTypeError, match="300 does not fit in uint8"):
        tg.tensor([5], **U8).fill_(300)


def test_numbers_written_to_bools() -> None:
    b = tg.zeros(4, dtype=tg.bool)
    b[0] = 0.25
    b[1:2] = 0.5
    b[tg.tensor([2])] = 0.75
    b[tg.tensor([False, False, False, True])] = -0.5
    assert b.tolist() == [True] * 4
    b[...] = 0.0
    assert b.tolist() == [False] * 4
    b[...] = 0.25
    assert b.tolist() == [True] * 4


def test_an_index_that_is_there_twice_is_filled_once() -> None:
    x, number = tg.ones(2, 4, requires_grad=True), tg.tensor(3.0, requires_grad=True)
    y = x.index_fill(-1, tg.tensor([1, 1, 2]), number)
    assert y.tolist() == [[1, 3, 3, 1]] * 2
    (y * tg.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.grad is not None
    assert number.grad is not None
    assert x.grad.tolist() == [[1, 0, 0, 4]] * 2
    assert number.grad.item() == 10


DIVISIONS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x // y,
    lambda x, y: x % y,
    lambda x, y: tg.fmod(x, y),
    lambda x, y: tg.div(x, y, rounding_mode="trunc"),
    lambda x, y: tg.div(x, y, rounding_mode="floor"),
]


@pytest.mark.parametrize("divide", DIVISIONS)
def test_integers_are_not_divided_by_0(divide: Callable[[Any, Any], Any]) -> None:
    x, zero = tg.tensor([7, 8]), tg.tensor([2, 0])
    many, recorded = tg.tensor([7, 8] * 200), tg.tensor([2, 0] * 200).abs()
    for divisor in (0, zero, tg.tensor([2, 0], **U8), zero.abs()):
        with pytest.raises(ZeroDivisionError, match="divided by 0"):
            divide(x, divisor)
    assert divide(tg.empty(0, dtype=tg.int64), 0).tolist() == []
    assert divide(x.double(), 0).shape == (2,)
    assert divide(many, recorded).tolist()[1] == 0  # docs/comparison.md says where
    with changed(check="division"), pytest.raises(DivisionError):
        divide(many, recorded)


def test_muon_rounds_once_a_step() -> None:
    """As accurate as PyTorch's, whose mean error is 0.0010; rounding after every operation would give 0.0035."""
    from tilegrad.optim.muon import evened

    a, b, c = coefficients = (3.4445, -4.7750, 2.0315)
    x = np.random.default_rng(0).normal(size=(64, 96))
    found = evened(tg.tensor(x.astype(np.float32)), coefficients, 5, 1e-7).double().numpy()
    x = x / np.linalg.norm(x)
    for _ in range(5):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    assert np.abs(found - x).mean() < 0.0015


def test_results_are_put_into_given_tensors() -> None:
    x, out, wide = tg.ones(2, 3), tg.zeros(2, 3), tg.zeros(0, dtype=tg.float64)
    view = out[0]
    assert tg.add(x, 2, out=out) is out
    assert view.tolist() == [3, 3, 3]  # it is written to, not replaced
    assert tg.sum(x, 0, out=wide) is wide
    assert wide.tolist() == [2, 2, 2]
    values, indices = tg.max(x, dim=1, out=(tg.zeros(0), tg.zeros(0, dtype=tg.int64)))
    assert (values.tolist(), indices.tolist()) == ([1, 1], [0, 0])
    with pytest.raises(DTypeError, match="cannot be put into"):
        tg.exp(x, out=tg.zeros(2, 3, dtype=tg.int64))
    with pytest.raises(RuntimeError, match="has no gradient"):
        tg.exp(x.requires_grad_(), out=out)


def test_second_derivatives_where_two_exponentials_are_equal() -> None:
    for function, base in ((tg.logaddexp, 1.0), (tg.logaddexp2, np.log(2))):
        x = tg.tensor([1.0, -np.inf], dtype=tg.float64, requires_grad=True)
        (first,) = tg.autograd.grad(function(x, x.detach()).sum(), x, create_graph=True)
        (second,) = tg.autograd.grad(first[0], x)
        assert first[0].item() == 0.5
        np.testing.assert_allclose(second[0].item(), base / 4)
    assert tg.logaddexp(tg.tensor(np.inf), tg.tensor(-np.inf)).item() == np.inf
    assert tg.logaddexp(tg.tensor(-np.inf), tg.tensor(-np.inf)).item() == -np.inf


def test_bools_and_integers() -> None:
    b = tg.tensor([True, False, False])
    at = tg.tensor([1, 1, 2])
    assert b.scatter_add(0, at, tg.tensor([False, True, False])).tolist() == [True, True, False]
    assert tg.diff(b).tolist() == [True, False]
    assert tg.outer(b, b).sum().item() == 1
    assert tg.cummax(b, 0).values.dtype is tg.bool
    x = tg.arange(16).reshape(1, 1, 4, 4)
    assert F.conv2d(x, tg.ones(1, 1, 4, 4, dtype=tg.int64)).item() == 120
    assert F.avg_pool2d(x, 2).tolist() == [[[[2, 4], [10, 12]]]]
    assert tg.arange(3.1, dtype=tg.int64).tolist() == [0, 1, 2]
    assert tg.take_along_dim(tg.arange(3), tg.tensor([-1, 0]), 0).tolist() == [2, 0]
    with pytest.raises(DTypeError):
        F.silu(x)


def test_a_mask_with_more_places_than_the_source_has_elements_is_refused() -> None:
    with pytest.raises(IndexError, match="masked_scatter"):
        tg.zeros(3).masked_scatter(tg.tensor([True, True, True]), tg.ones(2)).tolist()


def test_strides_tell_where_elements_lie() -> None:
    """Copies and what is computed element by element keep the order of the axes, as in PyTorch."""
    x = tg.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1)
    assert x.stride() == (1, 12, 4)
    for y in (x * 2, x.clone(), x.half(), tg.empty_like(x)):
        assert y.stride() == (1, 12, 4)
        assert not y.is_contiguous()
        assert y.permute(1, 2, 0).view(-1).shape == (24,)
        with pytest.raises(ShapeError, match="reshape, or contiguous"):
            y.view(-1)
    assert x.contiguous().stride() == (6, 3, 1)
    assert (x + x.contiguous()).stride() == (1, 12, 4)
    assert (x.contiguous() + x).stride() == (6, 3, 1)


def test_pixels_of_empty_images() -> None:
    assert F.pixel_shuffle(tg.ones(1, 4, 0, 1), 2).shape == (1, 1, 0, 2)
    assert F.pixel_unshuffle(tg.ones(0, 1, 2, 2), 2).shape == (0, 4, 1, 1)
    assert tg.ones(2).half(memory_format=tg.preserve_format).dtype is tg.float16


def test_the_bounds_of_a_range_are_known() -> None:
    table = tg.zeros(9, 4).realize()
    kept = table[tg.arange(9)]
    assert not pending.checks
    with pytest.raises(IndexError, match="index 19"):
        table[tg.arange(20)]
    assert kept.numpy().shape == (9, 4)
