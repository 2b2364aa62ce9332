"""Puts kernels that a person has edited in the place of those that the compiler made.

`TILEGRAD_USE=kernel:FILE` names a file with one kernel as `explain` prints it: the line with its launch (grid, types
of arguments, and a digest of the kernel that it replaces), then its text, of which everything but the name and the
parameters may be changed, and in the launch line the grid. Without that line it takes the place of every kernel of
its name and parameters. It is used once it has given the same results on random inputs; if it does not, that is an
error: nothing is replaced in silence, and nothing is left out in silence.
"""

from __future__ import annotations

import atexit
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ..config import settings
from ..errors import ArgumentError, KernelError
from ..ir.graph import TensorType
from ..ir.program import Launch, Program, Tiles
from ..ir.size import Dim
from ..ir.tile import Kernel
from ..ir.tile_parser import parse
from ..runtime.cache import key
from .compare import first_difference

LAUNCH = re.compile(r"^# launch: \w+\[(?P<grid>.*?)\]\((?P<takes>.*)\)(?: of (?P<digest>[0-9a-f]+))?$", re.MULTILINE)
TILES = re.compile(r"cdiv\(([^()]+), (\d+)\)|([^(),]+)")


class Edited(NamedTuple):
    """A kernel from a file, with what its launch line says (empty if it has none)."""

    path: Path
    kernel: Kernel
    grid: str = ""
    takes: str = ""
    digest: str = ""

    def is_for(self, program: Program, launch: Launch) -> bool:
        """Whether it is meant to take the place of a launch's kernel."""
        if self.kernel.name != launch.kernel.name or self.takes not in ("", _takes(program, launch)):
            return False
        if self.digest:
            return self.digest == _digest(launch.kernel)
        return self.kernel.parameters == launch.kernel.parameters


def replace(program: Program) -> Program:
    """The program with the kernels that `TILEGRAD_USE` names in place of those that it had."""
    wanted = edited_kernels(settings().use)
    steps = tuple(_replaced(program, s, wanted) if isinstance(s, Launch) else s for s in program.steps)
    return program if all(a is b for a, b in zip(steps, program.steps, strict=True)) else program.replaced(steps=steps)


def launch_line(program: Program, launch: Launch) -> str:
    """What a kernel is called with, as the first line of its file."""
    grid = ", ".join(map(str, launch.grid)) or "1"
    return f"# launch: {launch.kernel.name}[{grid}]({_takes(program, launch)}) of {_digest(launch.kernel)}"


def _digest(kernel: Kernel) -> str:
    """Tells a kernel from others of its name."""
    return key("kernel", repr(kernel.replaced(origin="")))[:8]


def _takes(program: Program, launch: Launch) -> str:
    """The types of the arguments. (Where they are does not matter to a kernel's text.)"""
    types = [program.buffer(a).type if isinstance(a, str) else a for a in launch.arguments]
    return ", ".join(
        f"{t.dtype}[{','.join(map(str, t.shape))}]" if isinstance(t, TensorType) else str(t) for t in types
    )


def _replaced(program: Program, launch: Launch, wanted: tuple[Edited, ...]) -> Launch:
    for edited in wanted:
        if not edited.is_for(program, launch):
            continue
        _unused.pop(edited.path, None)
        if edited.kernel.parameters != launch.kernel.parameters:
            raise KernelError(
                f"{edited.path}: {edited.kernel.name} takes ({_parameters(edited.kernel)}), but is called with "
                f"({_parameters(launch.kernel)}): keep the parameters, their order and their types"
            )
        origin = f"{launch.kernel.origin}; edited in {edited.path}".removeprefix("; ")
        kernel = edited.kernel.replaced(origin=origin)
        new: Launch = launch.replaced(kernel=kernel, grid=_grid(edited, launch))
        _check(program, launch, new, edited)
        return new
    return launch


def _parameters(kernel: Kernel) -> str:
    return ", ".join(f'{p.name}: "{"*" if p.pointer else ""}{p.dtype}"' for p in kernel.parameters)


def _check(program: Program, old: Launch, new: Launch, edited: Edited) -> None:
    """Compares the two on random inputs, and says that the new one is used."""
    difference = first_difference(program, old, new)
    if difference:
        raise KernelError(
            f"{edited.path}: {edited.kernel.name} does not compute what the kernel does that it should replace: "
            f"{difference}. It is not used: correct it, or unset TILEGRAD_USE"
        )
    print(f"tilegrad: {edited.kernel.name}: using {edited.path} (same results on random inputs)", file=sys.stderr)


def _grid(edited: Edited, launch: Launch) -> tuple[Tiles, ...]:
    """The grid that the launch line of the file gives."""
    if not edited.grid:
        return launch.grid
    known: Mapping[str, Dim] = {str(t.extent): t.extent for t in launch.grid}
    grid = []
    for covered, tile, plain in TILES.findall(edited.grid):
        text = (covered or plain).strip()
        if not text:
            continue
        extent = known.get(text, int(text) if text.isdigit() else None)
        if extent is None:
            raise KernelError(
                f"{edited.path}: `{text}` in the grid of the launch line is neither a number nor a size that the "
                f"original has ({', '.join(known)})"
            )
        grid.append(Tiles(extent, int(tile or 1)))
    return tuple(grid)


def edited_kernels(use: str) -> tuple[Edited, ...]:
    """The kernels of the files that the knob names, as they are now."""
    return tuple(_read(part) for part in use.split(",") if part)


def _read(part: str) -> Edited:
    kind, _, name = part.partition(":")
    if kind != "kernel" or not name:
        raise ArgumentError(f"TILEGRAD_USE={part}: only kernels can be replaced: TILEGRAD_USE=kernel:FILE")
    path = Path(name)
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        raise ArgumentError(f"TILEGRAD_USE={part}: the file cannot be read: {problem}") from None
    try:
        kernel = parse(text)
    except KernelError as problem:
        raise KernelError(f"{path}: {problem}") from None
    if path not in _known:
        _known.add(path)
        _unused[path] = kernel.name
    launch = LAUNCH.search(text)
    return (
        Edited(path, kernel, **{k: v or "" for k, v in launch.groupdict().items()}) if launch else Edited(path, kernel)
    )


_known: set[Path] = set()
_unused: dict[Path, str] = {}
"""The kernels of files that nothing has been replaced by."""


@atexit.register
def _tell_unused() -> None:
    for path, name in _unused.items():
        print(
            f"tilegrad: {path} was not used: no kernel {name} with these parameters and shapes was compiled. "
            "Print it anew with explain, and edit that",
            file=sys.stderr,
        )
