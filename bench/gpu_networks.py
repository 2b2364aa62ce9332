"""Measure training steps on one GPU against PyTorch and JAX: python -m bench.gpu_networks [names] [--out file.json]

PyTorch runs eagerly, channels-last where there are images, each also captured as a CUDA graph, and compiled (`COMPILED`
names the modes; each takes a minute; `--compile mode,mode` chooses others, `--compile none` none); JAX is jitted. All
may use tensor cores for float32 (`high`, tf32). Ours runs as used and with TILEGRAD_LIBRARIES=off. `--limit N`: seconds
for a row.

Contenders take turns. Before anything is timed, all gradients from which our steps update weights are compared with
float64, next to PyTorch's in the same arithmetic, and so are the losses of the first steps. Each row is measured by a
process of its own: a fault takes the device from that process only. `--verify` compares and times nothing.
"""

from __future__ import annotations

import datetime
import gc
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import tilegrad as tg
from bench import networks
from tilegrad.config import changed

ROUNDS, STEPS = 7, 20
VERIFY = ("--verify",)
"""Stands in place of modes: only compare gradients."""
LONGEST = 300
"""Seconds for a row."""
FARTHER, NEAR = 2.0, {False: 3e-3, True: 2e-2}
"""Bounds of a gradient's error: this many times PyTorch's; smaller errors always pass (in tf32, in bfloat16)."""
ALONE = "tilegrad alone"
"""With TILEGRAD_LIBRARIES=off."""
ERROR = re.compile(r"[\w.]+(Error|Fault|Exception)\b")
"""Matches the last lines of a traceback."""


class Task(NamedTuple):
    """A network, the size of its batch, whether its products are in bfloat16, and whether it only computes scores."""

    network: str
    size: tuple[int, ...]
    low: bool = False
    inference: bool = False

    @property
    def name(self) -> str:
        network = f"{self.network}_inference" if self.inference else self.network
        return f"{network} {'x'.join(map(str, self.size))}{' bfloat16' if self.low else ''}"

    def step(
        self,
        library: Any,
        inputs: networks.Inputs,
        ready: networks.Ready,
        laid: Callable[[Any], Any] = networks.same,
    ) -> networks.Call:
        """The work that is measured."""
        made = networks.inference if self.inference else networks.Training
        return made(library, self.network, inputs, ready, self.low, "cuda", laid)

    @property
    def has_images(self) -> bool:
        return len(networks.SHAPES.get(self.network, ())) > 1


TASKS = (
    *(Task("mlp", (n,)) for n in (64, 512)),
    *(Task("lenet", (n,)) for n in (64, 512)),
    *(Task("alexnet", (n,), low) for n in (32, 128, 512) for low in (False, True)),
    *(Task("alexnet", (n,), low, True) for n in (1, 32, 256) for low in (False, True)),
    *(Task("gpt", (16, 128), low) for low in (False, True)),
    Task("gpt2", (16, 1024), True),
)
COMPILED: dict[str, tuple[str, ...]] = {
    "mlp": ("reduce-overhead",),
    "lenet": ("reduce-overhead",),
    "alexnet": ("reduce-overhead",),
    "gpt": ("default",),
    "gpt2": ("default",),
}
"""Modes of torch.compile for each network."""


