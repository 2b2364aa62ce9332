"""Build C++ sources to a loaded library, cached on disk by content.

Each source is compiled separately, and again only if it, an included header, a flag or the compiler changed. The linked
library is cached likewise, so a second process starts no compiler.
"""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from ..errors import CompileError, MissingFileError
from ..ir.location import Location, user_location
from ..runtime import events
from ..runtime.atomic_write import replacing
from ..runtime.cache import key
from ..runtime.singletons import lock
from . import store
from .compilers import Compiler, compiler, run_compiler
from .source import GLUE_FILE, ForeignSource, compile_error, sources

INCLUDE = str(Path(__file__).parent / "include")
"""Folder of tilegrad.h and tilegrad.hpp."""
MAX_COMPILERS = 8


class BuildReport(NamedTuple):
    """Build times of a function, in seconds."""

    name: str
    compiler: str
    """The compiler; empty if none was started."""
    compiling: float
    """Time in the compiler and linker."""
    own: float
    """All other time."""
    compiled: int
    """Number of sources compiled, and of all sources."""
    of: int

    def __str__(self) -> str:
        own = f"tilegrad's own share {1e3 * self.own:.1f} ms"
        if not self.compiler:
            return f"{self.name}: found on disk, {own}"
        return f"{self.name}: {self.compiled} of {self.of} sources by {self.compiler} in {self.compiling:.2f} s, {own}"


class LoadedLibrary:
    """A loaded library: `handle` has its functions, `image` its bytes."""

    def __init__(self, handle: ctypes.CDLL, image: bytes, report: BuildReport, digest: str) -> None:
        self.handle = handle
        self.image = image
        self.report = report
        self.digest = digest

    def address(self, symbol: str) -> int:
        """Return the address of a function; AttributeError if it does not exist."""
        return ctypes.cast(getattr(self.handle, symbol), ctypes.c_void_p).value or 0


class TranslationUnit(NamedTuple):
    """A translation unit: a source with generated lines around it."""

    source: ForeignSource
    number: int
    before: str = ""
    after: str = ""
    language: str = "c++"
    inner: str | None = None
    """Text to compile instead of the source's, with the same lines."""

    @property
    def text(self) -> str:
        given = self.source.path if self.inner is None else None
        text = self.source.text if self.inner is None else self.inner
        inner = f'#include "{given.as_posix()}"\n' if given else f'#line 1 "<source {self.number}>"\n{text}\n'
        return f'{self.before}{inner}#line 1 "{GLUE_FILE}"\n{self.after}'

    @property
    def suffix(self) -> str:
        return ".c" if self.language == "c" else ".cpp"


class BuildOptions(NamedTuple):
    """Build options."""

    flags: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    link: tuple[str, ...] = ()
    build_directory: str = ""
    verbose: bool = False


def build_cpp(
    given: object,
    *,
    name: str = "module",
    flags: Sequence[str] = (),
    include: Sequence[str | os.PathLike[str]] = (),
    link: Sequence[str] = (),
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    origin: Location | None = None,
    dress: Callable[[Sequence[ForeignSource]], Sequence[TranslationUnit]] | None = None,
) -> LoadedLibrary:
    """Compile sources (texts, files, or both) to a library, or find it on disk, and load it.

    `flags` go to the compiler, `link` to the linker, `include` are header folders. `build_directory` receives the
    sources, the library and a Makefile. `dress` adds generated lines around the sources.
    """
    start = perf_counter()
    origin = origin or user_location()
    found = sources(given, origin)
    choices = BuildOptions(
        tuple(flags), tuple(os.fspath(f) for f in include), tuple(link), _folder(build_directory), verbose
    )
    units = list(
        dress(found) if dress else [TranslationUnit(s, n, language=s.language or "c++") for n, s in enumerate(found)]
    )
    return build_library(units, name, choices, start)


def _folder(given: str | os.PathLike[str] | None) -> str:
    return os.path.abspath(os.fspath(given)) if given is not None else ""


