"""Compare first runs with tuned ones: python -m bench.tuned [--budget 20s] [NAME...]

Each workload runs as it is, and with the `kernels.lock` that `tg.jit(tune=...)` has just made for it, in interleaved
processes. The ratio is the untuned time over the tuned one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench import machine, report
from bench.contenders import CONTENDERS, Contender
from bench.turns import ROOT, ROUNDS, environment, play
from bench.workloads import Size, Workload, find

MAIN = (
    "matmul:1024x1024x1024",
    "matmul:128x6400x4096",
    "convolution:16x96x26x256x5x1x2",
    "alexnet:16",
    "alexnet_inference:1",
    "lenet:64",
    "gpt:16x128",
    "wide:64",
    "attention:8x8x512x64",
    "lstm:32x64",
)
"""Workloads that take five minutes together."""
BUDGET = "20s"


def tune(name: str, size: Size, budget: str, lock: Path) -> str:
    """Make a `kernels.lock` for a workload in a process of its own; return the tuner's report."""
    command = [sys.executable, "-m", "bench.tuned", name, "--budget", budget, "--only-tune", json.dumps(size)]
    made = environment(Contender("tilegrad", "ours", "", {"TILEGRAD_LOCK": str(lock)}))
    done = subprocess.run(command, env=made, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(f"{name} was not tuned: {done.stderr.strip()[-400:]}")
    return next((x for x in reversed(done.stderr.splitlines()) if " tun" in x), "nothing to tune").partition(": ")[2]


def only_tune(name: str, size: Size, budget: str) -> None:
    """Build a workload with `tg.jit(tune=budget)` and run it once."""
    import tilegrad as tg
    from bench.contenders import ours

    vars(tg)["jit"] = partial(tg.jit, tune=budget)
    getattr(ours, name)(find(name)[0].inputs(size), "")()


def compared(workload: Workload, size: Size, budget: str, rounds: int = ROUNDS) -> dict[str, Any]:
    """The record of one workload and size."""
    with tempfile.TemporaryDirectory() as folder:
        lock = Path(folder) / "kernels.lock"
        said = tune(workload.name, size, budget, lock)
        ours, untuned = (c for c in CONTENDERS if c.name in ("tilegrad", "tilegrad-untuned"))
        pair = [ours._replace(environment={"TILEGRAD_LOCK": str(lock)}), untuned]
        record = play(pair, workload, size, rounds)
    return record | {"budget": budget, "said": said.partition("; kept")[0]}


def keep(described: dict[str, Any], name: str, record: dict[str, Any]) -> Path:
    """Write a record to the day's file and to the page."""
    file = ROOT / "bench" / "results" / f"tuned-{machine.kind(described['limits'])}-{time.strftime('%Y-%m-%d')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(file.read_text())["workloads"] if file.exists() else {}
    others = [r for r in known.get(name, ()) if r["size"] != record["size"]]
    result = {"date": time.strftime("%Y-%m-%d"), "machine": described, "workloads": known | {name: [*others, record]}}
    file.write_text(json.dumps(result, indent=1) + "\n")
    cpu = sorted(file.parent.glob("cpu-2*.json"))
    if cpu:
        report.write(cpu[-1])
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", default=MAIN, help="as for bench.run; by default the main ones of the table"
    )
    parser.add_argument("--budget", default=BUDGET, help="how long each is tuned")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only-tune", metavar="SIZE", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only_tune:
        return only_tune(given.names[0], tuple(json.loads(given.only_tune)), given.budget)
    described = machine.describe()
    for name in given.names:
        workload, sizes = find(name)
        for size in sizes:
            start = time.perf_counter()
            record = compared(workload, size, given.budget, given.rounds)
            file = keep(described, workload.name, record)
            took, ratio = time.perf_counter() - start, record["ratios"].get("tilegrad-untuned")
            figure = "not measured" if ratio is None else f"untuned {ratio['median']:.2f} times the tuned time"
            print(f"{workload.name} {workload.label(size)}: {figure}; {record['said']}; {took:.0f} s", flush=True)
            print("".join(f"  {who}: {why}\n" for who, why in record["unable"].items()), end="")
    print(f"wrote {file.relative_to(ROOT)} and {report.PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
