"""Movement composed at random gives what numpy gives, and its positions stay simple."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given as drawn
from hypothesis import strategies as st

from tests.ops.registry import given
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.graph import Graph, Value
from tilegrad.ir.scalar import Index, Read
from tilegrad.ops import broadcasting, movement


def computed(x: Value, array: np.ndarray, y: Value) -> np.ndarray:
    return interpret(Graph((x,), (y,)), [array])[0]  # type: ignore[no-any-return]


@st.composite
def factorisation(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    """A shape with this number of elements."""
    shape = []
    while count > 1:
        factor = draw(st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
        shape.append(factor)
        count //= factor
        if len(shape) > 4:
            shape.append(count)
            break
    return tuple(shape)


@drawn(st.data())
def test_reshapes(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([1, 6, 12, 24, 30, 36]))
    shapes = [data.draw(factorisation(count)) for _ in range(3)]
    array = np.arange(count).reshape(shapes[0])
    x = given(array)
    y = broadcasting.reshape(broadcasting.reshape(x, shapes[1]), shapes[2])
    np.testing.assert_array_equal(computed(x, array, y), array.reshape(shapes[2]))


@drawn(st.data())
def test_slices_and_flips_and_their_placement(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 6), min_size=1, max_size=3)))
    array = np.arange(1, math.prod(shape) + 1).reshape(shape)
    bound = st.none() | st.integers(-8, 8)
    slices = tuple(
        slice(data.draw(bound), data.draw(bound), data.draw(st.sampled_from([None, 1, 2, 3, -1, -2]))) for _ in shape
    )
    x = given(array)
    y = x
    for axis, s in enumerate(slices):
        y = movement.slice_axis(y, axis, s.start, s.stop, s.step)
    np.testing.assert_array_equal(computed(x, array, y), array[slices])
    placed = y
    chain = [y]
    while chain[-1] is not x:
        chain.append(chain[-1].inputs[0])
    for part in chain[:-1]:
        assert isinstance(part, movement.Slice)
        placed = movement.Pad(placed, part.starts, part.steps, part.x.shape, 0)
    wanted = np.zeros_like(array)
    wanted[slices] = array[slices]
    np.testing.assert_array_equal(computed(x, array, placed), wanted)


@drawn(st.permutations(range(4)))
def test_permutations(axes: list[int]) -> None:
    array = np.arange(120).reshape(2, 3, 4, 5)
    x = given(array)
    y = movement.permute(x, axes)
    np.testing.assert_array_equal(computed(x, array, y), array.transpose(axes))
    back = movement.permute(y, movement.inverse(tuple(axes)))
    np.testing.assert_array_equal(computed(x, array, back), array)


def test_splitting_and_merging_axes_leaves_no_division() -> None:
    """Heads of attention: (b, t, h * d) to (b, h, t, d) and back reads at plain positions."""
    x = given(np.zeros((2, 7, 12)))
    split = movement.transpose(broadcasting.reshape(x, (2, 7, 3, 4)), 1, 2)
    merged = broadcasting.reshape(movement.transpose(split, 1, 2), (2, 7, 12))
    position = tuple(Index(name, extent) for name, extent in zip("ijk", (2, 7, 12), strict=True))

    def read(v: Value, at: tuple[object, ...]) -> object:
        return Read(v, at, v.dtype) if v is x else v.element(at, read)  # type: ignore[arg-type]

    assert merged.element(position, read) is Read(x, position, x.dtype)  # type: ignore[arg-type]
