"""Compare the profiler's time of each kernel, and that by events, with the GPU's own records and with a naive timer.

    TILEGRAD_LIBRARIES=off python -m bench.gpu_profiler [--out bench/results/h200-profiler-DATE.json]

CUPTI times kernels in the hardware; a profile takes its times, too, and must find them again for its launches. Where it
is missing or refused, bursts between two events are the reference: many runs in a row, so that the host's gaps and the
cost of the events do not count. All sides alternate, on a warm GPU. Steps are timed with and without a profile, too.
"""

from __future__ import annotations

import datetime
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import tilegrad as tg
from bench import networks
from tilegrad.backend.cuda import activity
from tilegrad.backend.cuda.watching import event_pair_cost
from tilegrad.errors import DeviceError
from tilegrad.profiler import profile
from tilegrad.runtime import events
from tilegrad.runtime.device import device

ROUNDS, RUNS, BURST_RUNS = 5, 10, 50
TOLERANCE = 0.03
"""Largest relative difference of a kernel's time to its reference."""


def workloads() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Ten functions, each with one kernel that takes nearly all of its time, from 20 us to milliseconds."""

    def made(*shape: int, dtype: Any = tg.float32) -> Any:
        return tg.rand(*shape, device="cuda").to(dtype).realize()

    large, rows, square = made(1 << 26), made(8192, 4096), made(2048, 2048)
    half, image, kernel = made(4096, 4096, dtype=tg.bfloat16), made(64, 64, 56, 56), made(64, 64, 3, 3)
    table, numbers = made(50000, 512), tg.randint(0, 50000, (65536,), device="cuda").realize()
    small = made(1 << 22)
    return {
        "add 2^26": (lambda x: x + 1, (large,)),
        "add 2^22": (lambda x: x * 2 + 1, (small,)),
        "sum of rows": (lambda x: x.sum(1), (rows,)),
        "softmax of rows": (lambda x: x.softmax(1), (rows,)),
        "transpose": (lambda x: x.t().contiguous() + 0, (rows,)),
        "matmul 2048 float32": (lambda x: x @ x, (square,)),
        "matmul 4096 bfloat16": (lambda x: x @ x, (half,)),
        "convolution": (lambda x, w: tg.nn.functional.conv2d(x, w, padding=1), (image, kernel)),
        "embedding": (lambda t, n: t[n], (table, numbers)),
        "layer norm": (lambda x: tg.nn.functional.layer_norm(x, (4096,)), (rows,)),
    }


def main_launch(times: Sequence[tuple[str, float]]) -> tuple[str, float]:
    """Return the name and the median microseconds of the launch that takes longest, of several runs.

    >>> main_launch([("a", 1.0), ("b", 7.0), ("a", 1.0), ("b", 9.0), ("a", 1.0), ("b", 8.0)])
    ('b', 8.0)
    """
    by_name: dict[str, list[float]] = {}
    for name, us in times:
        by_name.setdefault(name, []).append(us)
    name = max(by_name, key=lambda n: statistics.median(by_name[n]))
    return name, statistics.median(by_name[name])


def profiled(run: Callable[[], Any], by_events: bool = False) -> list[tuple[str, float]]:
    """Time the launches of some runs with the profiler; another listener makes it take the times of events."""
    with ExitStack() as stack:
        if by_events:
            stack.enter_context(events.listening(lambda _: None))
        prof = stack.enter_context(profile())
        for _ in range(RUNS):
            run()
    return [(r.name, r.nanoseconds / 1e3) for r in prof.timeline.launches if r.timed and r.run is not None]


def recorded(run: Callable[[], Any], cupti: activity.ActivityRecorder) -> list[tuple[str, float]]:
    """Time the launches of some runs, as they run without a profile, by CUPTI."""
    tg.cuda.synchronize()
    with cupti.recording() as found:
        for _ in range(RUNS):
            run()
        tg.cuda.synchronize()
    return [(a.name, (a.stop - a.start) / 1e3) for a in found if a.kind == "launch"]


def burst(run: Callable[[], Any]) -> float:
    """Time a run among many, in microseconds: the host is ahead of the GPU."""
    marks = [tg.cuda.Event(enable_timing=True) for _ in range(2)]
    kept: list[Any] = []
    marks[0].record()
    for _ in range(BURST_RUNS):
        kept[:] = [run()]
    marks[1].record()
    return float(marks[0].elapsed_time(marks[1])) * 1e3 / BURST_RUNS


def naive(fn: Callable[..., Any], given: Sequence[Any]) -> float:
    """Time a call as a clock of the host sees it, without waiting for the GPU, in microseconds."""
    start = time.perf_counter()
    kept = fn(*given)
    us = (time.perf_counter() - start) * 1e6
    tg.cuda.synchronize()
    del kept
    return us


def row(
    name: str, fn: Callable[..., Any], given: Sequence[Any], cupti: activity.ActivityRecorder | None
) -> dict[str, Any]:
    """Measure one workload."""
    jitted = tg.jit(fn)
    for _ in range(5):
        jitted(*given)
    tg.cuda.synchronize()
    ours: list[tuple[str, float]] = []
    ours_by_events: list[tuple[str, float]] = []
    theirs: list[tuple[str, float]] = []
    bursts, naives, truths = [], [], []
    for _ in range(ROUNDS):
        ours += profiled(lambda: jitted(*given))
        ours_by_events += profiled(lambda: jitted(*given), by_events=True)
        if cupti is not None:
            theirs += recorded(lambda: jitted(*given), cupti)
        bursts.append(burst(lambda: jitted(*given)))
        naives.append(naive(jitted, given))
        truths.append(1e3 * tg.testing.do_bench(lambda: jitted(*given), warmup=1, rep=3, return_mode="median"))
    kernel, us = main_launch(ours)
    found: dict[str, Any] = {"name": name, "kernel": kernel, "profiler_us": us, "burst_us": statistics.median(bursts)}
    _, found["events_us"] = main_launch(ours_by_events)
    found["launches_of_a_run"] = len(ours) // (ROUNDS * RUNS)
    if theirs:
        found["cupti_kernel"], found["cupti_us"] = main_launch(theirs)
        found["recorded"] = f"{len(theirs)} of {len(ours)}"
    reference = found.get("cupti_us", found["burst_us"])
    found |= {"difference": us / reference - 1, "events_difference": found["events_us"] / reference - 1}
    found["naive_us"] = statistics.median(naives)
    return found | {"do_bench_us": statistics.median(truths)}


STEPS = (("alexnet", 128, False, 20), ("alexnet", 128, True, 20), ("mlp", 64, False, 200))
"""Networks, batches, whether their products are in bfloat16, and steps between two looks at the clock."""


def step_cost(network: str, size: int, low: bool, count: int) -> dict[str, Any]:
    """Time jitted training steps with and without a profile, in turns."""
    step = networks.Training(tg, network, networks.batch(network, (size,)), tg.jit, low, "cuda")

    def timed() -> float:
        tg.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            step()
        tg.cuda.synchronize()
        return (time.perf_counter() - start) * 1e6 / count

    for _ in range(3):
        timed()
    without, with_profile = [], []
    for n in range(ROUNDS + 1):
        off = timed()
        with profile() as prof:
            on = timed()
        if n:  # the first profile opens CUPTI
            without.append(off)
            with_profile.append(on)
    launches = prof.timeline.launches
    untimed = sorted({r.name for r in launches if not r.timed})
    name = f"{network} {size}{' bfloat16' if low else ''}"
    found: dict[str, Any] = {"step": name, "us": statistics.median(without)}
    found["profiled_us"] = statistics.median(with_profile)
    found["cost"] = statistics.median(on / off - 1 for off, on in zip(without, with_profile, strict=True))
    return found | {"launches": len(launches), "timed": sum(r.timed for r in launches), "untimed": untimed}


def main(arguments: list[str]) -> int:
    gpu = device("cuda")
    reason = "libcupti is not installed"
    with ExitStack() as stack:
        try:
            cupti = activity.recorder()
            if cupti is not None:
                stack.enter_context(cupti.recording())  # refusals come at the first use
        except DeviceError as refused:
            cupti, reason = None, str(refused)
    with profile() as prof:
        tg.ones(4, device="cuda").realize()
    rows = []
    for name, (fn, given) in workloads().items():
        try:
            found = row(name, fn, given, cupti)
        except Exception as problem:  # the others are measured all the same
            found = {"name": name, "failed": f"{type(problem).__name__}: {str(problem)[:300]}"}
        rows.append(found)
        print(json.dumps(found), flush=True)
    steps = []
    for network, size, low, count in STEPS:
        steps.append(step_cost(network, size, low, count))
        print(json.dumps(steps[-1]), flush=True)
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip().split("\n")[0]
    measured = [r for r in rows if "difference" in r]
    record = {
        "date": datetime.date.today().isoformat(),
        "device": gpu.machine,
        "driver": driver,
        "memory_bytes": gpu.limits["memory_bytes"],
        "reference": "CUPTI" if cupti is not None else f"bursts: {reason}",
        "profiler_clock": prof.timeline.launches[0].clock,
        "event_pair_ns": event_pair_cost(gpu, gpu.queue),  # type: ignore[attr-defined, arg-type]
        "within_3_percent": sum(abs(r["difference"]) <= TOLERANCE for r in measured),
        "steps": steps,
        "rows": rows,
    }
    print({name: value for name, value in record.items() if name not in ("rows", "steps")}, flush=True)
    if "--out" in arguments:
        with open(arguments[arguments.index("--out") + 1], "w") as file:
            json.dump(record, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
