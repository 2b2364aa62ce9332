"""Matrix products with AMX: by its instructions where the processor has them, by an emulation elsewhere."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import tilegrad as tg
from tests.backend.matrix_unit import TARGET, Unit, assembly
from tilegrad.backend.cpu import build, costs
from tilegrad.backend.cpu.build import kernel_object
from tilegrad.backend.cpu.code.lower import lower
from tilegrad.backend.cpu.processor import amx_permitted
from tilegrad.backend.cpu.target import Target
from tilegrad.config import changed
from tilegrad.ir.program import Launch
from tilegrad.runtime.device import device

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="a unit of x86 processors"
)

FORMS = [("bfloat16", "highest", 1), ("float32", "medium", 1), ("float32", "high", 3), ("float32", "highest", 6)]
BOUND = {1: 4e-3, 3: 8e-6, 6: 5e-7}
"""Bound of the root mean square error, in units of that of the results."""
WAYS = ["nn", "nt", "tn"]
NUMPY = {"bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
UNIT = Unit()
LAUNCHES: dict[object, Launch] = {}
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small_products_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products use the matrix unit too."""
    monkeypatch.setattr(costs, "MATRIX_UNIT", costs.MATRIX_UNIT._replace(min_reuse=(0.0, 0.0, 0.0)))


def product(x: tg.Tensor, y: tg.Tensor, way: str, precision: str) -> tg.Tensor:
    return tg.matmul(x.T if way[0] == "t" else x, y.T if way[1] == "t" else y, precision=precision)


def in_layout(x: np.ndarray, y: np.ndarray, way: str) -> list[np.ndarray]:
    """Matrices in the memory layout that the test asks for."""
    return [np.ascontiguousarray(a.T if turned == "t" else a) for a, turned in zip((x, y), way, strict=True)]


def launch_of(x: np.ndarray, y: np.ndarray, way: str, precision: str) -> Launch:
    known = x.shape, y.shape, x.dtype, way, precision
    if known not in LAUNCHES:
        (launch,) = tg.explain(lambda x, y: product(x, y, way, precision), tg.tensor(x), tg.tensor(y)).kernels.launches
        assert isinstance(launch, Launch)
        LAUNCHES[known] = launch
    return LAUNCHES[known]


def test_small_products_of_many_parts_are_left_to_multiply_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = tg.rand(64, 400), tg.rand(400, 120)
    launch = launch_of(x.numpy(), y.numpy(), "nn", "highest")
    assert "tdpbf16ps" in assembly(launch)
    monkeypatch.undo()
    assert "tdpbf16ps" not in assembly(launch)


def made(x: np.ndarray, y: np.ndarray, way: str, precision: str) -> np.ndarray:
    """Compute the product with the matrix unit."""
    arrays = [*in_layout(x, y, way), np.zeros((len(x), y.shape[1]), x.dtype)]
    UNIT.run(launch_of(arrays[0], arrays[1], way, precision), arrays)
    return arrays[-1]


def error(found: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    exact = x.astype(np.float64) @ y.astype(np.float64)
    return float(np.sqrt(np.mean((found.astype(np.float64) - exact) ** 2) / np.mean(exact**2)))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype, precision, products", FORMS)
def test_its_instructions(dtype: str, precision: str, products: int, way: str) -> None:
    x = np.zeros((64, 64), NUMPY[dtype])
    found = Counter(
        re.findall(r"^\t(tdpbf16ps|ldtilecfg|tilerelease)", assembly(launch_of(x, x, way, precision)), re.M)
    )
    assert found == {"tdpbf16ps": 4 * products, "ldtilecfg": 1, "tilerelease": 1}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("m, k, n", [(40, 77, 53)])
@pytest.mark.parametrize("dtype, precision, products", FORMS)
def test_products_of_all_shapes(dtype: str, precision: str, products: int, m: int, k: int, n: int, way: str) -> None:
    x, y = (rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in ((m, k), (k, n)))
    assert error(made(x, y, way, precision), x, y) < BOUND[products]
    assert UNIT.products >= products


ODD = [np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38, 1e-45, 1e-40, 1.2e-38]
FULL = np.uint32([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001]).view(np.float32)
"""NaN that would become 0 if they were rounded like numbers."""


@pytest.mark.parametrize("value", [*ODD, *FULL], ids=str)
@pytest.mark.parametrize("side", [0, 1])
def test_numbers_out_of_range_are_multiplied_as_float32(value: float, side: int) -> None:
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((40, 40), (40, 24)))
    (x, y)[side][17, 3] = value
    with np.errstate(all="ignore"):
        wanted = x @ y
    found = made(x, y, "nn", "high")
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-3)
    place = np.s_[17] if side == 0 else np.s_[:, 3]
    np.testing.assert_allclose(found[place], wanted[place], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", ODD, ids=str)
def test_bfloat16_numbers_out_of_range(value: float) -> None:
    x, y = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((40, 40), (40, 24)))
    y[17, 3] = value
    x[:, 17] = 1e30 if abs(value) < 1 else 1
    with np.errstate(all="ignore"):
        wanted = (x.astype(np.float32) @ y.astype(np.float32)).astype(x.dtype)
    found = made(x, y, "nn", "highest").astype(np.float32)
    np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("scale", [2.0**-60, 2.0**60])