def graphed(torch: Any, step: Callable[[], Any]) -> Callable[[], Any]:
    """Capture a step as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay(kept: Callable[[], Any] = step) -> Any:
        """Replay the graph; `kept` holds the memory that it reads."""
        graph.replay()
        return result

    return replay


def contenders(torch: Any, task: Task) -> dict[str, Callable[[], Any]]:
    inputs = networks.batch(task.network, task.size)
    last = {"memory_format": torch.channels_last}

    def theirs(laid: Callable[[Any], Any] = networks.same) -> Callable[[], Any]:
        return task.step(torch, inputs, lambda f: f, laid)

    def in_last(x: Any) -> Any:
        return x.to(**last)

    made: dict[str, Callable[[], Any]] = {"tilegrad": task.step(tg, inputs, tg.jit), ALONE: alone_with_it(task, inputs)}
    made["torch"] = theirs()
    if task.has_images:
        made["torch channels-last"] = theirs(in_last)
    if task.network not in ("gpt", "gpt2"):  # AdamW counts its steps on the host
        made["torch-graph"] = graphed(torch, theirs())
        if task.has_images:
            made["torch-graph channels-last"] = graphed(torch, theirs(in_last))
    return made


def alone_with_it(task: Task, inputs: networks.Inputs) -> Callable[[], Any]:
    """Our step without libraries: algorithms chosen at its first run stay."""
    step = task.step(tg, inputs, tg.jit)
    with changed(libraries="off"):
        for _ in range(4):
            step()
    return step


def jitted(task: Task, wanted: Any) -> dict[str, float]:
    """Measure a JAX step, if JAX is installed, and compute the losses or scores."""
    try:
        from bench import gpu_jax

        inputs = networks.batch(task.network, task.size)
        step = (gpu_jax.inference if task.inference else gpu_jax.training)(task.network, inputs, task.low)
        found = [np.asarray(gpu_jax.wait(step())).astype(np.float32) for _ in range(3)]
        apart = abs((found[0] if task.inference else np.array(found)) - wanted).max() / abs(wanted).max()
        if not apart < allowed(task):
            raise RuntimeError(f"its results differ: {found}")
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(STEPS):
                made = step()
            gpu_jax.wait(made)
            times.append((time.perf_counter() - start) / STEPS)
    except Exception as e:  # the others count all the same, and who is missing is said
        print(f"{task.name}: jax: {type(e).__name__}: {str(e)[:200]}", flush=True)
        return {}
    return {"jax": statistics.median(times)}


def compiled(torch: Any, task: Task, mode: str) -> dict[str, float]:
    """Measure a step under torch.compile; last, because it leaves state in the process that slows others."""
    inputs = networks.batch(task.network, task.size)
    try:
        ready = partial(torch.compile, mode=mode)
        step = task.step(torch, inputs, ready)
        for _ in range(3):
            step()
        times = [seconds(torch, step) for _ in range(ROUNDS)]
    except Exception as e:  # the others count all the same, and who is missing is said
        print(f"{task.name}: torch.compile {mode}: {type(e).__name__}: {str(e)[:200]}", flush=True)
        return {}
    finally:
        gc.collect()
        gc.freeze()
    return {f"torch-compile {mode}": statistics.median(times)}


def seconds(torch: Any, step: Callable[[], Any]) -> float:
    """Measure the seconds of one step: wall time of several, until all work is done."""
    step()
    tg.cuda.synchronize()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    tg.cuda.synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / STEPS


def allowed(task: Task) -> float:
    """The largest allowed difference of results."""
    return 0.05 if task.low else 0.01


def different(task: Task, steps: dict[str, Callable[[], Any]]) -> tuple[float, Any, Any]:
    """The difference of our results from PyTorch's (losses of the first steps, or all scores), and the latter."""
    if task.inference:
        ours, theirs = (steps[who]().float().cpu().numpy() for who in ("tilegrad", "torch"))
        return float(abs(ours - theirs).max() / abs(theirs).max()), (ours[0], theirs[0]), theirs
    losses = {who: np.array([steps[who]()[0].item() for _ in range(3)]) for who in ("tilegrad", "torch")}
    return float((abs(losses["tilegrad"] / losses["torch"] - 1)).max()), losses, losses["torch"]


def verified(torch: Any, task: Task, place: str = "cuda") -> dict[str, float]:
    """The largest gradient error of each contender against float64; raises if ours is wrong."""
    inputs = networks.batch(task.network, task.size)
    exact = networks.exact_gradients(torch, task.network, inputs, place)
    given = (task.network, inputs)
    found = {"torch": networks.Training(torch, *given, networks.same, task.low, place).gradients()}
    found["tilegrad"] = networks.Training(tg, *given, tg.jit, task.low, place).gradients()
    with changed(libraries="off"):
        found[ALONE] = networks.Training(tg, *given, tg.jit, task.low, place).gradients()
    apart = {who: networks.errors(gradients, exact) for who, gradients in found.items()}
    for who in ("tilegrad", ALONE):
        for n, (own, theirs) in enumerate(zip(apart[who], apart["torch"], strict=True)):
            if not own <= max(NEAR[task.low], FARTHER * theirs):
                shape = "x".join(map(str, exact[n].shape))
                raise RuntimeError(
                    f"{task.name}: gradient {n} ({shape}) of {who} is wrong: {own:.2g}, torch's {theirs:.2g}"
                )
    gc.collect()
    if place == "cuda":
        torch.cuda.empty_cache()
    return {who: max(far) for who, far in apart.items()}


