"""bfloat16 matrix products with `vdpbf16ps`: by the instruction, or by an emulation elsewhere."""

from __future__ import annotations

import platform

import ml_dtypes
import numpy as np
import pytest

import tilegrad as tg
from tests.backend.matrix_unit import PAIRED, Pairs, assembly
from tests.backend.test_cpu_amx import COMPUTED, NUMPY, ODD, WAYS, error, in_layout, launch_of, product
from tilegrad.backend.cpu import costs
from tilegrad.backend.cpu.code.bf16_dot import INSTRUCTION
from tilegrad.backend.cpu.code.lower import lower
from tilegrad.backend.cpu.prepack import prepack
from tilegrad.backend.cpu.prepacked import PackingKernel, PrepackedKernel
from tilegrad.backend.cpu.target import target
from tilegrad.ir.program import Launch
from tilegrad.runtime.choice import chosen
from tilegrad.runtime.device import device
from tilegrad.schedule import contract

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="an instruction of x86 processors"
)

FORMS = [("bfloat16", "highest"), ("float32", "medium")]
PAIRS = Pairs()
rng = np.random.default_rng(0)


def made(x: np.ndarray, y: np.ndarray, way: str, precision: str) -> np.ndarray:
    """Compute the product with the emulated instruction."""
    arrays = [*in_layout(x, y, way), np.zeros((len(x), y.shape[1]), x.dtype)]
    PAIRS.run(launch_of(arrays[0], arrays[1], way, precision), arrays)
    return arrays[-1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype, precision", FORMS)
def test_the_instruction(dtype: str, precision: str, way: str) -> None:
    """The innermost loop broadcasts one pair per row, and spills nothing."""
    x = np.zeros((64, 64), NUMPY[dtype])
    code = assembly(launch_of(x, x, way, precision), PAIRED)
    assert code.count("\tvdpbf16ps\t") >= 32
    assert "tdpbf16ps" not in code


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("m, k, n", [(40, 77, 53), (17, 32, 16), (8, 33, 300)])
@pytest.mark.parametrize("dtype, precision", FORMS)
def test_products_of_all_shapes(dtype: str, precision: str, m: int, k: int, n: int, way: str) -> None:
    x, y = (rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in ((m, k), (k, n)))
    assert error(made(x, y, way, precision), x, y) < 4e-3


@pytest.mark.parametrize("value", ODD, ids=str)
@pytest.mark.parametrize("dtype, precision", FORMS)
def test_numbers_out_of_range_are_multiplied_as_float32(value: float, dtype: str, precision: str) -> None:
    x, y = (rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in ((40, 40), (40, 24)))
    y[17, 3] = value
    x[:, 17] = 1e30 if abs(value) < 1 else 1
    with np.errstate(all="ignore"):
        wanted = (x.astype(np.float32) @ y.astype(np.float32)).astype(x.dtype).astype(np.float32)
    np.testing.assert_allclose(made(x, y, "nn", precision).astype(np.float32), wanted, rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("precision", ["high", "highest"])
def test_float32_products_of_several_parts_are_left_to_multiply_adds(precision: str) -> None:
    x = np.zeros((64, 64), np.float32)
    assert INSTRUCTION not in lower(launch_of(x, x, "nn", precision).kernel, PAIRED)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers_do_not_use_bf16_dot(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device("cpu").__dict__, "target", device("cpu").target._replace(matrix_unit=costs.BF16_VECTORS))
    x, y = (rng.integers(0, 100, shape).astype(dtype) for shape in ((40, 64), (64, 48)))
    fn = tg.jit(lambda x, y: (x + 1).int() @ y.int())
    np.testing.assert_array_equal(fn(tg.tensor(x), tg.tensor(y)).numpy(), (x + 1).astype(int) @ y.astype(int))


@pytest.mark.parametrize("name", COMPUTED)
def test_computed_operands(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device("cpu").__dict__, "target", device("cpu").target._replace(matrix_unit=costs.BF16_VECTORS))
    fn, shapes, dtype = COMPUTED[name]
    arrays = [rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in shapes]
    program = tg.explain(fn, *map(tg.tensor, arrays)).compiled.program
    found = PAIRS.run_program(program, arrays).astype(np.float64)
    steps = [step for step in program.steps if isinstance(step, Launch) and "tl.dot" in str(step.kernel)]
    assert all(INSTRUCTION in lower(step.kernel, PAIRED) for step in steps)
    exact = fn(*[tg.tensor(x.astype(ml_dtypes.bfloat16).astype(np.float64)) for x in arrays]).double().numpy()
    assert np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2)) < 4e-3


@pytest.mark.parametrize("value", [1.0, np.inf])
def test_indices_in_a_table(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both branches read the table of indices, and each writes its own."""
    monkeypatch.setitem(
        device("cpu").__dict__, "target", device("cpu").target._replace(matrix_unit=costs.BF16_VECTORS, workers=1)
    )
    x, y = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((17, 7, 32), (119, 64)))
    x[3, 5, 7] = value
    fn = tg.jit(lambda x, y: x.transpose(0, 1).reshape(119, 32).T @ y)
    found = PAIRS.run_program(tg.explain(fn, tg.tensor(x), tg.tensor(y)).compiled.program, [x, y])
    wanted = x.astype(np.float32).swapaxes(0, 1).reshape(119, 32).T @ y.astype(np.float32)
    np.testing.assert_allclose(found.astype(np.float32), wanted, rtol=1e-2, atol=2e-1)


@pytest.mark.skipif(not target().pairs, reason="this processor has no vdpbf16ps, or a matrix unit besides")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("m, k, n", [(150, 700, 333), (1024, 1100, 260)])
@pytest.mark.parametrize("dtype, precision", FORMS)
def test_on_this_machine(dtype: str, precision: str, m: int, k: int, n: int, way: str) -> None:
    """Operands are packed for all tiles, and sums continue over iterations."""
    x, y = (rng.standard_normal(shape).astype(NUMPY[dtype]) for shape in ((m, k), (k, n)))
    found = tg.jit(lambda x, y: product(x, y, way, precision))(*map(tg.tensor, in_layout(x, y, way)))
    assert error(found.numpy(), x, y) < 4e-3


def test_operands_that_several_instances_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are packed once; the last iteration of the sum is shorter than the others."""
    monkeypatch.setattr(contract, "blocks", lambda extents, target: chosen(m=24, n=40, k=64))
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((50, 150), (150, 120)))
    given = tg.explain(lambda x, y: tg.matmul(x, y, precision="medium"), tg.tensor(x), tg.tensor(y)).compiled.program
    program = prepack(given, PAIRED)
    assert [type(step.kernel) for step in program.steps if isinstance(step, Launch)] == [
        PackingKernel,
        PackingKernel,
        PrepackedKernel,
    ]
    assert error(PAIRS.run_program(program, [x, y]), x, y) < 4e-3
    x[3, 140] = np.inf
    np.testing.assert_array_equal(np.isfinite(PAIRS.run_program(program, [x, y])), np.isfinite(x @ y))
