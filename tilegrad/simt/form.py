"""What a kernel is once it has been read: typed expressions and statements of one thread.

    expression  Number | Variable | Special (threadIdx.x) | Element (a load) | Operation | Function (sqrt) | Cast
              | Both (and, or) | Choice | Called (a device function) | Atomic | Exchange (between lanes)
    statement   Assign | Store | If | While | For | Leave (break, continue) | Return | Barrier | Run | Launch | Claim

Every expression has its dtype. What can go wrong when it runs has its place in the user's file.
"""

from __future__ import annotations

from typing import TypeAlias

from ..ir.dtype import DType
from ..ir.node import Node
from ..language.source import Place


class Array(Node):
    """Memory with a name. `space` is global, shared, dynamic (shared, its size given at the launch) or local."""

    name: str
    dtype: DType
    space: str
    shape: tuple[int, ...] = ()
    """Empty where the extent is known only at the launch."""


# --- expressions -------------------------------------------------------------------------------


class Expression(Node):
    dtype: DType


class Number(Expression):
    value: int | float | bool


class Variable(Expression):
    name: str


class Special(Expression):
    """`threadIdx.x` and its like."""

    name: str


class Element(Expression):
    """One element of an array: a load, or the target of a store."""

    array: Array
    index: tuple[Expression, ...]
    place: Place


class Operation(Expression):
    """An operator of Python's; the operands have one dtype. `~x`, `-x` and `not x` have one operand."""

    op: str
    operands: tuple[Expression, ...]
    place: Place


class Function(Expression):
    """A function of numbers: `builtin.FUNCTIONS`."""

    name: str
    operands: tuple[Expression, ...]


class Cast(Expression):
    operand: Expression


class Both(Expression):
    """`and`, `or`: the right operand is computed only if it matters."""

    op: str
    left: Expression
    right: Expression


class Choice(Expression):
    """`x if c else y`: only one of the two is computed."""

    condition: Expression
    yes: Expression
    no: Expression


class Called(Expression):
    """A call of a device function."""

    routine: Routine
    arguments: tuple[Expression | Array, ...]
    place: Place


class Atomic(Expression):
    """A change of an element that no other thread can interrupt; its value is the old element."""

    name: str
    target: Element
    operands: tuple[Expression, ...]
    place: Place


class Exchange(Expression):
    """Values that go between the lanes of a warp."""

    name: str
    operands: tuple[Expression, ...]
    width: int
    place: Place


# --- statements --------------------------------------------------------------------------------


class Statement(Node):
    place: Place


class Assign(Statement):
    name: str
    value: Expression


class Store(Statement):
    target: Element
    value: Expression


class If(Statement):
    condition: Expression
    body: tuple[Statement, ...]
    other: tuple[Statement, ...]


class While(Statement):
    condition: Expression
    body: tuple[Statement, ...]


class For(Statement):
    """`for name in range(start, stop, step)`; the bounds are computed once."""

    name: str
    start: Expression
    stop: Expression
    step: Expression
    body: tuple[Statement, ...]


class Leave(Statement):
    """`break` or `continue`."""

    way: str


class Return(Statement):
    value: Expression | None


class Barrier(Statement):
    """`syncthreads`, `syncwarp`, or a fence."""

    kind: str


class Run(Statement):
    """An expression that is computed for what it does."""

    value: Expression


class Launch(Statement):
    """A kernel started by a thread."""

    routine: Routine
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared: Expression
    arguments: tuple[Expression | Array, ...]


class Claim(Statement):
    """`assert`."""

    condition: Expression
    message: str


Argument: TypeAlias = Array | Variable


class Routine(Node):
    """A kernel or a device function for some types and constants."""

    name: str
    parameters: tuple[Argument, ...]
    body: tuple[Statement, ...]
    result: DType | None
    """What a device function returns."""
    types: dict[str, DType]
    """Of its variables, in the order in which they are assigned first."""
    arrays: tuple[Array, ...]
    """Those that it declares."""
    accessed: dict[str, frozenset[str]]
    """How it (and what it calls) uses the arrays that it is given and that it declares: `load`, `store`, `atomic`."""
    routines: tuple[Routine, ...]
    """What it calls or launches, the first one first."""
    place: Place
    text: str
    """Its name in CUDA."""
