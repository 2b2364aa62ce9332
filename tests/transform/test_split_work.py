"""Scans, sorts and scatters split over many instances: the same results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import DType, float16, float32, float64, int32, int64
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ops.broadcasting import expand, fill
from tilegrad.ops.indexing import Scatter, ScatterAlong, scatter_along
from tilegrad.ops.reduction import argmax, argmin
from tilegrad.ops.scan import CumArgmax, CumArgmin, Cummax, Cummin, Cumprod, Cumsum, ScanOp
from tilegrad.ops.sorting import argsort, median, sort, topk
from tilegrad.runtime.target_model import TargetModel
from tilegrad.transform import radix_sorts, sorted_scatter, split_scans
from tilegrad.transform.pipeline import PASSES

GPU = gpu_model(4)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits such that what takes no time is cut already."""
    for place, name, limit in (
        (split_scans, "MIN_EXTENT", 64),
        (split_scans, "CONTIGUOUS_LENGTHS", (8, 16)),
        (split_scans, "STRIDED_LENGTHS", (4, 8)),
        (radix_sorts, "MIN_ROW", 100),
        (radix_sorts, "MIN_COMPARISONS", 100_000),
        (radix_sorts, "MIN_SELECTION_ROW", 200),
        (radix_sorts, "SELECTION_BLOCK", 32),
        (sorted_scatter, "KERNELS_NS", 100),
    ):
        monkeypatch.setattr(place, name, limit)


def split_work(graph: Graph, target: TargetModel) -> Graph:
    """Run the passes that give every instance a part of scatters, sorts, scans and reductions."""
    for step in PASSES[-4:]:
        graph = step(graph, target)
    return graph


def given(dtype: DType, *shape: int, name: str = "x") -> Input:
    return Input(TensorType(dtype, shape), name)


def ops(graph: Graph) -> set[str]:
    return {v.op for v in graph.values()}


def agree(inputs: Sequence[Input], outputs: Sequence[Value], *arrays: np.ndarray, tolerance: float = 0.0) -> Graph:
    whole = Graph(tuple(inputs), tuple(outputs))
    made = split_work(whole, GPU)
    assert made is not whole
    with np.errstate(all="ignore"):
        both = [interpret(graph, list(arrays)) for graph in (made, whole)]
    for found, wanted in zip(*both, strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance)
    return made


