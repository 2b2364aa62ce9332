"""Cache compiled programs on disk: a later process skips the compiler.

The key of a program is made from its graph (ops with attributes and source lines), the inputs, the aliases of outputs,
the target model of the device, and the source of the compiler. Graphs with a user's own ops, whose source is not
tracked, and with attributes other than numbers, words and structures of these are compiled in each process.

Foreign work (functions in C++, kernels of users) is represented by its mark in the key and in the entry: when a program
is read, it is bound to the work of its graph. A declared operator is represented in the key by the ops that its kernel
for the device records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import CodeType
from typing import TYPE_CHECKING, NamedTuple, Protocol, cast, runtime_checkable

from ..ir.dtype import DType
from ..ir.graph import Graph, TensorType, Value
from ..ir.location import Location
from ..ir.node import Node, Structure
from ..ir.program import Foreign, Program
from ..ir.size import Size
from ..ir.stored import NotStored, node_of, text_of
from .cache import key, provided, shared, sources

if TYPE_CHECKING:
    from .external_work import ExternalWork

COMPILER = ("ir", "ops", "transform", "schedule", "compiler.py")
"""Folders of the package whose source decides how a graph is compiled."""
PLAIN = (bool, int, float, str, bytes, type(None), DType, Size)
"""Attribute types whose `repr` identifies them."""


class Unknown(Exception):
    """Raised for a part of a graph that has no key."""


@runtime_checkable
class Meaning(Protocol):
    """The definition of an operator on a device (`ops/declared.py`)."""

    label: str

    def code(self, device: str) -> Graph: ...


class ProgramKey(NamedTuple):
    """The key of a program; `works` is its foreign work by mark."""

    key: str
    works: Mapping[str, ExternalWork]


def name_of(graph: Graph, updates: Mapping[int, int], name: str, *choices: object) -> ProgramKey | None:
    """Compute the key of a graph's program; None if it has none or caching is off.

    `choices` are the scheduler's other inputs: the target model and the tuned choices of kernels.
    """
    if shared("programs").folder is None and not provided:
        return None
    works: dict[str, ExternalWork] = {}
    try:
        lines, ends = _Naming(works).graph(graph)
    except Unknown:
        return None
    return ProgramKey(key("program", sources(*COMPILER), name, choices, [*ends, sorted(updates.items())], lines), works)


def read(name: ProgramKey) -> Program | None:
    """Read the program under a key."""
    found = shared("programs").read(name.key)
    if found is None:
        return None
    try:
        program = node_of(found, name.works)
    except Exception:  # whatever is wrong with it, it can be made again
        return None
    return program if isinstance(program, Program) else None


def write(name: ProgramKey, program: Program) -> None:
    """Write a program for other processes."""
    works = [step.work for step in program.steps if isinstance(step, Foreign)]
    if all(work.mark in name.works for work in works):  # else some came in on the way
        with suppress(NotStored):
            text = text_of(program, {id(work): work.mark for work in works})
            shared("programs").write(name.key, text.encode())


class _Naming:
    """Serialises a graph into its key; `works` collects its foreign work."""

    def __init__(self, works: dict[str, ExternalWork]) -> None:
        self.works = works

    def graph(self, graph: Graph) -> tuple[list[object], list[object]]:
        """Serialise all values, and the numbers of the inputs and outputs among them."""
        given = set(graph.inputs)
        number: dict[Value, int] = {}
        lines: list[object] = []
        for value in (*graph.inputs, *graph.values()):
            if value not in number:
                reads = [] if value in given else [number[x] for x in value.inputs]
                plain = self.plain(value.attributes, value.device)
                lines.append((_op(type(value)), plain, reads, _place(value.location)))
                number[value] = len(number)
        return lines, [[number[v] for v in graph.inputs], [number[v] for v in graph.outputs]]

    def plain(self, attributes: Iterable[object], device: str) -> list[object]:
        """Serialise attributes, distinguishing 1 from 1.0 and True, and 0.0 from -0.0."""
        made: list[object] = []
        for x in attributes:
            if isinstance(x, tuple):
                made.append(self.plain(x, device))
            elif isinstance(x, TensorType):
                made.append((str(x.dtype), self.plain(x.shape, device), x.device))
            elif type(x) in PLAIN:
                made.append(str(x) if isinstance(x, (DType, Size)) else x)
            elif mark := getattr(x, "mark", ""):
                made.append(mark)
                if getattr(x, "is_external_work", False):
                    self.works[mark] = cast("ExternalWork", x)
            elif isinstance(x, Structure):
                made.append((_op(type(x)), self.plain(x.field_values(), device)))
            elif isinstance(x, Meaning):
                made.append((x.label, *self.graph(x.code(device))))
            else:
                raise Unknown
        return made


def _op(cls: type[Node]) -> str:
    if not cls.__module__.startswith(__package__.split(".")[0] + "."):
        raise Unknown
    return f"{cls.__module__}.{cls.__qualname__}"


def _place(location: Location | None) -> tuple[object, ...]:
    """Serialise a location without looking its line up."""
    if location is None:
        return ()
    code = location.code
    if code not in _codes:
        _codes[code] = key(code.co_filename, code.co_firstlineno, code.co_linetable)
    return _codes[code], location.instruction


_codes: dict[CodeType, str] = {}