_loaded: dict[str, LoadedLibrary] = {}
_building = lock()


def build_library(units: Sequence[TranslationUnit], name: str, choices: BuildOptions, start: float) -> LoadedLibrary:
    """Return the library of some units. Threads build one at a time; the compilers of one build run in parallel."""
    with _building:
        work = _Build(units, name, choices, compiler("c++"))
        kept = work.stored(work.digest)
        payload = kept[0] if kept is not None else work.made()
        if choices.build_directory:
            work.keep(payload)
        digest = f"{work.digest} {sha256(payload).hexdigest()}"
        known = _loaded.get(digest)
        total = perf_counter() - start
        used = work.compiler.name if work.compiled or work.linked else ""
        report = BuildReport(name, used, work.seconds, max(0.0, total - work.seconds), work.compiled, len(units))
        if choices.verbose:
            print(f"tilegrad: {report}")
        if known is not None:
            return LoadedLibrary(known.handle, known.image, report, known.digest)
        try:
            handle = store.loaded(payload, name)
        except OSError as problem:
            reason = str(problem).rpartition(": ")
            raise CompileError(
                f"{name}: it was compiled, but cannot be loaded: {': '.join(str(problem).split(': ')[1:]) or reason}. "
                "A function is declared and defined nowhere? Give its source too, or link=['-l...']"
            ) from None
        total = perf_counter() - start
        report = report._replace(own=max(0.0, total - work.seconds))
        made = _loaded[digest] = LoadedLibrary(handle, payload, report, digest)
        return made


