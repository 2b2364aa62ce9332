"""Prepacked operands of products that several instances read."""

from __future__ import annotations

import platform
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import tilegrad as tg
from tests.backend.matrix_unit import TARGET, Unit
from tilegrad.backend.cpu import costs
from tilegrad.backend.cpu.prepack import prepack
from tilegrad.backend.cpu.prepacked import PackingKernel, PrepackedKernel
from tilegrad.ir.program import Launch, Program
from tilegrad.runtime.choice import chosen
from tilegrad.schedule import contract

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="a unit of x86 processors"
)

UNIT = Unit()
BOUND = {"medium": 4e-3, "high": 8e-6, "highest": 5e-7}
rng = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small products use the matrix unit too, in several instances."""
    monkeypatch.setattr(costs, "MATRIX_UNIT", costs.MATRIX_UNIT._replace(min_reuse=(0.0, 0.0, 0.0)))
    monkeypatch.setattr(contract, "blocks", lambda extents, target: chosen(m=24, n=40, k=64))


def program_of(fn: Callable[..., tg.Tensor], *arrays: np.ndarray) -> Program:
    return prepack(tg.explain(fn, *map(tg.tensor, arrays)).compiled.program, TARGET)


def launches(program: Program) -> list[Launch]:
    return [step for step in program.steps if isinstance(step, Launch)]


def integers(dtype: type, *shape: int) -> np.ndarray:
    ends = np.iinfo(dtype)
    return rng.integers(ends.min, ends.max + 1, shape).astype(dtype)


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return rng.standard_normal(shape).astype(dtype)


def test_a_launch_becomes_packing_launches_and_a_product() -> None:
    program = program_of(lambda x, y: tg.matmul(x, y, precision="high"), numbers(48, 150), numbers(150, 120))
    left, right, product = launches(program)
    assert [type(step.kernel) for step in (left, right, product)] == [PackingKernel, PackingKernel, PrepackedKernel]
    assert [step.kernel.name for step in (left, right, product)] == ["contract_left", "contract_right", "contract"]
    assert [[tiles.count({}) for tiles in step.grid] for step in (left, right, product)] == [[3, 2], [3, 3], [3, 2]]
    assert left.arguments[-1] in product.arguments
    assert right.arguments[-1] in product.arguments
    spans = [(b.offset, b.offset + b.type.bytes) for b in program.buffers[-2:]]
    assert spans[0][1] == spans[1][0]
    assert spans[1][1] == program.arena


def test_operands_of_one_instance_are_not_prepacked() -> None:
    multiply = lambda x, y: tg.matmul(x, y, precision="high")  # noqa: E731
    assert len(launches(program_of(multiply, numbers(24, 64), numbers(64, 120)))) == 2
    assert len(launches(program_of(multiply, numbers(24, 64), numbers(64, 40)))) == 1
    program = tg.explain(multiply, tg.tensor(numbers(48, 64)), tg.tensor(numbers(64, 120))).compiled.program
    assert prepack(program, TARGET._replace(matrix_unit=False)) is program


@pytest.mark.parametrize("turned", [False, True])
def test_columns_that_four_instances_read_are_prepacked_for_multiply_adds(turned: bool) -> None:
    x, y = numbers(96, 150), numbers(41, 150) if turned else numbers(150, 41)

    def multiply(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        return x @ (y.T if turned else y)

    program = tg.explain(multiply, tg.tensor(x), tg.tensor(y)).compiled.program
    made = launches(prepack(program, TARGET._replace(matrix_unit=False)))
    assert [step.kernel.name for step in made] == ["contract_right", "contract"]
    expected = x.astype(np.float64) @ (y.T if turned else y)
    np.testing.assert_allclose(multiply(tg.tensor(x), tg.tensor(y)).numpy(), expected, rtol=1e-5, atol=1e-5)


def test_rows_with_a_remainder_of_one_number_are_prepacked() -> None:
    """64 numbers of each row, and then a single one, for which squares cannot be transposed."""
    x, y = numbers(24, 129), numbers(129, 160)
    program = tg.explain(tg.matmul, tg.tensor(x), tg.tensor(y)).compiled.program
    made = launches(prepack(program, TARGET._replace(matrix_unit=False)))
    assert [step.kernel.name for step in made] == ["contract_left", "contract"]
    expected = x.astype(np.float64) @ y
    np.testing.assert_allclose(tg.matmul(tg.tensor(x), tg.tensor(y)).numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("way", ["nn", "nt", "tn"])
@pytest.mark.parametrize("m, k, n", [(48, 150, 120), (25, 64, 41)])
@pytest.mark.parametrize("precision", ["medium", "high", "highest"])
def test_products(precision: str, m: int, k: int, n: int, way: str) -> None:
    x, y = numbers(m, k), numbers(k, n)
    arrays = [np.ascontiguousarray(a.T if t == "t" else a) for a, t in zip((x, y), way, strict=True)]

    def multiply(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        return tg.matmul(x.T if way[0] == "t" else x, y.T if way[1] == "t" else y, precision=precision)

    program = program_of(multiply, *arrays)
    assert len(launches(program)) == 3
    found, exact = UNIT.run_program(program, arrays), x.astype(np.float64) @ y.astype(np.float64)
    assert np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2)) < BOUND[precision]
    assert UNIT.products


def test_bfloat16_and_what_follows() -> None:
    x, y = numbers(48, 150, dtype=ml_dtypes.bfloat16), numbers(150, 120, dtype=ml_dtypes.bfloat16)
    found = UNIT.run_program(program_of(lambda x, y: tg.relu(x @ y) * 2, x, y), [x, y]).astype(np.float64)
    exact = 2 * np.maximum(x.astype(np.float64) @ y.astype(np.float64), 0)
    assert np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2)) < 4e-3


@pytest.mark.parametrize("size", [(64, 96, 128), (128, 160, 64), (64, 32, 64), (64, 1088, 64)])
@pytest.mark.parametrize("depth", [64, 2048])
@pytest.mark.parametrize("value", [1.0, np.inf])
def test_epilogues_run_block_by_block(
    size: tuple[int, int, int], depth: int, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epilogue runs for each block while the next one is computed; out-of-range numbers take the fallback."""
    m, k, n = size
    monkeypatch.setattr(contract, "blocks", lambda extents, target: chosen(m=m // 2, n=n // 2, k=min(k, depth)))
    x, y, z = numbers(m, k), numbers(k, n), numbers(m, n)
    x[3, 5] = value
    program = program_of(lambda x, y, z: tg.relu(tg.matmul(x, y, precision="high") + z) * z, x, y, z)
    assert len(launches(program)) == 3
    found = UNIT.run_program(program, [x, y, z])
    with np.errstate(all="ignore"):
        wanted = np.maximum(x @ y + z, 0) * z
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    every = 3 * (m // 16) * (k // 32) * (n // 16)
    assert UNIT.products == (every if value == 1 else every // 2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("k", [64, 150])
def test_integers_and_what_follows(dtype: type, k: int) -> None:
    x, y = integers(dtype, 48, k), integers(dtype, k, 120)
    program = program_of(lambda x, y: (x.int() @ y.int()).float() * 0.25, x, y)
    assert len(launches(program)) == 3
    found = UNIT.run_program(program, [x, y])
    np.testing.assert_array_equal(found, (x.astype(np.int32) @ y.astype(np.int32)).astype(np.float32) * 0.25)
    assert UNIT.products


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e-40, 3e38])
@pytest.mark.parametrize("side", [0, 1])
def test_numbers_out_of_range_are_multiplied_as_float32(value: float, side: int) -> None:
    """The fallback runs in the instances that need it; the others use the unit."""
    arrays = [numbers(48, 150), numbers(150, 120)]
    arrays[side][40, 3] = value
    with np.errstate(all="ignore"):
        wanted = arrays[0] @ arrays[1]
    found = UNIT.run_program(program_of(lambda x, y: tg.matmul(x, y, precision="high"), *arrays), arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-3)
    place = np.s_[40] if side == 0 else np.s_[:, 3]
    np.testing.assert_allclose(found[place], wanted[place], rtol=1e-5, atol=1e-5)
    assert UNIT.products


def test_several_products_of_a_program_have_the_same_memory_for_tiles() -> None:
    x, y, z = numbers(48, 64), numbers(64, 120), numbers(120, 80)
    program = program_of(lambda x, y, z: tg.matmul(tg.matmul(x, y, precision="high"), z, precision="high"), x, y, z)
    tiles = [b for b in program.buffers if "tiles" in b.name]
    assert len(tiles) == 4
    assert tiles[0].offset == tiles[2].offset
    found, exact = UNIT.run_program(program, [x, y, z]), x.astype(np.float64) @ y @ z
    assert np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2)) < 8e-6


def test_overlapping_windows_are_not_prepacked() -> None:
    """They would take nine times the memory of the image; the weights are packed once."""
    x, w = numbers(2, 32, 32, 32), numbers(48, 32, 3, 3)
    program = program_of(lambda x, w: tg.nn.functional.conv2d(x, w, padding=1), x, w)
    tiles = [b for b in program.buffers if "tiles" in b.name]
    given = sum(int(program.buffer(name).type.bytes) for name in program.inputs)
    assert sum(int(b.type.bytes) for b in tiles) <= 4 * given
