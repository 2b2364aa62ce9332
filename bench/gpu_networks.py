"""Training steps on one GPU against PyTorch: python -m bench.gpu_networks [names] [--out file.json]

PyTorch is eager, and captured as a CUDA graph; it may use tensor cores for float32 (tf32), as people allow it to.
Contenders take turns; the losses of the first steps are compared before any time counts.
"""

from __future__ import annotations

import datetime
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import tilegrad as tg
from bench import networks

ROUNDS, STEPS = 7, 20


class Task(NamedTuple):
    """A network, the size of its batch, and whether its products are in bfloat16."""

    network: str
    size: tuple[int, ...]
    low: bool = False

    @property
    def name(self) -> str:
        return f"{self.network} {'x'.join(map(str, self.size))}{' bfloat16' if self.low else ''}"


TASKS = (
    *(Task("mlp", (n,)) for n in (64, 512)),
    *(Task("lenet", (n,)) for n in (64, 512)),
    *(Task("alexnet", (n,), low) for n in (32, 128) for low in (False, True)),
    *(Task("gpt", (16, 128), low) for low in (False, True)),
)


def graphed(torch: Any, step: Callable[[], Any]) -> Callable[[], Any]:
    """A step as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay(kept: Callable[[], Any] = step) -> Any:
        """`kept` holds the memory that the graph reads."""
        graph.replay()
        return result

    return replay


def contenders(torch: Any, task: Task) -> dict[str, Callable[[], Any]]:
    inputs = networks.batch(task.network, task.size)
    made: dict[str, Callable[[], Any]] = {
        "tilegrad": networks.training(tg, task.network, inputs, tg.jit, task.low, "cuda"),
        "torch": networks.training(torch, task.network, inputs, lambda f: f, task.low, "cuda"),
    }
    if task.network != "gpt":  # AdamW counts its steps on the host
        made["torch-graph"] = graphed(
            torch, networks.training(torch, task.network, inputs, lambda f: f, task.low, "cuda")
        )
    return made


def seconds(torch: Any, step: Callable[[], Any]) -> float:
    """Of one step: the machine's clock around some of them, when all work is done."""
    step()
    tg.cuda.synchronize()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    tg.cuda.synchronize()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / STEPS


def measured(torch: Any, task: Task) -> dict[str, Any]:
    all_steps = contenders(torch, task)
    losses = {who: [step()[0].item() for _ in range(3)] for who, step in all_steps.items() if who != "torch-graph"}
    apart = max(abs(a - b) / abs(b) for a, b in zip(losses["tilegrad"], losses["torch"], strict=True))
    if not apart < (0.05 if task.low else 0.01):
        raise SystemExit(f"{task.name}: losses differ: {losses}")
    times: dict[str, list[float]] = {who: [] for who in all_steps}
    for _ in range(ROUNDS):
        for who, step in all_steps.items():
            times[who].append(seconds(torch, step))
    medians = {who: statistics.median(found) for who, found in times.items()}
    best = min(t for who, t in medians.items() if who != "tilegrad")
    return {"name": task.name, "us": {w: 1e6 * t for w, t in medians.items()}, "ratio": best / medians["tilegrad"]}


def main(arguments: list[str]) -> None:
    import torch  # only where there is a GPU

    torch.set_float32_matmul_precision("high")
    out = arguments[arguments.index("--out") + 1] if "--out" in arguments else None
    wanted = [a for a in arguments if a in {t.network for t in TASKS}]
    rows = []
    for task in TASKS:
        if not wanted or task.network in wanted:
            rows.append(measured(torch, task))
            shown = ", ".join(f"{who} {us:.0f} us" for who, us in rows[-1]["us"].items())
            print(f"{task.name:28} {rows[-1]['ratio']:.2f}  {shown}", flush=True)
            record = {
                "date": datetime.date.today().isoformat(),
                "device": torch.cuda.get_device_name(),
                "torch": torch.__version__,
                "rows": rows,
            }
            if out:
                with open(out, "w") as file:
                    json.dump(record, file, indent=1)


if __name__ == "__main__":
    main(sys.argv[1:])
