"""Measure the core, the files of `core.txt`, which train on the digits by themselves; write the reading order of them.

python tools/core.py              the lines of its folders, and of the functions in them that training executes
python tools/core.py FOLDER...    the same for the files of these folders; . is all of them
python tools/core.py --list       files that training loads but core.txt lacks, and the reverse
python tools/core.py --write      write docs/reading.md from core.txt and the docstrings of the modules
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "core.txt"
READING = ROOT / "docs" / "reading.md"
MEASURED = """
import json, runpy, sys, threading
called = set()
def note(frame, event, argument):
    if event == "call":
        called.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))
threading.setprofile(note)
sys.setprofile(note)
try:
    runpy.run_path("train.py", run_name="__main__")
finally:
    sys.setprofile(None)
    files = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith("tilegrad")]
    print(json.dumps({"loaded": [f for f in files if f], "called": sorted(called)}))
"""
"""Runs a program and reports the files that it loaded and the functions that it called."""
PROGRAM = """import numpy as np

import tilegrad as tg

digits, unseen = tg.data.Digits(flat=True), tg.data.Digits(train=False, flat=True)
model = tg.nn.Sequential(tg.nn.Linear(64, 128), tg.nn.ReLU(), tg.nn.Linear(128, 10))
optimizer = tg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

@tg.jit
def step(x, y):
    optimizer.zero_grad()
    loss = tg.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss

for epoch in range(20):
    for chosen in np.random.default_rng(epoch).permutation(len(digits))[:1408].reshape(22, 64):
        loss = step(tg.tensor(digits.images[chosen]), tg.tensor(digits.labels[chosen]))
    print(f"epoch {epoch + 1}: loss {loss.item():.4f}")

guesses = model(tg.tensor(unseen.images)).detach().numpy().argmax(1)
print(f"{100 * (guesses == unseen.labels).mean():.0f} % of {len(unseen)} digits that it never saw are recognised")
"""
HEAD = """# The core, in reading order

[core.txt](../core.txt) lists the files that train a network on the digits by themselves, with everything else removed:
`tests/test_core.py` copies them to an empty folder and trains there. All other files are optional: passes, devices,
matrix units, caches and functions are found by their names in tables ([deferred.py](../tilegrad/deferred.py)) when they
are first needed. The aim is a core of 12,000 lines, which is read in a weekend; the test holds how many it has today,
and `python tools/core.py` shows where they are. Here each file needs only those above it, within a part.

This is the program:

```python digits.py
{program}```

```console
$ python digits.py
epoch 1: loss ...
...
9... % of 360 digits that it never saw are recognised
```
"""


class Run(NamedTuple):
    """A run of the program: what it printed, the files it loaded and the functions it called, by file and line."""

    output: str
    loaded: list[str]
    called: set[tuple[str, int]]


def parts() -> dict[str, list[str]]:
    """Return the core's files by the heading that they stand under, in reading order."""
    found: dict[str, list[str]] = {}
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            found[line.removeprefix("#").strip()] = []
        elif line:
            found[next(reversed(found))].append(line)
    return found


def core() -> list[str]:
    """Return the core's files."""
    return [path for paths in parts().values() for path in paths]


def lines(path: str) -> int:
    """Count the lines of a file; data have none."""
    return 0 if path.endswith(".npz") else len((ROOT / path).read_text(encoding="utf-8").splitlines())


def run(everything: bool = False) -> Run:
    """Train with an empty cache, in a folder that has only the core's files, or with the whole package."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(PROGRAM, encoding="utf-8")
        for path in () if everything else core():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / path, folder / path)
        root = ROOT if everything else folder
        settings = {key: text for key, text in os.environ.items() if not key.startswith(("TILEGRAD_", "PYTHON"))}
        settings |= {"PYTHONPATH": str(root), "TILEGRAD_CACHE": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", MEASURED]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings, cwd=folder)
        if done.returncode:
            raise RuntimeError(done.stderr)
        output, _, found = done.stdout.rstrip().rpartition("\n")
        read = json.loads(found)
        inside = [(Path(file).relative_to(root).as_posix(), line) for file, line in read["called"] if str(root) in file]
        loaded = [Path(file).relative_to(root).as_posix() for file in read["loaded"]]
        return Run(output, loaded, {(file, line) for file, line in inside})


def executed(path: str, called: set[tuple[str, int]]) -> int:
    """Count the lines of the functions of a file that were called."""
    inside: set[int] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            if {(path, first), (path, node.lineno)} & called:
                inside.update(range(first, (node.end_lineno or first) + 1))
    return len(inside)


def table(folders: list[str]) -> str:
    """Return a table of lines by folder, or by file of some folders."""
    found = run()
    count: Counter[str] = Counter()
    used: Counter[str] = Counter()
    for path in found.loaded:
        name = path.removeprefix("tilegrad/")
        if not folders or any(name.startswith(folder) or folder == "." for folder in folders):
            key = name if folders else name.split("/")[0]
            count[key] += lines(path)
            used[key] += executed(path, found.called)
    rows = [f"{n:7,} lines, {used[key]:6,} of functions executed  {key}" for key, n in count.most_common()]
    return "\n".join([*rows, f"{count.total():7,} lines, {used.total():6,} of functions executed  in all"])


def first_sentence(path: str) -> str:
    """Return the first sentence of the docstring of a module."""
    text = ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) if path.endswith(".py") else ""
    paragraph = " ".join((text or "").split("\n\n")[0].split())
    sentence = paragraph.split(". ")[0].rstrip(":.")
    return f"{sentence}." if sentence else ""


def reading() -> str:
    """Return the page with the reading order."""
    rows = []
    for heading, paths in parts().items():
        rows += ["", f"## {heading}", ""]
        for path in paths:
            rows += wrapped(f"- [{path.removeprefix('tilegrad/')}](../{path})", first_sentence(path).split())
    return HEAD.format(program=PROGRAM) + "\n".join(rows) + "\n"


def wrapped(first: str, words: list[str]) -> list[str]:
    """Break an entry of a list into lines of at most 120 columns."""
    rows = [first]
    for word in words:
        if len(rows[-1]) + 1 + len(word) > 120:
            rows.append(" ")
        rows[-1] += f" {word}"
    return rows


def main(arguments: list[str]) -> None:
    if arguments == ["--write"]:
        READING.write_text(reading(), encoding="utf-8")
    elif arguments == ["--list"]:
        loaded, listed = set(run(everything=True).loaded), set(core())
        listed -= {path for path in listed if not path.endswith(".py")}
        print("\n".join([*(f"+ {x}" for x in sorted(loaded - listed)), *(f"- {x}" for x in sorted(listed - loaded))]))
    else:
        print(table(arguments))


if __name__ == "__main__":
    main(sys.argv[1:])
