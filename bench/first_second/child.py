"""Run the program of one row once: `python -m bench.first_second.child LIBRARY PROGRAM FLAGS`; flags are letters: j
(jit), s (small), c (checked), g (on a GPU). Prints one line of JSON.
"""

import time

START = time.perf_counter()

import importlib  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402


def main() -> None:
    name, program, flags = sys.argv[1:4]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not get between the answers
    library: Any = importlib.import_module(name)
    imported = time.perf_counter() - START
    from bench.first_second.session import Session

    if name == "jax":
        module, _, function = "with_jax", "", program.partition(":")[2]
    else:
        module, _, function = program.partition(":")
    jit = library.jit if "j" in flags and name == "tilegrad" else lambda step: step
    session = Session(library, jit, "s" in flags, "c" in flags, START, "cuda" if "g" in flags else "cpu")
    session.end = START + imported
    getattr(importlib.import_module(f"bench.first_second.{module}"), function)(library, session)
    if program == "imports:nothing":
        session.end = START + imported
    found = {
        "seconds": (session.end - session.start) / session.units,
        "results": session.results,
        "drawn": session.is_drawn,
        "memory": _peak(),
    }
    answers.write(json.dumps(found) + "\n")
    answers.flush()


def _peak() -> int:
    """The peak memory of this process in bytes: `ru_maxrss` would have that of the process that started it."""
    with open("/proc/self/status") as status:
        return 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    main()
