"""Concurrent branches: every instance once, dependences in order, memory apart; results are the sequential ones."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilegrad as tg
from tests.backend.test_cpu_native_partition import instances, some_calls
from tilegrad import nn
from tilegrad.backend.cpu import branches, native
from tilegrad.backend.cpu.branches import MIN_BRANCH_GAIN_NS, conflicts, is_ordered, plan_branches
from tilegrad.backend.cpu.contexts import CpuContextFactory
from tilegrad.backend.cpu.executable import CpuExecutable
from tilegrad.backend.cpu.partition import NativeCall, partition
from tilegrad.backend.places import Span
from tilegrad.config import changed


@given(some_calls, st.integers(2, 9))
def test_every_instance_runs_once_and_dependences_keep_their_order(calls: list[NativeCall], threads: int) -> None:
    plan = plan_branches(calls, partition(calls, threads), threads)
    assert sorted(x for segment in plan.segments for x in instances(segment)) == [
        (n, k) for n, call in enumerate(calls) for k in range(call.instances)
    ]
    assert is_ordered(plan.segments, calls)
    assert not conflicts(plan.segments, calls)
    position: dict[int, tuple[int, int, int, int]] = {}
    for s, segment in enumerate(plan.segments):
        assert 1 <= len(segment.lanes) <= threads
        for lane, chunks in enumerate(segment.lanes):
            for k, chunk in enumerate(chunks):
                for p, part in enumerate(chunk):
                    position[part.call] = (s, lane, k, p)
    for b, later in enumerate(calls):
        for a, earlier in enumerate(calls[:b]):
            if not earlier.is_independent(later):
                same_chunk = position[a][:3] == position[b][:3] and position[a][3] < position[b][3]
                assert position[a][0] < position[b][0] or same_chunk


def chains(lengths: list[int], nanoseconds: float, instances: int = 1) -> list[NativeCall]:
    """Launches of chains, one after the other, and one that reads all their ends; arrays are far apart."""
    calls, ends = list[NativeCall](), list[Span]()
    for chain, length in enumerate(lengths):
        spans = [Span(1, 1000 * chain + 8 * n, 1000 * chain + 8 * n + 8) for n in range(length)]
        for n, span in enumerate(spans):
            reads = tuple(spans[n - 1 : n]) if n else ()
            calls.append(NativeCall(f"{'abcdef'[chain]}{n}", 0, (), instances, nanoseconds, reads, (span,)))
        ends.append(spans[-1])
    return [*calls, NativeCall("join", 0, (), 1, nanoseconds, tuple(ends), (Span(2, 0, 8),))]


def names(calls: list[NativeCall], threads: int) -> list[str]:
    return [s.name for s in plan_branches(calls, partition(calls, threads), threads).segments]


def test_chains_of_short_launches_run_side_by_side() -> None:
    assert names(chains([3, 3], 4_000.0), 2) == ["a0, a1, a2 | b0, b1, b2", "join"]
    assert names(chains([2, 2, 2], 4_000.0), 3) == ["a0, a1 | b0, b1 | c0, c1", "join"]
    assert names(chains([4], 4_000.0), 2) == ["a0, a1, a2, a3, join"]


def test_long_launches_of_one_instance_run_side_by_side() -> None:
    assert names(chains([2, 2], 1e6), 2) == ["a0 | b0", "a1 | b1", "join"]


def test_launches_that_fill_all_threads_keep_their_order() -> None:
    assert names(chains([2, 2], 1e6, instances=64), 2) == ["a0", "a1", "b0", "b1", "join"]


def test_savings_are_estimated() -> None:
    calls = chains([5, 5], 20_000.0)
    plan = plan_branches(calls, partition(calls, 2), 2)
    assert plan.nanoseconds < 0.7 * (plan.nanoseconds + plan.saved)
    short = chains([2, 2], 300.0)
    assert plan_branches(short, partition(short, 2), 2).saved < MIN_BRANCH_GAIN_NS


class Branches(nn.Module):
    """Chains of layers with a common input and a sum, drawn at random."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self.chains = nn.ModuleList(
            [
                nn.Sequential(
                    *[
                        layer
                        for _ in range(draw.randint(1, 4))
                        for layer in (nn.Linear(32, 32), nn.Softmax(-1) if draw.random() < 0.3 else nn.Tanh())
                    ]
                )
                for _ in range(draw.randint(2, 4))
            ]
        )

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        return tg.stack([chain(x) for chain in self.chains]).sum(0)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("seed", range(6))
def test_results_and_gradients_are_the_sequential_ones(seed: int) -> None:
    """A program is bound once in a process, so each setting has its own copy of the program."""
    tg.manual_seed(seed)
    model = Branches(random.Random(seed))
    x = tg.randn(8, 32)
    found = {}
    for number, setting in enumerate(("consecutive", "always")):

        def step(x: tg.Tensor, n: int = number) -> list[tg.Tensor]:
            loss = model(x * 1.0 + 0.0 * n).square().mean()
            return [loss, *tg.autograd.grad(loss, list(model.parameters()))]

        jitted = tg.jit(step)
        with changed(branches=setting):
            found[setting] = [[y.tolist() for y in jitted(x)] for _ in range(7)]
    assert found["always"] == found["consecutive"]
    assert all(run == found["always"][0] for run in found["always"])


@pytest.mark.usefixtures("compiled")
def test_a_program_that_asks_for_more_memory_while_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Branches have memory of their own: the arena grows between the measured runs and the first with branches."""
    tg.manual_seed(0)
    for name, number in (("MIN_BRANCH_GAIN_NS", -1e18), ("MIN_BRANCH_GAIN", -1e9), ("MIN_ARENA_BYTES", 1 << 40)):
        monkeypatch.setattr(branches, name, number)
    layers = [nn.Sequential(nn.Linear(64, 4096), nn.Tanh(), nn.Linear(4096, 3)) for _ in range(6)]
    f = tg.jit(lambda x: sum([layer(x) for layer in layers]))
    device = tg.device("cpu")
    x = tg.randn(64, 64)
    f(x)
    asked: list[int] = []
    grow = device.grow_arena  # type: ignore[attr-defined]
    monkeypatch.setattr(device, "grow_arena", lambda bytes: (asked.append(bytes), grow(bytes))[1])
    runs = [f(x).tolist() for _ in range(8)]
    assert all(run == runs[0] for run in runs)
    temporaries = f.programs[0].compiled.program.arena
    assert native.team().threads == 1 or max(asked) > temporaries


@pytest.mark.usefixtures("compiled")
def test_callers_with_memory_of_their_own_keep_the_arena_that_was_planned() -> None:
    """An engine allocates the arena of a program once: its runs may not need a larger one."""
    tg.manual_seed(0)
    model = Branches(random.Random(1))
    x = tg.randn(8, 32)
    with changed(branches="always"), tg.no_grad():
        jitted = tg.jit(lambda x: model(x))
        executable = jitted.prepared(x).compiled.executable
        assert isinstance(executable, CpuExecutable)
        learner = CpuContextFactory(executable).learner
        estimated = learner.table
        learner._bind()
        for table in (estimated, learner.table):
            assert table.segments == partition(learner.calls, native.team().threads)