def measured(torch: Any, task: Task, modes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Measure a row; contenders that leave state behind come last."""
    errors = {} if task.inference else {"gradients": verified(torch, task)}
    if modes == VERIFY:
        yield {"name": task.name, **errors}
        return
    for found in _timed(torch, task, modes):
        yield found | errors


def _timed(torch: Any, task: Task, modes: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    all_steps = contenders(torch, task)
    apart, losses, wanted = different(task, all_steps)
    if not apart < allowed(task):
        raise RuntimeError(f"{task.name}: {'scores' if task.inference else 'losses'} differ: {losses}")
    times: dict[str, list[float]] = {who: [] for who in all_steps}
    for _ in range(ROUNDS):
        for who, step in all_steps.items():
            times[who].append(seconds(torch, step))
    medians = {who: statistics.median(found) for who, found in times.items()}
    del all_steps
    yield _row(task, medians)
    medians |= jitted(task, wanted)
    yield _row(task, medians)
    for mode in modes:
        medians |= compiled(torch, task, mode)
        yield _row(task, medians)


def _row(task: Task, medians: dict[str, float]) -> dict[str, Any]:
    best = min(t for who, t in medians.items() if who not in ("tilegrad", ALONE))
    return {"name": task.name, "us": {w: 1e6 * t for w, t in medians.items()}, "ratio": best / medians["tilegrad"]}


def alone(number: int, modes: tuple[str, ...], limit: int) -> dict[str, Any]:
    """Measure a row in a process of its own; if it is stopped, keep what it had found by then."""
    task, stopped = TASKS[number], {}
    command = [sys.executable, "-m", "bench.gpu_networks", "--row", str(number), *modes]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        stopped = {"stopped": f"after {limit} s"}
    lines = output.splitlines()
    notes = [line for line in lines if not line.startswith("{")]
    if notes:
        print("\n".join(notes), flush=True)
    rows = [line for line in lines if line.startswith("{")]
    if rows and (stopped or not process.returncode):
        return json.loads(rows[-1]) | stopped  # type: ignore[no-any-return]
    if stopped:
        return {"name": task.name, "failed": f"took longer than {limit} s"}
    said = [line for line in errors.splitlines() if line.strip()] or [f"exit status {process.returncode}"]
    fault = next((n for n, line in enumerate(said) if ERROR.match(line)), len(said) - 1)
    return {"name": task.name, "failed": "\n".join(said[fault:])[:600]}


def row(number: int, modes: tuple[str, ...]) -> None:
    """Run in that process: print what was found as the last line."""
    import logging

    import torch

    torch._logging.set_logs(all=logging.ERROR)  # what its compiler thinks of its own work
    torch.set_float32_matmul_precision("high")
    tg.set_float32_matmul_precision("high")
    about = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for found in measured(torch, TASKS[number], modes):
        print(json.dumps(found | about), flush=True)


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--row"]:
        row(int(arguments[1]), tuple(arguments[2:]))
        return
    named = arguments[arguments.index("--compile") + 1].split(",") if "--compile" in arguments else None
    out = arguments[arguments.index("--out") + 1] if "--out" in arguments else None
    limit = int(arguments[arguments.index("--limit") + 1]) if "--limit" in arguments else LONGEST
    wanted = [a for a in arguments if a in {t.network for t in TASKS} | {t.name for t in TASKS}]
    record: dict[str, Any] = {"date": datetime.date.today().isoformat(), "rows": []}
    for number, task in enumerate(TASKS):
        if wanted and not {task.network, task.name} & set(wanted):
            continue
        modes = COMPILED[task.network] if named is None else tuple([m for m in named if m != "none"])
        modes = VERIFY if "--verify" in arguments else modes
        found = alone(number, modes, limit)
        record |= {what: found.pop(what) for what in ("device", "torch") if what in found}
        record["rows"].append(found)
        if "failed" in found:
            print(f"{task.name}: {found['failed']}", flush=True)
        else:
            shown = ", ".join(f"{who} {us:.0f} us" for who, us in found.get("us", {}).items())
            far = ", ".join(f"{who} {error:.2g}" for who, error in found.get("gradients", {}).items())
            ratio = f"{found['ratio']:.2f}  " if "ratio" in found else ""
            print(f"{task.name:28} {ratio}{shown}{f'; gradients off by {far}' if far else ''}", flush=True)
        if out:
            with open(out, "w") as file:
                json.dump(record, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
