"""Memory plans of graphs: the lecture's examples, and random graphs that run in planned memory."""

import random

import pytest

from tests.checklist import checklist
from tilegrad.errors import ArgumentError
from tilegrad.runtime import Engine, Operation, SlotPlan, plan_memory

KB = 1024


@checklist(182)
def test_the_example_in_place_and_shared() -> None:
    """B = sigmoid(A), C = sigmoid(B), F = pool(B), E = pool(C), G = E * F: C cannot overwrite B, which F reads."""
    graph = [
        Operation("B", ("A",), KB, in_place=True),
        Operation("C", ("B",), KB, in_place=True),
        Operation("F", ("B",), KB),
        Operation("E", ("C",), KB),
        Operation("G", ("E", "F"), KB, in_place=True),
    ]
    plan = plan_memory(graph)
    assert plan.slots == {"B": 0, "C": 1, "F": 2, "E": 0, "G": 0}
    assert plan.reasons["E"] == "in the memory of B"
    assert plan.reasons["G"] == "in place of E"
    assert (plan.total, plan.unshared) == (3 * KB, 5 * KB)
    assert plan_memory(graph, share=False).total == 4 * KB
    assert plan_memory(graph, share=False, in_place=False).total == 5 * KB
    assert plan_memory(graph, results=["B"]).total == 4 * KB


@checklist(182)
def test_the_example_of_two_paths() -> None:
    """Two paths to a concatenation stay concurrent only if they share no memory with each other."""
    graph = [Operation(f"{side}{n}", (f"{side}{n - 1}" if n else "x",), KB) for side in ("a", "b") for n in range(3)]
    graph.append(Operation("concat", ("a2", "b2"), 2 * KB))
    least, both = plan_memory(graph), plan_memory(graph, concurrent=True)
    assert least.waits
    assert least.total == 4 * KB
    assert both.waits == ()
    assert both.total == 5 * KB
    assert {both.slots[f"a{n}"] for n in range(3)}.isdisjoint({both.slots[f"b{n}"] for n in range(3)})
    assert f"{least.waits[0][1]} waits for {least.waits[0][0]}" in str(least)


def random_graph(draw: random.Random) -> list[Operation]:
    graph: list[Operation] = []
    for n in range(draw.randint(1, 12)):
        given = ["x", *[op.name for op in graph]]
        inputs = tuple(draw.choices(given, k=draw.randint(1, 3)))
        graph.append(Operation(f"op{n}", inputs, draw.choice([64, 128, 256]), draw.random() < 0.5))
    return graph


def computed(op: Operation, read: list[int]) -> int:
    return hash((op.name, *read))


def run(graph: list[Operation], plan: SlotPlan, engine: Engine) -> dict[str, int]:
    """Run a graph in the slots of a plan; return what is in the memory of each result that nothing reads."""
    memory = [0] * len({*plan.slots.values()})
    variables = [engine.new_variable(f"slot {n}") for n in range(len(memory))]

    def step(op: Operation) -> None:
        read = [memory[plan.slots[x]] if x in plan.slots else 1 for x in op.inputs]
        memory[plan.slots[op.name]] = computed(op, read)

    for op in graph:
        read = [variables[plan.slots[x]] for x in op.inputs if x in plan.slots]
        engine.push(lambda op=op: step(op), read, [variables[plan.slots[op.name]]])  # type: ignore[misc]
    engine.wait_all()
    used = {x for op in graph for x in op.inputs}
    return {op.name: memory[plan.slots[op.name]] for op in graph if op.name not in used}


@checklist(89, 182)
def test_random_graphs_in_planned_memory() -> None:
    """Run by an engine whose variables are the slots, they compute what they compute in memory of their own."""
    draw = random.Random(0)
    with Engine(workers=2) as engine:
        for _ in range(500):
            graph = random_graph(draw)
            alone = plan_memory(graph, in_place=False, share=False)
            expected = run(graph, alone, engine)
            assert alone.total == alone.unshared
            for concurrent in (False, True):
                plan = plan_memory(graph, concurrent=concurrent)
                assert run(graph, plan, engine) == expected
                assert plan.total <= plan.unshared
                assert not (concurrent and plan.waits)
                for op in graph:
                    assert plan.offsets[op.name] + op.bytes <= plan.total


@pytest.mark.parametrize(
    ("graph", "results", "words"),
    [
        ([Operation("a", ("b",), 1), Operation("b", (), 1)], (), "a reads b, which comes later"),
        ([Operation("a", ("a",), 1)], (), "a reads a, which comes later"),
        ([Operation("a", (), 1), Operation("a", (), 1)], (), "two operations are called a"),
        ([Operation("a", (), 1)], ("y",), "the result y is computed by no operation"),
    ],
)
def test_graphs_that_are_none(graph: list[Operation], results: tuple[str, ...], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        plan_memory(graph, results)


def test_an_empty_graph() -> None:
    assert plan_memory([]).total == 0
