"""Lengths that vary need no new programs, and programs for all sizes compute what those for one size compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tilegrad as tg
import tilegrad.nn as nn
from tests.fuzz.graphs import Drawn, compare, drawn, tolerance
from tilegrad.backend.reference.graph import interpret
from tilegrad.config import changed
from tilegrad.errors import TilegradError
from tilegrad.first_tier.decision import SIZES_PER_MEETING
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.size import known
from tilegrad.lazy import realize
from tilegrad.lazy.known_programs import forget_programs
from tilegrad.ops.bind_sizes import with_sizes
from tilegrad.runtime.device import device

Program = Callable[[int, int], tg.Tensor]
LENGTHS = ((5, 3), (9, 4), (4, 7), (12, 2), (3, 3), (1, 6), (7, 1), (8, 0), (2, 2), (6, 6), (31, 5), (2, 9), (33, 10))
"""Equal extents that differ later, extents of 0 and 1, and what was broadcast before."""


def numbers(*shape: int) -> tg.Tensor:
    return tg.from_numpy(np.sin(np.arange(np.prod(shape), dtype=np.float32).reshape(shape)))


class Steps(nn.Module):
    """Integers from 0 to 4."""

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        return (x.abs() * 5).long()


def trained(layer: Any, *shape: int) -> tg.Tensor:
    """The first elements of the gradients of all parameters."""
    layer.zero_grad()
    out = layer(numbers(*shape))
    loss = (out[0] if isinstance(out, tuple) else out).pow(2).mean()
    loss.backward()
    return tg.cat([loss.reshape(1), *[p.grad.flatten()[:2] for p in layer.parameters()]])


def attended(x: tg.Tensor, following: tg.Tensor) -> tg.Tensor:
    """Attention over a sequence and one more element: loops over `n + 1`."""
    both = tg.cat([x, following], 2)
    return tg.softmax(both @ both.mT, -1) @ both


tg.manual_seed(0)
LINEAR, GRU, LSTM, RNN = nn.Linear(4, 3), nn.GRU(4, 5), nn.LSTM(4, 5, 2), nn.RNN(4, 5, bidirectional=True)
CONV, NORM, ATTENTION = nn.Conv1d(3, 4, 3, padding=1), nn.LayerNorm(4), nn.MultiheadAttention(4, 2, batch_first=True)
TABLE = nn.Embedding(20, 4)

PROGRAMS: dict[str, Program] = {
    "elements": lambda n, m: numbers(n, m) * 2 + numbers(m),
    "outer": lambda n, m: numbers(n, 1) * numbers(m),
    "sums": lambda n, m: numbers(n, m).sum(0) + numbers(n, m).mean(),
    "extremes": lambda n, m: numbers(n, m + 1).amax(1) - numbers(n + 1, n + 1).amin(0)[:n],
    "softmax": lambda n, m: tg.softmax(numbers(n, m), 1),
    "product": lambda n, m: numbers(n, m) @ numbers(m, n),
    "square": lambda n, m: numbers(n, n) @ numbers(n, m),
    "pieces": lambda n, m: tg.cat([numbers(n, 2), numbers(m, 2), numbers(n, 2)]),
    "offsets": lambda n, m: numbers(40, 3).realize().requires_grad_()[n : n + m] * 2,
    "last": lambda n, m: numbers(40, 3).realize()[-n:, 1:].flip(0),
    "written": lambda n, m: tg.zeros(40, 2).index_fill(0, tg.arange(n), 2.0)[m:],
    "padded": lambda n, m: tg.nn.functional.pad(numbers(n, 3), (1, 0, m, 2)),
    "flat": lambda n, m: numbers(n * m).reshape(n, m).T.flatten(),
    "repeated": lambda n, m: numbers(n).repeat(m).reshape(m, n),
    "running": lambda n, m: numbers(n, m).cumsum(0).cumsum(1),
    "sorted": lambda n, m: numbers(n, m + 1).sort(1).values,
    "ranges": lambda n, m: tg.arange(n) * 2 + tg.arange(n + m)[:n],
    "attended": lambda n, m: attended(numbers(1, 4, n + 1, 4), numbers(1, 4, 1, 4)),
    "triangle": lambda n, m: numbers(n, n).masked_fill(tg.tril(tg.ones(n, n)) == 0, -1.0),
    "windows": lambda n, m: numbers(n + 3).unfold(0, 3, 1).sum(1),
    "diagonal": lambda n, m: numbers(n, n + 2).diagonal(),
    "chosen": lambda n, m: numbers(n + 1, 3)[tg.arange(m) % (n + 1)],
    "deviation": lambda n, m: numbers(n + 1, m + 1).std(0),
    "layer": lambda n, m: trained(LINEAR, n + 1, m + 1, 4),
    "gru": lambda n, m: trained(GRU, n + 1, 2, 4),
    "lstm": lambda n, m: trained(LSTM, n + 1, 3, 4),
    "rnn": lambda n, m: trained(RNN, n + 1, 3, 4),
    "convolution": lambda n, m: trained(CONV, 2, 3, n + 3),
    "norm": lambda n, m: trained(NORM, n + 1, m + 1, 4),
    "attention": lambda n, m: ATTENTION(*[numbers(2, n + 1, 4)] * 3)[0],
    "embedding": lambda n, m: trained(nn.Sequential(Steps(), TABLE), n + 1),
}
LAYERS = ("gru", "lstm", "rnn", "convolution", "attention")
"""Programs that take long to compile: they are compared at few lengths."""
OWN_PROGRAMS = ("chosen", "attention")
"""Programs with a program for each length: numbers that are no data, and kernels for known sizes."""


@pytest.fixture
def exact_sizes(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Compute something by programs for its own sizes."""

    def exactly(work: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(realize, "_for_all_sizes", lambda *given: False)
            patch.setattr(realize, "_programs", {})
            patch.setattr(realize, "_numbers", {})
            forget_programs()  # or each would find the other's
            try:
                return work()
            finally:
                forget_programs()

    return exactly


@pytest.fixture(autouse=True)
def compiled_at_once() -> Iterator[None]:
    """Compile at the first meeting, so that few lengths are enough."""
    with changed(tier="compiled"):
        yield


def distinct() -> set[int]:
    return {id(compiled) for compiled in realize.compiled_programs()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_lengths(name: str, exact_sizes: Callable[[Callable[[], Any]], Any]) -> None:
    program = PROGRAMS[name]
    for n, m in LENGTHS[:: 3 if name in LAYERS else 1]:
        got = program(n, m).detach().numpy()
        want = exact_sizes(lambda n=n, m=m: program(n, m).detach().numpy())
        assert got.shape == want.shape, (n, m)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=f"{name} of {n}, {m}")
    before = distinct()
    for n, m in ((35, 11), (17, 8)):
        want = exact_sizes(lambda n=n, m=m: program(n, m).detach().numpy())
        np.testing.assert_allclose(program(n, m).detach().numpy(), want, rtol=2e-5, atol=2e-5)
    assert name in OWN_PROGRAMS or not distinct() - before, "sizes that were never met need no new program"


def test_meetings_count_whatever_the_sizes(exact_sizes: Callable[[Callable[[], Any]], Any]) -> None:
    """Count new lengths of a structure as meetings, of which it waits for more before it is compiled."""

    def work(n: int) -> np.ndarray:
        return ((numbers(n, 5) * 3 - 1).cos().sum(1) * numbers(n)).detach().numpy()

    def meet(lengths: Sequence[int], programs: int) -> None:
        for n in lengths:
            np.testing.assert_allclose(work(n), exact_sizes(lambda n=n: work(n)), rtol=2e-5, atol=2e-5)
            assert len(distinct() - before) == programs

    numbers(40, 2).sum().item()  # and what else waits for an evaluation
    before = distinct()
    with changed(tier="counted", compile_at=3):
        meet(range(8, 7 + 3 * SIZES_PER_MEETING), 0)  # fewer elements are computed at once
        meet((50, 40, 60), 1)


def test_a_length_that_returns_is_compiled_for_all() -> None:
    before = distinct()
    with changed(tier="counted", compile_at=3):
        for n, programs in ((4, 0), (6, 0), (4, 0), (9, 0), (4, 1), (6, 1), (11, 1)):
            tg.tan(numbers(n, 7) * 2 - 1).sum(1).numpy()
            assert len(distinct() - before) == programs


def at_sizes(drawing: Drawn, sizes: dict[str, int]) -> tuple[Graph, list[np.ndarray]]:
    """A drawn graph at other sizes, with inputs of its own."""
    made: dict[Value, Value] = {}
    arrays: list[np.ndarray] = []
    for x, like in zip(drawing.graph.inputs, drawing.arrays, strict=True):
        shape = tuple([known(extent, sizes) for extent in x.shape])
        arrays.append(np.resize(like if like.size else np.ones(1, like.dtype), shape))
        made[x] = Input(TensorType(x.dtype, shape))
    for value in drawing.graph.values():
        if value not in made:
            made[value] = with_sizes(value, sizes).with_inputs([made[x] for x in value.inputs])
    return Graph(
        tuple([made[x] for x in drawing.graph.inputs]), tuple([made[v] for v in drawing.graph.outputs])
    ), arrays


@given(
    st.lists(st.integers(0, 9999), min_size=60, max_size=120),
    st.lists(st.tuples(st.integers(2, 9), st.integers(2, 9)), min_size=3, max_size=5),
)
def test_random_graphs_at_other_sizes(choices: list[int], lengths: Sequence[tuple[int, int]]) -> None:
    """What runs by symbols that were found afterwards is what the graph means."""
    drawing = drawn(choices)
    assume(drawing.sizes)
    for n, m in lengths:
        try:
            graph, arrays = at_sizes(drawing, {"n": n, "m": m})
        except TilegradError:
            continue  # sizes that meet only as they were drawn
        want = interpret(graph, arrays)
        place = device("cpu")
        for x, array in zip(graph.inputs, arrays, strict=True):
            x.hold(place.from_host(array))
        realize.realize(graph.outputs)
        for v, expected, exact in zip(graph.outputs, want, drawing.exact, strict=True):
            shape: Any = v.shape
            got = place.to_host(v.buffer, v.dtype, shape)
            compare(got, np.asarray(expected), exact, tolerance(graph), f"{graph}\n{n} {m}")
