"""Replace compiled kernels by kernels that a user has edited.

`TILEGRAD_USE=kernel:FILE` names a file with one kernel as `explain` prints it: a launch line (grid, types of arguments,
and the digest of the kernel that it replaces), then the text, of which everything but the name and the parameters may
be changed, and in the launch line the grid. Without that line it replaces every kernel of its name and parameters. The
edited kernel must compute the same results on random inputs; otherwise, or if it replaces nothing, there is an error.
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
    """A kernel from a file, with its launch line (empty if it has none)."""

    path: Path
    kernel: Kernel
    grid: str = ""
    takes: str = ""
    digest: str = ""

    def is_for(self, program: Program, launch: Launch) -> bool:
        """Whether it replaces the kernel of a launch."""
        if self.kernel.name != launch.kernel.name or self.takes not in ("", _takes(program, launch)):
            return False
        if self.digest:
            return self.digest == _digest(launch.kernel)
        return self.kernel.parameters == launch.kernel.parameters


def replace(program: Program) -> Program:
    """Replace the kernels that `TILEGRAD_USE` names."""
    wanted = edited_kernels(settings().use)
    steps = tuple(_replaced(program, s, wanted) if isinstance(s, Launch) else s for s in program.steps)
    return program if all(a is b for a, b in zip(steps, program.steps, strict=True)) else program.replaced(steps=steps)


def launch_line(program: Program, launch: Launch) -> str:
    """Print the arguments of a kernel, as the first line of its file."""
    grid = ", ".join(map(str, launch.grid)) or "1"
    return f"# launch: {launch.kernel.name}[{grid}]({_takes(program, launch)}) of {_digest(launch.kernel)}"


def _digest(kernel: Kernel) -> str:
    """Digest a kernel, to distinguish it from others of its name."""
    return key("kernel", repr(kernel.replaced(origin="")))[:8]


def _takes(program: Program, launch: Launch) -> str:
    """Print the types of the arguments, without devices."""
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
    """Compare the two kernels on random inputs, and report that the new one is used."""
    difference = first_difference(program, old, new)
    if difference:
        raise KernelError(
            f"{edited.path}: {edited.kernel.name} does not compute what the kernel does that it should replace: "
            f"{difference}. It is not used: correct it, or unset TILEGRAD_USE"
        )
    print(f"tilegrad: {edited.kernel.name}: using {edited.path} (same results on random inputs)", file=sys.stderr)


def _grid(edited: Edited, launch: Launch) -> tuple[Tiles, ...]:
    """Parse the grid of the launch line."""
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
    """Read the kernels of the files that the setting names, as they are now."""
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
"""Edited kernels that have replaced nothing."""


@atexit.register
def _tell_unused() -> None:
    for path, name in _unused.items():
        print(
            f"tilegrad: {path} was not used: no kernel {name} with these parameters and shapes was compiled. "
            "Print it anew with explain, and edit that",
            file=sys.stderr,
        )
