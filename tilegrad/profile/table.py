"""Print the rows of a profile: PyTorch's columns, then ours, then notes on the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from .timeline import DEVICE_WORK, Timeline, is_host

if TYPE_CHECKING:
    from .averages import Average, Averages

DASH = "–"
HINTS = 3
"""Rows for which a hint is printed."""
LONG_CALL_US = 20.0
"""Microseconds of the host for a run from which on `jit` of a larger part pays."""
MOSTLY_PYTHON = 0.5
"""Share of a range outside of programs from which on Python is the bottleneck."""
LOW_SHARE = 0.5
"""The share of the limit from which on a row needs no hint."""


def duration(microseconds: float) -> str:
    """Format microseconds with a unit, as PyTorch does.

    >>> duration(2_500_000), duration(12.5), duration(3210)
    ('2.500s', '12.500us', '3.210ms')
    """
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3f}s"
    return f"{microseconds / 1e3:.3f}ms" if microseconds >= 1e3 else f"{microseconds:.3f}us"


def figure(x: float | None) -> str:
    """Format a rate in three digits; a dash if it is not known.

    >>> figure(123.4), figure(1.25), figure(None)
    ('123', '1.2', '–')
    """
    return DASH if not x else f"{x:.0f}" if x >= 100 else f"{x:.1f}" if x >= 1 else f"{x:.2f}"


def table(rows: Sequence[Average], everything: Averages, name_width: int) -> str:
    """Format the rows as text."""
    host = sum(a.self_cpu_time_total for a in everything)
    on_device = sum(a.self_device_time_total for a in everything)
    has_device = any(not is_host(a.device) for a in everything)
    with_lines = any(a.line for a in rows)
    columns = _columns(host, on_device, has_device, with_lines)
    if everything.by_shape:
        columns.append(("Input Shapes", lambda a: str(a.input_shapes)))
    cells = [[make(a) for _, make in columns] for a in rows]
    cells = [[cut(row[0], name_width), *row[1:]] for row in cells]
    heads = [head for head, _ in columns]
    widths = [max(len(c) for c in column) for column in zip(heads, *cells, strict=True)]
    left = {"Name", "Bound by", "Line", "Module", "Input Shapes"}
    lines = [
        "  ".join(f"{c:<{w}}" if head in left else f"{c:>{w}}" for c, w, head in zip(row, widths, heads, strict=True))
        for row in [heads, *cells]
    ]
    rule = "  ".join("-" * w for w in widths)
    shown = [rule, lines[0].rstrip(), rule, *(line.rstrip() for line in lines[1:]), rule]
    measured = any(a.on_host for a in everything) or not everything
    shown.append(f"Self CPU time total: {duration(host) if measured else DASH}")
    if has_device:
        shown.append(f"Self CUDA time total: {duration(on_device) if on_device else DASH}")
    return "\n".join([*shown, *_footer(everything)])


def cut(name: str, width: int) -> str:
    """Shorten a name to the width of its column."""
    return name if width <= 0 or len(name) <= width else f"{name[: max(1, width - 3)]}..."


def _columns(
    host: float, on_device: float, has_device: bool, with_lines: bool
) -> list[tuple[str, Callable[[Average], str]]]:
    def time(measured: str, value: Callable[[Average], float]) -> Callable[[Average], str]:
        return lambda a: duration(value(a)) if getattr(a, measured) else DASH

    def share(measured: str, value: Callable[[Average], float], whole: float) -> Callable[[Average], str]:
        return lambda a: f"{100 * value(a) / whole:.2f}%" if whole and getattr(a, measured) else DASH

    columns: list[tuple[str, Callable[[Average], str]]] = [
        ("Name", lambda a: a.key),
        ("Self CPU %", share("on_host", lambda a: a.self_cpu_time_total, host)),
        ("Self CPU", time("on_host", lambda a: a.self_cpu_time_total)),
        ("CPU total %", share("on_host", lambda a: a.cpu_time_total, host)),
        ("CPU total", time("on_host", lambda a: a.cpu_time_total)),
        ("CPU time avg", time("on_host", lambda a: a.cpu_time)),
    ]
    if has_device:
        columns += [
            ("Self CUDA", time("on_device", lambda a: a.self_device_time_total)),
            ("Self CUDA %", share("on_device", lambda a: a.self_device_time_total, on_device)),
            ("CUDA total", time("on_device", lambda a: a.device_time_total)),
            ("CUDA time avg", time("on_device", lambda a: a.device_time)),
        ]
    columns += [
        ("# of Calls", lambda a: str(a.count)),
        ("GB/s", lambda a: figure(_rate(a, a.bytes, 1e-9))),
        ("GFLOP/s", lambda a: figure(_rate(a, a.flops, 1e-9))),
        ("of limit", _of_limit),
        ("Bound by", lambda a: a.bound or DASH),
    ]
    if with_lines:
        columns += [("Module", lambda a: a.module), ("Line", lambda a: a.line)]
    return columns


def _rate(a: Average, amount: float | None, scale: float) -> float | None:
    if not amount or not a.timed or a.timed != a.count or not a.self_time or a.kind not in (*DEVICE_WORK, "operation"):
        return None
    return amount / (a.self_time * 1e-6) * scale


def _of_limit(a: Average) -> str:
    share = a.share_of_limit
    return DASH if share is None else f"{100 * share:.0f} %" if share <= 1 else "> 100 %"


def _device_lines(name: str, busy: int, span: int, overlap: int, clocks: Iterable[str]) -> list[str]:
    lines = []
    if span and busy:
        idle, all_of_it = duration((span - busy) / 1e3), duration(span / 1e3)
        both = "" if is_host(name) else f", {duration(overlap / 1e3)} of it while the host worked, too"
        lines.append(f"{name}: busy {duration(busy / 1e3)}{both}, waiting {idle} of {all_of_it}")
    return [*lines, *(f"{name}: timed by {clock}" for clock in clocks)]


def _footer(everything: Averages) -> list[str]:
    """List the notes on the whole: launches timed, waiting, cost of recording, hints."""
    whole = everything.timeline
    if whole is None:
        return []
    operations = whole.of("operation")
    if operations and not whole.launches:
        count = f"{len(operations):,} operation{'' if len(operations) == 1 else 's'}"
        return [f"{count}, computed one by one: profile(one_by_one=False) shows what really runs", *everything.notes]
    lines = _launch_lines(whole)
    if whole.left_out:
        lines.append(f"WARNING: {whole.left_out:,} records are left out: a profile keeps a million")
    span = max(0, whole.ended - whole.began)
    if span:
        lines.append(f"recording took {duration(whole.cost / 1e3)} ({100 * whole.cost / span:.1f} % of the time)")
    if any((a.share_of_limit or 0) > 1 and is_host(a.device) for a in everything):
        lines.append(
            "> 100 %: the limit was measured while the machine was busy; "
            "`python -m tilegrad doctor --measure` measures it again"
        )
    return [*lines, *everything.notes, *hints(everything)]


def _launch_lines(whole: Timeline) -> list[str]:
    """Tell how many launches were timed, by which clocks, and how long each device was busy."""
    launches = whole.launches
    timed = sum(r.timed for r in launches)
    lines = [f"{len(launches):,} launches, {timed:,} timed"]
    if timed < len(launches):
        devices = ", ".join(sorted({r.device for r in launches if not r.timed}))
        lines[0] += f": WARNING, {len(launches) - timed:,} have no time ({devices} did not give it), shown as {DASH}"
    span = max(0, whole.ended - whole.began)
    for name in sorted({r.device for r in launches}):
        clocks = sorted({r.clock for r in launches if r.device == name and r.clock})
        lines += _device_lines(name, whole.busy(name), span, whole.overlap(name), clocks)
    return lines


def hints(rows: Sequence[Average]) -> list[str]:
    """Advise on the rows that lose most time against the limit."""
    found = []
    for a in rows:
        advice = _advice(a)
        if advice:
            share = a.share_of_limit
            lost = a.self_time * (1 - min(1.0, share)) if share is not None else a.self_time
            found.append((lost, f"{a.key}: {advice}"))
    found.sort(key=lambda pair: -pair[0])
    return [text for _, text in found[:HINTS]]


def _advice(a: Average) -> str:
    """Return the hint for a row; empty if there is none."""
    share, mean = a.share_of_limit, a.self_time / max(1, a.count)
    match a.kind:
        case "step" | "range" if a.self_time > MOSTLY_PYTHON * a.total_time:
            return f"{duration(a.self_time)} in Python, not in programs: `tilegrad.jit` of the step records it once"
        case "compile":
            return f"compiled {a.count:,} times in {duration(a.self_time)}: warm up before profiling, or keep the cache"
        case "load":
            return f"waited {duration(a.self_time)} for data: DataLoader(num_workers=...) makes batches ahead"
        case "run" if a.count > 1 and mean > LONG_CALL_US:
            return f"{a.count:,} runs, {duration(mean)} of the host each: capture more of the loop with `jit`"
        case "launch" if share is not None and share < LOW_SHARE:
            return f"{100 * share:.0f} % of the limit: {_remedy(a, mean)}"
    return ""


def _remedy(a: Average, mean: float) -> str:
    if a.bound == "launch":
        return f"{a.count:,} launches of {duration(mean)}, capture the loop with `jit`"
    moves = a.bound in ("memory", "cache")
    rate = f"{figure(_rate(a, a.bytes if moves else a.flops, 1e-9))} {'GB/s' if moves else 'GFLOP/s'}"
    return f"{rate}, bound by {a.bound}; `python -m tilegrad tune` looks for better tiles"
