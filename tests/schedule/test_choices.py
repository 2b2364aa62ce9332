"""Choices of kernels: every choice computes the same; a lock's choice is used, or refused in words."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.ops.registry import Example, all_examples
from tests.schedule.test_lowering import execute
from tests.schedule.test_target_model import SMALL, given
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.backend.reference.graph import interpret
from tilegrad.errors import ArgumentError
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.program import Launch
from tilegrad.ops.activation import relu
from tilegrad.ops.arithmetic import add, mul, sub
from tilegrad.ops.broadcasting import reduce_sum
from tilegrad.ops.contraction import matmul
from tilegrad.ops.exponential import exp
from tilegrad.ops.movement import permute
from tilegrad.ops.scan import cumsum
from tilegrad.ops.sorting import sort
from tilegrad.runtime.choice import Choice, chosen, parse_choice
from tilegrad.runtime.lock import Lock, LockEntry
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.options import candidates, default, digest_of, kernel_choice, refusal, signature

TARGETS = {
    "few": TargetModel()._replace(
        tile_elements=12,
        loop_elements=12,
        short_row_elements=12,
        max_row_elements=50,
        single_instance_elements=2,
        column_tile_width=3,
        column_tile_depth=3,
        transpose_tile_side=3,
        row_block_elements=6,
    ),
    "many": SMALL,
}


PLAIN = [e for e in all_examples() if not any(v.opaque for v in e.graph().values())]
"""Without kernels that ops bring: they leave no choice."""


def locked(graph: Graph, target: TargetModel, number: int, choice: Choice) -> list[Launch]:
    """The launches of a graph, with a choice for one of its groups."""
    schedule = fuse(graph, target)
    lock = Lock(None, {digest_of(schedule.groups[number]): LockEntry("it", choice)})
    return [s for s in assemble(schedule, lock=lock).steps if isinstance(s, Launch)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("example", PLAIN[::29], ids=lambda e: e.name)
def test_every_choice_means_the_same(example: Example, target: str) -> None:
    graph, arrays = example.graph(), list(example.arrays)
    schedule = fuse(graph, TARGETS[target])
    expected = interpret(graph, arrays)
    for group in schedule.groups:
        found = candidates(group, TARGETS[target])
        assert found[:1] == [c for c in [default(group, TARGETS[target])] if c is not None]
        for choice in found[1:]:
            assert not refusal(group, choice, TARGETS[target]), choice
            program = assemble(schedule, lock=Lock(None, {digest_of(group): LockEntry("it", choice)}))
            for have, want in zip(execute(program, arrays), expected, strict=True):
                np.testing.assert_allclose(
                    have.astype(np.float64), want.astype(np.float64), 1e-5, 1e-6, err_msg=f"{choice} of {group.kind}"
                )


def softened(x: Value) -> Value:
    return mul(exp(x), reduce_sum(x, (1,), True))


CASES: dict[str, tuple[Graph, set[str]]] = {}


def case(name: str, output: Value, *inputs: Input, ways: set[str], also: tuple[Value, ...] = ()) -> None:
    CASES[name] = (Graph(inputs, (output, *also)), ways)


X, TALL, Y, DEEP = given(33, 100), given(4, 1200), given(100, 40), given(8, 6, 40)
CENTRED = sub(DEEP, reduce_sum(DEEP, (2,), True))
case("map", exp(X), X, ways={"along"})
case("transposed", permute(exp(X), (1, 0)), X, ways={"across", "along"})
case("rows", softened(X), X, ways={"rows", "loop"})
case("columns", reduce_sum(TALL, (0,)), TALL, ways={"beside", "rows", "loop"})
case("scan", cumsum(X, 1), X, ways={"rows", "loop"})
case("down", CENTRED, DEEP, also=(reduce_sum(CENTRED, (1,)),), ways={"down"})
case("product", relu(add(matmul(X, Y), 1.0)), X, Y, ways={""})


@pytest.mark.parametrize("name", CASES)
def test_choices_of_a_case(name: str) -> None:
    graph, ways = CASES[name]
    target = TargetModel()._replace(single_instance_elements=16)
    (group,) = fuse(graph, target).groups
    found = candidates(group, target)
    assert {choice.strategy for choice in found} == ways
    assert len(found) == len(set(found)) > 1
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-2, 3, x.shape).astype(np.float32) for x in graph.inputs]
    expected, *_ = interpret(graph, arrays)
    texts = set()
    for choice in found:
        assert parse_choice(str(choice)) == choice
        lock = Lock(None, {digest_of(group): LockEntry("it", choice)})
        program = assemble(fuse(graph, target), lock=lock)
        texts.add(str(program.steps))
        got, *_ = execute(program, arrays)
        np.testing.assert_allclose(got, expected, 1e-4, 1e-4, err_msg=str(choice))
    assert len(texts) > 1, "no choice makes a difference"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("map", "across height=4 width=4", "the strategy is one of: along"),
        ("map", "m=4 n=4 k=4", "the strategy is one of: along"),
        ("map", "along width=4 depth=3", "along has the sizes height=... width=..."),
        ("map", "along width=1000000", "a size is at most 65536"),
        ("rows", "loop", "loop has the sizes width=..."),
        ("product", "m=4 n=4", "a product has the sizes m=... n=... k=..."),
        ("product", "m=34 n=40 k=100", "m is at most 33"),
        ("product", "along width=3", "a product has the sizes"),
        ("down", "down height=4", "the height divides 6"),
        ("down", "down height=5", "the height divides 6"),
    ],
)
def test_what_makes_no_sense_is_refused(name: str, text: str, reason: str) -> None:
    graph, _ = CASES[name]
    target = TargetModel()._replace(single_instance_elements=16)
    with pytest.raises(ArgumentError, match=re.escape(reason)) as raised:
        locked(graph, target, 0, parse_choice(text))
    assert text in str(raised.value)
    assert "Correct the line, or remove it" in str(raised.value)


def test_sizes_are_powers_of_two_where_the_device_wants_that() -> None:
    graph, _ = CASES["product"]
    (group,) = fuse(graph, gpu_model(4)).groups
    assert refusal(group, chosen(m=33, n=40, k=100), gpu_model(4)) == "sizes are powers of two here, and at least 16"
    assert not refusal(group, chosen(m=32, n=64, k=16), gpu_model(4))


@pytest.mark.parametrize(("columns", "width"), [(128, 64), (384, 192), (512, 256), (2048, 1024), (300, 300), (96, 96)])
def test_sums_across_memory_are_for_all_workers(columns: int, width: int) -> None:
    x = Input(TensorType(float32, (1024, columns)), "x")
    (group,) = fuse(Graph((x,), (reduce_sum(x, (0,)),)), TargetModel()).groups
    assert default(group, TargetModel()).size("width") == width


def test_a_group_is_known_by_what_it_computes() -> None:
    def digest(rows: int, number: float, name: str) -> str:
        x = Input(TensorType(float32, (rows, 4)), name)
        (group,) = fuse(Graph((x,), (mul(exp(x), number),))).groups
        return digest_of(group)

    assert digest(3, 2.0, "x") == digest(3, 2.0, "renamed")
    assert len({digest(3, 2.0, "x"), digest(5, 2.0, "x"), digest(3, 2.5, "x")}) == 3


def test_who_says_so() -> None:
    graph, _ = CASES["product"]
    (group,) = fuse(graph).groups
    assert str(kernel_choice(group, TargetModel(), Lock())) == f"{default(group, TargetModel())} (cost model)"
    lock = Lock(None, {digest_of(group): LockEntry("it", chosen(m=4, n=4, k=4), "3 us instead of 4 us", 7)})
    assert str(kernel_choice(group, TargetModel(), lock)) == "m=4 n=4 k=4 (None, line 7: 3 us instead of 4 us)"
    assert signature(group) == "f32[33,100], f32[100,40] -> f32[33,40]"
    x = given(8)
    (sorted_group,) = [g for g in fuse(Graph((x,), (sort(x).values,))).groups if g.kind == "opaque"]
    assert candidates(sorted_group, TargetModel()) == []
    assert refusal(sorted_group, chosen(width=4), TargetModel()) == "the kernel is as its op brings it"
    assert kernel_choice(sorted_group, TargetModel(), lock) is None
