"""Measure the first second: python -m bench.first_second.run [ROW ...] [--keep], with rows of `rows.py`.

Each program runs in fresh processes: ours with an empty cache folder (cold), then with the same folder (warm), and its
rival, interleaved; ratios are medians of the ratios within each round. Results are compared first.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import machine, turns
from bench.contenders import Contender
from bench.first_second.rows import Row, find

ROUNDS = 3
LIMIT = 60.0
"""Seconds after which a program is ended."""
OURS = ("tilegrad cold", "tilegrad warm")


class Settings(NamedTuple):
    """How rows are measured."""

    rounds: int = ROUNDS
    limit: float = LIMIT
    small: bool = False
    checked: bool = True
    against: bool = True
    """Whether rivals run, too."""


def once(row: Row, contender: str, settings: Settings, cache: str, checked: bool = False) -> dict[str, Any]:
    """Run a program in a process; with `error` if it did not end well."""
    library = contender.split()[0]
    flags = "".join(
        letter for letter, wanted in zip("jscg", (row.jit, settings.small, checked, row.gpu), strict=True) if wanted
    )
    command = [sys.executable, "-m", "bench.first_second.child", library, row.program, f"-{flags}"]
    own = turns.environment(Contender(library, "", "", {"TILEGRAD_CACHE": cache, "TILEGRAD_LOCK": "off"}))
    try:
        done = subprocess.run(
            command, env=own, capture_output=True, text=True, cwd=turns.ROOT, timeout=settings.limit, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {settings.limit:.0f} s"}
    if done.returncode or not done.stdout:
        said = done.stderr.strip().splitlines()
        return {"error": (said[-1] if said else f"ended with {done.returncode}")[:200]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(row: Row, settings: Settings) -> dict[str, Any]:
    """The record of a row: times and ratios of all contenders."""
    contenders = [c for c in row.contenders if settings.against or c in OURS]
    unable: dict[str, str] = {}
    rounds: list[dict[str, dict[str, Any]]] = []
    checked = _verified(row, settings, unable) if settings.checked and settings.against else None
    for _ in range(settings.rounds):
        with tempfile.TemporaryDirectory(prefix="first-second-") as cache:
            found = {c: once(row, c, settings, cache) for c in contenders if c not in unable}
        unable |= {c: x["error"] for c, x in found.items() if "error" in x}
        rounds.append({c: x for c, x in found.items() if "error" not in x})
    what = "memory" if row.memory else "seconds"
    figures = {c: [r[c][what] for r in rounds if c in r] for c in contenders}
    return {
        "title": row.title,
        "rival": row.rival,
        "goals": {"tilegrad cold": row.cold, "tilegrad warm": row.warm or row.cold},
        "what": what,
        "verified": checked,
        "unable": unable,
        "figures": {c: turns.summary(x) for c, x in figures.items() if x},
        "memory": {c: max(r[c]["memory"] for r in rounds if c in r) for c in contenders if figures[c]},
        "ratios": {c: x for c in OURS if (x := _ratio(c, row.rival, rounds, what)) is not None},
    }


def _ratio(contender: str, rival: str, rounds: Sequence[dict[str, Any]], what: str) -> dict[str, float] | None:
    """Ours over the rival's: the median of the ratios within each round, and its quartiles."""
    pairs = [(r[contender][what], r[rival][what]) for r in rounds if contender in r and rival in r]
    return turns.ratios([x for x, _ in pairs], [y for _, y in pairs]) if pairs else None


def _verified(row: Row, settings: Settings, unable: dict[str, str]) -> float | None:
    """Compare results of ours and the rival on the same weights; who is ended or fails sits out."""
    if row.rival == "numpy":
        return None
    with tempfile.TemporaryDirectory(prefix="first-second-") as cache:
        found = {c: once(row, c, settings, cache, checked=True) for c in (row.rival, OURS[0])}
    for c, x in found.items():
        if "error" in x:
            for sitting_out in OURS if c in OURS else (c,):
                unable[sitting_out] = x["error"]
    if unable:
        return None
    differs = difference(found[OURS[0]]["results"], found[row.rival]["results"])
    if not differs <= row.tolerance:
        unable |= dict.fromkeys(OURS, f"its results differ by {differs:.1e} from those of {row.rival}")
    return differs


def difference(results: Sequence[float], wanted: Sequence[float]) -> float:
    """The largest relative difference of two lists of results.

    >>> difference([1.0, 2.02], [1.0, 2.0]), difference([1.0], []), difference([float("nan")], [1.0])
    (0.01, inf, inf)
    """
    if len(results) != len(wanted):
        return float("inf")
    parts = [abs(x - y) / max(1.0, abs(y)) for x, y in zip(results, wanted, strict=True)]
    return float("inf") if any(x != x for x in parts) else round(max(parts, default=0.0), 9)


def show(name: str, record: dict[str, Any]) -> None:
    """Print one row."""
    unit, scale = ("MB", 1e-6) if record["what"] == "memory" else ("ms", 1e3)
    print(f"{name}: {record['title']}")
    for contender, figure in record["figures"].items():
        ratio, goal = record["ratios"].get(contender), record["goals"].get(contender)
        against = f"  {ratio['median']:8.2f} of {record['rival']}'s, wanted {goal}" if ratio else ""
        print(f"  {contender:14} {figure['median'] * scale:12.4f} {unit}{against}")
    for contender, reason in record["unable"].items():
        print(f"  {contender:14} {reason}")
    sys.stdout.flush()


def run(rows: Sequence[Row], settings: Settings, file: Path | None = None) -> dict[str, Any]:
    """The records of rows, with the machine, each written to a file as soon as there is one."""
    described = machine.describe() if not settings.small else {}
    if any(row.gpu for row in rows):
        described["gpu"] = _gpu()
    result: dict[str, Any] = {"date": time.strftime("%Y-%m-%d"), "rounds": settings.rounds, "machine": described}
    result["rows"] = {}
    for row in rows:
        record = measure(row, settings) | {"load": os.getloadavg()[0]}
        result["rows"][row.name] = record
        show(row.name, record)
        if file is not None:
            keep(result, file)
    return result


def _gpu() -> str:
    """Name the first GPU and its driver."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip().split("\n")[0]


def keep(result: dict[str, Any], file: Path) -> None:
    """Write records to a file; rows that were not measured again stay."""
    kind = file.name.partition("-")[0]
    older = file if file.exists() else max(file.parent.glob(f"{kind}-first-second-2*.json"), default=None)
    known = json.loads(older.read_text())["rows"] if older else {}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result | {"rows": known | result["rows"]}, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help="names, or beginnings as in 'new_*'; all if none is given")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a process may take")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes, one round: whether it runs at all")
    parser.add_argument("--unchecked", action="store_true", help="do not compare results first")
    parser.add_argument("--alone", action="store_true", help="without the rivals")
    parser.add_argument("--json", type=Path, help="a file to write after each row, in which other rows stay")
    parser.add_argument("--keep", action="store_true", help="write the day's record and docs/performance.md")
    given = parser.parse_args(arguments)
    rounds = 1 if given.quick else given.rounds
    settings = Settings(rounds, given.limit, given.quick, not given.unchecked, not given.alone)
    results = turns.ROOT / "bench" / "results"
    file = results / f"cpu-first-second-{time.strftime('%Y-%m-%d')}.json" if given.keep else given.json
    run(find(given.rows), settings, file)
    if given.keep:
        for older in sorted(results.glob("cpu-first-second-2*.json"))[:-1]:
            older.unlink()
        from bench import report

        report.write(max(results.glob("cpu-2*.json")))


if __name__ == "__main__":
    main()
