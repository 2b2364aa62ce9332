"""Measure how long code takes: `tg.testing.do_bench`, `perf_report` (Triton's names), `tg.utils.benchmark` (PyTorch's).

What is timed is finished before the clock is read, and has run before, so that neither asynchronous work nor
compilation falsifies a time. A rate above what the machine can do is refused: something was not computed.
"""

from __future__ import annotations

import csv
import io
import time
import timeit
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any, NamedTuple

from ..errors import ArgumentError, RuntimeFault
from ..lazy.timing import synchronize
from ..runtime.bounds import FASTEST, limit
from ..runtime.device import device
from .chart import Curve, chart
from .files import write_whole

TOLERANCE = 1.25
"""Largest ratio of a rate to its measured limit that is accepted: limits are measured with some error."""
MIN_RUNS = 5
MODES = ("mean", "median", "min", "max", "all")


def do_bench(
    fn: Callable[[], Any], warmup: float = 25, rep: float = 100, grad_to_none: Iterable[Any] | None = None,
    quantiles: Sequence[float] | None = None, return_mode: str = "mean", *, bytes: int = 0, operations: float = 0,
    on: str = "cpu",
) -> Any:  # fmt: skip
    """Measure the milliseconds of a call, for `rep` milliseconds after a warm-up of `warmup`.

    With `bytes` and `operations` of a call, a time that no machine of this kind can reach is an error. With
    `quantiles` a list of these is returned, otherwise the mean or what `return_mode` says.

    >>> import tilegrad as tg
    >>> x = tg.rand(64, 64).realize()
    >>> 0 < do_bench(lambda: x @ x, warmup=1, rep=2) < 1000
    True
    """
    if return_mode not in MODES:
        raise ArgumentError(f"do_bench: return_mode is one of {', '.join(MODES)}, not {return_mode!r}")
    if not callable(fn):
        raise ArgumentError(f"do_bench times a function without arguments, as `lambda: step(x)`, not {fn!r:.40}")
    given = list(grad_to_none or ())
    _timed(fn, given, warmup)
    times = _timed(fn, given, rep)
    _check_possible(min(times), bytes, operations, on)
    if quantiles is not None:
        ordered = sorted(times)
        found = [_quantile(ordered, q) for q in quantiles]
        return found[0] if len(found) == 1 else found
    if return_mode == "all":
        return times
    match return_mode:
        case "mean":
            return mean(times)
        case "median":
            return median(times)
        case "min":
            return min(times)
    return max(times)


def _timed(fn: Callable[[], Any], given: Sequence[Any], milliseconds: float) -> list[float]:
    times: list[float] = []
    synchronize()
    end = time.perf_counter_ns() + milliseconds * 1e6
    while len(times) < MIN_RUNS or time.perf_counter_ns() < end:
        for x in given:
            x.grad = None
        start = time.perf_counter_ns()
        result = fn()
        synchronize()
        times.append((time.perf_counter_ns() - start) / 1e6)
        del result
    return times


def _quantile(ordered: Sequence[float], q: float) -> float:
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def _check_possible(milliseconds: float, bytes: int, operations: float, on: str) -> None:
    needed = limit(bytes, operations, device(on).limits, FASTEST)
    if needed.seconds > TOLERANCE * milliseconds * 1e-3:
        raise RuntimeFault(
            f"do_bench: {milliseconds:.4g} ms for {bytes:,} bytes and {operations:,.0f} operations is more than {on} "
            f"can do ({needed.seconds * 1e3:.4g} ms, bound by {needed.bound}): something is not computed, or counted "
            "wrong"
        )


