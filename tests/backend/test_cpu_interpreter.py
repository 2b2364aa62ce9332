"""The block interpreter computes what the element rules say, and what compiled kernels compute."""

from __future__ import annotations

import functools
import random
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

import tilegrad as tg
from tests.ops.registry import all_examples
from tilegrad.backend.cpu.device import CpuDevice
from tilegrad.backend.cpu.interpreter import native_functions
from tilegrad.backend.cpu.interpreter.instance_order import common_rows, row_segments
from tilegrad.backend.cpu.interpreter.loading import load
from tilegrad.backend.cpu.interpreter.translate import StridedMemory, translate, translate_value
from tilegrad.backend.cpu.partition import NativeCall
from tilegrad.backend.reference.graph import interpret
from tilegrad.errors import IndexRangeError
from tilegrad.ir.dtype import DTYPES, DType, bfloat16, float16, float32, float64, from_numpy_dtype, int64
from tilegrad.ir.functions import FUNCTIONS
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.position import row_major
from tilegrad.ir.scalar import Index, Read, apply, reduce
from tilegrad.ir.size import Size
from tilegrad.ops.arithmetic import add, div, mul, sub
from tilegrad.ops.broadcasting import expand, reduce_sum, reshape
from tilegrad.ops.cast import cast
from tilegrad.ops.comparison import lt
from tilegrad.ops.control import checked_index, where
from tilegrad.ops.exponential import exp
from tilegrad.ops.indexing import index, index_select, take_along
from tilegrad.ops.movement import cat, flip, narrow, pad, permute, roll
from tilegrad.ops.reduction import amax, argmax, argmin, reduce_max, reduce_prod
from tilegrad.ops.scan import cummax, cumsum

PARTS = 8
"""Into how many tests the examples are dealt."""
CLOSE = {8: 1e-12, 4: 5e-6, 2: 1e-2, 1: 1e-1}
"""Relative and absolute difference from the reference, by the bytes of a float."""
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.7, 1e-3, -30.0, 88.0, np.inf, -np.inf, np.nan, 1e-40, 65504.0, 3e38]


@functools.cache
def device() -> CpuDevice:
    return CpuDevice()


