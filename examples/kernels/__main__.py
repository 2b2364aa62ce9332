"""Run the whole gallery; write the tables of examples/kernels/README.md.

python -m examples.kernels                   prints all tables python -m examples.kernels softmax matmul    only these
python -m examples.kernels --write           also writes bench/results/cpu-gallery-DATE.json and the README's tables
python -m examples.kernels --tables          writes the tables from the newest records
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.kernels.frame import ROUNDS, Climb, Row, gains, gallery
from tilegrad.backend.cpu.limits import limits

ROOT = Path(__file__).parents[2]
README = Path(__file__).with_name("README.md")
RESULTS = ROOT / "bench" / "results"
BEGIN, END = "<!-- tables: python -m examples.kernels --write -->", "<!-- end of tables -->"
MISSING = "not measured"

Records = Mapping[str, Any]
"""A device, a date, and the size and rows of each file."""


def record_of(climb: Climb, device: str, size: Mapping[str, int], rows: Sequence[Row]) -> dict[str, Any]:
    """The fields of a measurement that go into the record."""
    own = climb.steps_on(device)
    return {"size": dict(size), "rows": [{**row._asdict(), "own": row.title in own} for row in rows]}


def newest(kind: str) -> Records | None:
    """The newest records of a kind of machine: `cpu`, `h200`."""
    found = sorted(RESULTS.glob(f"{kind}-gallery-*.json"))
    return json.loads(found[-1].read_text()) if found else None


def tables(cpu: Records | None, gpu: Records | None) -> str:
    """The tables of all files, in order."""
    parts = []
    for name, climb in gallery().items():
        for kind, records in (("cpu", cpu), ("cuda", gpu)):
            if kind == "cpu" or name in (records or {}).get("climbs", {}):
                parts.append(table(name, climb, kind, records))
    return "\n\n".join([_machines(cpu, gpu), near(cpu, gpu), *side_by_side(gpu), *parts])


def side_by_side(records: Records | None) -> list[str]:
    """The linear layer four ways, as `linear.py --compare` printed it on the machine of a GPU."""
    head = ["way", "forward, us", "forward and gradients, us", "of built in", "why"]
    made = []
    for place, rows in (records or {}).get("compared", {}).items():
        lines = "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])
        made.append(f"**A linear layer four ways**, 64 rows of 128 to 10, on {place}\n\n{lines}")
    return made


NEAR = {
    "transpose": ("strips of a row: reads lie together, writes do not", "tiles of 32 by 32: both lie together") * 2,
    "matmul": (
        "register tiles, 6 x 16", "both: tiles of 48 x 64, 64 deep",
        "tiles of 32 x 32, operands from memory for each k", "tiles of 64 x 64 through shared memory",
    ),
}  # fmt: skip
"""The steps before and after tiles are kept in fast memory: the cache of a CPU, the shared memory of a GPU."""


def near(cpu: Records | None, gpu: Records | None) -> str:
    """The gain from one idea on two kinds of machines."""
    lines = ["**Tiles kept near**: in a CPU's cache, in a GPU's shared memory, times as fast as without", ""]
    lines += ["| | on a CPU | on a GPU |", "| --- | --- | --- |"]
    for name, steps in NEAR.items():
        cells = []
        for records, before, after in ((cpu, *steps[:2]), (gpu, *steps[2:])):
            rows = (records or {}).get("climbs", {}).get(name, {"rows": []})["rows"]
            seconds = {row["title"]: row["seconds"] for row in rows}
            cells.append(f"{seconds[before] / seconds[after]:.2f}" if {before, after} <= seconds.keys() else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _machines(cpu: Records | None, gpu: Records | None) -> str:
    return "\n".join(f"- {r['device']}, {r['date']}" for r in (cpu, gpu) if r is not None)


def table(name: str, climb: Climb, kind: str, records: Records | None) -> str:
    """The table of one file: its steps as they are now, with the figures that the records have of them."""
    known = (records or {}).get("climbs", {}).get(name, {"size": {}, "rows": []})
    measured = {row["title"]: row for row in known["rows"]}
    built_in = measured.get("the tensor operation")
    size = ", ".join(f"{n} {value:,}" for n, value in known["size"].items())
    where = "on a CPU" if kind == "cpu" else f"on {records['device'] if records else 'a GPU'}"
    head = f"**[{climb.title}]({name}.py)** {where}" + (f": {size}" if size else "")
    time_of = " time |" if kind == "cuda" else ""
    rule = " --- |" if kind == "cuda" else ""
    lines = [head, "", f"| step |{time_of} gain | of the limit | against `tilegrad`'s own |"]
    lines.append(f"| --- |{rule} --- | --- | --- |")
    own = list(climb.steps_on(kind))
    others = [row["title"] for row in known["rows"] if not row["own"] and row is not built_in]
    steps = [measured[title]["seconds"] for title in own if title in measured]
    step = iter(gains(steps) if steps else [])
    for title in [*own, *others]:
        row = measured.get(title)
        if row is None:
            lines.append(f"| {title} |{' |' if time_of else ''} {MISSING} | | |")
            continue
        gain = f"{next(step):.2f}" if title in own else ""
        beside = f"{built_in['seconds'] / row['seconds']:.2f}" if built_in else ""
        took = f" {_shown(row['seconds'])} |" if time_of else ""
        lines.append(f"| {title} |{took} {gain} | {100 * row['share']:.0f} % | {beside} |")
    return "\n".join(lines)


def _shown(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} us"


def written(text: str, cpu: Records | None, gpu: Records | None) -> str:
    """The README with new tables."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{tables(cpu, gpu)}\n{END}{rest.split(END)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("climbs", nargs="*", help="names of files of the gallery")
    parser.add_argument("--write", action="store_true", help="keep the figures and write the tables")
    parser.add_argument("--tables", action="store_true", help="write the tables from what was kept")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each step is timed")
    arguments = parser.parse_args()
    climbs = gallery()
    found = {}
    for name in [] if arguments.tables else arguments.climbs or climbs:
        climb = climbs[name]
        rows = climb.measured("cpu", climb.size, arguments.rounds)
        print(climb.table(rows, "cpu", climb.size), flush=True)
        found[name] = record_of(climb, "cpu", climb.size, rows)
        if arguments.write:  # at once: what comes later may fail
            machine = limits()
            keep("cpu", f"{machine['model']}, {machine['threads']} threads", found)
    if arguments.write or arguments.tables:
        README.write_text(written(README.read_text(), newest("cpu"), newest("h200")))


def keep(kind: str, device: str, found: Mapping[str, Any]) -> Path:
    """Write records of today; an earlier record keeps its rows of other files."""
    date = time.strftime("%Y-%m-%d")
    known = (newest(kind) or {}).get("climbs", {})
    file = RESULTS / f"{kind}-gallery-{date}.json"
    older = {name: part for name, part in (newest(kind) or {}).items() if name == "compared"}
    record = {"device": device, "date": date, **older, "climbs": {**known, **found}}
    file.write_text(json.dumps(record, indent=1) + "\n")
    return file


if __name__ == "__main__":
    main()
