"""Read and write `kernels.lock`: the tuned choices of kernels, in a text that can be read, edited, committed and
shipped.

    file    ::= (comment | section)...
    section ::= [tilegrad VERSION on MACHINE]  line...
    line    ::= NAME DIGEST = CHOICE  # measurement

A line is looked up by the digest of what its kernel computes; the name is for people. A section is for one version on
one machine; other sections are preserved. The file is the one that `TILEGRAD_LOCK` names, or `kernels.lock` in the
working directory, or next to the script.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ..config import settings
from ..errors import ArgumentError
from .choice import Lock, LockEntry, parse_choice

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FILE = "kernels.lock"
ENCODING = "utf-8-sig"
"""Some editors write a byte order mark."""
HEAD = re.compile(r"\[tilegrad (?P<version>\S+) on (?P<machine>.+)\]")
LINE = re.compile(r"(?P<name>\w+) (?P<digest>[0-9a-f]{12}) *=")
COMMENT = """\
# The fastest known way to run some kernels, as `python -m tilegrad tune` measured it. Each line is free to edit: behind
# the = stand the sizes of tiles. A kernel without a line is cut as the cost model suggests.
"""


Section = dict[str, LockEntry]


def read(text: str, path: Path, own: tuple[str, str] | None = None) -> dict[tuple[str, str], Section]:
    r"""Parse the sections of a file by version and machine; an invalid line is an error.

    With `own`, the version and machine of interest, other sections are skipped: other versions may write other lines.

    >>> lock = read("[tilegrad 1.0 on toy, 2 threads]\nmatmul 0123456789ab = m=64 n=32 k=64  # 3 us", Path("k.lock"))
    >>> print(lock["1.0", "toy, 2 threads"]["0123456789ab"].choice)
    m=64 n=32 k=64
    """
    sections: dict[tuple[str, str], Section] = {}
    section: Section | None = None
    foreign = False
    for number, full in enumerate(text.splitlines(), 1):
        line = full.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            head = HEAD.fullmatch(line)
            if head is None:
                raise _error(path, number, full, "a section begins with [tilegrad VERSION on MACHINE]")
            key = head["version"], head["machine"]
            section, foreign = sections.setdefault(key, {}), own not in (None, key)
            continue
        if foreign:
            continue
        if section is None:
            raise _error(path, number, full, "it stands before the first [tilegrad VERSION on MACHINE]")
        digest, entry = _entry(line, number, path, full)
        if digest in section:
            raise _error(path, number, full, f"line {section[digest].line} is for the same kernel")
        section[digest] = entry
    return sections


def _entry(line: str, number: int, path: Path, full: str) -> tuple[str, LockEntry]:
    found = LINE.match(line)
    if found is None:
        raise _error(path, number, full, "a line is NAME DIGEST = SIZES, as in matmul 0123456789ab = m=64 n=32 k=64")
    wanted, _, note = line[found.end() :].partition("#")
    try:
        choice = parse_choice(wanted)
    except ValueError as problem:
        raise _error(path, number, full, str(problem)) from None
    if not choice.strategy and not choice.sizes:
        raise _error(path, number, full, "nothing stands behind the =")
    return found["digest"], LockEntry(found["name"], choice, note.lstrip(" "), number)


def _error(path: Path, number: int, line: str, reason: str) -> ArgumentError:
    return ArgumentError(f"{path}, line {number}: {line.strip()!r}: {reason}. Correct the line, or remove it")


def place() -> Path | None:
    """Return the path of the lock file, existing or not; None if choices are disabled."""
    wanted = settings().lock
    if wanted:
        return None if wanted == "off" else Path(wanted)
    here, of_script = Path(FILE), _lock_of_script()
    return of_script if of_script is not None and not here.is_file() else here


def _lock_of_script() -> Path | None:
    """Return the lock file next to the running script; None under `python -m`."""
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else None
    if script is None or script.suffix != ".py" or script.name == "__main__.py" or not script.is_file():
        return None
    return script.parent / FILE


def lock_of(version: str, machine_of: Callable[[], str]) -> Lock:
    """Read the choices for a machine. Warn once if the file has none for it."""
    path = place()
    if path is None or not path.is_file():
        if path is not None and settings().lock:
            _say(f"{path} does not exist: no choices are settled. `python -m tilegrad tune SCRIPT` makes it")
        return Lock(path)
    try:
        text = path.read_text(encoding=ENCODING)
    except (OSError, UnicodeDecodeError) as problem:
        raise ArgumentError(
            f"{path}: the file cannot be read: {problem}. Correct it, or set TILEGRAD_LOCK=off"
        ) from None
    machine = machine_of()
    sections = read(text, path, (version, machine))
    section = sections.get((version, machine))
    if section is None and sections:
        others = "; ".join(f"{v} on {m}" for v, m in sections)
        _say(f"{path} is ignored: it is for tilegrad {others}; this is {version} on {machine}")
    return Lock(path, section or {})


def keep(path: Path, version: str, machine: str, found: Mapping[str, LockEntry]) -> None:
    """Write the choices for a machine into the file and preserve everything else."""
    from .atomic_write import replacing

    with _held(path.parent):
        text = path.read_text(encoding=ENCODING) if path.is_file() else COMMENT
        with replacing(path) as file:
            file.write(changed_text(text, path, version, machine, found).encode())


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Lock the folder against concurrent writers, where the system supports it."""
    with ExitStack() as held:
        if fcntl is not None:
            with suppress(OSError):  # some file systems over a network have not
                number = os.open(folder, os.O_RDONLY)
                held.callback(os.close, number)
                fcntl.flock(number, fcntl.LOCK_EX)
        yield


def changed_text(text: str, path: Path, version: str, machine: str, found: Mapping[str, LockEntry]) -> str:
    """Edit a file's text: replace some lines of a section, or append them."""
    lines, section = text.splitlines(), read(text, path, (version, machine)).get((version, machine))
    added = []
    for digest, entry in found.items():
        line = f"{entry.name} {digest} = {entry.choice}" + (f"  # {entry.note}" if entry.note else "")
        if section is not None and digest in section:
            lines[section[digest].line - 1] = line
        else:
            added.append(line)
    head = f"[tilegrad {version} on {machine}]"
    if section is None:
        lines += ["", head]
    end = max(n for n, line in enumerate(lines) if line.strip() == head)
    while end + 1 < len(lines) and not lines[end + 1].startswith("["):
        end += 1
    while not lines[end].strip():
        end -= 1
    lines[end + 1 : end + 1] = added
    return "\n".join(lines) + "\n"


def _say(line: str) -> None:
    if line not in _said:
        _said.add(line)
        print(f"tilegrad: {line}", file=sys.stderr)


_said: set[str] = set()
