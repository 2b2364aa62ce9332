"""Find NVIDIA's libraries on the machine and check their versions.

They come with toolkits, with their own wheels, and with those of PyTorch and JAX. None is required.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ...config import settings
from ...errors import ArgumentError, RuntimeFault
from ...runtime.singletons import once
from .driver import OpenLibrary, cuda_major


class InstalledLibrary(NamedTuple):
    """An installed library and the CUDA version it was built for (0: unknown); `refused` says why it is not used."""

    name: str
    path: str
    version: tuple[int, ...]
    refused: str = ""
    cuda: int = 0

    def unusable_reason(self, driver: int) -> str:
        """Return why the library cannot be used with a driver of this version, or ""."""
        if self.refused or not driver or self.cuda <= cuda_major(driver):
            return self.refused
        return f"it is for CUDA {self.cuda}, and the driver for {cuda_major(driver)}.{driver % 1000 // 10}"

    def __str__(self) -> str:
        said = f"{self.name} {'.'.join(map(str, self.version))} ({self.path})"
        return f"{said}: not used: {self.refused}" if self.refused else said


class LibraryKind(NamedTuple):
    """File names and supported versions of a library: major numbers of files, newest first, and versions `oldest` to
    `newest`.
    """

    name: str
    stem: str
    files: tuple[int, ...]
    function: str
    units: tuple[int, int]
    """Units of the major and minor number in the version number."""
    oldest: int
    newest: int
    runtime: str = ""
    """Function that returns the CUDA version it was built for, times 1000; without one, the major version is that
    number.
    """


CUBLASLT = LibraryKind("cuBLASLt", "libcublasLt", (13, 12, 11), "cublasLtGetVersion", (10000, 100), 12, 13)
CUDNN = LibraryKind("cuDNN", "libcudnn", (9, 8), "cudnnGetVersion", (10000, 100), 9, 9, "cudnnGetCudartVersion")


def are_allowed() -> bool:
    """Return whether libraries may be used at all: TILEGRAD_LIBRARIES=off forbids it."""
    said = settings().libraries
    if said not in ("", "on", "off", "all"):
        raise ArgumentError(f"TILEGRAD_LIBRARIES={said!r}: on, off or all is wanted")
    return said != "off"


def is_enabled(library: str) -> bool:
    """Return whether a library is enabled: cuDNN requires TILEGRAD_LIBRARIES=all."""
    return are_allowed() and (library != CUDNN.name or settings().libraries == "all")


@once
def cublaslt() -> InstalledLibrary | None:
    return find(CUBLASLT)


@once
def cudnn() -> InstalledLibrary | None:
    return find(CUDNN)


def find(kind: LibraryKind) -> InstalledLibrary | None:
    """Return the first suitable library; if there is none, the first one found, with the reason."""
    first = None
    for path in candidates(kind):
        try:
            library = ctypes.CDLL(path)
            asked = [getattr(library, name) for name in (kind.function, kind.runtime) if name]
        except (OSError, AttributeError):
            continue
        for ask in asked:
            ask.restype, ask.argtypes = ctypes.c_size_t, ()
        made = check_version(kind, path, *[ask() for ask in asked])
        if not made.refused:
            return made
        first = first or made
    return first


def check_version(kind: LibraryKind, path: str, number: int, runtime: int = 0) -> InstalledLibrary:
    """Check a library's version.

    >>> print(check_version(CUBLASLT, "libcublasLt.so.11", 111103))
    cuBLASLt 11.11.3 (libcublasLt.so.11): not used: 12 to 13 is wanted
    """
    major, minor = kind.units if number >= kind.units[0] else (1000, 100)  # cuDNN before 9
    version = (number // major, number % major // minor, number % minor)
    fits = kind.oldest <= version[0] <= kind.newest
    wanted = f"{kind.oldest} to {kind.newest}" if kind.oldest < kind.newest else str(kind.oldest)
    cuda = runtime // 1000 if kind.runtime else version[0]
    return InstalledLibrary(kind.name, path, version, "" if fits else f"{wanted} is wanted", cuda)


def open_library(name: str, driver: int) -> OpenLibrary | None:
    """Open a library for the current context; None if it is missing or unusable."""
    if name == CUBLASLT.name:
        from .cublaslt import CublasLt as made

        library = cublaslt()
    else:
        from .cudnn import CuDnn as made  # type: ignore[assignment]

        library = cudnn()
    if library is None or library.unusable_reason(driver):
        return None
    try:
        return made(ctypes.CDLL(library.path))
    except (OSError, AttributeError, RuntimeFault):  # not the library that its version claims
        return None


def candidates(kind: LibraryKind) -> Iterator[str]:
    """Yield possible paths of a library: wheels, the loader's path, toolkits."""
    packages = importlib.util.find_spec("nvidia")
    for number in kind.files:
        for folder in packages.submodule_search_locations or () if packages else ():
            yield from map(str, sorted(Path(folder).glob(f"*/lib/{kind.stem}.so.{number}")))
        yield f"{kind.stem}.so.{number}"
        for root in (os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"):
            for inner in ("lib64", "lib") if root else ():
                yield f"{root}/{inner}/{kind.stem}.so.{number}"