class _Build:
    """One build: cached objects, compilations, times."""

    def __init__(self, units: Sequence[TranslationUnit], name: str, choices: BuildOptions, compiler: Compiler) -> None:
        self.units, self.name, self.choices, self.compiler = units, name, choices, compiler
        self.seconds = 0.0
        self.compiled = 0
        self.linked = False
        self.include = (INCLUDE, *choices.include)
        self.unit_digests = [self._unit_digest(unit) for unit in units]
        self.digest = key("library", *self.unit_digests, *choices.link)

    def _unit_digest(self, unit: TranslationUnit) -> str:
        made_by = compiler("c").identity if unit.language == "c" else self.compiler.identity
        return key("object", made_by, unit.language, unit.text, *self.choices.flags, "include", *self.choices.include)

    # --- on disk -------------------------------------------------------------------------------

    def stored(self, digest: str) -> tuple[bytes, dict[str, str]] | None:
        """Return cached code if the files it was built from are unchanged."""
        found = store.read(digest)
        if found is None:
            return None
        head, _, code = found.partition(b"\0")
        try:
            files: dict[str, str] = json.loads(head)
            fresh = all(_sum(path) == wanted for path, wanted in files.items())
        except (ValueError, OSError):
            return None
        return (code, files) if fresh else None

    def _store(self, digest: str, files: dict[str, str], code: bytes) -> None:
        store.write(digest, json.dumps(files).encode() + b"\0" + code)

    # --- compiled ------------------------------------------------------------------------------

    def made(self) -> bytes:
        """Compile and link."""
        import tempfile

        if any(unit.source.path and not unit.source.path.exists() for unit in self.units):
            raise MissingFileError(f"{self.name}: a source is gone")
        with tempfile.TemporaryDirectory(prefix="tilegrad-") as folder, events.timed("compile", self.name, "cpp"):
            files: dict[str, str] = {}
            if len(self.units) == 1:
                output = os.path.join(folder, "library.so")
                self._compile(0, folder, output, shared=True)
                files = self._files(0, folder)
                self.compiled = 1
            else:
                output = self._linked(folder, files)
            code = Path(output).read_bytes()
        self._store(self.digest, files, code)
        return code

    def _linked(self, folder: str, files: dict[str, str]) -> str:
        from concurrent.futures import ThreadPoolExecutor

        objects = [os.path.join(folder, f"{n}.o") for n in range(len(self.units))]

        def ready(n: int) -> dict[str, str]:
            known = self.stored(self.unit_digests[n])
            if known is not None:
                Path(objects[n]).write_bytes(known[0])
                return known[1]
            self._compile(n, folder, objects[n], shared=False)
            made = self._files(n, folder)
            self._store(self.unit_digests[n], made, Path(objects[n]).read_bytes())
            self.compiled += 1
            return made

        start = perf_counter()
        with ThreadPoolExecutor(min(MAX_COMPILERS, os.cpu_count() or 1)) as pool:
            for included in pool.map(ready, range(len(self.units))):
                files |= included
        if self.compiled:
            self.seconds = perf_counter() - start  # they ran at once
        output = os.path.join(folder, "library.so")
        line = self.compiler.command_line(objects, output, (), (), self.choices.link, shared=True)
        self._run(line, folder)
        self.linked = True
        return output

    def _compile(self, n: int, folder: str, output: str, *, shared: bool) -> None:
        unit = self.units[n]
        path = os.path.join(folder, f"{n}{unit.suffix}")
        Path(path).write_text(unit.text, encoding="utf-8")
        used = compiler("c") if unit.language == "c" else self.compiler
        line = used.command_line(
            [path],
            output,
            self.choices.flags,
            self.include,
            self.choices.link if shared else (),
            shared=shared,
            depends=os.path.join(folder, f"{n}.d") if used.style == "gcc" else "",
            language=unit.language,
        )
        self._run(line, folder)

    def _run(self, line: Sequence[str], folder: str) -> None:
        if self.choices.verbose:
            print(f"tilegrad: {' '.join(line)}")
        start = perf_counter()
        status, said = run_compiler(line, folder)
        self.seconds += perf_counter() - start
        if status:
            numbered = {unit.number: unit.source for unit in self.units}
            given = [numbered.get(n, self.units[0].source) for n in range(max(numbered) + 1)]
            raise compile_error(self.name, self.compiler.name, said, given)
        if self.choices.verbose and said.strip():
            print(said)

    def _files(self, n: int, folder: str) -> dict[str, str]:
        """Return the user files that a unit includes, from the compiler's dependency output, with their contents."""
        try:
            rule = Path(folder, f"{n}.d").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return {}
        names = rule.partition(": ")[2].replace("\\\n", " ").replace("\\ ", "\0").split()
        plain = [os.path.join(folder, name.replace("\0", " ")) for name in names]
        return {path: _sum(path) for path in plain if not path.startswith(folder)}

    # --- to be looked at -----------------------------------------------------------------------

    def keep(self, code: bytes) -> None:
        """Write the sources, the library and a Makefile to the build directory."""
        folder = Path(self.choices.build_directory)
        folder.mkdir(parents=True, exist_ok=True)
        names = []
        for n, unit in enumerate(self.units):
            names.append(f"{self.name}{n or ''}{unit.suffix}")
            _write_if_changed(folder / names[-1], unit.text.encode())
        _write_if_changed(folder / f"{self.name}.so", code)
        objects = [f"{os.path.splitext(name)[0]}.o" for name in names]
        rules = [f"{self.name}.so: {' '.join(objects)}"]
        rules.append("\t" + " ".join(self.compiler.command_line(objects, "$@", (), (), self.choices.link, shared=True)))
        for name, target, unit in zip(names, objects, self.units, strict=True):
            used = compiler("c") if unit.language == "c" else self.compiler
            line = used.command_line(
                [name], "$@", self.choices.flags, self.include, (), shared=False, language=unit.language
            )
            rules.append(f"{target}: {name}\n\t{' '.join(line)}")
        _write_if_changed(folder / "Makefile", ("\n".join(rules) + "\n").encode())


def _write_if_changed(path: Path, contents: bytes) -> None:
    """Write a file unless it has this content already, to keep its modification time.

    A symbolic link is replaced, not followed: others may be able to write to the folder.
    """
    if path.is_symlink() or not path.is_file() or path.read_bytes() != contents:
        with replacing(path, links=False) as file:
            file.write(contents)


def _sum(path: str) -> str:
    try:
        return sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
