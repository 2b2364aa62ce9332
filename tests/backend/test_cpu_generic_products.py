"""Products of any sizes and strides by kernels that are compiled once, against float64 arithmetic of numpy."""

from __future__ import annotations

import platform
import zlib
from collections.abc import Callable
from itertools import product as cartesian

import numpy as np
import pytest

from tilegrad.backend.cpu import objects
from tilegrad.backend.cpu.generic_products import GenericProduct, code, generic_product
from tilegrad.backend.cpu.generic_products.blocking import grouped
from tilegrad.backend.cpu.generic_products.description import DOTS, PACKED, ROWS
from tilegrad.backend.cpu.generic_products.generate import product_ir
from tilegrad.backend.cpu.generic_products.product import StridedOperand
from tilegrad.backend.cpu.memory import address_of
from tilegrad.backend.cpu.target import Target
from tilegrad.ir.dtype import DType, bfloat16, float16, float32, float64, int8, int16, int32, int64, uint8
from tilegrad.ir.graph import Input, TensorType, Value
from tilegrad.ops.contraction import Contract
from tilegrad.ops.convolution import Convolve, ConvolveBack, ConvolveWeight
from tilegrad.ops.product_form import product_forms
from tilegrad.ops.sliding import Sliding

SCRATCH = np.zeros(1 << 25, np.uint8)
UNIT = {float32: 2.0**-24, float64: 2.0**-53, float16: 2.0**-11, bfloat16: 2.0**-8}