def run(value: Value, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements of a value, by the interpreter; one past the last must stay as it was."""
    program = translate_value(value)
    assert program is not None, f"{value!r} is not translated"
    dtype, count = value.dtype.numpy, int(np.prod(value.shape))
    whole = np.full(count * dtype.itemsize + 64, 0xA5, np.uint8)
    given = dict(zip(value.inputs, arrays, strict=True)).values()
    held = [np.ascontiguousarray(a) for a in given]
    load(program, device())(*[a.ctypes.data for a in held], whole.ctypes.data)
    assert (whole[count * dtype.itemsize :] == 0xA5).all()
    return whole[: count * dtype.itemsize].view(dtype).reshape(value.shape)  # type: ignore[arg-type]


def given(array: np.ndarray[Any, Any]) -> Input:
    dtype = from_numpy_dtype(array.dtype)
    assert dtype is not None
    return Input(TensorType(dtype, array.shape))


def same(have: np.ndarray[Any, Any], want: np.ndarray[Any, Any], dtype: DType, close: float | None = None) -> None:
    assert have.shape == want.shape
    if dtype.is_float:
        close = CLOSE[dtype.bytes] if close is None else close
        np.testing.assert_allclose(have.astype(np.float64), want.astype(np.float64), close, close)
    else:
        np.testing.assert_array_equal(have, want)


def referred(value: Value, *arrays: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    (want,) = interpret(Graph(tuple(value.inputs), (value,)), arrays)
    return np.asarray(want)


def check(value: Value, *arrays: np.ndarray[Any, Any]) -> None:
    if not isinstance(value, Input):
        same(run(value, *arrays), referred(value, *arrays), value.dtype)


@pytest.mark.parametrize("number", range(PARTS))
def test_every_op_that_has_an_element(number: int) -> None:
    for e in all_examples()[number::PARTS]:
        graph = e.graph()
        arrays: dict[Value, Any] = dict(zip(graph.inputs, e.arrays, strict=True))
        for value in graph.values():
            if value in arrays:
                continue
            own = tuple(dict.fromkeys(value.inputs))
            (arrays[value],) = interpret(Graph(own, (value,)), [arrays[x] for x in own])
            if not (value.opaque or value.external or value.user_defined):
                have = run(value, *[arrays[x] for x in value.inputs])
                try:
                    same(have, np.asarray(arrays[value]), value.dtype)
                except AssertionError as error:
                    raise AssertionError(f"{e.name}, {value!r}: {error}\n{translate_value(value)}") from None


# --- functions, against compiled kernels ------------------------------------------------------------


UNARY = (
    "neg abs exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sigmoid sin cos tan asin acos atan sinh cosh tanh".split()
)
UNARY += "asinh acosh atanh erf erfc floor ceil round trunc isnan isinf".split()
BINARY = "add sub mul div fmod maximum minimum eq ne lt le gt ge atan2 copysign pow".split()


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16], ids=str)
def test_functions_have_the_bits_of_compiled_kernels(dtype: DType) -> None:
    rng = np.random.default_rng(0)
    with np.errstate(over="ignore"):
        x = np.concatenate([SPECIAL, rng.standard_normal(1117) * 10]).astype(dtype.numpy)
        y = np.concatenate([SPECIAL[::-1], rng.standard_normal(1117)]).astype(dtype.numpy)
    i = Index("i", len(x))
    for fn in UNARY + BINARY:
        operands = (x, y)[: FUNCTIONS[fn].arity]
        memories = {name: StridedMemory(n, x.shape, (1,)) for n, name in enumerate("xy"[: len(operands)])}
        e = apply(fn, *[Read(name, (i,), dtype) for name in "xy"[: len(operands)]])
        program = translate(e.dtype, x.shape, e, (i,), memories)
        assert program is not None
        have = np.empty(x.shape, e.dtype.numpy)
        inputs = [a.ctypes.data for a in operands]
        load(program, device())(*inputs, have.ctypes.data)
        tensors = [tg.from_numpy(a.astype(np.float64)).to(tg.__dict__[dtype.name]) for a in operands]
        want = tg.jit(getattr(tg, fn))(*tensors)
        bits = f"u{e.dtype.bytes}"
        seen = want.double().numpy().astype(e.dtype.numpy) if e.dtype.is_float else want.numpy()
        nan = np.isnan(have.astype(np.float64)) if e.dtype.is_float else np.zeros(x.shape, bool)
        assert np.array_equal(nan, np.isnan(seen.astype(np.float64))), fn
        np.testing.assert_array_equal(have.view(bits)[~nan], seen.view(bits)[~nan], fn)


@pytest.mark.parametrize("source", [*DTYPES], ids=str)
def test_conversions(source: DType) -> None:
    x = np.array([0, 1, 2, 100, 3, 1, 0, 7] * 30 + [5], np.float64).astype(source.numpy)
    for target in DTYPES:
        check(cast(given(x), target), x) if target is not source else None


# --- shapes ---------------------------------------------------------------------------------------------

SIZES = [1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 1000, 2049]


@pytest.mark.parametrize("n", SIZES)
def test_odd_sizes(n: int) -> None:
    rng = np.random.default_rng(n)
    for dtype in (np.float32, np.float64, np.int8, np.int64, ml_dtypes.bfloat16):
        x = rng.integers(-20, 20, (3, n)).astype(dtype)  # whose sums are exact
        check(permute(given(x), (1, 0)), x)
        check(flip(given(x), 1), x)
        check(pad(given(x), [(1, 2), (3, 0)]), x)
        check(reduce_sum(given(x), (1,)), x)
        check(reduce_sum(given(x), (0,)), x)
        check(expand(given(x[:1, :1]), (5, n)), x[:1, :1])
        if dtype is not ml_dtypes.bfloat16:
            check(cumsum(given(x), 1), x)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 4)])
def test_empty_tensors(shape: tuple[int, ...]) -> None:
    x = np.zeros(shape, np.float32)
    check(reduce_sum(given(x), (len(shape) - 1,)), x)
    check(permute(given(x), tuple(range(len(shape)))[::-1]), x)
    check(pad(given(x), [(1, 1)] * len(shape)), x)


def test_strided_inputs_in_place() -> None:
    base = np.arange(4000, dtype=np.float32)
    i, j = Index("i", 20), Index("j", 30)
    e = Read("x", (i, j), float32) + Read("y", (i, j), float32)
    memories = {"x": StridedMemory(0, (20, 30), (100, 3), 7), "y": StridedMemory(0, (20, 30), (1, 0), 5)}
    program = translate(float32, (20, 30), e, (i, j), memories)
    assert program is not None
    out = np.empty((20, 30), np.float32)
    load(program, device())(base.ctypes.data, out.ctypes.data)
    rows, columns = np.ogrid[:20, :30]
    np.testing.assert_array_equal(out, base[7 + rows * 100 + columns * 3] + base[5 + rows + columns * 0])


def test_pieces_that_are_concatenated() -> None:
    arrays = [np.random.default_rng(n).standard_normal((3, n + 1)).astype(np.float32) for n in range(7)]
    check(cat([given(a) for a in arrays], 1), *arrays)


def composed(value: Value, inputs: tuple[Value, ...]) -> Any:
    """The program of a whole graph as one expression."""

    def read(x: Value, position: Any) -> Any:
        return Read(x, position, x.dtype) if x in inputs else x.element(position, read)

    memories = {x: StridedMemory(n, x.shape, row_major(x.shape)) for n, x in enumerate(inputs)}  # type: ignore[arg-type]
    indices = tuple(Index(f"i{n}", extent) for n, extent in enumerate(value.shape))
    return translate(value.dtype, value.shape, value.element(indices, read), indices, memories)  # type: ignore[arg-type]


EXTENTS = [1, 2, 3, 8, 12, 31, 70, 300]


def moved(x: Value, rng: random.Random) -> Value:
    """A value with its elements at other places, by a random op."""
    rank, axis = x.type.rank, rng.randrange(x.type.rank)
    extent: Any = x.shape[axis]
    match rng.randrange(8):
        case 0:
            return permute(x, rng.sample(range(rank), rank))
        case 1:
            return pad(x, [(rng.randrange(3), rng.randrange(3)) if n == axis else (0, 0) for n in range(rank)], 1.5)
        case 2:
            return flip(x, axis)
        case 3:
            return cat([x, flip(x, axis), x], axis)
        case 4:
            return narrow(x, axis, extent // 3, extent - extent // 3)
        case 5:
            return reshape(x, (-1, extent)) if rank > 1 else reshape(x, (extent, 1))
        case 6:
            return roll(x, 5, axis)
    return add(x, reduce_sum(x, (axis,), keepdim=True)) if extent < 100 else add(x, narrow(x, axis, 0, 1))


@pytest.mark.parametrize("seed", range(60))
def test_chains_of_movements_in_one_expression(seed: int) -> None:
    rng = random.Random(seed)
    shape = tuple(rng.choice(EXTENTS[: 8 - 2 * n]) for n in range(rng.randint(1, 3)))[::-1]
    x = np.random.default_rng(seed).integers(-4, 5, shape).astype(rng.choice([np.float32, np.int16, np.float64]))
    source: Value = given(x)
    value = source
    for _ in range(rng.randint(1, 4)):
        value = moved(value, rng)
    value = mul(value, narrow(value, value.type.rank - 1, 0, 1))
    program = composed(value, (source,))
    assert program is not None
    out = np.empty(value.shape, value.dtype.numpy)
    load(program, device())(x.ctypes.data, out.ctypes.data)
    want = interpret(Graph((source,), (value,)), [x])[0]
    np.testing.assert_array_equal(out, want, f"{value!r}\n{program}")


def reduced(x: Value, rng: random.Random) -> Value:
    """A reduction, scan or choice of a value, by a random op, or its elements at other places."""
    axis, kept = rng.randrange(x.type.rank), rng.random() < 0.5
    match rng.randrange(6):
        case 0:
            return cumsum(x, axis)
        case 1:
            return reduce_sum(x, (axis,), keepdim=kept or x.type.rank == 1)
        case 2:
            return amax(x, axis, keepdim=True)
        case 3:
            return cast(argmax(x, axis, True), x.dtype)
        case 4:
            return where(lt(x, 1), x, flip(x, axis))
    return moved(x, rng)


@pytest.mark.parametrize("seed", range(40))
def test_reductions_inside_of_expressions(seed: int) -> None:
    rng = random.Random(seed)
    shape = tuple(rng.choice(EXTENTS[: 8 - 2 * n]) for n in range(rng.randint(1, 3)))[::-1]
    x = np.random.default_rng(seed).integers(-4, 5, shape).astype(rng.choice([np.float32, np.int64, np.float64]))
    source: Value = given(x)
    value = cumsum(source, 0)
    for _ in range(rng.randint(1, 3)):
        value = reduced(value, rng)
    program = composed(value, (source,))
    assert program is not None
    out = np.empty(value.shape, value.dtype.numpy)
    load(program, device())(x.ctypes.data, out.ctypes.data)
    want = interpret(Graph((source,), (value,)), [x])[0]
    np.testing.assert_array_equal(out, want, f"{value!r}\n{program}")


# --- reductions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(200_000,), (3, 70_000), (70_000, 3), (1500, 40), (40, 1500), (9, 5, 3)], ids=str)
def test_long_sums_are_accurate(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).random(shape).astype(np.float32)
    for axes in [(0,), (len(shape) - 1,), tuple(range(len(shape)))]:
        have = run(reduce_sum(given(x), axes), x)
        np.testing.assert_allclose(have, x.astype(np.float64).sum(axes), 3e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint8], ids=lambda d: d.__name__)
@pytest.mark.parametrize("shape", [(5, 300), (300, 5), (2, 66_000), (40, 40)], ids=str)
def test_extremes_and_their_places(shape: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(2)
    for special in (False, True):
        x = rng.integers(0, 100, shape).astype(dtype)
        if special and x.dtype.kind == "f":
            x[rng.random(shape) < 0.01] = np.nan
            x[0] = -np.inf
        for axis in (0, 1):
            check(argmax(given(x), axis), x)
            check(argmin(given(x), axis), x)
        check(reduce_max(given(x)), x)
        check(cummax(given(x), 1)[1], x)


def test_products_and_sums_of_integers_wrap() -> None:
    x = np.random.default_rng(3).integers(-100, 100, (7, 777)).astype(np.int32)
    check(reduce_prod(given(x), (1,)), x)
    check(reduce_sum(given(x), (0,)), x)


def test_a_reduction_inside_of_another() -> None:
    i, k, n = Index("i", 6), Index("k", 50), Index("n", 70)
    x = np.random.default_rng(4).standard_normal((6, 50, 70)).astype(np.float32)
    inner = reduce("maximum", n, Read("x", (i, k, n), float32))
    program = translate(
        float32, (6,), reduce("add", k, apply("exp", inner)), (i,), {"x": StridedMemory(0, x.shape, (3500, 70, 1))}
    )
    assert program is not None
    out = np.empty(6, np.float32)
    load(program, device())(x.ctypes.data, out.ctypes.data)
    np.testing.assert_allclose(out, np.exp(x.max(2)).sum(1), 1e-5)


def test_equal_reductions_are_done_once_and_rows_are_read_along() -> None:
    """A softmax as one expression: its maximum is read twice, for the sum and for the result."""
    x = np.random.default_rng(5).standard_normal((50, 200)).astype(np.float32)
    source = given(x)
    e = exp(sub(source, amax(source, 1, keepdim=True)))
    value = div(e, reduce_sum(e, (1,), keepdim=True))
    program = composed(value, (source,))
    assert [stage.lanes_inside for stage in program.stages] == [True, True, False]
    out = np.empty(x.shape, np.float32)
    load(program, device())(x.ctypes.data, out.ctypes.data)
    np.testing.assert_allclose(out, interpret(Graph((source,), (value,)), [x])[0], 1e-5)


def test_rows_go_through_all_stages_together() -> None:
    """Stages whose rows need only the same rows of others take turns, so that rows stay in the cache."""
    x = np.random.default_rng(6).standard_normal((300, 2000)).astype(np.float32)
    source = given(x)
    for axis, together in ((1, 300), (0, 0)):
        centred = sub(source, reduce_sum(source, (axis,), keepdim=True))
        value = mul(centred, amax(centred, axis, keepdim=True))
        program = composed(value, (source,))
        assert common_rows(program) == together
        out = np.empty(x.shape, np.float32)
        for _ in range(3):
            out[:] = 0
            load(program, device())(x.ctypes.data, out.ctypes.data)
            np.testing.assert_allclose(out, interpret(Graph((source,), (value,)), [x])[0], 1e-4, 1e-2)
    call = NativeCall("x", 0, (), 300, 1e6)
    segments = row_segments(composed(sub(source, amax(source, 1, keepdim=True)), (source,)), [call, call], 300, 2)
    assert segments is not None
    covered = [[], []]  # type: list[list[int]]
    for part in (part for lane in segments[0].lanes for chunk in lane for part in chunk):
        covered[part.call] += range(part.begin, part.end)
    assert covered == [[*range(300)]] * 2


@pytest.mark.parametrize("n", [3, 64, 1000])
def test_rows_at_positions_that_are_data(n: int) -> None:
    """The index of a row is computed once for a block, not for each of its elements."""
    rng = np.random.default_rng(n)
    weight, at = rng.standard_normal((70, n)).astype(np.float32), rng.integers(-70, 70, (5, 9))
    check(index(given(weight), [given(at)], [0]), weight, at)
    check(index_select(given(weight), given(abs(at[0])), 0), weight, abs(at[0]))
    inside = rng.integers(0, n, (70, 4))
    check(take_along(given(weight), given(inside), 1), weight, inside)


# --- bad input ----------------------------------------------------------------------------------------------


def test_positions_outside_are_not_read() -> None:
    """A position is data: what is outside gives 0 and touches nothing."""
    i = Index("i", 300)
    at = np.array([0, 5, -1, 10**15, 299, 300] * 50, np.int64)
    x = np.arange(300, dtype=np.float32)
    e = Read("x", (Read("at", (i,), int64),), float32)
    program = translate(
        float32, (300,), e, (i,), {"x": StridedMemory(0, (300,), (1,)), "at": StridedMemory(1, (300,), (1,))}
    )
    assert program is not None
    out = np.empty(300, np.float32)
    load(program, device())(x.ctypes.data, at.ctypes.data, out.ctypes.data)
    np.testing.assert_array_equal(out, np.where((at >= 0) & (at < 300), x[np.clip(at, 0, 299)], 0))


def test_an_index_that_is_outside_is_reported() -> None:
    at = np.array([0, 2, 3, 1])
    value = checked_index(given(at), 3, 0, "gather", from_end=False)
    with pytest.raises(IndexRangeError, match="index 3 is outside axis 0, which has 3 elements"):
        run(value, at)
    check(value, at % 3)


def test_symbols_and_opaque_ops_are_not_translated() -> None:
    n = Size.named("n")
    assert translate_value(reduce_sum(Input(TensorType(float32, (n, 4))), (1,))) is None


def test_what_it_prints() -> None:
    x = np.zeros((40, 8), np.float64)
    assert str(translate_value(reduce_sum(given(x), (1,)))) == "\n".join(
        [
            "for lanes 40:",
            "  v1 = 0.0",
            "  for 8:",
            "    v0 = m0[i0 + lane * 8]",
            "    v1 = add(v1, v0)",
            "  m1[lane] = v1",
        ]
    )


def test_warnings_stay_away() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x = np.array([0.0, -1.0, np.inf, np.nan], np.float32)
        same(run(cast(given(x), float16), x), x.astype(np.float16), float16)


def test_each_group_of_native_functions_is_compiled_alone() -> None:
    """All functions link, whichever is needed first: what one group does not use of the text is left out."""
    wanted = [(name, 0) for group in native_functions.GROUPS for name in group]
    wanted += [(name, bits) for group in native_functions.MOVES for name in group for bits in (8, 16, 32, 64)]
    addresses = [native_functions.native_function(*each) for each in wanted]
    assert len(set(addresses)) == len(wanted)
    assert all(native_functions.is_move(name) == bool(bits) for name, bits in wanted)
