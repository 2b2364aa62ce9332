"""Implement `torch.utils.cpp_extension`: C++ and CUDA extensions from strings, from files, and by a setup.py."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ArgumentError
from ..foreign.build import TranslationUnit
from ..foreign.source import ForeignSource
from ..ir.location import user_location
from .building import compiled, cuda_unit, units_of
from .doors import missing
from .extension import Library, filled
from .setups import CppExtension as CppExtension
from .setups import CUDAExtension as CUDAExtension
from .setups import include_paths as include_paths


def __getattr__(name: str) -> Any:
    if name == "BuildExtension":  # setuptools takes a while to import
        from .setups import BuildExtension

        return BuildExtension
    raise missing("torch.utils.cpp_extension", name, [*globals(), "BuildExtension"])


CUDA_HOME = None
"""None: no toolkit is needed."""
CPP_HEAD = "#include <torch/extension.h>\n"


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
    """Compile an extension from strings, unless it is in the cache; `functions` become visible to Python.

    `extra_cuda_cflags` are for nvcc, which is not used: NVRTC compiles for the GPU that is there.
    """
    given = [cpp_sources] if isinstance(cpp_sources, str) else list(cpp_sources)
    kernels = [cuda_sources] if isinstance(cuda_sources, str) else list(cuda_sources or ())
    if with_cuda and not kernels:
        raise ArgumentError(f"load_inline({name!r}): with_cuda=True and no cuda_sources: give them, or leave it out")
    origin = user_location()
    units = [TranslationUnit(ForeignSource(text, None, origin), n, CPP_HEAD) for n, text in enumerate(given)]
    units += [cuda_unit(text, f"{name}.cu", None, len(given) + n) for n, text in enumerate(kernels)]
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
    """Compile an extension from files (.cpp, .cu), unless it is in the cache."""
    files = [sources] if isinstance(sources, str) else list(sources)
    units = units_of(name, files, Path())
    return _built(
        name, units, extra_cflags, extra_ldflags, extra_include_paths, build_directory, verbose, extra_cuda_cflags
    )


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


def _built(
    name: str,
    units: Sequence[TranslationUnit],
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