class Benchmark:
    """A measurement of several functions over a range of sizes, for `perf_report`: Triton's arguments."""

    def __init__(
        self, x_names: Sequence[str], x_vals: Sequence[Any], line_arg: str, line_vals: Sequence[Any],
        line_names: Sequence[str], plot_name: str, args: dict[str, Any], xlabel: str = "", ylabel: str = "",
        x_log: bool = False, y_log: bool = False, styles: Any = None,
    ) -> None:  # fmt: skip
        if len(line_vals) != len(line_names):
            raise ArgumentError(f"Benchmark: {len(line_vals)} line_vals have {len(line_names)} line_names")
        if not x_vals or not line_vals:
            raise ArgumentError("Benchmark: x_vals and line_vals have at least one entry each")
        if Path(plot_name).name != plot_name:
            raise ArgumentError(f"Benchmark: plot_name names a file in save_path, without folders: {plot_name!r}")
        self.x_names, self.x_vals = list(x_names), list(x_vals)
        self.line_arg, self.line_vals, self.line_names = line_arg, list(line_vals), list(line_names)
        self.plot_name, self.args = plot_name, args
        self.xlabel, self.ylabel, self.x_log, self.y_log = xlabel, ylabel, x_log, y_log


class Report:
    """A function with its benchmarks: `run` measures, prints and writes them."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Sequence[Benchmark]) -> None:
        self.fn = fn
        self.benchmarks = benchmarks

    def run(
        self, show_plots: bool = False, print_data: bool = False, save_path: str = "", **options: Any
    ) -> list[list[list[Any]]]:
        """Measure all lines at each size in turn; `save_path` is a folder for a CSV and an SVG file of each benchmark.

        The rows of each benchmark: the sizes, then for each line the value or (value, least, greatest).
        """
        found = []
        for benchmark in self.benchmarks:
            rows = [self._row(benchmark, x, options) for x in benchmark.x_vals]
            found.append(rows)
            text = _csv(benchmark, rows)
            if print_data or show_plots:
                print(f"{benchmark.plot_name}:\n{_aligned(text)}")
            if save_path:
                Path(save_path).mkdir(parents=True, exist_ok=True)
                write_whole(Path(save_path) / f"{benchmark.plot_name}.csv", text)
                write_whole(Path(save_path) / f"{benchmark.plot_name}.svg", _svg(benchmark, rows))
        return found

    def _row(self, benchmark: Benchmark, x: Any, options: dict[str, Any]) -> list[Any]:
        sizes = list(x) if isinstance(x, list | tuple) else [x] * len(benchmark.x_names)
        if len(sizes) != len(benchmark.x_names):
            raise ArgumentError(f"Benchmark: {x!r} has {len(sizes)} sizes for {len(benchmark.x_names)} x_names")
        given = dict(zip(benchmark.x_names, sizes, strict=True)) | benchmark.args | options
        return [*sizes, *(self.fn(**given, **{benchmark.line_arg: value}) for value in benchmark.line_vals)]


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Report]:
    """Decorate a function that measures one point: `run` of the result measures, prints and writes all of them."""
    chosen = [benchmarks] if isinstance(benchmarks, Benchmark) else list(benchmarks)
    return lambda fn: Report(fn, chosen)


def _middle(value: Any) -> float:
    return float(value[0] if isinstance(value, list | tuple) else value)


def _csv(benchmark: Benchmark, rows: Sequence[Sequence[Any]]) -> str:
    file = io.StringIO()
    out = csv.writer(file, lineterminator="\n")
    out.writerow([*benchmark.x_names, *benchmark.line_names])
    count = len(benchmark.x_names)
    for row in rows:
        out.writerow([*row[:count], *(f"{_middle(value):.6g}" for value in row[count:])])
    return file.getvalue()


def _aligned(text: str) -> str:
    rows = list(csv.reader(io.StringIO(text)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows)


def _svg(benchmark: Benchmark, rows: Sequence[Sequence[Any]]) -> str:
    first = len(benchmark.x_names)
    lines = [
        Curve(name, [(float(row[0]), _middle(row[first + n])) for row in rows])
        for n, name in enumerate(benchmark.line_names)
    ]
    x, y = benchmark.xlabel or benchmark.x_names[0], benchmark.ylabel
    return chart(benchmark.plot_name, lines, x, y, x_log=benchmark.x_log, y_log=benchmark.y_log)


class Measurement(NamedTuple):
    """The times of a statement, in seconds of one run."""

    number_per_run: int
    raw_times: list[float]
    label: str = ""
    sub_label: str = ""
    description: str = ""
    num_threads: int = 1

    @property
    def times(self) -> list[float]:
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        return median(self.times)

    @property
    def mean(self) -> float:
        return mean(self.times)

    @property
    def iqr(self) -> float:
        """Interquartile range, in seconds."""
        if len(self.times) < 2:
            return 0.0
        low, _, high = quantiles(self.times, n=4)
        return high - low

    def __repr__(self) -> str:
        head = ": ".join(part for part in (self.label, self.sub_label or self.description) if part)
        spread = f"\n  IQR: {_seconds(self.iqr)}" if self.iqr else ""
        runs = f"{len(self.raw_times)} measurements of {self.number_per_run} runs, {self.num_threads} threads"
        return f"{head or 'a statement'}\n  Median: {_seconds(self.median)}{spread}\n  {runs}"


class Timer:
    """Times a statement, as PyTorch's does: what it leaves to compute is computed and awaited within the time."""

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] | None = None,
        globals: dict[str, Any] | None = None, label: str | None = None, sub_label: str | None = None,
        description: str | None = None, env: str | None = None, num_threads: int = 1, language: str = "python",
    ) -> None:  # fmt: skip
        if language not in ("python", "py"):
            raise ArgumentError("Timer: C++ statements are timed by a function of tilegrad.cpp, called in Python")
        self._timer = timeit.Timer(stmt, setup, timer or _finished, globals)
        self._about = label or stmt, sub_label or "", description or "", num_threads

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """Run the statement `number` times."""
        if number < 1:
            raise ArgumentError(f"Timer: number is at least 1, not {number}")
        self._timer.timeit(max(1, min(number // 100, 3)))
        return Measurement(number, [self._timer.timeit(number)], *self._about)

    def blocked_autorange(self, callback: Any = None, min_run_time: float = 0.2) -> Measurement:
        """Run it in blocks so long that reading the clock does not count, for at least `min_run_time` seconds."""
        number = 1
        self._timer.timeit(2)
        while (took := self._timer.timeit(number)) < min_run_time / 1000 and number < 1 << 30:
            number *= 10
        times = [took]
        while sum(times) < min_run_time or len(times) < MIN_RUNS:
            times.append(self._timer.timeit(number))
        return Measurement(number, times, *self._about)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0, callback: Any = None
    ) -> Measurement:
        """Run blocks until the spread is at most `threshold` of the median."""
        found = self.blocked_autorange(min_run_time=min_run_time)
        while found.iqr > threshold * found.median and sum(found.raw_times) < max_run_time:
            found = self.blocked_autorange(min_run_time=2 * sum(found.raw_times))
        return found


def _finished() -> float:
    synchronize()
    return time.perf_counter()


class Compare:
    """A table of measurements: a row for each `sub_label`, a column for each `description`."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self.results = list(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements."""
        self.results.extend(results)

    def trim_significant_figures(self) -> None:
        """Do nothing: times are printed in four digits in any case."""

    def colorize(self, rowwise: bool = False) -> None:
        """Do nothing: the table has no colours."""

    def print(self) -> None:
        """Print the table."""
        print(self)

    def __str__(self) -> str:
        parts = []
        for label in dict.fromkeys(m.label for m in self.results):
            own = [m for m in self.results if m.label == label]
            columns = list(dict.fromkeys(m.description for m in own))
            rows = [[f"[{label}]", *columns]]
            for row in dict.fromkeys((m.sub_label, m.num_threads) for m in own):
                found = {m.description: m for m in own if (m.sub_label, m.num_threads) == row}
                rows.append([row[0], *(_seconds(found[c].median) if c in found else "–" for c in columns)])
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            parts += ["  ".join(f"{c:>{w}}" for c, w in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([*parts, "Medians of one run."])


def _seconds(s: float) -> str:
    """Format seconds with a unit.

    >>> _seconds(2.5), _seconds(0.0125), _seconds(3.21e-5)
    ('2.5 s', '12.5 ms', '32.1 us')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if s * scale >= 1:
            return f"{s * scale:.4g} {unit}"
    return f"{s * 1e9:.4g} ns"
