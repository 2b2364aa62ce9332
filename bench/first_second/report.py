"""Write the section of docs/performance.md about the first second from the newest record of `run.py`."""

import json
from pathlib import Path
from typing import Any

from bench.first_second.rows import BY_NAME

HEAD = """
## The first second

From `{source}`, by `python -m bench.first_second.run --keep`. Ratios are **our time over the rival's:
less is better**. Each program of `bench/first_second/` runs in {rounds} fresh processes of each contender, interleaved:
*cold* with an empty cache folder, *warm* with the one that the cold process left. Results were compared before. What
takes longer than a minute is ended. † marks rows that were measured while other work ran; `commit` in the file says of
which version a row is where it is an older one.

| what | at most: cold / warm | cold | warm | rival | cold, warm, rival | |
| --- | --- | --- | --- | --- | --- | --- |
"""
MAX_QUIET_LOAD = 3.0
"""Processes that wait for a core, our own included, up to which a row counts as measured alone."""
COLD, WARM = "tilegrad cold", "tilegrad warm"


def first_second_part(folder: Path) -> str:
    """The section, from the newest records of a CPU and of a GPU in a folder; empty without one."""
    newest = {kind: sorted(folder.glob(f"{kind}-first-second-2*.json"))[-1:] for kind in ("cpu", "h200")}
    files = [file for found in newest.values() for file in found]
    if not files:
        return ""
    records = [json.loads(file.read_text()) for file in files]
    known = {name: record for found in records for name, record in found["rows"].items()}
    rows = [line(known[name]) for name in BY_NAME if name in known]
    source = "` and `".join(f"bench/results/{file.name}" for file in files)
    return HEAD.format(source=source, rounds=records[0].get("rounds", 3)) + "\n".join(rows) + "\n"


def line(record: dict[str, Any]) -> str:
    """A row of the table."""
    goals, ratios, figures, unable = (record[key] for key in ("goals", "ratios", "figures", "unable"))
    goal = f"{goals[COLD]:g}" if goals[COLD] == goals[WARM] else f"{goals[COLD]:g} / {goals[WARM]:g}"
    shown = [f"{ratios[c]['median']:.2f}" if c in ratios else unable.get(c, "") for c in (COLD, WARM)]
    values = [
        _value(figures[c]["median"], record["what"]) if c in figures else "–" for c in (COLD, WARM, record["rival"])
    ]
    met = all(c in ratios and ratios[c]["median"] <= goals[c] for c in (COLD, WARM))
    busy = " †" if record.get("load", 0) > MAX_QUIET_LOAD else ""
    cells = [record["title"] + busy, goal, *shown, record["rival"], ", ".join(values), "" if met else "missed"]
    return f"| {' | '.join(cell.replace('|', ' ') for cell in cells)} |"


def _value(x: float, what: str) -> str:
    """
    >>> _value(2.5e8, "memory"), _value(0.0125, "seconds"), _value(1.5, "seconds"), _value(3e-6, "seconds")
    ('250 MB', '12.5 ms', '1.50 s', '3.00 µs')
    """
    if what == "memory":
        return f"{x / 1e6:.0f} MB"
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if x * scale >= 1:
            return f"{x * scale:.3g} {unit}" if x * scale >= 10 else f"{x * scale:.2f} {unit}"
    return f"{x * 1e6:.2f} µs"