def scratch(bytes: int) -> int:
    address = -(-address_of(SCRATCH) // 64) * 64
    assert bytes + 64 <= SCRATCH.nbytes
    return address


def strided(x: np.ndarray) -> StridedOperand:
    return StridedOperand(x.shape, tuple([n // x.itemsize for n in x.strides]))


def computed(value: Value, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> list[GenericProduct]:
    """Compute a value from the elements of its inputs, into `out`."""
    forms = product_forms(value)
    assert forms is not None
    products = [generic_product(value.dtype, form, *map(strided, (x, y, out))) for form in forms]
    for each in products:
        each.run(*[a.__array_interface__["data"][0] for a in (x, y, out)], scratch(each.scratch_bytes))
    return products


def computed_by(made: code.ProductCode, value: Value, x: np.ndarray, y: np.ndarray, out: np.ndarray) -> GenericProduct:
    """Compute a value of one form by certain code."""
    (form,) = product_forms(value) or ()
    product = GenericProduct(made, grouped(form, strided(x), strided(y), strided(out), made.format))
    product.run(*map(address_of, (x, y, out)), scratch(product.scratch_bytes))
    return product


def random(shape: tuple[int, ...], dtype: DType, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(-50 if dtype.kind == "int" else 0, 100, shape).astype(dtype.numpy)


def laid_out(x: np.ndarray, layout: str) -> np.ndarray:
    """Return an array with the same elements and other strides."""
    if layout == "transposed":
        return np.ascontiguousarray(x.T).T
    if layout == "sliced":
        wide = np.zeros(tuple([2 * n + 1 for n in x.shape]), x.dtype)
        view = wide[tuple([slice(1, 2 * n + 1, 2) for n in x.shape])]
        view[...] = x
        return view
    return x[..., ::-1].copy()[..., ::-1] if layout == "reversed" else x


def check(
    value: Value,
    x: np.ndarray,
    y: np.ndarray,
    reference: Callable[..., np.ndarray],
    layout: str = "",
    compute: Callable[..., object] = computed,
) -> None:
    """Compare a product with the reference on float64 (or 64-bit integers), in units of the sum of magnitudes."""
    dtype = value.dtype
    out = laid_out(np.full(value.shape, 77, dtype.numpy), layout)
    compute(value, x, y, out)
    wide = np.float64 if dtype.is_float else np.int64
    expected = reference(x.astype(wide), y.astype(wide))
    if not dtype.is_float:
        np.testing.assert_array_equal(out, expected.astype(dtype.numpy))
        return
    magnitude = reference(np.abs(x.astype(wide)), np.abs(y.astype(wide)))
    error = np.abs(out.astype(np.float64) - expected)
    bound = 2 * UNIT[dtype] * np.abs(expected) + 8 * min(UNIT[dtype], UNIT[float32]) * magnitude
    assert np.all(error <= bound + 1e-30), float(np.max(error / (bound + 1e-30)))


def contracted(x: np.ndarray, y: np.ndarray, dtype: DType, equation: str) -> Value:
    return Contract(Input(TensorType(dtype, x.shape)), Input(TensorType(dtype, y.shape)), equation)


SIZES = [
    *((1, 1, 1), (4, 4, 4), (3, 5, 7), (0, 3, 2), (2, 0, 3), (2, 3, 0), (14, 256, 32), (15, 257, 33)),
    *((29, 70, 65), (1, 1000, 37), (37, 1000, 1), (5, 3000, 9), (16, 40, 1), (2, 300, 260), (120, 90, 300)),
]


@pytest.mark.parametrize("dtype", [float32, float64, float16, bfloat16, int8, uint8, int16, int32, int64], ids=str)
@pytest.mark.parametrize("layouts", list(cartesian(["", "transposed"], repeat=2)), ids="-".join)
def test_matrices(dtype: DType, layouts: tuple[str, str]) -> None:
    for seed, (m, k, n) in enumerate(SIZES):
        x, y = random((m, k), dtype, seed), random((k, n), dtype, seed + 100)
        x, y = (laid_out(a, layout) for a, layout in zip((x, y), layouts, strict=True))
        check(contracted(x, y, dtype, "ik,kj->ij"), x, y, np.matmul)


@pytest.mark.parametrize("layouts", list(cartesian(["", "sliced", "reversed"], repeat=3)), ids="-".join)
def test_strides(layouts: tuple[str, str, str]) -> None:
    for seed, (m, k, n) in enumerate([(3, 20, 5), (33, 40, 70), (70, 9, 33)]):
        x, y = (
            laid_out(random(s, float32, seed), layout) for s, layout in zip(((m, k), (k, n)), layouts, strict=False)
        )
        check(contracted(x, y, float32, "ik,kj->ij"), x, y, np.matmul, layouts[2])


EQUATIONS = {
    "bik,bkj->bij": ((5, 3, 4), (5, 4, 2)),
    "abik,abkj->abij": ((2, 3, 20, 17), (2, 3, 17, 40)),
    "bik,kj->bij": ((3, 7, 9), (9, 33)),
    "ik,bkj->bij": ((7, 9), (3, 9, 33)),
    "ij,jk->ki": ((17, 40), (40, 33)),
    "i,i->": ((5000,), (5000,)),
    "i,j->ij": ((33,), (70,)),
    "ij,j->i": ((40, 65), (65,)),
    "abcd,cdab->ab": ((3, 4, 5, 6), (5, 6, 3, 4)),
    "bqhd,bkhd->bhqk": ((2, 9, 3, 16), (2, 11, 3, 16)),
    "bhqk,bkhd->bqhd": ((2, 3, 9, 11), (2, 11, 3, 16)),
    "aik,bkj->abij": ((2, 3, 4), (3, 4, 5)),
    "abc,cad->bd": ((4, 6, 5), (5, 4, 7)),
    "bik,bkj->ij": ((3, 5, 4), (3, 4, 2)),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_contractions(equation: str) -> None:
    x, y = (random(shape, float32, 3) for shape in EQUATIONS[equation])
    check(contracted(x, y, float32, equation), x, y, lambda x, y: np.asarray(np.einsum(equation, x, y)))


def test_axes_of_one_element_are_broadcast() -> None:
    x, y = random((1, 4, 3), float32, 0), random((6, 3, 5), float32, 1)
    check(contracted(x, y, float32, "bik,bkj->bij"), x, y, np.matmul)


def windows(x: np.ndarray, axes: tuple[Sliding, ...]) -> np.ndarray:
    """Windows of x as (batch, groups, channels, *counts, *taps)."""
    for n, a in enumerate(axes):
        padded = np.zeros(
            (*x.shape[: 3 + n], a.extent + 2 * a.padding + a.stride * a.count, *x.shape[4 + n :]), x.dtype
        )
        padded[(*[slice(None)] * (3 + n), slice(a.padding, a.padding + a.extent))] = x
        x = padded
    at = [np.add.outer(np.arange(a.count) * a.stride, np.arange(a.taps) * a.dilation) for a in axes]
    found = x[(slice(None),) * 3 + np.ix_(*[each.ravel() for each in at])]
    found = found.reshape(*x.shape[:3], *[n for a in axes for n in (a.count, a.taps)])
    rank = len(axes)
    return found.transpose(0, 1, 2, *range(3, 3 + 2 * rank, 2), *range(4, 4 + 2 * rank, 2))


def sliding(extent: int, taps: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> Sliding:
    count = (extent + 2 * padding - (taps - 1) * dilation - 1) // stride + 1
    return Sliding(extent, max(0, count), taps, stride, padding, dilation)


GEOMETRIES = {
    "1 axis": ((2, 1, 3, 5), (sliding(17, 3, 1, 1),)),
    "3 x 3": ((2, 1, 4, 6), (sliding(9, 3, 1, 1), sliding(11, 3, 1, 1))),
    "wide": ((2, 1, 3, 18), (sliding(20, 5, 1, 2), sliding(37, 5, 1, 2))),
    "1 x 1": ((2, 1, 7, 9), (sliding(8, 1), sliding(8, 1))),
    "stride": ((3, 1, 3, 16), (sliding(13, 3, 2, 1), sliding(12, 3, 2, 1))),
    "stride over taps": ((1, 1, 3, 4), (sliding(13, 2, 3), sliding(12, 1, 2))),
    "dilation": ((2, 1, 3, 5), (sliding(13, 3, 1, 2, 2), sliding(12, 3, 1, 0, 3))),
    "stride and dilation": ((2, 1, 3, 5), (sliding(19, 3, 2, 2, 3), sliding(16, 3, 4, 1, 2))),
    "groups": ((2, 3, 2, 4), (sliding(9, 3, 1, 1), sliding(8, 3, 2, 1))),
    "depthwise": ((2, 8, 1, 1), (sliding(9, 3, 1, 1), sliding(8, 3, 1, 1))),
    "3 axes": ((1, 1, 3, 4), (sliding(5, 3, 1, 1), sliding(6, 2, 2), sliding(7, 3, 1, 1))),
    "uneven": ((2, 1, 1, 33), (sliding(20, 7, 2, 3), sliding(5, 4, 3, 2))),
}
"""Batch, groups, channels and outputs, and the windows."""


@pytest.mark.parametrize("dtype", [float32, bfloat16, int32], ids=str)
@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("op", ["forward", "back", "weight"])
def test_convolutions(op: str, name: str, dtype: DType) -> None:
    (batch, groups, channels, outputs), axes = GEOMETRIES[name]
    seed = zlib.crc32(name.encode())
    rank = len(axes)
    counts, taps = "uvw"[:rank], "xyz"[:rank]
    x = random((batch, groups, channels, *[a.extent for a in axes]), dtype, seed)
    w = random((groups, outputs, channels, *[a.taps for a in axes]), dtype, seed + 1)
    y = random((batch, groups, outputs, *[a.count for a in axes]), dtype, seed + 2)

    def value(op: type[Value], *inputs: np.ndarray) -> Value:
        return op(*[Input(TensorType(dtype, a.shape)) for a in inputs], axes)

    if op == "forward":
        summed = f"ngc{counts}{taps},goc{taps}->ngo{counts}"
        check(value(Convolve, x, w), x, w, lambda x, w: np.einsum(summed, windows(x, axes), w))
    elif op == "weight":
        summed = f"ngc{counts}{taps},ngo{counts}->goc{taps}"
        check(value(ConvolveWeight, x, y), x, y, lambda x, y: np.einsum(summed, windows(x, axes), y))
    else:
        of_back = value(ConvolveBack, y, w.swapaxes(1, 2))
        check(of_back, y, w.swapaxes(1, 2), lambda y, w: _back(y, w, axes, of_back.shape))  # type: ignore[arg-type]


def _back(y: np.ndarray, w: np.ndarray, axes: tuple[Sliding, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Scatter products to the positions that windows read, as (batch, groups, channels, strides and phases)."""
    rank = len(axes)
    split = shape[3:]
    full = [split[2 * n] * split[2 * n + 1] for n in range(rank)]
    out = np.zeros((*shape[:3], *full), y.dtype)
    for windows_at in np.ndindex(*[a.count for a in axes]):
        for taps_at in np.ndindex(*[a.taps for a in axes]):
            at = [q * a.stride + k * a.dilation - a.padding for a, q, k in zip(axes, windows_at, taps_at, strict=True)]
            if all(0 <= p < n for p, n in zip(at, full, strict=True)):
                of_y, of_w = y[(..., *windows_at)], w[(..., *taps_at)]
                out[(..., *at)] += np.einsum("ngo,gco->ngc", of_y, of_w)
    return out.reshape(shape)


def test_results_depend_on_no_number_of_threads() -> None:
    x, y = random((40, 9000), float32, 0), random((9000, 50), float32, 1)
    value = contracted(x, y, float32, "ik,kj->ij")
    first, again = np.empty((40, 50), np.float32), np.empty((40, 50), np.float32)
    (made,) = computed(value, x, y, first)
    computed_by(code.product_code(float32)._replace(threads=1), value, x, y, again)
    np.testing.assert_array_equal(first, again)
    made.words.view[0] = 3  # as in a process that was forked while another thread ran the product
    again[...] = 0
    (same,) = computed(value, x, y, again)
    assert same is made
    np.testing.assert_array_equal(first, again)


NARROW = {"avx2": (Target("x86", 32, 16), "x86-64-v3"), "sse": (Target("x86", 16, 16), "x86-64-v2")}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="vectors of x86 processors")
@pytest.mark.parametrize("dtype", [float32, float64, bfloat16, int8, int64], ids=str)
@pytest.mark.parametrize("vectors", NARROW)
def test_narrow_vectors(vectors: str, dtype: DType) -> None:
    machine, level = NARROW[vectors]
    features = {flag[1:]: flag[0] == "+" for flag in objects.host().features.split(",")}
    if not objects.VECTOR_FEATURES[vectors] <= {name for name, present in features.items() if present}:
        pytest.skip("this processor has no such vectors")
    kept = objects.permitted_features(features, vectors)
    flags = ",".join(f"{'+' if present else '-'}{name}" for name, present in kept.items())
    made = code.product_code_for(dtype, machine, objects.HostProcessor(objects.host().triple, level, flags))
    for seed, (m, k, n) in enumerate([(1, 40, 37), (5, 70, 19), (33, 300, 70), (3, 2100, 9)]):
        for layout_x, layout_y in cartesian(["", "transposed", "sliced"], repeat=2):
            x, y = laid_out(random((m, k), dtype, seed), layout_x), laid_out(random((k, n), dtype, seed + 9), layout_y)
            check(
                contracted(x, y, dtype, "ik,kj->ij"), x, y, np.matmul, compute=lambda *given: computed_by(made, *given)
            )


def test_nothing_is_compiled_for_a_shape() -> None:
    for method in (PACKED, DOTS, ROWS):
        code.product_code(float32).method(method)
    before = code.method_code.cache_info().misses
    test_strides(("", "sliced", ""))
    assert code.method_code.cache_info().misses == before


@pytest.mark.parametrize(
    "machine", [Target("x86", 64, 32), Target("x86", 32, 16), Target("x86", 16, 16), Target("arm", 16, 32)]
)
def test_blocks_leave_registers_for_operands(machine: Target) -> None:
    format = code.ElementFormat(float32, float32, machine)
    shape = code.block_shape(machine, format)
    assert shape.rows * shape.vectors + shape.vectors + 1 <= machine.registers
    text = product_ir(format, PACKED)
    assert f"@block_{shape.rows}_{shape.vectors}(" in text
