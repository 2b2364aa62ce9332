"""The IR of thread kernels: typed expressions and statements of one thread.

    expression  Number | Variable | Special (threadIdx.x) | Element (a load) | Operation | Function (sqrt) | Cast
              | Both (and, or) | Choice | Called (a device function) | Atomic | Exchange (between lanes)
    statement   Assign | Store | If | While | For | Leave (break, continue) | Return | Barrier | Run | Launch | Claim

Every expression has a dtype. Nodes that can fail at run time have a source location.
"""

from __future__ import annotations

from typing import TypeAlias

from ..ir.dtype import DType
from ..ir.node import Node
from ..tiles.read.source import KernelLocation


class Array(Node):
    """A named array in memory; `space` is global, shared, dynamic (shared, sized at launch) or local."""

    name: str
    dtype: DType
    space: str
    shape: tuple[int, ...] = ()
    """Empty if the extent is known only at launch."""


# --- expressions -------------------------------------------------------------------------------


class Expression(Node):
    dtype: DType


class NumberLiteral(Expression):
    value: int | float | bool


class VariableReference(Expression):
    name: str


class BuiltinVariable(Expression):
    """A builtin variable: `threadIdx.x` and the like."""

    name: str


class ArrayElement(Expression):
    """One element of an array: a load, or the target of a store."""

    array: Array
    index: tuple[Expression, ...]
    place: KernelLocation


class OperatorExpression(Expression):
    """A Python operator on operands of one dtype; `~x`, `-x` and `not x` have one operand."""

    op: str
    operands: tuple[Expression, ...]
    place: KernelLocation


class FunctionCall(Expression):
    """A scalar function from `builtin.FUNCTIONS`."""

    name: str
    operands: tuple[Expression, ...]


class Conversion(Expression):
    operand: Expression


class ShortCircuit(Expression):
    """`and` or `or`, short-circuiting."""

    op: str
    left: Expression
    right: Expression


class Conditional(Expression):
    """`x if c else y`; only one of the two is evaluated."""

    condition: Expression
    yes: Expression
    no: Expression


class DeviceCall(Expression):
    """A call of a device function."""

    routine: Routine
    arguments: tuple[Expression | Array, ...]
    place: KernelLocation


class AtomicOperation(Expression):
    """An atomic read-modify-write; its value is the old element."""

    name: str
    target: ArrayElement
    operands: tuple[Expression, ...]
    place: KernelLocation


class WarpExchange(Expression):
    """A warp shuffle or vote."""

    name: str
    operands: tuple[Expression, ...]
    width: int
    place: KernelLocation


# --- statements --------------------------------------------------------------------------------


class Statement(Node):
    place: KernelLocation


class AssignStatement(Statement):
    name: str
    value: Expression


class StoreStatement(Statement):
    target: ArrayElement
    value: Expression


class IfStatement(Statement):
    condition: Expression
    body: tuple[Statement, ...]
    other: tuple[Statement, ...]


class WhileStatement(Statement):
    condition: Expression
    body: tuple[Statement, ...]


class ForStatement(Statement):
    """`for name in range(start, stop, step)`; the bounds are evaluated once."""

    name: str
    start: Expression
    stop: Expression
    step: Expression
    body: tuple[Statement, ...]


class LoopExit(Statement):
    """`break` or `continue`."""

    kind: str


class ReturnStatement(Statement):
    value: Expression | None


class BarrierStatement(Statement):
    """`syncthreads`, `syncwarp`, or a fence."""

    kind: str


class ExpressionStatement(Statement):
    """An expression evaluated for its side effects."""

    value: Expression


class LaunchStatement(Statement):
    """A kernel launch by a thread."""

    routine: Routine
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared: Expression
    arguments: tuple[Expression | Array, ...]


class AssertStatement(Statement):
    """`assert`."""

    condition: Expression
    message: str


Argument: TypeAlias = Array | VariableReference


class Routine(Node):
    """A kernel or device function, specialised for types and constants."""

    name: str
    parameters: tuple[Argument, ...]
    body: tuple[Statement, ...]
    result: DType | None
    """The result of a device function."""
    types: dict[str, DType]
    """Types of the variables, in the order of their first assignment."""
    arrays: tuple[Array, ...]
    """Arrays that the routine declares."""
    accessed: dict[str, frozenset[str]]
    """Accesses (`load`, `store`, `atomic`) to its parameter and declared arrays, those of callees included."""
    routines: tuple[Routine, ...]
    """Routines that it calls or launches, in order."""
    place: KernelLocation
    text: str
    """Name in CUDA C++."""
