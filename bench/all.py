"""Runs workloads against all peers and writes bench/results/cpu-DATE.json and docs/performance.md.

On a machine with a matrix unit the file is cpu-amx-DATE.json, and the page has a part of its own for it.

python -m bench.all                 all of them
python -m bench.all mlp softmax     these; what the day's file has of others stays
"""

import json
import sys

from bench import report
from bench.run import run
from bench.turns import ROOT
from bench.workloads import WORKLOADS

PEERS = ("torch", "jax", "onnxruntime", "numpy")


def main() -> None:
    result = run(sys.argv[1:] or list(WORKLOADS), PEERS)
    kind = "cpu-amx" if result["machine"]["limits"].get("amx") else "cpu"
    file = ROOT / "bench" / "results" / f"{kind}-{result['date']}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    if sys.argv[1:] and file.exists():
        known = json.loads(file.read_text())["workloads"] | result["workloads"]
        result["workloads"] = {name: known[name] for name in WORKLOADS if name in known}
    file.write_text(json.dumps(result, indent=1) + "\n")
    report.write(file)
    print(f"wrote {file.relative_to(ROOT)} and {report.PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
