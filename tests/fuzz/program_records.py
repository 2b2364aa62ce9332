"""Programs that failed once, each a file in `found/` with what PyTorch shows for it.

`python -m tests.fuzz.program_records NAME NUMBER` shrinks the program of a number and keeps it; one that does not
fail any more is kept as it was drawn. `... NAME FILE` keeps one that a log of `program_runs` has, by its last line.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.program_check import Seen, expected
from tests.fuzz.programs import Program, drawn, from_plain, to_plain

FOLDER = Path(__file__).parent / "found"
FOUND = sorted(path.stem for path in FOLDER.glob("*.json"))


def read(name: str) -> tuple[Program, list[Seen], list[float]]:
    """A program, what PyTorch shows for it, and how near that must be met."""
    kept = json.loads((FOLDER / f"{name}.json").read_text())
    want = [
        Seen(s["name"], s["dtype"], np.asarray(s["elements"], s["numpy"]).reshape(s["shape"])) for s in kept["seen"]
    ]
    return from_plain(kept["program"]), want, [s["near"] for s in kept["seen"]]


def write(name: str, program: Program) -> None:
    """Keeps a program with what PyTorch shows for it."""
    want, tolerances = expected(program)
    seen = [_plain(s, near) for s, near in zip(want, tolerances, strict=True)]
    plain: dict[str, Any] = {"program": to_plain(program), "source": program.source.splitlines()}
    lines = [f'"{key}": {json.dumps(value)}' for key, value in plain.items()]
    lines.append('"seen": [\n    ' + ",\n    ".join(map(json.dumps, seen)) + "\n  ]")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text("{\n  " + ",\n  ".join(lines) + "\n}\n")


def _plain(s: Seen, near: float) -> dict[str, Any]:
    a = s.elements
    return s._asdict() | {"elements": a.reshape(-1).tolist(), "numpy": a.dtype.str, "shape": a.shape, "near": near}


def main(name: str, which: str) -> None:
    from tests.fuzz.child import Child
    from tests.fuzz.program_runs import FAILURES, WORKER, Finding, Question, asked, made_smaller

    if not which.isdigit():
        write(name, from_plain(json.loads(Path(which).read_text().splitlines()[-1])["program"]))
        return
    question, child = Question(int(which)), Child(WORKER)
    verdict, text, program = asked(child, question.asked)
    found = Finding(question, verdict, text, program)
    small = made_smaller(child, found).program if verdict in FAILURES else drawn(question.seed)
    child.close()
    assert small is not None
    print(small)
    write(name, small)


if __name__ == "__main__":
    main(*sys.argv[1:])
