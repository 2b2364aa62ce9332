"""The frame of the gallery: steps that compute the same thing, each checked and timed next to the one before it.

climb = Climb("vector add", inputs=pair, expected=lambda x, y: x + y, size={"n": 1 << 22}, ...)

@climb.step
def one_each(x, y):
    "a program for each element"
    ...
    return out

if __name__ == "__main__":
    climb.main()
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tilegrad as tg
from tilegrad.backend.cpu.limits import limits
from tilegrad.config import settings
from tilegrad.profile.count import Work
from tilegrad.profile.limit import limit_of

ROUNDS = 5
"""Measurements of each step, interleaved with the others; the best counts."""
SHORTEST = 0.02
"""Seconds of a measurement."""
FIRST, MAX_RUNS = 3, 1000
"""Warm-up runs (a CPU distributes its work by measured times), and the most runs in one measurement."""

Step = Callable[..., tg.Tensor]
Sizes = Mapping[str, int]


class Row(NamedTuple):
    """A measured step: seconds, share of the machine's limit, and largest error."""

    title: str
    seconds: float
    share: float
    error: float


class Climb:
    """Steps that compute the same from the same inputs.

    `inputs` makes them from a size; `expected` is the tensor operation with which every step is compared, on the inputs
    in float64. `bytes` and `operations` are lower bounds of the work. `size` is measured on a CPU, `large` on a GPU,
    `tiny` in tests. `built_in` is timed next to the steps, if it is not `expected`; `peers` are further functions of
    the inputs to be timed, of numpy for example.
    """

    def __init__(
        self,
        title: str,
        inputs: Callable[..., Sequence[Any]],
        expected: Callable[..., tg.Tensor],
        *,
        size: Sizes,
        tiny: Sequence[Sizes],
        bytes: Callable[..., float],
        operations: Callable[..., float] = lambda **size: 0.0,
        large: Sizes | None = None,
        tolerance: float = 1e-5,
        built_in: Callable[..., tg.Tensor] | None = None,
        peers: Mapping[str, Callable[..., Any]] = {},
    ) -> None:
        self.title, self.inputs, self.expected = title, inputs, expected
        self.size, self.tiny, self.large = size, tiny, size if large is None else large
        self.bytes, self.operations, self.tolerance, self.peers = bytes, operations, tolerance, peers
        self.built_in = expected if built_in is None else built_in
        self.steps: list[tuple[Step, frozenset[str]]] = []

    def step(self, function: Step | None = None, *, on: str = "cpu cuda") -> Any:
        """Add a step; `on` lists the kinds of devices that it is for. Its docstring says what is new in it."""
        if function is None:
            return lambda given: self.step(given, on=on)
        self.steps.append((function, frozenset(on.split())))
        return function

    def steps_on(self, device: str) -> dict[str, Step]:
        """The steps for a kind of device, by name."""
        kind = device.partition(":")[0]
        return {str(f.__doc__): f for f, places in self.steps if kind in places}

    def given(self, device: str, size: Sizes) -> list[Any]:
        """The inputs on a device; the same every time."""
        tg.manual_seed(0)
        return [x.to(device) if isinstance(x, tg.Tensor) else x for x in self.inputs(**size)]

    def check(self, device: str, size: Sizes) -> dict[str, float]:
        """Find the largest error of each step, relative to the largest element; AssertionError if it is too large."""
        given = self.given(device, size)
        wanted = self.expected(*[_exact(x) for x in given])
        errors = {}
        for title, step in self.steps_on(device).items():
            found = step(*given)
            error = errors[title] = difference(found, wanted.to(found.dtype))
            assert error <= self.tolerance, f"{self.title}, {title}: differs by {error:.1e} at {dict(size)}"
        return errors

    def measured(self, device: str, size: Sizes, rounds: int = ROUNDS) -> list[Row]:
        """Check all steps, then time them, the tensor operation and the peers, interleaved."""
        errors = self.check(device, size)
        given = self.given(device, size)
        runs: dict[str, Callable[[], Any]] = {t: _call(f, given) for t, f in self.steps_on(device).items()}
        built_in = tg.jit(self.built_in)
        runs["the tensor operation"] = lambda: built_in(*given).realize()
        if device == "cpu":
            runs |= {title: _call(peer, given) for title, peer in self.peers.items()}
        counts = {title: _settled(run, device) for title, run in runs.items()}
        best = dict.fromkeys(runs, float("inf"))
        for _ in range(rounds):
            for title, run in runs.items():
                best[title] = min(best[title], _seconds(run, counts[title], device))
        least = self.least(device, size)
        return [Row(title, took, least / took, errors.get(title, 0.0)) for title, took in best.items()]

    def least(self, device: str, size: Sizes) -> float:
        """The least seconds that the machine needs by its measured limits (a GPU: by the clock of its memory)."""
        work = Work(round(self.bytes(**size)), 0, round(self.operations(**size)))
        if device == "cpu":
            return limit_of(work, limits()).seconds
        return work.bytes / tg.cuda.get_device_properties(device).memory_bandwidth

    def main(self, arguments: Sequence[str] | None = None) -> None:
        """The command line of a file of the gallery."""
        parser = argparse.ArgumentParser(description=f"{self.title}: step by step, checked and timed")
        parser.add_argument("--device", default="cpu", help="cpu, or cuda")
        parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each step is timed")
        for name, value in self.size.items():
            parser.add_argument(f"--{name}", type=int, help=f"{value:,} on a CPU, {self.large[name]:,} on a GPU")
        chosen = parser.parse_args(arguments)
        usual = self.size if chosen.device == "cpu" else self.large
        given = {name: getattr(chosen, name) for name in usual}
        size = {name: usual[name] if n is None else n for name, n in given.items()}
        print(self.table(self.measured(chosen.device, size, chosen.rounds), chosen.device, size))

    def table(self, rows: Sequence[Row], device: str, size: Sizes) -> str:
        """Measured steps for a terminal."""
        wide = max(len(row.title) for row in rows)
        lines = [f"{self.title}, {', '.join(f'{name} {n:,}' for name, n in size.items())}, on {device}"]
        lines.append(f"  {'':{wide}}  {'time':>10}  {'step':>7}  {'of the limit':>12}  {'error':>7}")
        for row, step in zip(rows, gains([row.seconds for row in rows]), strict=True):
            shown = f"{step:6.2f}x" if row.title in self.steps_on(device) else ""
            lines.append(
                f"  {row.title:{wide}}  {1e3 * row.seconds:7.3f} ms  {shown:>7}  {100 * row.share:10.0f} %  "
                f"{row.error:7.0e}"
            )
        return "\n".join(lines)


