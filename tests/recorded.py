"""Compare with PyTorch on machines that do not have it: record what a test reads from PyTorch, and replay it.

    torch = pytorch()          in place of `torch = pytest.importorskip("torch")`

Where PyTorch is installed, `torch` wraps the real module: every result is wrapped again, and whatever becomes visible
to the test (a number, a shape, an array, an exception) is noted with the number of the operation that gave it.
`pytest --record` writes these notes to `tests/recorded/`; without it a test whose notes differ from those fails. Where
PyTorch is missing, `torch` is a stand-in that answers every operation with another stand-in, but for those operations
that have a note. A test without notes skips, saying so.

Not every test can be recorded: one that derives from PyTorch's classes, gives it functions to call, or hands its
tensors to tilegrad needs PyTorch itself (`pytest.importorskip`).
"""

from __future__ import annotations

import builtins
import copy
import importlib.util
import json
import operator
import zlib
from collections import namedtuple
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "recorded"
CONSTANTS = FOLDER / "constants.json"
"""Attributes of PyTorch's modules that are plain numbers or texts, by their path."""
MAX_BYTES = 1 << 16
"""Notes of one test that are kept; a test that reads more needs PyTorch itself."""
PLAIN = (bool, int, float, str, type(None))
DUNDERS = {"__version__", "__name__"}


class Note(NamedTuple):
    """A visible result: the number of the operation, the checksum of all operations so far, and what was seen."""

    number: int
    checksum: int
    seen: Any


class Tape:
    """The operations of one test."""

    def __init__(self, name: str, written: list[Note] | None, draws: bool) -> None:
        self.name = name
        self.written = {note.number: note for note in written or ()}
        self.is_recorded = written is not None
        self.draws = draws
        """Whether Hypothesis draws the cases: another version of it draws others."""
        self.count = 0
        self.checksum = 0
        self.notes: list[Note] = []

    def advance(self, op: str, given: Any) -> int:
        """Count an operation."""
        self.count += 1
        self.checksum = zlib.crc32(f"{op} {_summary(given)}".encode(), self.checksum)
        return self.count


class State:
    """The test that runs now, and the notes of the test files that were read or made."""

    tape: Tape | None = None
    recording = False
    made: dict[str, dict[str, list[Note]]] = {}
    constants: dict[str, Any] = {}


def pytorch() -> Any:
    """PyTorch, or what was recorded of it."""
    if importlib.util.find_spec("torch") is None:
        return Stand("torch")
    import torch

    return Stand("torch", torch)


