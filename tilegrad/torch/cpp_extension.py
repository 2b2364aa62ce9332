"""`torch.utils.cpp_extension`: C++ and CUDA extensions from texts, from files, and by a setup.py."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ArgumentError, CompileError
from ..foreign.build import Unit, build_cpp
from ..foreign.source import Place, Source
from ..ir.location import user_location
from .cuda_source import Parts, taken_apart
from .doors import missing
from .extension import Library, filled
from .kernels import check_all
from .setups import CppExtension as CppExtension
from .setups import CUDAExtension as CUDAExtension
from .setups import include_paths as include_paths


def __getattr__(name: str) -> Any:
    if name == "BuildExtension":  # setuptools takes a while to import
        from .setups import BuildExtension

        return BuildExtension
    raise missing("torch.utils.cpp_extension", name, [*globals(), "BuildExtension"])


INCLUDE = Path(__file__).parent / "include"
IGNORED = ("-std=", "--use_fast_math", "-gencode", "-arch", "--expt", "-Xcompiler", "-lineinfo", "--ptxas")
CUDA_HOME = None
"""No toolkit is needed."""
CPP_HEAD = "#include <torch/extension.h>\n"
CUDA_HEAD = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | PathLike[str] | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
) -> ModuleType:
    """An extension from texts, compiled when it is not in the cache. `functions` are made visible to Python.

    `extra_cuda_cflags` are for nvcc, which is not used: NVRTC compiles for the GPU that is there.
    """
    given = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    kernels = [cuda_sources] if isinstance(cuda_sources, str) else list(cuda_sources or ())
    if with_cuda and not kernels:
        raise ArgumentError(f"load_inline({name!r}): with_cuda=True and no cuda_sources: give them, or leave it out")
    origin = user_location()
    units = [Unit(Source(text, None, origin), n, CPP_HEAD) for n, text in enumerate(given)]
    units += [_cuda_unit(text, f"{name}.cu", None, len(given) + n) for n, text in enumerate(kernels)]
    if functions is not None:
        named = _named(functions)
        units[0] = units[0]._replace(after=_module(named))
        if not given:
            raise ArgumentError(f"load_inline({name!r}): cpp_sources declare the functions that Python calls: give one")
    return _built(
        name, units, extra_cflags, extra_ldflags, extra_include_paths, build_directory, verbose, extra_cuda_cflags
    )


def load(
    name: str,
    sources: str | Sequence[str | PathLike[str]],
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | PathLike[str] | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
) -> ModuleType:
    """An extension from files (.cpp, .cu), compiled when it is not in the cache."""
    files = [sources] if isinstance(sources, str) else list(sources)
    units = units_of(name, files, Path())
    return _built(
        name, units, extra_cflags, extra_ldflags, extra_include_paths, build_directory, verbose, extra_cuda_cflags
    )


def units_of(name: str, files: Iterable[str | PathLike[str]], folder: Path) -> list[Unit]:
    """What is compiled of some files."""
    units = []
    for n, file in enumerate(files):
        path = (folder / file).absolute()
        if not path.is_file():
            raise ArgumentError(f"{name}: there is no source {path}")
        text = path.read_text(encoding="utf-8")
        units.append(
            _cuda_unit(text, path.name, path, n) if path.suffix == ".cu" else Unit(Source(text, path, None), n)
        )
    if not units:
        raise ArgumentError(f"{name}: an extension needs at least one source")
    return units


def _named(functions: str | Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(functions, str):
        return {functions: functions}
    return dict(functions) if isinstance(functions, Mapping) else {name: name for name in functions}


def _module(functions: Mapping[str, str]) -> str:
    lines = [f"  m.def({_quoted(f)}, &{f}, {_quoted(doc)});" for f, doc in functions.items()]
    return "\n".join(["PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {", *lines, "}", ""])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class CudaSource(Source):
    """A .cu text of which the compiler sees the host's part; its lines are those of the original."""

    def __init__(self, text: str, original: str, path: Path | None) -> None:
        super().__init__(text, None, None)
        self._original = Source(original, path, user_location())

    def place(self, line: int) -> Place:
        return self._original.place(line)


def _cuda_unit(text: str, name: str, path: Path | None, number: int) -> Unit:
    parts: Parts = taken_apart(text, name)
    check_all(parts, name)
    barriers = "#define TILEGRAD_BARRIERS\n" if parts.barriers else ""
    folder = f"// of {path}\n" if path else ""
    device = f"static const char tilegrad_device[] = {_raw(parts.device)};\n"
    return Unit(CudaSource(parts.host, text, path), number, folder + barriers + CUDA_HEAD + device)


def _raw(text: str) -> str:
    """A text as C++ literals: compilers take pieces of up to 64 KiB."""
    pieces = [text[n : n + 8000] for n in range(0, len(text), 8000)] or [""]
    return "\n".join(f'R"tilegrad({piece})tilegrad"' for piece in pieces)


def _flags(given: Sequence[str] | None) -> list[str]:
    return ["-O1", "-w", *(flag for flag in given or () if not flag.startswith("-std="))]


def _built(
    name: str,
    units: Sequence[Unit],
    cflags: Sequence[str] | None,
    ldflags: Sequence[str] | None,
    include: Sequence[str] | None,
    build_directory: str | PathLike[str] | None,
    verbose: bool,
    cuda_cflags: Sequence[str] | None = None,
) -> ModuleType:
    library = compiled(name, units, cflags, ldflags, include, build_directory, verbose, cuda_cflags)
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    sys.modules[name] = module
    return filled(module, Library(name, library.handle, [unit.source for unit in units]))


def compiled(
    name: str,
    units: Sequence[Unit],
    cflags: Sequence[str] | None = None,
    ldflags: Sequence[str] | None = None,
    include: Sequence[str] | None = None,
    build_directory: str | PathLike[str] | None = None,
    verbose: bool = False,
    cuda_cflags: Sequence[str] | None = None,
) -> Any:
    """The machine code of an extension."""
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