def test_products_that_leave_the_range(scale: float) -> None:
    """Each operand is in range, but not the product."""
    x, y = (rng.uniform(1, 2, shape).astype(np.float32) * np.float32(scale) for shape in ((40, 40), (40, 24)))
    np.testing.assert_allclose(made(x, y, "nn", "highest"), x @ y, rtol=1e-6)
    assert UNIT.products == 0
    found = made(x, y / np.float32(scale), "nn", "highest")
    assert UNIT.products > 0
    np.testing.assert_allclose(found, x @ (y / np.float32(scale)), rtol=1e-6)


def test_zeros_are_in_range() -> None:
    x, y = np.zeros((40, 40), np.float32), rng.standard_normal((40, 24)).astype(np.float32)
    x[3, 4] = -1
    np.testing.assert_allclose(made(x, y, "nn", "highest"), x @ y, rtol=1e-6)
    assert UNIT.products > 0


def test_computed_operands_and_epilogues() -> None:
    """Computed, masked and gathered operands, several sums, and epilogues."""
    nn = tg.nn.functional
    shapes: dict[str, tuple[Callable[..., tg.Tensor], list[tuple[int, ...]]]] = {
        "layers": (lambda x, w, v: (nn.relu(x) @ w) * tg.sigmoid(nn.relu(x) @ v), [(40, 64), (64, 48), (64, 48)]),
        "convolution": (lambda x, w: nn.conv2d(x, w, padding=1, stride=2), [(2, 16, 19, 17), (24, 16, 3, 3)]),
    }
    tg.set_float32_matmul_precision("high")
    try:
        for name, (fn, given) in shapes.items():
            arrays = [rng.standard_normal(shape).astype(np.float32) for shape in given]
            tensors = [tg.tensor(a) for a in arrays]
            found = UNIT.run_program(tg.explain(fn, *tensors).compiled.program, arrays)
            assert UNIT.products > 0, name
            with changed(amx=False):
                np.testing.assert_allclose(found.reshape(-1), fn(*tensors).numpy().reshape(-1), rtol=1e-3, atol=1e-3)
    finally:
        tg.set_float32_matmul_precision("highest")


INTEGERS = {"int8": ("tdpbssd", -128, 127), "uint8": ("tdpbuud", 0, 255)}


def integers(dtype: str, *shape: int) -> np.ndarray:
    """Random integers that are often extreme."""
    _, least, most = INTEGERS[dtype]
    return np.clip(rng.integers(least - 40, most + 41, shape), least, most).astype(dtype)


def integer_product(x: tg.Tensor, y: tg.Tensor, way: str) -> tg.Tensor:
    return (x.T if way[0] == "t" else x).int() @ (y.T if way[1] == "t" else y).int()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("m, k, n", [(40, 77, 53), (33, 128, 32)])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_of_eight_bits(dtype: str, m: int, k: int, n: int, way: str) -> None:
    """Integers need no fallback, and results are exact."""
    x, y = integers(dtype, m, k), integers(dtype, k, n)
    arrays = in_layout(x, y, way)
    (launch,) = tg.explain(lambda x, y: integer_product(x, y, way), *map(tg.tensor, arrays)).kernels.launches
    assert isinstance(launch, Launch)
    found = np.zeros((m, n), np.int32)
    UNIT.run(launch, [*arrays, found])
    np.testing.assert_array_equal(found, x.astype(np.int32) @ y.astype(np.int32))
    assert UNIT.products
    made = Counter(re.findall(r"^\t(tdp\w+|ldtilecfg|tilerelease|vpmull\w)", assembly(launch), re.M))
    assert set(made) == {INTEGERS[dtype][0], "ldtilecfg", "tilerelease"}


