"""Run workloads against all peers; write bench/results/cpu-DATE.json and docs/performance.md.

Records of machines with AVX-512 go to cpu-avx512-DATE.json, of those with a matrix unit to cpu-amx-DATE.json, and the
page has a section for each. A size is written as soon as it is measured; sizes that are not measured again keep their
older record, with its date.

python -m bench.all                         all workloads python -m bench.all mlp softmax:64x50257    only these; other
records stay
"""

import json
import sys
from typing import Any

from bench import machine, report
from bench.run import run
from bench.turns import ROOT
from bench.workloads import WORKLOADS, expanded, find

PEERS = ("torch", "jax", "onnxruntime", "numpy")
Records = dict[str, list[dict[str, Any]]]


def merged(known: Records, found: Records) -> Records:
    """Merge records, the newer one of each size, in the order of the workloads and their sizes.

    >>> old, new = {"size": [2], "ratio": 1}, {"size": [64], "ratio": 3}
    >>> merged({"lenet": [old]}, {"lenet": [new]})["lenet"] == [new, old]
    True
    """
    made = {}
    for name, workload in WORKLOADS.items():
        records = {tuple(r["size"]): r for r in (*known.get(name, ()), *found.get(name, ()))}
        order = [*[size for size in workload.sizes if size in records], *records]
        if records:
            made[name] = [records[size] for size in dict.fromkeys(order)]
    return made


def main() -> None:
    for name in expanded(sys.argv[1:] or list(WORKLOADS)):
        workload, sizes = find(name)
        for size in sizes:
            keep(run([f"{workload.name}:{workload.label(size)}" if size else workload.name], PEERS))


def keep(result: dict[str, Any]) -> None:
    """Write records to the day's file, together with those of the newest earlier file, and to the page."""
    kind = machine.kind(result["machine"]["limits"])
    folder = ROOT / "bench" / "results"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{kind}-{result['date']}.json"
    found = {name: [{"date": result["date"], **r} for r in records] for name, records in result["workloads"].items()}
    for older in sorted(folder.glob(f"{kind}-2*.json"))[-1:]:
        before = json.loads(older.read_text())
        known = {n: [{"date": before["date"], **r} for r in records] for n, records in before["workloads"].items()}
        found = merged(known, found)
        older.unlink()
    file.write_text(json.dumps(result | {"workloads": found}, indent=1) + "\n")
    report.write(file)
    print(f"wrote {file.relative_to(ROOT)} and {report.PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
