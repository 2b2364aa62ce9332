"""Find the C++ compiler: $CXX, one in the path, or one from a wheel."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from ..errors import CompileError

MISSING = (
    "there is no {language} compiler on this machine ({looked}). Install one (Debian, Ubuntu: apt-get install g++; "
    "macOS: xcode-select --install; Windows: the Build Tools of Visual Studio), or pip install tilegrad[cpp], which "
    "brings one in a wheel; or name one by ${variable}"
)
NAMES = {"c++": ("c++", "g++", "clang++"), "c": ("cc", "gcc", "clang")}
VARIABLES = {"c++": "CXX", "c": "CC"}
COMPILER_TIMEOUT_SECONDS = 1200.0
"""Compiler timeout in seconds; the ziglang wheel first builds its C++ library."""


class Compiler(NamedTuple):
    """A compiler: command, option style, and an identity for cache keys."""

    command: tuple[str, ...]
    style: str
    """`gcc` (also clang) or `msvc`."""
    identity: str

    @property
    def name(self) -> str:
        return "zig c++" if "ziglang" in self.command else os.path.basename(self.command[0])

    def command_line(
        self,
        files: Sequence[str],
        output: str,
        flags: Sequence[str],
        include: Sequence[str],
        link: Sequence[str],
        *,
        shared: bool,
        depends: str = "",
        language: str = "c++",
    ) -> list[str]:
        """Return the command to compile files, or to link objects to a library."""
        standard = () if any("std" in flag for flag in flags) else ("c++17",) if language == "c++" else ("c11",)
        if self.style == "msvc":
            mode = ["/LD"] if shared else ["/c"]
            names = [f"/I{folder}" for folder in include]
            target = f"/Fe{output}" if shared else f"/Fo{output}"
            given = [f"/std:{name}" for name in standard]
            return [*self.command, "/nologo", "/EHsc", "/O2", *given, *mode, *names, *flags, *files, target, *link]
        mode = ["-shared"] if shared else ["-c"]
        given = [f"-std={name}" for name in standard] if any(not f.endswith(".o") for f in files) else []
        own = ["-O3", "-fPIC", "-fvisibility=hidden", *(["-fno-sanitize=all"] if "ziglang" in self.command else [])]
        names = [part for folder in include for part in ("-I", folder)]
        rules = ["-MMD", "-MF", depends] if depends else []
        return [*self.command, *given, *own, *mode, *names, *rules, *flags, *files, "-o", output, *link]


def compiler(language: str = "c++") -> Compiler:
    """Return the compiler for a language, or raise CompileError with a remedy."""
    variable = VARIABLES[language]
    wanted = os.environ.get(variable, "")
    if wanted:
        import shlex

        command = shlex.split(wanted)
        found = find_program(command[0])
        if not found:
            raise CompileError(f"${variable} is {wanted!r}, and there is no such program: correct it, or unset it")
        return _known((found, *command[1:]))
    names = (*NAMES[language], *(("cl",) if sys.platform == "win32" else ()))
    for name in names:
        found = find_program(name)
        if found:
            return _known((found,))
    from importlib.util import find_spec

    if find_spec("ziglang") is not None:
        return _known((sys.executable, "-m", "ziglang", language))
    looked = f"looked for {', '.join(names)} in the path, and for the wheel ziglang"
    raise CompileError(MISSING.format(language=language.upper(), looked=looked, variable=variable))


def is_available(language: str = "c++") -> bool:
    """Whether a compiler is available."""
    try:
        compiler(language)
    except CompileError:
        return False
    return True


def find_program(name: str) -> str:
    """Return the path of a program, or an empty text; `shutil.which` is slow to import."""
    if os.path.dirname(name):
        return name if os.access(name, os.X_OK) else ""
    endings = (".exe", "") if sys.platform == "win32" else ("",)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        for ending in endings:
            path = os.path.join(folder, name + ending)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return ""


def _known(command: tuple[str, ...]) -> Compiler:
    """Identify a compiler by its file; asking for its version takes longer than a cached call may."""
    if "ziglang" in command:
        from importlib.util import find_spec

        spec = find_spec("ziglang")
        path = os.path.realpath(spec.origin or command[0]) if spec else command[0]
    else:
        path = os.path.realpath(command[0])
    status = os.stat(path)
    style = "msvc" if os.path.basename(path).lower() in ("cl", "cl.exe") else "gcc"
    return Compiler(command, style, f"{' '.join(command[1:])} {path} {status.st_size} {status.st_mtime_ns}")


def run_compiler(command: Sequence[str], folder: str) -> tuple[int, str]:
    """Run a compiler in a folder; return status and output, in English because the messages are parsed."""
    import subprocess

    environment = {**os.environ, "LC_ALL": "C", "TERM": "dumb"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMPILER_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return 1, f"error: the compiler took longer than {COMPILER_TIMEOUT_SECONDS:.0f} seconds, and was stopped"
    return done.returncode, done.stdout + done.stderr
