"""Measure workloads: python -m bench.run softmax mlp:64x784x128x10 --against torch,jax,numpy --json FILE"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import machine
from bench.processes import chosen, measure
from bench.turns import ROUNDS
from bench.workloads import Size, Workload, expanded, find


def judge(workload: Workload, record: dict[str, Any]) -> None:
    """Find the best peer and its ratio, without and with peers whose malloc is tuned."""
    peers = {n: r["median"] for n, r in record["ratios"].items() if n != "tilegrad"}
    rivals = {n: r for n, r in peers.items() if not n.endswith("-tuned")}
    if workload.rival:
        rivals = {n: r for n, r in rivals.items() if n == workload.rival}
    if workload.name == "import":
        rivals = {n: r for n, r in rivals.items() if n == "numpy"}
    if rivals:
        record["best"] = min(rivals, key=rivals.__getitem__)
        record["ratio"] = rivals[record["best"]]
    tuned = {n: r for n, r in peers.items() if n.endswith("-tuned")}
    if tuned and not workload.rival:
        tuned |= rivals
        record["best_tuned"] = min(tuned, key=tuned.__getitem__)
        record["ratio_tuned"] = tuned[record["best_tuned"]]


def show(workload: Workload, record: dict[str, Any]) -> None:
    print(f"{workload.name} {workload.label(tuple(record['size']))}", flush=True)
    for name, times in record["times"].items():
        ratio = record["ratios"].get(name)
        beside = f"  {ratio['median']:6.2f} x ours [{ratio['first']:.2f}, {ratio['third']:.2f}]" if ratio else ""
        slower = f"  {record['slowdowns'][name]:.2f} times slower" if "slowdowns" in record else ""
        print(f"  {name:20} {1e3 * times['median']:10.4f} ms  best {1e3 * times['best']:10.4f}{beside}{slower}")
    for name, bytes in record.get("bytes", {}).items():
        print(f"  {name:20} {bytes / 1e6:8.0f} MB")
    for name, reason in record["unable"].items() if "unable" in record else ():
        print(f"  {name:20} did not take part: {reason}")
    if "share_of_limit" in record:
        print(f"  {100 * record['share_of_limit']:.0f} % of this machine's limit")
    if not record.get("clean", True):
        print("  others used the machine in most rounds: the ratios hold less well than they look", flush=True)


def run(
    names: Sequence[str], against: Sequence[str], rounds: int = ROUNDS, primary_only: bool = False
) -> dict[str, Any]:
    """The records of all named workloads, with the machine."""
    described = machine.describe()
    result: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "machine": described, "workloads": {}}
    for name in expanded(names):
        workload, sizes = find(name)
        libraries = [x for x in against if x.split("-")[0] in workload.against]
        libraries += [x for x in workload.against if "-" in x]  # one contender alone
        records = []
        for size in sizes[:1] if primary_only else sizes:
            record = _measured(workload, size, libraries, described["limits"])
            records.append(record)
            show(workload, record)
        result["workloads"].setdefault(workload.name, []).extend(records)
    return result


def _measured(workload: Workload, size: Size, libraries: Sequence[str], limits: dict[str, Any]) -> dict[str, Any]:
    record = measure(chosen(libraries), workload, size)
    machine.check(workload, record, limits)
    judge(workload, record)
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="+", help="names, with a size after a colon if not all: softmax:64x64")
    parser.add_argument("--against", default="torch,jax,numpy", help="libraries, or single contenders")
    parser.add_argument("--json", type=Path, help="where the records go")
    arguments = parser.parse_args()
    result = run(arguments.workloads, arguments.against.split(","))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
