"""Simulate an accelerator in the style of VTA: a load unit, a multiply unit and a store unit.

    python -m examples.accelerator

Each unit takes instructions from its own queue, in order. Units synchronise by tokens: the load unit tells the multiply
unit that a tile has arrived, and the multiply unit tells it when the tile's buffer is free again. With one pair of
buffers a load waits for the product before it; with two (double buffering), the next tiles are loaded during this
product. That hides latency, and the gain is counted here in cycles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

import tilegrad as tg

SIDE = 16
"""Side of the tiles that the unit multiplies: 16 x 16 numbers of 8 bits, accumulated in 32 bits."""
UNITS = ("load", "multiply", "store")
LATENCY = 60
"""Cycles until the first byte of a tile comes from memory."""
BYTES_A_CYCLE = 16
CYCLES_OF_A_PRODUCT = 64
Array = np.ndarray[Any, Any]


class Instruction(NamedTuple):
    """An instruction of a unit. It takes a token from each queue in `waits`, and puts one into each queue in `tells`
    when it is done; a queue of tokens is named by its producer and its consumer.
    """

    unit: str
    place: int
    at: tuple[int, int, int]
    waits: tuple[tuple[str, str], ...] = ()
    tells: tuple[tuple[str, str], ...] = ()

    @property
    def cycles(self) -> int:
        bytes = {"load": 2 * SIDE * SIDE, "store": 4 * SIDE * SIDE}.get(self.unit)
        return CYCLES_OF_A_PRODUCT if bytes is None else LATENCY + bytes // BYTES_A_CYCLE

    def __str__(self) -> str:
        return f"{self.unit} {self.at}"


class Done(NamedTuple):
    """The interval in which an instruction ran."""

    instruction: Instruction
    start: int
    end: int


class Run(NamedTuple):
    """A product with the trace of its instructions."""

    result: Array
    history: tuple[Done, ...]

    @property
    def cycles(self) -> int:
        return max((d.end for d in self.history), default=0)

    def busy(self, unit: str) -> float:
        """The share of the time in which a unit works."""
        return sum(d.end - d.start for d in self.history if d.instruction.unit == unit) / max(self.cycles, 1)

    def chart(self, width: int = 72) -> str:
        """Draw a line for each unit: the cycles in which it works."""
        scale = width / max(self.cycles, 1)
        lines = []
        for unit in UNITS:
            line = [" "] * width
            for n, d in enumerate(d for d in self.history if d.instruction.unit == unit):
                for k in range(int(d.start * scale), min(width, max(int(d.end * scale), int(d.start * scale) + 1))):
                    line[k] = "#=" [n % 2]  # fmt: skip
            lines.append(f"{unit:9}|{''.join(line)}| {100 * self.busy(unit):.0f} %")
        return "\n".join(lines)


def program(rows: int, columns: int, depth: int, places: int) -> Iterator[Instruction]:
    """The instructions of a product with this many tiles and pairs of buffers."""
    free, ready = ("multiply", "load"), ("load", "multiply")
    done, stored, turn = ("multiply", "store"), ("store", "multiply"), 0
    for i in range(rows):
        for j in range(columns):
            for k in range(depth):
                place = turn % places
                yield Instruction("load", place, (i, j, k), (free,) if turn >= places else (), (ready,))
                waits = (ready, stored) if k == 0 and (i or j) else (ready,)  # the sums are stored before new ones
                yield Instruction("multiply", place, (i, j, k), waits, (free, done) if k == depth - 1 else (free,))
                turn += 1
            yield Instruction("store", 0, (i, j, 0), (done,), (stored,))


def run(x: Array, y: Array, instructions: Sequence[Instruction]) -> Run:
    """Execute instructions as their queues and tokens allow; raise if all units wait forever."""
    queues = {unit: deque(s for s in instructions if s.unit == unit) for unit in UNITS}
    tokens: dict[tuple[str, str], deque[int]] = {}
    free = dict.fromkeys(UNITS, 0)
    held: dict[int, tuple[Array, Array]] = {}
    total = np.zeros((SIDE, SIDE), np.int32)
    result = np.zeros((x.shape[0], y.shape[1]), np.int32)
    history: list[Done] = []
    while any(queues.values()):
        able = [q[0] for q in queues.values() if q and all(tokens.get(t) for t in q[0].waits)]
        if not able:
            waiting = "; ".join(f"{q[0]} for {' and '.join(t[0] for t in q[0].waits)}" for q in queues.values() if q)
            raise RuntimeError(f"every unit waits: {waiting}")
        for s in able:
            queues[s.unit].popleft()
            start = max([free[s.unit], *(tokens[t].popleft() for t in s.waits)])
            free[s.unit] = end = start + s.cycles
            for t in s.tells:
                tokens.setdefault(t, deque()).append(end)
            history.append(Done(s, start, end))
            i, j, k = (slice(n * SIDE, (n + 1) * SIDE) for n in s.at)
            if s.unit == "load":
                held[s.place] = x[i, k], y[k, j]
            elif s.unit == "multiply":
                left, right = held[s.place]
                total = (0 if s.at[2] == 0 else total) + left.astype(np.int32) @ right.astype(np.int32)
            else:
                result[i, j] = total
    return Run(result, tuple(history))


def multiplied(x: Array, y: Array, places: int) -> Run:
    """x @ y of 8-bit integers; sides are multiples of 16."""
    (m, k), n = x.shape, y.shape[1]
    if any(side % SIDE for side in (m, n, k)) or y.shape[0] != k:
        raise ValueError(f"the accelerator multiplies tiles of {SIDE} x {SIDE}, and not {x.shape} and {y.shape}")
    return run(x, y, list(program(m // SIDE, n // SIDE, k // SIDE, places)))


def main() -> None:
    tg.manual_seed(0)
    x, y = (tg.randint(-128, 128, shape).to(tg.int8) for shape in ((32, 64), (64, 32)))
    expected = (x.to(tg.int32) @ y.to(tg.int32)).numpy()
    one = 0
    for places in (1, 2, 4):
        made = multiplied(x.numpy(), y.numpy(), places)
        assert (made.result == expected).all()
        one = one or made.cycles
        print(f"{places} place{'s'[: places > 1]}: {made.cycles} cycles, {one / made.cycles:.2f} times as fast")
        print(made.chart())


if __name__ == "__main__":
    main()
