"""Compile the sources of an extension: C++ as it is, CUDA split into host and device parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, CompileError
from ..foreign.build import TranslationUnit, build_cpp
from ..foreign.source import ForeignSource, SourceLine
from ..ir.location import user_location
from .cuda_source import Parts, split_source
from .kernels import check_all

INCLUDE = Path(__file__).parent / "include"
CUDA_HEAD = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"


def units_of(name: str, files: Iterable[str | PathLike[str]], folder: Path) -> list[TranslationUnit]:
    """Return the units to compile of some files."""
    units = []
    for n, file in enumerate(files):
        path = (folder / file).absolute()
        if not path.is_file():
            raise ArgumentError(f"{name}: there is no source {path}")
        text = path.read_text(encoding="utf-8")
        is_cuda = path.suffix == ".cu"
        units.append(
            cuda_unit(text, path.name, path, n) if is_cuda else TranslationUnit(ForeignSource(text, path, None), n)
        )
    if not units:
        raise ArgumentError(f"{name}: an extension needs at least one source")
    return units


class CudaSource(ForeignSource):
    """A .cu file whose host part goes to the C++ compiler, with the line numbers of the original."""

    def __init__(self, text: str, original: str, path: Path | None) -> None:
        super().__init__(text, None, None)
        self._original = ForeignSource(original, path, user_location())

    def place(self, line: int) -> SourceLine:
        return self._original.place(line)


def cuda_unit(text: str, name: str, path: Path | None, number: int) -> TranslationUnit:
    parts: Parts = split_source(text, name)
    check_all(parts, name)
    barriers = "#define TILEGRAD_BARRIERS\n" if parts.barriers else ""
    folder = f"// of {path}\n" if path else ""
    device = f"static const char tilegrad_device[] = {_raw(parts.device)};\n"
    return TranslationUnit(CudaSource(parts.host, text, path), number, folder + barriers + CUDA_HEAD + device)


def _raw(text: str) -> str:
    """Return a text as C++ literals of at most 64 KiB, which compilers accept."""
    pieces = [text[n : n + 8000] for n in range(0, len(text), 8000)] or [""]
    return "\n".join(f'R"tilegrad({piece})tilegrad"' for piece in pieces)


def _flags(given: Sequence[str] | None) -> list[str]:
    return ["-O1", "-w", *(flag for flag in given or () if not flag.startswith("-std="))]


def compiled(
    name: str,
    units: Sequence[TranslationUnit],
    cflags: Sequence[str] | None = None,
    ldflags: Sequence[str] | None = None,
    include: Sequence[str] | None = None,
    build_directory: str | PathLike[str] | None = None,
    verbose: bool = False,
    cuda_cflags: Sequence[str] | None = None,
) -> Any:
    """Return the machine code of an extension."""
    if not name.isidentifier():
        raise ArgumentError(f"{name!r} is no name of an extension: it is one of a Python module")
    flags = [
        *_flags(cflags),
        f"-DTORCH_EXTENSION_NAME={name}",
        *(f'-DTILEGRAD_NVCC="{" ".join(cuda_cflags)}"' for _ in [1] if cuda_cflags),
    ]
    folders = [str(INCLUDE), *(include or ())]
    folders += [
        str(u.source._original.path.parent)
        for u in units
        if isinstance(u.source, CudaSource) and u.source._original.path
    ]
    try:
        return build_cpp(
            [""], name=name, flags=flags, include=folders, link=list(ldflags or ()), build_directory=build_directory,
            verbose=verbose, dress=lambda _: units,
        )  # fmt: skip
    except CompileError as refused:
        raise CompileError(f"{refused.args[0]}{_hint(refused.args[0])}") from None


LISTED = "docs/torch.md lists what there is"
HINTS = {
    "is not a member of 'torch'": f'{LISTED}; torch::call("name", ...) asks for any function of tilegrad',
    "is not a member of 'at'": f'{LISTED}; at::call("name", ...) asks for any function of tilegrad',
    "No such file or directory": f"of PyTorch's headers only those that extensions include are here; {LISTED}",
    "' was not declared in this scope": f"is it a macro or function of PyTorch's headers? {LISTED}",
}


def _hint(message: str) -> str:
    found = next((hint for sign, hint in HINTS.items() if sign in message), "")
    return f"\nhint: {found}" if found else ""
