"""Growth and bounds of random integer expressions hold for their elements, as numpy computes them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tilegrad.ir import tile as ir
from tilegrad.ir.dtype import int64
from tilegrad.ir.tile_checker import check
from tilegrad.ir.tile_parser import parse
from tilegrad.ir.tile_types import TileType, Types
from tilegrad.tiles.affine import Affine, once_assigned

SHAPE = (8, 32)
NAMES = {"a": 48, "k": 6}
"""Values of a name with a known expression, and of a loop counter."""
LOOP = ir.For("k", ir.Literal(2), ir.Literal(20), ir.Literal(4), ())


def random_expression(random: Random, depth: int) -> tuple[ir.Tile, np.ndarray]:
    """Make an integer tile, with its elements."""
    if depth == 0 or random.random() < 0.1:
        number = random.choice((0, 1, 3, 4, 8, 12, 32))
        row, column = np.arange(number, number + 8)[:, None], np.arange(number, number + 32)[None, :]
        return random.choice(
            [
                (ir.Literal(number), np.array(number)),
                (ir.Name("a"), np.array(NAMES["a"])),
                (ir.Name("k"), np.array(NAMES["k"])),
                (ir.ExpandDims(ir.Arange(number, number + 8), (1,)), row),
                (ir.ExpandDims(ir.Arange(number, number + 32), (0,)), column),
                (ir.BroadcastTo(ir.ExpandDims(ir.Arange(number, number + 8), (1,)), SHAPE), row + np.zeros(SHAPE, int)),
                (ir.Trans(ir.BroadcastTo(ir.Arange(number, number + 8), (32, 8)), (1, 0)), row + np.zeros(SHAPE, int)),
            ]
        )
    fn = random.choice(("add", "sub", "mul", "floordiv", "mod", "minimum", "maximum", "cast"))
    x, elements = random_expression(random, depth - 1)
    if fn == "cast":
        return ir.Cast(x, int64), elements
    if fn in ("floordiv", "mod"):
        divisor = random.choice((1, 2, 3, 4, 8, 12, 16, 32))
        return ir.Apply(fn, (x, ir.Literal(divisor))), elements // divisor if fn == "floordiv" else elements % divisor
    y, others = random_expression(random, depth - 1)
    compute = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "minimum": np.minimum, "maximum": np.maximum}[fn]
    return ir.Apply(fn, (x, y)), compute(elements, others)


@pytest.mark.parametrize("seed", range(300))
def test_growth_and_bounds_hold_for_the_elements(seed: int) -> None:
    x, elements = random_expression(Random(seed), 3)
    types = Types({name: TileType(int64) for name in NAMES})
    affine = Affine(types, {"a": ir.Literal(NAMES["a"])}, {"k": (LOOP,)})
    whole = np.broadcast_to(elements, SHAPE)
    low, high = affine.interval(x)
    assert low is None or low <= whole.min()
    assert high is None or whole.max() <= high
    first = whole.flat[0]
    divisor = affine.divisor(x)
    assert first == 0 if divisor == 0 else first % divisor == 0
    assert affine.distance(x, x + 5) == 5
    for axis, lanes in ((-1, 0), (-2, 0), (-1, 8), (-1, 4), (-2, 4)):
        growth = affine.growth(x, axis, lanes)
        vectors = np.moveaxis(whole, axis, -1)
        vectors = vectors.reshape(-1, lanes or vectors.shape[-1])
        assert growth.step is None or (np.diff(vectors) == growth.step).all(), f"{x} along {axis} by {lanes}: {growth}"
        starts = vectors[:, 0]
        held = (starts == 0).all() if growth.divisor == 0 else (starts % growth.divisor == 0).all()
        assert held, f"{x} along {axis} by {lanes}: {growth}"


@pytest.mark.parametrize(("step", "divisor"), [(64, 32), (16, 16), (3, 1), (0, 32)])
def test_names_that_are_assigned_again_have_the_divisor_of_all_their_values(step: int, divisor: int) -> None:
    kernel = parse(f"""
def f(x: "*f32", n: "i32"):
    p = x + 32
    for k in range(n):
        p += {step}
        n += 8
        tl.store(p + tl.arange(0, 8), 1.0)
""")
    affine = Affine(check(kernel), *once_assigned(kernel))
    affine.find_divisors(kernel)
    assert affine.divisor(ir.Name("p")) == divisor
    assert affine.divisor(ir.Name("x")) == 0
    assert affine.divisor(ir.Name("n")) == 1


def test_what_is_known_of_a_counter_holds_in_all_of_its_loops() -> None:
    affine = Affine(Types({"k": TileType(int64)}), {}, {})
    for start, step in ((0, 16), (-12, 8)):
        affine.add(ir.For("k", ir.Literal(start), ir.Literal(32), ir.Literal(step), ()))
    assert affine.divisor(ir.Name("k")) == 4
    assert affine.interval(ir.Name("k")) == (-12, 28)
    affine.enter(ir.For("k", ir.Literal(0), ir.Literal(32), ir.Literal(16), ()))
    assert affine.divisor(ir.Name("k")) == 16
    assert affine.is_nonnegative(ir.Name("k"))


def test_masks_are_uniform_in_vectors_that_begin_at_multiples() -> None:
    i, affine = ir.Arange(0, 64), Affine(Types({}), {}, {})
    assert affine.step(i < 24, -1, 8) == 0
    assert affine.step(i < 20, -1, 8) is None


def test_first_elements_of_sums() -> None:
    i, p, affine = ir.Arange(3, 64), ir.ProgramId(0), Affine(Types({}), {}, {})
    x = ir.ExpandDims(i, (1,)) * 4 + p * 2 - i
    assert affine.first(x) == {p: 2, ir.Literal(1): 9}
    assert affine.distance(x, x + p) is None


def test_typical_steps_ignore_the_ends_of_rows() -> None:
    i, affine = ir.Arange(0, 26), Affine(Types({}), {}, {})
    assert affine.step(i // 13 * 24 + i % 13) is None
    assert affine.step(i // 13 * 24 + i % 13, -1, 2, True) == 1