class Stand:
    """Something of PyTorch's: the real object with it, or nothing but its path where PyTorch is missing."""

    __array_priority__ = 1000

    def __init__(self, path: str, real: Any = None) -> None:
        object.__setattr__(self, "_path", path)
        object.__setattr__(self, "_real", real)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in DUNDERS:
            raise AttributeError(name)
        if self._path:
            return _attribute(self, name)
        return _perform(f"get {name}", getattr, self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _perform(f"set {name}", setattr, self, name, value)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return _perform(f"call {self._path}", lambda f, *a, **k: f(*a, **k), self, *arguments, **keywords)

    def __iter__(self) -> Iterator[Any]:
        return iter(_perform("iter", list, self))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(_perform("array", np.asarray, self), dtype)

    def __instancecheck__(self, instance: Any) -> bool:
        return bool(_perform("isinstance", lambda kind, x: isinstance(x, kind), self, instance))

    def __repr__(self) -> str:
        return self._path or str(_perform("__repr__", repr, self))

    def __dir__(self) -> list[str]:
        if self._real is None:
            raise RuntimeError("the names of PyTorch's modules are not recorded: use pytest.importorskip")
        return dir(self._real)

    def __copy__(self) -> Any:
        return _perform("copy", copy.copy, self)

    def __deepcopy__(self, known: Any) -> Any:
        return _perform("deepcopy", copy.deepcopy, self)

    def __hash__(self) -> int:
        return hash(self._path) if self._path else object.__hash__(self)


class Names(dict[str, Any]):
    """The names of a module of PyTorch's, for `eval`.

    >>> eval("nn.ReLU", {}, Names(Stand("torch")))
    torch.nn.ReLU
    """

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def __missing__(self, name: str) -> Any:
        return getattr(self.module, name)


def _operators() -> None:
    """Give stand-ins Python's operators."""
    both = "add sub mul matmul truediv floordiv mod pow lshift rshift and or xor"
    two = [f"__{r}{name}__" for name in both.split() for r in ("", "i", "r")]
    two += [f"__{name}__" for name in "eq ne lt le gt ge getitem delitem setitem contains exit format".split()]
    one = [f"__{name}__" for name in "neg pos abs invert bool int float complex index len str enter".split()]
    for name in one + two:
        setattr(Stand, name, _method(name))


def _method(name: str) -> Callable[..., Any]:
    plain = {"__bool__": bool, "__int__": int, "__float__": float, "__complex__": complex, "__index__": operator.index}
    plain |= {"__len__": len, "__str__": str}

    def call(self: Stand, *arguments: Any) -> Any:
        if name in plain:
            return _perform(name, plain[name], self)
        if name.startswith("__i") and name not in ("__index__", "__invert__"):
            return _perform(name, getattr(operator, name), self, *arguments)
        if name.startswith("__r") and hasattr(operator, f"__{name[3:]}"):
            return _perform(name, lambda x, y: getattr(operator, f"__{name[3:]}")(y, x), self, *arguments)
        if name != "__format__" and hasattr(operator, name):  # every module has this one
            return _perform(name, getattr(operator, name), self, *arguments)
        return _perform(name, lambda x, *a: getattr(x, name)(*a), self, *arguments)

    return call


_operators()


def _attribute(of: Stand, name: str) -> Any:
    """An attribute of a module or class of PyTorch's: it does not change, so that no test need be running."""
    path = f"{of._path}.{name}"
    if of._real is None:
        if path in _constants():
            return _constants()[path]
        return Stand(path)
    found = getattr(of._real, name)
    if isinstance(found, PLAIN):
        State.constants[path] = found
        return found
    return Stand(path, found)


def _perform(op: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Do something with real objects and note what becomes visible, or look up what was noted."""
    tape = State.tape
    if tape is None:
        raise RuntimeError(f"{op}: PyTorch's operations are recorded within tests, not while a file is imported")
    number = tape.advance(op, (arguments[1:], keywords))
    if not isinstance(arguments[0], Stand) or arguments[0]._real is None:
        return _replay(tape, number)
    try:
        result = function(*_unwrapped(arguments), **_unwrapped(keywords))
    except Exception as e:
        tape.notes.append(Note(number, tape.checksum, {"raises": [type(e).__name__, str(e)]}))
        raise
    seen = _encoded(result)
    if seen is not UNSEEN:
        tape.notes.append(Note(number, tape.checksum, seen))
    return _wrapped(result)


def _replay(tape: Tape, number: int) -> Any:
    if not tape.is_recorded:
        pytest.skip("nothing was recorded of PyTorch for this test, which is not installed")
    note = tape.written.get(number)
    if note is None:
        return Stand("")
    if note.checksum != tape.checksum:
        if tape.draws:
            pytest.skip("PyTorch is not installed, and was recorded for other drawn cases")
        pytest.fail(
            f"{tape.name}: PyTorch was recorded for other operations; where it is installed, run pytest --record"
        )
    return _decoded(note.seen)


class _Unseen:
    """A result that stays inside PyTorch."""


UNSEEN = _Unseen()


def _encoded(x: Any) -> Any:
    """Encode the parts of a result that a test sees; UNSEEN for objects of PyTorch."""
    if isinstance(x, PLAIN):
        return x
    if isinstance(x, np.ndarray | np.generic):
        return np.array(x)  # a copy: it may be memory that changes later
    if isinstance(x, complex):
        return {"complex": [x.real, x.imag]}
    if _is_sequence(x):
        items = [_encoded(y) for y in x]
        seen = [{"stand": 1} if y is UNSEEN else y for y in items]
        return {"named": seen, "fields": _fields(x)} if _fields(x) else {"list" if type(x) is list else "tuple": seen}
    return UNSEEN


def _decoded(seen: Any) -> Any:
    match seen:
        case {"raises": [kind, message]}:
            raise getattr(builtins, kind, RuntimeError)(message)
        case {"complex": [real, imaginary]}:
            return complex(real, imaginary)
        case {"named": items, "fields": fields}:
            return namedtuple("Named", fields)(*[_decoded(x) for x in items])  # type: ignore[misc]
        case {"tuple": items}:
            return tuple(_decoded(x) for x in items)
        case {"list": items}:
            return [_decoded(x) for x in items]
        case {"stand": _}:
            return Stand("")
        case np.ndarray():
            return np.array(seen)
    return seen


def _wrapped(x: Any) -> Any:
    if isinstance(x, (PLAIN, np.ndarray | np.generic | complex)):
        return x
    if _is_sequence(x):
        items = [_wrapped(y) for y in x]
        if fields := _fields(x):
            return namedtuple("Named", fields)(*items)  # type: ignore[misc]
        return items if type(x) is list else tuple(items)
    return Stand("", x)


def _is_sequence(x: Any) -> bool:
    """Tell whether something is a list, or a tuple of parts that a test takes apart."""
    return type(x) in (list, tuple) or type(x).__name__ == "Size" or bool(_fields(x))


def _fields(x: Any) -> list[str]:
    """The names of the parts of a tuple, such as those of `max(dim)`."""
    return [*getattr(x, "__match_args__", ())] if type(x).__module__ == "torch.return_types" else []


def _unwrapped(x: Any) -> Any:
    if isinstance(x, Stand):
        return x._real
    if type(x) in (list, tuple):
        return type(x)(_unwrapped(y) for y in x)
    if isinstance(x, dict):
        return {name: _unwrapped(y) for name, y in x.items()}
    return x


def _summary(x: Any) -> str:
    """Arguments as far as they are the same on every machine: the digits of computed numbers need not be."""
    if isinstance(x, Stand):
        return x._path or "stand"
    if isinstance(x, float | np.floating):
        return "float"
    if isinstance(x, np.ndarray):
        return f"{x.dtype}{x.shape}{zlib.crc32(np.ascontiguousarray(x)) if x.dtype.kind in 'biu' else ''}"
    if isinstance(x, tuple | list):
        return f"[{' '.join(_summary(y) for y in x)}]"
    if isinstance(x, dict):
        return f"{{{' '.join(f'{k} {_summary(y)}' for k, y in x.items())}}}"
    return repr(x) if isinstance(x, PLAIN) else type(x).__name__


# --- files ------------------------------------------------------------------------------------------


def begin(item: pytest.Item) -> None:
    """A test starts."""
    path, name = _place(item)
    draws = getattr(getattr(item, "function", None), "is_hypothesis_test", False)
    State.tape = Tape(name, _read(path).get(name), draws)


def end(item: pytest.Item) -> str:
    """A test has ended well; what is wrong with its notes, if something is."""
    tape, State.tape = State.tape, None
    assert tape is not None
    path, name = _place(item)
    if State.recording:
        if tape.count:
            State.made.setdefault(path, {})[name] = tape.notes
        return ""
    if not tape.is_recorded or not tape.notes or tape.draws:
        return ""
    if [note[:2] for note in tape.notes] != [note[:2] for note in tape.written.values()]:
        return "other things are read from PyTorch than were recorded: run pytest --record on this file"
    return ""


def write() -> None:
    """Put the notes of the tests that ran in place of what was written before."""
    for path, made in State.made.items():
        tests = {**_read(path), **made}
        arrays: dict[bytes, int] = {}
        kept: dict[str, Any] = {}
        stored: list[np.ndarray[Any, Any]] = []
        for name, notes in sorted(tests.items()):
            mine = [a for note in notes for a in _arrays(note.seen)]
            if sum(a.nbytes for a in mine) > MAX_BYTES:
                continue
            for a in mine:
                if (content := a.tobytes() + str((a.dtype, a.shape)).encode()) not in arrays:
                    arrays[content] = len(stored)
                    stored.append(a)
            kept[name] = [[note.number, note.checksum, _without_arrays(note.seen, arrays)] for note in notes]
        file = _file(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = np.frombuffer(json.dumps(kept).encode(), np.uint8)
        np.savez_compressed(file, notes=text, **{f"a{n}": a for n, a in enumerate(stored)})
    if State.constants:
        CONSTANTS.write_text(json.dumps(dict(sorted((_constants() | State.constants).items())), indent=1) + "\n")


def _arrays(seen: Any) -> list[np.ndarray[Any, Any]]:
    if isinstance(seen, np.ndarray):
        return [seen]
    if isinstance(seen, dict):
        return [a for items in seen.values() if isinstance(items, list) for x in items for a in _arrays(x)]
    return []


def _without_arrays(seen: Any, numbers: dict[bytes, int]) -> Any:
    if isinstance(seen, np.ndarray):
        return {"array": numbers[seen.tobytes() + str((seen.dtype, seen.shape)).encode()]}
    if isinstance(seen, dict):
        return {k: [_without_arrays(x, numbers) for x in v] if isinstance(v, list) else v for k, v in seen.items()}
    return seen


def _with_arrays(seen: Any, stored: Any) -> Any:
    if isinstance(seen, dict):
        if "array" in seen:
            return stored[f"a{seen['array']}"]
        return {k: [_with_arrays(x, stored) for x in v] if isinstance(v, list) else v for k, v in seen.items()}
    return seen


@cache
def _read(path: str) -> dict[str, list[Note]]:
    file = _file(path)
    if not file.exists():
        return {}
    with np.load(file) as archive:
        stored = {name: archive[name] for name in archive.files}
    tests = json.loads(stored.pop("notes").tobytes())
    return {name: [Note(n, c, _with_arrays(s, stored)) for n, c, s in notes] for name, notes in tests.items()}


@cache
def _constants() -> dict[str, Any]:
    return json.loads(CONSTANTS.read_text()) if CONSTANTS.exists() else {}


def _file(path: str) -> Path:
    return FOLDER / f"{path.removeprefix('tests/').removesuffix('.py').replace('/', '.')}.npz"


def _place(item: pytest.Item) -> tuple[str, str]:
    path, _, name = item.nodeid.partition("::")
    return path, name
