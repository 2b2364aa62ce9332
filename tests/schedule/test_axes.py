"""Axes of equal extents are different axes: programs over squares and cubes, as fusion finds them most confusing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import combinations, product
from random import Random

import numpy as np
import pytest

import tilegrad as tg
from tests.fuzz.check import check_updates
from tests.fuzz.graphs import Drawn
from tests.schedule.test_lowering import check
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.errors import CompileError, ShapeError
from tilegrad.ir.dtype import float32, float64
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.scalar import Index, Read, Reduce, const, reduce, substitute
from tilegrad.ops.arithmetic import add, maximum, mul, neg
from tilegrad.ops.broadcasting import expand, fill, reduce_sum, reshape
from tilegrad.ops.cast import cast
from tilegrad.ops.exponential import exp
from tilegrad.ops.movement import flip, permute, roll, slice_axis
from tilegrad.ops.reduction import amax, argmax
from tilegrad.ops.scan import cumsum
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule.flatten import flatten
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.group import Group, GroupMember, Schedule, merged
from tilegrad.schedule.group_checker import check_schedule, wrong_in
from tilegrad.schedule.order import order

TARGETS = [TargetModel(), gpu_model(132)]
PLACES: dict[str, Callable[[Value, int], Value]] = {
    "sum": lambda x, axis: reduce_sum(x, (axis,)),
    "max": lambda x, axis: amax(x, (axis,)),
    "argmax": lambda x, axis: cast(argmax(x, axis), float64),
}
READERS: dict[str, Callable[[Value, Value], Value]] = {
    "alone": lambda s, x: mul(s, 3.0),
    "along rows": lambda s, x: mul(s, x),
    "along columns": lambda s, x: maximum(reshape(s, (*s.shape, 1)), x),
    "both": lambda s, x: add(s, reshape(s, (*s.shape, 1))),
    "turned": lambda s, x: add(permute(x, tuple(reversed(range(x.type.rank)))), s),
    "summed": lambda s, x: add(reduce_sum(mul(x, s), (0,)), s),
    "running": lambda s, x: add(cumsum(x, 0), s),
}


def square(*shape: int, names: str = "x") -> tuple[tuple[Input, ...], list[np.ndarray]]:
    rng = np.random.default_rng(0)
    inputs = tuple(Input(TensorType(float64, shape), name) for name in names)
    return inputs, [rng.standard_normal(shape) for _ in names]


@pytest.mark.parametrize("target", TARGETS, ids=["cpu", "gpu"])
@pytest.mark.parametrize(("place", "axis"), list(product(PLACES, (0, 1))))
def test_what_a_reduction_of_a_square_is_read_for(place: str, axis: int, target: TargetModel) -> None:
    for names in combinations(READERS, 2) if place == "sum" else [("alone", "along rows"), ("both", "turned")]:
        inputs, arrays = square(3, 3)
        s = PLACES[place](inputs[0], axis)
        for made in ([READERS[name](s, inputs[0]) for name in names], [READERS[name](s, exp(s)) for name in names]):
            check(Graph(inputs, tuple(made)), arrays, target)
            check(Graph(inputs, (*reversed(made), s)), arrays, target)


@pytest.mark.parametrize("target", TARGETS, ids=["cpu", "gpu"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_what_a_reduction_of_a_cube_is_read_for(axis: int, target: TargetModel) -> None:
    for names in combinations(READERS, 2):
        inputs, arrays = square(3, 3, 3, names="xy")
        s = reduce_sum(inputs[0], (axis,))
        made = [READERS[name](s, inputs[n]) for n, name in enumerate(names)]
        check(Graph(inputs, tuple(made)), arrays, target)


@pytest.mark.parametrize("target", TARGETS, ids=["cpu", "gpu"])
@pytest.mark.parametrize("place", PLACES)
def test_a_reduction_beside_rows_that_are_normalised(place: str, target: TargetModel) -> None:
    """Both are computed in one loop over an axis that a kernel takes one place at a time."""
    for shape, axis in product(((3, 3, 3), (5, 5, 17), (2, 3, 4, 4)), (0, 1, 2)):
        inputs, arrays = square(*shape)
        (x,) = inputs
        made = (add(x, neg(reduce_sum(x, (x.type.rank - 1,), True))), PLACES[place](x, axis))
        check(Graph(inputs, made), arrays, target)


def drawn(seed: int) -> tuple[Graph, list[np.ndarray]]:
    """A few reductions, broadcasts and turns of squares or cubes, read by one another in any order."""
    random = Random(seed)
    rank, extent = random.choice((2, 2, 3)), random.choice((2, 3))
    inputs, arrays = square(*(extent,) * rank, names="xy"[: random.choice((1, 2))])
    made: list[Value] = list(inputs)
    for _ in range(random.randrange(4, 12)):
        with suppress(ShapeError):
            made.append(moved(random, random.choice(made[-4:]), random.choice(made)))
    results = [x for x in dict.fromkeys(made) if not isinstance(x, Input)] or [exp(inputs[0])]
    return Graph(inputs, tuple({results[-1]: 0, random.choice(results): 0})), arrays


def moved(random: Random, x: Value, y: Value) -> Value:
    """One more value of two."""
    rank = x.type.rank
    some = tuple(sorted(random.sample(range(rank), random.randrange(rank + 1))))
    axes = random.choice((some, tuple(range(rank)), tuple(range(rank))[-1:]))
    match random.randrange(10):
        case 0 | 1 | 2 if axes:
            return reduce_sum(x, axes, random.random() < 0.5)
        case 3 if axes:
            return amax(x, axes, random.random() < 0.5)
        case 4:
            return permute(x, tuple(random.sample(range(rank), rank)))
        case 5 if rank < 3:
            return reshape(x, (*x.shape, 1))
        case 6 if rank:
            return cumsum(x, random.randrange(rank))
    return random.choice((add, mul, maximum))(x, y)


@pytest.mark.parametrize("part", range(8))
def test_reductions_of_squares_that_read_one_another(part: int) -> None:
    for seed in range(part * 42, part * 42 + 42):
        graph, arrays = drawn(seed)
        for target in TARGETS:
            check(graph, arrays, target, 1e-6)


PROGRAMS: dict[str, Callable[[tg.Tensor, tg.Tensor], tuple[tg.Tensor, ...]]] = {
    "sum of rows": lambda a, w: (a.sum(1) * a, a.sum(1) * 3),
    "weights": lambda a, w: (w / w.sum(1), w.sum(1).log()),
    "softmax by hand": lambda a, w: (a.exp() / a.exp().sum(0), a.exp().sum(0).log()),
    "running": lambda a, w: (a.logcumsumexp(0), a.logcumsumexp(0).sum(0) + w[:, 0]),
    "places": lambda a, w: (tg.maximum(a.argmax(0), a), a.argmax(0) * 2),
    "statistics": lambda a, w: ((a - a.mean(0)) / a.var(0), a.mean(0) * 0.1 + w[0], a.var(0) * 0.1 + w[1]),
    "adjacency": lambda a, w: ((a / a.sum(0)) @ w, a.sum(0).rsqrt()),
    "scales": lambda a, w: ((a / a.abs().amax(0)) @ w, a.abs().amax(0) / 127),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("n", [3, 512])
def test_programs_over_squares_give_the_same_in_one_kernel_and_one_by_one(name: str, n: int) -> None:
    rng = np.random.default_rng(0)
    a, w = (tg.tensor(rng.random((n, n), dtype=np.float32) + 0.5) for _ in range(2))
    first = PROGRAMS[name](a, w)
    for made in (first, PROGRAMS[name](a, w)):
        want = [x.numpy() for x in made]
    got = tg.jit(PROGRAMS[name])(a, w)
    for x, y in zip(got, want, strict=True):
        np.testing.assert_allclose(x.numpy(), y, 1e-4, 1e-4)


# --- one axis cannot be taken for another ---------------------------------------------------------

I, J, K = (Index(name, 3) for name in "ijk")
X, S = Input(TensorType(float32, (3, 3)), "x"), Input(TensorType(float32, (3,)), "s")
SUM = reduce("add", K, Read(X, (I, K), float32))


def test_an_index_from_outside_does_not_become_that_of_a_loop() -> None:
    assert substitute(SUM, {I: K, K: I}) is reduce("add", I, Read(X, (K, I), float32))
    for moved in ({I: K}, {I: K + 1}, {K: I}):
        with pytest.raises(AssertionError, match="in a loop that goes over"):
            substitute(SUM, moved)
    with pytest.raises(AssertionError, match="cannot be 0"):
        substitute(SUM, {K: const(0, K.dtype)})


def test_groups_do_not_merge_where_an_axis_is_left_or_is_two() -> None:
    a = Group("rows", (I,), (K,), (GroupMember(S, (I,), SUM),), (S,))
    b = Group("map", (I,), (), (GroupMember(S, (I,), Read(S, (I,), float32)),), (S,))
    for mapping in ({I: I}, {I: I, K: I}):
        with pytest.raises(AssertionError):
            merged(a, b, mapping, "rows", (I,), (I,))


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (Group("rows", (I,), (I,), (GroupMember(S, (I,), SUM),), (S,)), "is two axes"),
        (Group("rows", (I,), (K,), (GroupMember(S, (J,), SUM),), (S,)), "is no axis of the group"),
        (Group("rows", (I, J), (K,), (GroupMember(S, (J,), SUM),), (S,)), "which its position does not have"),
        (Group("rows", (I, K), (), (GroupMember(S, (I,), SUM),), (S,)), "is a row of the group"),
        (
            Group("map", (I, J), (), (GroupMember(X, (I, I), Read(S, (I,), float32)),), (X,)),
            "each of its elements once",
        ),
        (
            Group("map", (I,), (), (GroupMember(S, (I + 1,), Read(S, (I,), float32)),), (S,)),
            "each of its elements once",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_group_that_confuses_axes_is_refused(group: Group, reason: str) -> None:
    assert reason in wrong_in(group)
    with pytest.raises(CompileError, match="group 0 is wrong"):
        check_schedule(Schedule((X, S), (), (group,), ()))


def test_what_is_read_elsewhere_than_where_it_is_computed_is_refused() -> None:
    made = Input(TensorType(float32, (3, 3)), "made")
    stores = (GroupMember(S, (I,), Read(X, (I, I), float32)), GroupMember(made, (I, J), Read(S, (J,), float32)))
    assert "elsewhere" in wrong_in(Group("map", (I, J), (), stores, (S, made)))


def test_what_nobody_writes_is_not_read() -> None:
    schedule = fuse(Graph((X,), (exp(X),)))
    with pytest.raises(CompileError, match="read before it is written"):
        check_schedule(schedule.replaced(inputs=()))
    with pytest.raises(CompileError, match="never written"):
        check_schedule(schedule.replaced(outputs=(S,)))


def test_loops_are_told_apart_from_what_they_stand_in() -> None:
    assert isinstance(SUM, Reduce)
    assert wrong_in(Group("rows", (I,), (K,), (GroupMember(S, (I,), SUM),), (S,))) == ""


def test_sums_of_rows_that_are_read_beside_the_sum_of_all_keep_their_row() -> None:
    """Rows and columns are one axis only where nothing is known of each row."""
    for shape in ((2, 2), (3, 3), (40, 64), (2, 3)):
        (x,), arrays = square(*shape)
        rows = reduce_sum(x, (1,), True)
        both = add(mul(rows, 2.0), reduce_sum(rows, (0, 1), True))
        again = reduce_sum(mul(both, expand(fill(1.0, (), float64), shape)), (1,), True)
        check(Graph((x,), (add(mul(again, x), reduce_sum(again, (0, 1), True)),)), arrays)
        check(Graph((x,), (rows, reduce_sum(rows, (0, 1)))), arrays, TARGETS[1])
    x = tg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    a, b = x.sum(1), x.sum()  # type: ignore[attr-defined]
    (g,) = tg.autograd.grad((0.5 * a * a).sum() + a.sum() + b * b + b, x, create_graph=True)
    assert tg.autograd.grad((0.5 * g * g).sum() + g.sum(), x)[0].tolist() == [[276.0, 276.0], [284.0, 284.0]]


@pytest.mark.parametrize("shape", [(5, 7), (6, 6)])
def test_axes_that_memory_runs_through_as_one_become_one(shape: tuple[int, int]) -> None:
    x, y = Input(TensorType(float32, shape), "x"), Input(TensorType(float32, shape[1:]), "y")
    made: list[tuple[Value, int]] = [
        (exp(x), 1),
        (add(x, exp(x)), 1),
        (add(x, y), 2),
        (permute(x, (1, 0)), 2),
        (reduce_sum(x, (0, 1)), 1),
        (reduce_sum(x, (0,)), 2),
        (add(mul(x, 2.0), reshape(y, (1, -1))), 2),
    ]
    for value, axes in made:
        (group,) = fuse(Graph((x, y), (value,))).groups
        flat = flatten(group)
        assert len(flat.rows) + len(flat.columns) == axes, value


MOVES: dict[str, Callable[[Value], Value]] = {
    "turned": lambda x: permute(x, (1, 0)),
    "flipped": lambda x: flip(x, (0,)),
    "rolled": lambda x: roll(x, 1, 1),
    "a row for all": lambda x: slice_axis(x, 0, 3, 4),
}


@pytest.mark.parametrize("name", MOVES)
def test_what_is_read_elsewhere_is_not_overwritten_before(name: str) -> None:
    """A new value over a square whose elements are read at other places than where they are written."""
    (x,), arrays = square(70, 70)
    graph = Graph((x,), (add(MOVES[name](x), x),))
    schedule = order(fuse(graph), {0: 0})
    assert not schedule.overwritten
    assert order(fuse(Graph((x,), (add(exp(x), x),))), {0: 0}).overwritten
    check_updates(Drawn(graph, arrays, {}, (True,)))