@pytest.mark.skipif(not amx_permitted(), reason="AMX on and off are compared where there is AMX; it is not here")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_on_and_off(dtype: str, way: str) -> None:
    for m, k, n in ((150, 700, 333), (512, 512, 512), (300, 5000, 64), (9, 40, 17)):
        x, y = integers(dtype, m, k), integers(dtype, k, n)
        for amx in (True, False):
            with changed(amx=amx):
                found = tg.jit(lambda x, y: integer_product(x, y, way))(*map(tg.tensor, in_layout(x, y, way)))
            np.testing.assert_array_equal(found.numpy(), x.astype(np.int32) @ y.astype(np.int32))


COMPUTED: dict[str, tuple[Callable[..., tg.Tensor], list[tuple[int, ...]], str]] = {
    "layers": (lambda x, w: tg.relu(x) @ (w * 2), [(40, 64), (64, 48)], "bfloat16"),
    "autocast": (lambda x, w: x.bfloat16() @ w.bfloat16().T, [(40, 64), (48, 64)], "float32"),
    "convolution": (lambda x, w: tg.nn.functional.conv2d(x, w, padding=1), [(2, 16, 9, 9), (24, 16, 3, 3)], "bfloat16"),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_bfloat16_operands_are_no_float32(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One product computes them, not six of parts."""
    monkeypatch.setitem(device("cpu").__dict__, "target", device("cpu").target._replace(matrix_unit=costs.MATRIX_UNIT))
    fn, shapes, dtype = COMPUTED[name]
    arrays = [rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in shapes]
    program = tg.explain(fn, *map(tg.tensor, arrays)).compiled.program
    found = UNIT.run_program(program, arrays).astype(np.float64)
    steps = [step for step in program.steps if isinstance(step, Launch) and "tl.dot" in str(step.kernel)]
    assert [len(re.findall("@llvm.x86.tdpbf16ps\\(i8 0", lower(step.kernel, TARGET))) for step in steps] in ([1], [2])
    exact = fn(*[tg.tensor(x.astype(ml_dtypes.bfloat16).astype(np.float64)) for x in arrays]).double().numpy()
    assert np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2)) < 4e-3


def test_small_products_are_left_to_vectors() -> None:
    x = np.zeros((4, 64), np.float32)
    assert "llvm.x86" not in lower(launch_of(x, x.T.copy(), "nn", "high").kernel, TARGET)
    assert "llvm.x86" not in lower(launch_of(x.T.copy(), x, "nn", "high").kernel, TARGET)


def test_code_with_and_without_the_unit_is_cached_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.zeros((64, 64), np.float32)
    kernel = launch_of(x, x, "nn", "high").kernel
    names: list[str] = []

    class Store:
        def read(self, name: str) -> bytes:
            names.append(name)
            return b""

    monkeypatch.setattr(build, "shared", lambda _: Store())
    for unit in (False, True, False):
        monkeypatch.setattr(
            "tilegrad.backend.cpu.target.target", lambda unit=unit: Target("x86", 64, 32, matrix_unit=unit)
        )
        kernel_object(kernel)
    assert names[0] == names[2] != names[1]


@pytest.mark.skipif(not amx_permitted(), reason="AMX on and off are compared where there is AMX; it is not here")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype, precision, products", FORMS)
def test_on_and_off(dtype: str, precision: str, products: int, way: str) -> None:
    x, y = (rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in ((150, 700), (700, 333)))
    for amx in (True, False):
        with changed(amx=amx):
            run = tg.jit(lambda x, y: product(x, y, way, precision))
            found = run(*map(tg.tensor, in_layout(x, y, way))).numpy()
        assert error(found, x, y) < BOUND[products], f"AMX {'on' if amx else 'off'}"
