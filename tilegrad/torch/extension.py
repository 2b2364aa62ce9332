"""Wrap a loaded extension as a module: its functions, with their docstrings."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_int64
from types import ModuleType
from typing import Any

from ..errors import ArgumentError, CallError, ForeignError, IndexRangeError, NotThereError
from ..foreign.source import ForeignSource
from ..lazy.handle import Handle
from . import host, values
from .values import ExtensionEntry, ExtensionValue

IN_PYTHON, REFUSED, WRONG_TYPE, WRONG_VALUE, WRONG_INDEX, FAILED, NOT_THERE = range(1, 8)


ERRORS = {WRONG_TYPE: CallError, WRONG_VALUE: ArgumentError, WRONG_INDEX: IndexRangeError, NOT_THERE: NotThereError}


class Library:
    """The entry points of one extension."""

    def __init__(self, name: str, code: ctypes.CDLL, sources: Sequence[ForeignSource] = ()) -> None:
        self.name = name
        self.sources = sources
        # calls keep the interpreter's lock: what C++ asks for is Python's
        doors = ctypes.PyDLL(None, handle=code._handle)
        self.keeps = code
        try:
            start = doors.tilegrad_start
        except AttributeError:
            raise ForeignError(
                f"{name} has no PYBIND11_MODULE(TORCH_EXTENSION_NAME, m): write one, or name the functions "
                "(load_inline(..., functions=['f']))"
            ) from None
        start.argtypes, start.restype = (POINTER(values.Host),), c_int64
        doors.tilegrad_entry.argtypes, doors.tilegrad_entry.restype = (c_int64, POINTER(ExtensionEntry)), None
        doors.tilegrad_message.restype = doors.tilegrad_text.restype = c_char_p
        self.call = doors.tilegrad_call
        self.call.argtypes, self.call.restype = (
            (c_int64, POINTER(ExtensionValue), c_int64, POINTER(ExtensionValue)),
            c_int64,
        )
        self.done = doors.tilegrad_done
        self.done.argtypes, self.done.restype = (), None
        self.doors = doors
        self.count: int = start(byref(host.table))

    def functions(self) -> list[ExtensionFunction]:
        """Return all functions that it defines."""
        entry = ExtensionEntry()
        found = []
        for n in range(self.count):
            self.doors.tilegrad_entry(n, byref(entry))
            found.append(
                ExtensionFunction(
                    self,
                    n,
                    entry.name.decode(),
                    entry.doc.decode(),
                    entry.signature.decode(),
                    entry.required,
                    entry.count,
                )
            )
        return found

    def message(self) -> str:
        """Return the message of the last failure, with lines of generated text mapped to the file of the text."""
        said = (self.doors.tilegrad_message() or b"").decode(errors="replace")
        return re.sub(r"<source (\d+)>:(\d+)", self._place, said)

    def _place(self, match: re.Match[str]) -> str:
        if int(match[1]) >= len(self.sources):
            return match[0]
        found = self.sources[int(match[1])].place(int(match[2]))
        return f"{os.path.basename(found.file)}:{found.line}"


class ExtensionFunction:
    """A function of an extension."""

    def __init__(
        self, library: Library, number: int, name: str, doc: str, signature: str, required: int, count: int
    ) -> None:
        self.library, self.number, self.__name__ = library, number, name
        self.__qualname__, self.__module__ = name, library.name
        self.signature, self.required, self.count = signature, required, count
        self.__doc__ = f"{name}{signature}\n\n{doc}".rstrip()
        inside = signature[1 : signature.rindex(") ->")]
        self.names = [part.split(":")[0].strip() for part in _parts(inside)]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        given = list(arguments) if not named else self._ordered(list(arguments), named)
        if not self.required <= len(given) <= self.count:
            raise CallError(
                f"{self} takes {self._wanted()}, and {len(given)} {'was' if len(given) == 1 else 'were'} given"
            )
        cells = (ExtensionValue * max(1, len(given)))()
        kept: list[Any] = []
        for cell, x in zip(cells, given, strict=False):
            values.put(cell, x, kept)
        result = ExtensionValue()
        library = self.library
        with host.frame(f"{library.name}.{self.__name__}", [x for x in kept if isinstance(x, Handle)]):
            outcome = library.call(self.number, cells, len(given), byref(result))
            made = values.get(result) if not outcome else None
            if not outcome:
                library.done()
        if outcome:
            self._raise(outcome)
        return made

    def _ordered(self, given: list[Any], named: dict[str, Any]) -> list[Any]:
        """Return the arguments in the order of the signature."""
        for name in self.names[len(given) :]:
            if name not in named:
                break
            given.append(named.pop(name))
        if named:
            raise CallError(f"{self} takes no argument {next(iter(named))!r} there: name arguments in their order")
        return given

    def _wanted(self) -> str:
        many = str(self.count) if self.required == self.count else f"{self.required} to {self.count}"
        return f"{many} argument{'' if many == '1' else 's'}"

    def _raise(self, outcome: int) -> None:
        host.raise_waiting()
        message = self.library.message()
        text = f"{self.library.name}.{self.__name__}: {message}"
        if outcome == WRONG_TYPE:
            text = f"{self}: {message}"
        raise ERRORS.get(outcome, ForeignError)(text)

    def __str__(self) -> str:
        return f"{self.library.name}.{self.__name__}{self.signature}"

    def __repr__(self) -> str:
        return f"<C++ function {self}>"


def _parts(inside: str) -> Sequence[str]:
    """Split the arguments of a signature at commas outside of brackets.

    >>> _parts("x: tuple[int, int], y: Tensor")
    ['x: tuple[int, int]', ' y: Tensor']
    """
    found, depth, last = [], 0, 0
    for n, letter in enumerate(inside):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            found.append(inside[last:n])
            last = n + 1
    return [*found, inside[last:]] if inside.strip() else []


def filled(module: ModuleType, library: Library) -> ModuleType:
    """Return a module with the functions of an extension."""
    for function in library.functions():
        setattr(module, function.__name__, function)
    text = (library.doors.tilegrad_text() or b"").decode()
    module.__doc__ = text or f"A C++ extension: {', '.join(f.__name__ for f in library.functions()) or 'no functions'}."
    return module
