"""Programs on disk: a process that runs what another one has compiled before it passes over the compiler.

A program is found by its graph: the ops with their attributes and the lines that they stand on, the inputs, which
outputs overwrite which inputs, how work is cut for the device, and the source of the compiler. Graphs with ops of a
user's own, whose source nobody watches, and with attributes that are more than numbers and words, are compiled anew
in each process.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from types import CodeType

from ..ir.dtype import DType
from ..ir.graph import Graph, TensorType, Value
from ..ir.location import Location
from ..ir.program import Program
from ..ir.size import Size
from .cache import key, shared, sources

COMPILER = ("ir", "ops", "transform", "schedule", "compiler.py")
"""What of the package decides what a graph becomes."""
PLAIN = (bool, int, float, str, bytes, type(None), DType, Size)
"""Attributes whose `repr` says all about them."""


class Unknown(Exception):
    """A part of a graph of which nothing is known but that it is there."""


def name_of(graph: Graph, updates: Mapping[int, int], name: str, *choices: object) -> str | None:
    """What the program of a graph is kept under, or None if it cannot be told from others.

    `choices` are what the scheduler goes by besides: the grain of the device, and what was settled for kernels.
    """
    given = set(graph.inputs)
    number: dict[Value, int] = {}
    lines: list[object] = []
    try:
        for value in (*graph.inputs, *graph.values()):
            if value not in number:
                reads = [] if value in given else [number[x] for x in value.inputs]
                lines.append((_op(type(value)), _plain(value.attributes), reads, _place(value.location)))
                number[value] = len(number)
    except Unknown:
        return None
    ends = [[number[v] for v in graph.inputs], [number[v] for v in graph.outputs], sorted(updates.items())]
    return key("program", sources(*COMPILER), name, choices, ends, lines)


def read(name: str) -> Program | None:
    """The program that was kept under a name."""
    found = shared("programs").read(name)
    if found is None:
        return None
    try:
        program = pickle.loads(found)
    except Exception:  # whatever is wrong with it, it can be made again
        return None
    return program if isinstance(program, Program) else None


def write(name: str, program: Program) -> None:
    """Keeps a program for other processes."""
    try:
        shared("programs").write(name, pickle.dumps(program, pickle.HIGHEST_PROTOCOL))
    except RecursionError:
        pass  # a very deep expression


def _op(cls: type[Value]) -> str:
    if not cls.__module__.startswith(__package__.split(".")[0] + "."):
        raise Unknown
    return f"{cls.__module__}.{cls.__qualname__}"


def _plain(attributes: Iterable[object]) -> list[object]:
    """Attributes as their `repr` tells them apart: 1 from 1.0 and True, 0.0 from -0.0."""
    made: list[object] = []
    for x in attributes:
        if isinstance(x, tuple):
            made.append(_plain(x))
        elif isinstance(x, TensorType):
            made.append((str(x.dtype), _plain(x.shape), x.device))
        elif type(x) in PLAIN:
            made.append(str(x) if isinstance(x, (DType, Size)) else x)
        else:
            raise Unknown
    return made


def _place(location: Location | None) -> tuple[object, ...]:
    """A location without looking its line up."""
    if location is None:
        return ()
    code = location.code
    if code not in _codes:
        _codes[code] = key(code.co_filename, code.co_firstlineno, code.co_linetable)
    return _codes[code], location.instruction


_codes: dict[CodeType, str] = {}
