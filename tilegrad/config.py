"""Define every setting of tilegrad: one frozen structure, each read from an environment variable with the prefix
TILEGRAD_.

>>> read({"TILEGRAD_THREADS": "3", "HOME": "/root"}).threads
3
>>> read({"TILEGRAD_TREADS": "3"})
Traceback (most recent call last):
    ...
tilegrad.errors.ArgumentError: TILEGRAD_TREADS is not a knob of tilegrad (did you mean TILEGRAD_THREADS?). ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "0.1.0"
PREFIX = "TILEGRAD_"
CHECKS = ("division", "foreign", "kernels", "race")
VECTORS = ("sse", "avx2", "avx512")
TIERS = ("compiled", "counted", "interpreted")
BRANCHES = ("measured", "always", "consecutive")


class Config(NamedTuple):
    """The value of every setting; `ABOUT` describes each."""

    device: str = "cpu"
    threads: int = 0
    spin: int = 60
    cache: str = ""
    cache_bytes: int = 1 << 30
    memory: int = 0
    huge_pages: bool = True
    vectors: str = ""
    amx: bool = True
    use: str = ""
    lock: str = ""
    cuda: str = ""
    cupti: bool = True
    check: str = ""
    libraries: str = ""
    tier: str = "counted"
    compile_at: int = 3
    branches: str = "measured"

    @property
    def cache_folder(self) -> Path | None:
        """Return the folder in which compiled code is cached between processes; None: no cache.

        A user without a home has no such folder: cached code is executed, so it is never read from the working
        directory.
        """
        from pathlib import Path  # takes as long as a tenth of tilegrad

        match self.cache:
            case "off":
                return None
            case "":
                named = os.environ.get("XDG_CACHE_HOME", "")  # if it is absolute, says the standard
                base = named if os.path.isabs(named) else os.path.join(os.path.expanduser("~"), ".cache")
                return Path(base) / "tilegrad" if os.path.isabs(base) else None
            case folder:
                return Path(folder)


ABOUT = {
    "device": "where tensors are made unless told otherwise: cpu, cuda:0, reference, null, ...",
    "threads": "threads of the CPU device; 0: one for each core that this process may use",
    "spin": "microseconds for which an idle worker thread stays awake, waiting for the next program",
    "cache": "folder for compiled kernels; empty: ~/.cache/tilegrad; off: compile anew in each process",
    "cache_bytes": "size of each kind of entry there (512, 64M, 2G): what was not used for longest goes first",
    "memory": "free CPU memory kept for reuse (bytes, 64M, 2G); 0: an eighth of the machine's",
    "huge_pages": "ask for pages of 2 MiB for large CPU buffers (1 or 0)",
    "vectors": "the widest vectors that code for x86 CPUs may use: sse, avx2 or avx512 (its first instructions: no "
    "bfloat16 and no matrix unit); empty: whatever the processor has",
    "amx": "products of matrices in the CPU's matrix unit, if it has one and the system permits it (1 or 0)",
    "cuda": "off: use no GPU; null: show what one would run; synchronous: wait for each kernel; checked: every access",
    "cupti": "whether profiles take the GPU's own records, through CUPTI; off: events time launches",
    "check": "slow, safe ways to run, separated by commas. division: integers divided by tensors are computed at once, "
    "and a 0 among these is an error; foreign: functions in C++ in a process of their own, where a crash is an error; "
    "indices: jitted functions run as they are written, so that an index outside its axis is an error there too; "
    "kernels: launches k[grid](...) in the tile language as k.check[grid](...); race: as k.race",
    "libraries": "off: NVIDIA's libraries, where they are on the machine, are not even tried for large products; all: "
    "cuDNN is tried for convolutions besides cuBLASLt for products",
    "tier": "how recorded work without jit runs. compiled: as one fused program, compiled when it is first met; "
    "interpreted: value by value, without a program for the whole; counted: so at first, compiled when it is met again",
    "compile_at": "the meeting of the same work that compiles it, where tiers are counted; large work waits longer",
    "branches": "independent kernels of a CPU program side by side. measured: where times of its first runs say that "
    "it saves enough; always: wherever possible; consecutive: only neighbours that are long",
    "lock": "file with the fastest known tiles of kernels; empty: kernels.lock here or beside the script; off: none",
    "use": "kernels to put in place of generated ones: kernel:FILE, several separated by commas",
}


def read(environment: Mapping[str, str]) -> Config:
    """Read the settings from an environment; an unknown name is an error that lists all."""
    values: dict[str, Any] = {}
    for variable, text in environment.items():
        if not variable.startswith(PREFIX):
            continue
        knob = variable.removeprefix(PREFIX).lower()
        if knob not in Config._fields:
            raise ArgumentError(f"{variable} is not a knob of tilegrad{_guess(knob)}.\n{listing()}")
        default = Config._field_defaults[knob]
        try:
            values[knob] = _PARSERS_BY_KNOB.get(knob, _PARSERS[type(default)])(text)
        except ValueError as e:
            raise ArgumentError(f"{variable}={text!r}: {e}.\n{listing()}") from None
    return Config(**values)


def listing() -> str:
    """List all settings with descriptions and defaults."""
    lines = (f"  {PREFIX}{k.upper():12} {ABOUT[k]} [{_shown(Config._field_defaults[k])}]" for k in Config._fields)
    return "\n".join(["The knobs are:", *lines])


def settings() -> Config:
    """Return the settings of this process. The environment is read once, on first use."""
    global _settings
    if _settings is None:
        _settings = read(os.environ)
    return _settings


@contextmanager
def changed(**knobs: Any) -> Iterator[Config]:
    """Change some settings within the block; existing objects, such as threads, are unaffected."""
    global _settings
    before = settings()
    _settings = before._replace(**knobs)
    try:
        yield _settings
    finally:
        _settings = before


_settings: Config | None = None


def _shown(value: object) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)


def _guess(knob: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(knob, Config._fields, 1)
    return f" (did you mean {PREFIX}{near[0].upper()}?)" if near else ""


def _whole(text: str) -> int:
    scale = {"K": 10, "M": 20, "G": 30}.get(text[-1:].upper(), 0)
    digits = text[:-1] if scale else text
    if not digits.isdigit():
        raise ValueError("a whole number is wanted, such as 4, 64M or 2G")
    return int(digits) << scale


def _switch(text: str) -> bool:
    switches = {"1": True, "0": False, "true": True, "false": False, "on": True, "off": False}
    if text.lower() not in switches:
        raise ValueError("1 or 0 is wanted")
    return switches[text.lower()]


def _checks(text: str) -> str:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not set(words) <= set(CHECKS):
        raise ValueError(f"of {', '.join(CHECKS)}, some are wanted, separated by commas")
    return ",".join(words)


def _folder(text: str) -> str:
    """Make a folder's path absolute, so that it is independent of later changes of the working directory."""
    return "off" if text in ("off", "0") else text and os.path.abspath(os.path.expanduser(text))


def _one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"one of {', '.join(filter(None, words))} is wanted")
        return text.lower()

    return parse


_PARSERS: dict[type, Callable[[str], Any]] = {str: str, int: _whole, bool: _switch}
_PARSERS_BY_KNOB: dict[str, Callable[[str], Any]] = {"cache": _folder, "check": _checks}
_PARSERS_BY_KNOB |= {"vectors": _one_of("", *VECTORS), "tier": _one_of(*TIERS), "branches": _one_of(*BRANCHES)}
