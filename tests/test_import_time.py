"""`import tilegrad` costs little more than `import numpy`: what it loads is counted, as times flake."""

import subprocess
import sys
from collections.abc import Callable

LATER = [
    *("llvmlite", "rich", "dataclasses", "inspect", "asyncio", "concurrent.futures", "hashlib", "sqlite3", "cuda"),
    *("ml_dtypes", "pathlib", "string", "contextlib", "importlib.metadata"),
    *("tilegrad.ir.tile", "tilegrad.ir.program", "tilegrad.ir.tile_parser", "tilegrad.runtime.cache"),
    *("tilegrad.compiler", "tilegrad.schedule", "tilegrad.backend", "tilegrad.nn", "tilegrad.optim"),
    *("tilegrad.jitted.function", "tilegrad.printing", "tilegrad.ops.einsum", "tilegrad.functions.special"),
]
"""Modules that must not be loaded at import: code generation, printing, diagnosis."""
MAX_MODULES = 67
"""Modules loaded in addition to numpy's: one costs about a quarter of a per cent of numpy's import."""


def run(code: str) -> list[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def loaded(*packages: str) -> set[str]:
    """The modules that a fresh process has after these imports."""
    return set(run(f"import {', '.join(packages)}, sys; print(*sys.modules)"))


def test_what_import_loads() -> None:
    border = loaded("numpy")
    more = loaded("tilegrad") - border
    early = sorted(name for name in LATER if name in more)
    assert not early, f"import tilegrad loads {', '.join(early)}: import them inside the functions that need them"
    own = sorted(name for name in more if name.startswith("tilegrad"))
    others = sorted(more - set(own))
    assert len(more) <= MAX_MODULES, f"{len(own)} own modules, and {', '.join(others)}"


def test_time(record_property: Callable[[str, object], None]) -> None:
    """The time itself is only reported (pytest -rA); bench/ compares it with numpy's in one run."""
    code = "import time; a = time.perf_counter(); import numpy; b = time.perf_counter(); import tilegrad; "
    numpy_ms, own_ms = run(code + "print(1e3 * (b - a), 1e3 * (time.perf_counter() - b))")
    record_property("import numpy, ms", numpy_ms)
    record_property("import tilegrad after it, ms", own_ms)
    print(f"import numpy {float(numpy_ms):.0f} ms, import tilegrad after it {float(own_ms):.0f} ms")
