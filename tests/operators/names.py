"""Name what PyTorch has, as recorded, and say which of it is here, drawn by a recipe, or missing.

`python -m tests.operators.names` records PyTorch's names anew.
"""

from __future__ import annotations

import types
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import tilegrad as tg

from .recipes import recipes

FOLDER = Path(__file__).parent
PACKAGES = ("torch", "torch.Tensor", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft")


def recorded() -> dict[str, list[str]]:
    """PyTorch's functions by package, as they were when recorded."""
    lines = (FOLDER / "pytorch_names.txt").read_text().split("\n\n")
    return {head: rest.split() for head, _, rest in (part.partition(":") for part in lines if part.strip())}


def functions_of(package: Any) -> list[str]:
    """The public functions of a package or a class."""
    found = []
    for name in sorted(dir(package)):
        each = getattr(package, name, None)
        if not name.startswith("_") and callable(each) and not isinstance(each, (type, types.ModuleType)):
            found.append(name)
    return found


def ours(package: str) -> Any:
    """The package that has the functions of one of PyTorch's, if there is one."""
    found: Any = tg
    for part in package.split(".")[1:]:
        found = getattr(found, part, None)
    return found


def split() -> tuple[set[str], set[str]]:
    """All names that both have, and those that are missing here, as "package.name"."""
    here, missing = set(), set()
    for package, names in recorded().items():
        for name in names:
            (here if callable(getattr(ours(package), name, None)) else missing).add(f"{package}.{name}")
    return here, missing


def is_drawn(name: str) -> bool:
    """Whether a recipe calls the function, or that of which it is the method or the variant in place."""
    package, _, short = name.rpartition(".")
    inner = package.removeprefix("torch").removeprefix(".Tensor").strip(".")
    asked = {short, short.removesuffix("_")}
    return any(f"{inner}.{each}".strip(".") in DRAWN for each in asked)


DRAWN = {name for name, _ in recipes()}


def reasons(file: str) -> dict[str, str]:
    """Patterns of names, each line with the reason that stands behind them."""
    found = {}
    for line in (FOLDER / file).read_text().splitlines():
        patterns, mark, reason = line.partition(" # ")
        if mark and not line.startswith("#"):
            found.update(dict.fromkeys(patterns.split(), reason))
    return found


def without_reason(names: set[str], file: str) -> tuple[list[str], list[str]]:
    """The names that no pattern of a file fits, and the patterns that fit none."""
    listed = reasons(file)
    bare = [name for name in names if not any(fnmatch(name, pattern) for pattern in listed)]
    idle = [pattern for pattern in listed if not any(fnmatch(name, pattern) for name in names)]
    return sorted(bare), idle


if __name__ == "__main__":
    import torch

    parts = []
    for package in PACKAGES:
        found: Any = torch
        for part in package.split(".")[1:]:
            found = getattr(found, part)
        parts.append(f"{package}:\n" + "\n".join(functions_of(found)))
    (FOLDER / "pytorch_names.txt").write_text("\n\n".join(parts) + "\n")