@pytest.mark.parametrize("place", [argmax, argmin])
@pytest.mark.parametrize("dtype", [float32, float16, int64])
def test_the_place_of_an_extreme(dtype: DType, place: Callable[..., Value]) -> None:
    """Among all elements, along rows and columns: the first of equal ones, in whichever part, and the first NaN."""
    small = GPU._replace(min_split_elements=64, max_split_parts=8, tile_elements=16)
    random = np.random.default_rng(0)
    for shape, axis in (((1003,), 0), ((2, 517), 1), ((517, 2), 0)):
        x = given(dtype, *shape)
        whole = Graph((x,), (place(x, axis), place(x, axis, True)))
        made = split_work(whole, small)
        assert made is not whole
        a = random.integers(-3, 4, shape).astype(dtype.numpy)
        same = np.full(shape, -np.inf if dtype.is_float else dtype.min, dtype.numpy)
        odd = a.copy()
        odd[tuple(n // 2 for n in shape)] = np.nan if dtype.is_float else dtype.max
        last = same.copy()
        last[tuple(n - 1 for n in shape)] = 1
        for array in (a, same, odd, last, -last):
            for found, wanted in zip(interpret(made, [array]), interpret(whole, [array]), strict=True):
                np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [float32, float16, int64])
@pytest.mark.parametrize("op", [Cumsum, Cumprod, Cummax, Cummin, CumArgmax, CumArgmin])
def test_running_results(op: type[ScanOp], dtype: DType) -> None:
    rng = np.random.default_rng(0)
    for shape, axis in (((128,), 0), ((131,), 0), ((2, 100), 1), ((1500,), 0), ((2, 65, 3), 1)):
        x = rng.integers(-3, 4, shape) if op is not Cumprod else rng.choice([-1, 1], shape)
        array = x.astype(dtype.numpy)
        if dtype.is_float and op not in (Cumsum, Cumprod):
            array.flat[40] = np.nan
        v = given(dtype, *shape)
        agree((v,), (op(v, axis),), array)


def test_sums_of_halves_are_rounded_once() -> None:
    x = given(float16, 4096)
    agree((x,), (Cumsum(x, 0),), np.full(4096, 0.3, np.float16), tolerance=1e-3)


SORTS: dict[str, Callable[[Value], Sequence[Value]]] = {
    "sort": lambda x: tuple(sort(x)),
    "argsort": lambda x: (argsort(x, -1, True),),
    "topk": lambda x: tuple(topk(x, 3)),
    "median": lambda x: tuple(median(x)),
}


@pytest.mark.parametrize("dtype", [float32, float16, int32, int64, float64])
@pytest.mark.parametrize("name", SORTS)
def test_sorts(name: str, dtype: DType) -> None:
    rng = np.random.default_rng(1)
    for shape in ((1500,), (3, 700)):
        array = (rng.standard_normal(shape) * 50).astype(dtype.numpy)
        if dtype.is_float:
            array = np.round(array)
            array.flat[7:9] = np.nan, -np.inf
        x = given(dtype, *shape)
        made = agree((x,), SORTS[name](x), array)
        if name != "topk" or dtype.bits == 64:
            assert "sort_by_digit" in ops(made)
            assert "sorted_keys" not in ops(made)


@pytest.mark.parametrize("dtype", [float32, float16, int32])
@pytest.mark.parametrize("fn", ["", "add", "mul", "maximum", "minimum"])
def test_scatters(fn: str, dtype: DType) -> None:
    rng = np.random.default_rng(2)

    def drawn(*shape: int) -> np.ndarray:
        return (rng.integers(-3, 4, shape) if fn != "mul" else rng.choice([-1, 1], shape)).astype(dtype.numpy)

    for entries, rows, rest in ((900, 50, ()), (300, 9, (3,)), (700, 4000, ())):
        base, source = given(dtype, rows, *rest), given(dtype, entries, *rest)
        index = given(int64, entries)
        made = [Scatter(base, (index,), source, (0,), base.shape, fn)]
        if not rest:
            made.append(ScatterAlong(base, index, source, 0, base.shape, fn))
            made.append(ScatterAlong(base, index, expand(fill(2, (), dtype), (entries,)), 0, base.shape, fn))
        arrays = drawn(rows, *rest), rng.integers(-rows, rows, entries), drawn(entries, *rest)
        graph = agree((base, index, source), made, *arrays)
        assert not {"scatter", "scatter_along"} & ops(graph)


def test_scatters_of_several_axes() -> None:
    rng = np.random.default_rng(3)
    x, y, i, j = given(float32, 40, 30), given(float32, 700, 20), given(int64, 700, 20), given(int64, 700)
    arrays = [rng.integers(-3, 4, s).astype(np.float32) for s in ((40, 30), (700, 20))]
    index = rng.integers(0, 40, (700, 20))
    for fn in ("", "add"):
        agree((x, i, y), (scatter_along(x, i, y, 0, fn),), arrays[0], index, arrays[1])
        both = Scatter(x, (i, i), y, (0, 1), (40, 30), fn)
        agree((x, i, y), (both,), arrays[0], index % 30, arrays[1])
    other = Graph((x, j, y), (Scatter(x, (j,), given(float32, 40, 700), (1,), (40, 30)),))
    assert split_work(other, GPU) is other


def test_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    index = given(int64, 5000)
    zeros, ones = fill(0, (10,), int64), expand(fill(1, (), int64), (5000,))
    made = (ScatterAlong(zeros, index, ones, 0, (10,), "add"),)
    graph = agree((index,), made, np.arange(5000) % 7)
    assert {"range_reduce", "sort_by_digit"}.isdisjoint(ops(graph))
    monkeypatch.setattr(sorted_scatter, "MAX_COUNTED_ROWS", 5)
    graph = agree((index,), made, np.arange(5000) % 7)
    assert "segment_starts" in ops(graph)
    assert {"range_reduce", "partial_histograms"}.isdisjoint(ops(graph))


def test_sums_by_powers_of_two() -> None:
    """As exact as float64, also where large numbers cancel; infinities and NaN stay."""
    rng = np.random.default_rng(4)
    index, x = given(int64, 4000), given(float32, 4000)
    drawn = (rng.standard_normal(4000) * np.exp2(rng.integers(-140, 120, 4000))).astype(np.float32)
    drawn[:6] = np.inf, -np.inf, np.nan, np.inf, -np.inf, 3e38
    at = rng.integers(5, 40, 4000)
    at[:7] = 0, 1, 2, 3, 3, 4, 4
    drawn[6] = 3e38
    total = ScatterAlong(fill(0.0, (), float32), index, x, 0, (40,), "add")
    with np.errstate(over="ignore", invalid="ignore"):
        (found,) = interpret(made := split_work(Graph((index, x), (total,)), GPU), [at, drawn])
        exact = np.bincount(at, drawn.astype(np.float64), 40).astype(np.float32)
    assert "exact_sums" in ops(made)
    np.testing.assert_array_equal(found, exact)


def test_what_stays_as_it_is() -> None:
    """Few entries, many rows, and devices of few cores."""
    x, index = given(float32, 5000), given(int64, 5000)
    many = given(float32, 5000, 70)
    whole = Graph((x, index), (Cumsum(x, 0), argsort(x), ScatterAlong(x, index, x, 0, (5000,), "add")))
    assert split_work(whole, TargetModel()) is whole
    other = Graph((many,), (Cumsum(many, 1),))
    assert split_work(other, GPU) is other
