"""Define block programs: loops over blocks of elements, and what is done with each block.

    program     ::= stages in order; each reads and writes memories: the inputs, the output, temporaries
    stage       ::= for each value of the outer axes, and each block of lanes:
                        before; for each value of the inner axes: body; after
                    (a reduction along the lanes has its blocks inside of the inner axes)
    instruction ::= value = op(values) on all lanes of a block; memory is read and written at linear forms of the axes

A program is data: it is made by `translate.py`, printed, compared, and run by `loading.py`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from ....ir.dtype import DType

InstructionKind = Literal[
    "constant",
    "iota",
    "load",
    "merge",
    "gather",
    "offset",
    "check",
    "clamp",
    "apply",
    "reduce",
    "extreme",
    "scan",
    "store",
]


class LinearForm(NamedTuple):
    """A position in elements: `start`, plus the counter of each axis times its step, plus the lane times the last.

    Axes are the outer ones, the inner ones, and that of rows if there is one.
    """

    start: int
    steps: tuple[int, ...]

    def __str__(self) -> str:
        names = [f"i{n}" for n in range(len(self.steps) - 1)] + ["lane"]
        terms = [
            name if step == 1 else f"{name} * {step}" for name, step in zip(names, self.steps, strict=True) if step
        ]
        return " + ".join(terms + [str(self.start)] * (self.start != 0 or not terms))


class Guard(NamedTuple):
    """A position that has to be inside of an extent for an element to be read."""

    form: LinearForm
    extent: int


class BlockInstruction(NamedTuple):
    """One operation on a block; `result` and `args` are numbers of values of the stage."""

    kind: InstructionKind
    result: int
    args: tuple[int, ...] = ()
    fn: str = ""
    source: DType | None = None
    """The dtype of the arguments."""
    memory: int = -1
    form: LinearForm | None = None
    guards: tuple[Guard, ...] = ()
    numbers: tuple[float, ...] = ()
    """The value of a constant; extent and number of the place of a clamped index; extent of a checked one."""

    def __str__(self) -> str:
        args = ", ".join(f"v{n}" for n in self.args)
        if self.kind == "store":
            return f"m{self.memory}[{self.form}] = {args}"
        place = f"m{self.memory}[{self.form or args}]" if self.memory >= 0 else str(self.form)
        guards = "".join(f" if 0 <= {form} < {extent}" for form, extent in self.guards)
        match self.kind:
            case "load" | "iota":
                return f"v{self.result} = {place}{guards}"
            case "merge":
                return f"v{self.result} = {place}{guards} else v{self.result}"
            case "gather" | "offset":
                where = f"m{self.memory}[{self.form} + {'first of ' * (self.kind == 'offset')}v{self.args[0]}]"
                return f"v{self.result} = {where}" + "".join(f" if v{n}" for n in self.args[1:])
            case "constant":
                return f"v{self.result} = {self.numbers[0]}"
            case "apply":
                return f"v{self.result} = {self.fn}({args})"
        more = "".join(f", {number}" for number in self.numbers)
        return f"v{self.result} = {self.kind} {self.fn}".rstrip() + f"({args}{more})"


class Pieces(NamedTuple):
    """Cut a long reduction: each value of an outer axis reduces `length` of `total` lanes, or steps of inner axis 0."""

    axis: int
    length: int
    total: int


class BlockStage(NamedTuple):
    """The loops of one pass over memory, and its instructions."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]
    lanes: int
    lanes_inside: bool
    """Whether the lanes are those of a reduction or scan, so that a thread goes through all of them."""
    row_lanes: int
    """If not 0, the lanes are those of two axes, and this many are of the last; forms have a step for the other."""
    pieces: Pieces | None
    dtypes: tuple[DType, ...]
    """Of each value."""
    once: tuple[BlockInstruction, ...]
    before: tuple[BlockInstruction, ...]
    body: tuple[BlockInstruction, ...]
    after: tuple[BlockInstruction, ...]

    def __str__(self) -> str:
        inner = [*map(str, self.inner), *([f"lanes {self.lanes}"] if self.lanes_inside else [])]
        outer = [*map(str, self.outer), *([] if self.lanes_inside else [f"lanes {self.lanes}"])]
        outer[-1:] = [outer[-1] + f" in rows of {self.row_lanes}"] if self.row_lanes else outer[-1:]
        pieces = f" in pieces of {self.pieces.length}" if self.pieces else ""
        lines = [f"for {', '.join(outer) or '1'}:", *[f"  {i}" for i in (*self.once, *self.before)]]
        lines += [f"  for {', '.join(inner)}{pieces}:"] if inner else []
        lines += [f"  {'  ' * bool(inner)}{i}" for i in self.body]
        return "\n".join(lines + [f"  {i}" for i in self.after])


class BlockProgram(NamedTuple):
    """Stages that compute one tensor. Memories are numbered: the inputs, the output, then the temporaries."""

    inputs: int
    temporaries: tuple[int, ...]
    """Bytes of each."""
    stages: tuple[BlockStage, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.stages))