def gains(seconds: Sequence[float]) -> list[float]:
    """The speed of each step relative to the step before it; the first is 1.

    >>> gains([4.0, 2.0, 2.5])
    [1.0, 2.0, 0.8]
    """
    return [before / now for before, now in zip([seconds[0], *seconds], seconds, strict=False)]


def _exact(x: Any) -> Any:
    """An input in the highest precision."""
    return x.double() if isinstance(x, tg.Tensor) and x.is_floating_point() else x


def difference(x: tg.Tensor, y: tg.Tensor) -> float:
    """The greatest difference, relative to the greatest element."""
    if x.shape != y.shape:
        raise AssertionError(f"a result is {tuple(x.shape)}, and not {tuple(y.shape)}")
    if 0 in x.shape:
        return 0.0
    apart, largest = (x.double() - y.double()).abs().max().item(), y.double().abs().max().item()
    return float(apart / largest) if largest else float(apart)


def gallery() -> dict[str, Climb]:
    """All files of the gallery, by name."""
    from importlib import import_module

    names = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_"))
    modules = {name: import_module(f"{__package__}.{name}") for name in names if name != "frame"}
    return {name: module.climb for name, module in modules.items() if hasattr(module, "climb")}


def _call(function: Callable[..., Any], given: Sequence[Any]) -> Callable[[], Any]:
    return lambda: function(*given)


def _settled(run: Callable[[], Any], device: str) -> int:
    """Warm a step up; return the number of runs that one measurement needs."""
    for _ in range(FIRST):
        took = _seconds(run, 1, device)
        if took > 50 * SHORTEST:
            break
    return max(1, min(MAX_RUNS, int(SHORTEST / max(took, 1e-9))))


def _seconds(run: Callable[[], Any], count: int, device: str) -> float:
    """Measure the seconds of a run: on one thread processor time, which other processes hardly change."""
    clock = time.process_time if device == "cpu" and settings().threads == 1 else time.perf_counter
    start = clock()
    for _ in range(count):
        run()
    if device != "cpu":
        tg.cuda.synchronize()
    return (clock() - start) / count
