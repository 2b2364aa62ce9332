"""Lower a form to instructions with jumps for the simulator; loads are separate, so that threads can interleave.

Set | Load | Save | Change (atomic) | Swap (shuffle, vote) | Branch | Jump | Turn | Wait | Start | Check | End
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..tiles.read.source import KernelLocation
from . import thread_ir as ir
from .builtin import FENCES
from .evaluate import Evaluate, compile_expression
from .traversal import blocks_of, expressions_of, subexpressions


class SetInstruction(NamedTuple):
    place: KernelLocation
    name: str
    value: Evaluate
    dtype: np.dtype


class LoadInstruction(NamedTuple):
    place: KernelLocation
    name: str
    array: ir.Array
    where: tuple[Evaluate, ...]


class StoreInstruction(NamedTuple):
    place: KernelLocation
    array: ir.Array
    where: tuple[Evaluate, ...]
    value: Evaluate


class AtomicInstruction(NamedTuple):
    """An atomic operation; `name` is empty if the old element is unused."""

    place: KernelLocation
    name: str
    how: str
    array: ir.Array
    where: tuple[Evaluate, ...]
    operands: tuple[Evaluate, ...]


class ExchangeInstruction(NamedTuple):
    """A warp primitive; runs once all lanes in the mask have arrived."""

    place: KernelLocation
    name: str
    how: str
    mask: int
    operands: tuple[Evaluate, ...]
    width: int
    dtype: np.dtype


class BranchInstruction(NamedTuple):
    """Continue if the condition holds, else jump to `target`."""

    place: KernelLocation
    condition: Evaluate
    target: int


class JumpInstruction(NamedTuple):
    place: KernelLocation
    target: int


class LoopBackInstruction(NamedTuple):
    """Jump back to the head of a `while`; a thread that changed nothing since the last iteration waits for others."""

    place: KernelLocation
    target: int
    names: tuple[str, ...]


class BarrierInstruction(NamedTuple):
    place: KernelLocation
    kind: str


class LaunchInstruction(NamedTuple):
    place: KernelLocation
    routine: ir.Routine
    grid: tuple[Evaluate, ...]
    block: tuple[Evaluate, ...]
    shared: Evaluate
    arguments: tuple[Evaluate | ir.Array, ...]


class AssertInstruction(NamedTuple):
    place: KernelLocation
    condition: Evaluate
    message: str


class EndInstruction(NamedTuple):
    place: KernelLocation


Instruction: TypeAlias = (
    SetInstruction
    | LoadInstruction
    | StoreInstruction
    | AtomicInstruction
    | ExchangeInstruction
    | BranchInstruction
    | JumpInstruction
    | LoopBackInstruction
    | BarrierInstruction
    | LaunchInstruction
    | AssertInstruction
    | EndInstruction
)


class InstructionList(NamedTuple):
    """The instructions of a kernel; `waits` if some loop may wait for stores of other threads."""

    routine: ir.Routine
    instructions: list[Any]
    arrays: tuple[ir.Array, ...]
    """Arrays declared by the kernel and the device functions it calls."""
    waits: bool
    acquires: bool
    """Whether a thread uses the old element of an atomic operation, and so may synchronise with others."""


class LoopTargets(NamedTuple):
    again: list[int]
    """Jumps to the next iteration whose target is not yet known."""
    out: list[int]


class InlinedFunction(NamedTuple):
    """The function being inlined: a prefix for its variables, and its arrays."""

    routine: ir.Routine
    prefix: str
    arrays: dict[int, ir.Array]
    returns: list[int]


class InstructionLowering:
    """Emits instructions in order; forward jumps are patched when their target is known."""

    def __init__(self, routine: ir.Routine) -> None:
        self.code: list[Any] = []
        self.inlined = InlinedFunction(routine, "", {}, [])
        self.loops: list[LoopTargets] = []
        self.arrays: list[ir.Array] = list(routine.arrays)
        self.temporaries = 0
        self.calls = 0
        self.waits = False
        self.at = routine.place

    # --- parts -----------------------------------------------------------------------------------

    def full_name(self, name: str) -> str:
        return f"{self.inlined.prefix}{name}"

    def evaluation(self, x: ir.Expression) -> Evaluate:
        prefix = self.inlined.prefix
        return compile_expression(x, lambda name: name if name.startswith("$") else prefix + name)

    def fresh(self, x: ir.Expression) -> Evaluate:
        """Emit an evaluation into a new temporary."""
        found = self.evaluation(x)
        return (
            (lambda lanes: found(lanes).copy()) if isinstance(x, ir.VariableReference | ir.BuiltinVariable) else found
        )

    def temporary(self) -> str:
        self.temporaries += 1
        return f"${self.temporaries}"

    def array(self, array: ir.Array) -> ir.Array:
        return self.inlined.arrays.get(id(array), array)

    def emit(self, instruction: Any) -> int:
        self.code.append(instruction)
        return len(self.code) - 1

    def patch(self, jump: int) -> None:
        """Set the target of a jump to the next instruction."""
        self.code[jump] = self.code[jump]._replace(target=len(self.code))

    # --- expressions -----------------------------------------------------------------------------

    def flatten(self, x: ir.Expression) -> ir.Expression:
        """Return the expression without loads and calls, which are emitted before it in order."""
        if not any(
            isinstance(y, ir.ArrayElement | ir.DeviceCall | ir.AtomicOperation | ir.WarpExchange)
            for y in subexpressions(x)
        ):
            return x
        match x:
            case ir.ArrayElement():
                name = self.temporary()
                self.emit(LoadInstruction(x.place, name, self.array(x.array), self.index(x)))
                return ir.VariableReference(x.dtype, name)
            case ir.AtomicOperation():
                return self.atomic(x, self.temporary())
            case ir.WarpExchange(operands=(mask, *others)):
                assert isinstance(mask, ir.NumberLiteral)
                name = self.temporary()
                given = tuple([self.evaluation(y) for y in self.flatten_all(others)])
                self.emit(ExchangeInstruction(x.place, name, x.name, int(mask.value), given, x.width, x.dtype.numpy))
                return ir.VariableReference(x.dtype, name)
            case ir.DeviceCall():
                return self.inline_call(x)
            case ir.ShortCircuit():
                return self.short_circuit(x)
            case ir.Conditional():
                return self.conditional(x)
            case ir.OperatorExpression() | ir.FunctionCall():
                pure: ir.Expression = x.replaced(operands=tuple(self.flatten_all(x.operands)))
                return pure
            case _:
                assert isinstance(x, ir.Conversion)
                return ir.Conversion(x.dtype, self.flatten(x.operand))

    def flatten_all(self, given: Any) -> list[ir.Expression]:
        """Flatten several expressions from left to right, so that side effects of later ones do not affect earlier
        ones.
        """
        made: list[ir.Expression] = []
        for n, x in enumerate(given):
            y = self.flatten(x)
            later = any(isinstance(z, ir.DeviceCall) for other in given[n + 1 :] for z in subexpressions(other))
            made.append(self.keep_value(y) if later and not isinstance(y, ir.NumberLiteral) else y)
        return made

    def keep_value(self, x: ir.Expression) -> ir.Expression:
        name = self.temporary()
        self.emit(SetInstruction(self.at, name, self.fresh(x), x.dtype.numpy))
        return ir.VariableReference(x.dtype, name)

    def index(self, x: ir.ArrayElement) -> tuple[Evaluate, ...]:
        return tuple([self.evaluation(y) for y in self.flatten_all(x.index)])

    def atomic(self, x: ir.AtomicOperation, name: str) -> ir.Expression:
        index = self.index(x.target)
        operands = tuple([self.evaluation(y) for y in self.flatten_all(x.operands)])
        self.emit(AtomicInstruction(x.place, name, x.name, self.array(x.target.array), index, operands))
        return ir.VariableReference(x.dtype, name)

    def short_circuit(self, x: ir.ShortCircuit) -> ir.Expression:
        """Emit `and` or `or` whose right operand loads, with a branch around it."""
        name = self.temporary()
        left = self.flatten(x.left)
        self.emit(SetInstruction(self.at, name, self.fresh(left), x.dtype.numpy))
        known: ir.Expression = ir.VariableReference(x.dtype, name)
        if x.op == "or":
            known = ir.OperatorExpression(x.dtype, "not", (known,), self.at)
        jump = self.emit(BranchInstruction(self.at, self.evaluation(known), -1))
        self.emit(SetInstruction(self.at, name, self.fresh(self.flatten(x.right)), x.dtype.numpy))
        self.patch(jump)
        return ir.VariableReference(x.dtype, name)

    def conditional(self, x: ir.Conditional) -> ir.Expression:
        name = self.temporary()
        branch = self.emit(BranchInstruction(self.at, self.evaluation(self.flatten(x.condition)), -1))
        self.emit(SetInstruction(self.at, name, self.fresh(self.flatten(x.yes)), x.dtype.numpy))
        jump = self.emit(JumpInstruction(self.at, -1))
        self.patch(branch)
        self.emit(SetInstruction(self.at, name, self.fresh(self.flatten(x.no)), x.dtype.numpy))
        self.patch(jump)
        return ir.VariableReference(x.dtype, name)

    def inline_call(self, x: ir.DeviceCall) -> ir.Expression:
        """Inline a device function."""
        self.calls += 1
        one = x.routine
        prefix = f"{one.name}#{self.calls}."
        arrays: dict[int, ir.Array] = {}
        for parameter, given in zip(one.parameters, x.arguments, strict=True):
            if isinstance(parameter, ir.Array):
                assert isinstance(given, ir.Array)
                arrays[id(parameter)] = self.array(given)
            else:
                assert isinstance(given, ir.Expression)
                value = self.fresh(self.flatten(given))
                self.emit(SetInstruction(self.at, prefix + parameter.name, value, parameter.dtype.numpy))
        for array in one.arrays:
            arrays[id(array)] = fresh = ir.Array(array.name, array.dtype, array.space, array.shape)
            self.arrays.append(fresh)
        before, self.inlined = self.inlined, InlinedFunction(one, prefix, arrays, [])
        loops, self.loops = self.loops, []
        self.block(one.body)
        for jump in self.inlined.returns:
            self.patch(jump)
        self.inlined, self.loops = before, loops
        return ir.VariableReference(x.dtype, f"${prefix}result")

    # --- statements ------------------------------------------------------------------------------

    def block(self, body: tuple[ir.Statement, ...]) -> None:
        for statement in body:
            self.at = statement.place
            self.statement(statement)

    def statement(self, statement: ir.Statement) -> None:
        place = statement.place
        match statement:
            case ir.AssignStatement(name=name, value=value):
                self.emit(
                    SetInstruction(place, self.full_name(name), self.fresh(self.flatten(value)), value.dtype.numpy)
                )
            case ir.StoreStatement(target=target, value=value):
                index, stored = self.flatten_all(target.index), self.flatten(value)
                values = tuple([self.evaluation(x) for x in index])
                self.emit(StoreInstruction(target.place, self.array(target.array), values, self.evaluation(stored)))
            case ir.ExpressionStatement(value=ir.AtomicOperation() as atomic):
                self.atomic(atomic, "")
            case ir.ExpressionStatement(value=value):
                self.flatten(value)
            case ir.BarrierStatement(kind=kind):
                if kind not in FENCES:
                    self.emit(BarrierInstruction(place, kind))
            case ir.AssertStatement(condition=condition, message=message):
                self.emit(AssertInstruction(place, self.evaluation(self.flatten(condition)), message))
            case ir.LaunchStatement():
                self.start(statement)
            case _:
                self.control(statement)

    def control(self, statement: ir.Statement) -> None:
        """Emit a statement of control flow."""
        match statement:
            case ir.IfStatement():
                self.branch(statement)
            case ir.WhileStatement():
                self.while_loop(statement)
            case ir.ForStatement():
                self.for_loop(statement)
            case ir.LoopExit(kind=kind):
                jump = self.emit(JumpInstruction(statement.place, -1))
                (self.loops[-1].out if kind == "break" else self.loops[-1].again).append(jump)
            case ir.ReturnStatement(value=value):
                self.return_from(statement.place, value)

    def return_from(self, place: KernelLocation, value: ir.Expression | None) -> None:
        if value is not None:
            name = f"${self.inlined.prefix}result"
            self.emit(SetInstruction(place, name, self.fresh(self.flatten(value)), value.dtype.numpy))
        if self.inlined.prefix:
            self.inlined.returns.append(self.emit(JumpInstruction(place, -1)))
        else:
            self.emit(EndInstruction(place))

    def branch(self, statement: ir.IfStatement) -> None:
        condition = self.evaluation(self.flatten(statement.condition))
        jump = self.emit(BranchInstruction(statement.place, condition, -1))
        self.block(statement.body)
        if not statement.other:
            self.patch(jump)
            return
        over = self.emit(JumpInstruction(statement.place, -1))
        self.patch(jump)
        self.block(statement.other)
        self.patch(over)

    def while_loop(self, statement: ir.WhileStatement) -> None:
        head = len(self.code)
        endless = isinstance(statement.condition, ir.NumberLiteral)
        out = None
        if not endless:
            out = self.emit(BranchInstruction(statement.place, self.evaluation(self.flatten(statement.condition)), -1))
        loop = LoopTargets([], [])
        self.loops.append(loop)
        self.block(statement.body)
        self.loops.pop()
        for jump in loop.again:
            self.patch(jump)
        self.waits = self.waits or reads_memory(statement)
        names = tuple([self.full_name(name) for name in self.inlined.routine.types])
        self.emit(LoopBackInstruction(statement.place, head, names))
        for jump in loop.out if out is None else [out, *loop.out]:
            self.patch(jump)

    def for_loop(self, statement: ir.ForStatement) -> None:
        place, dtype = statement.place, statement.start.dtype
        counter = ir.VariableReference(dtype, statement.name)
        name = self.full_name(statement.name)
        self.emit(SetInstruction(place, name, self.fresh(self.flatten(statement.start)), dtype.numpy))
        step = statement.step
        down = isinstance(step, ir.NumberLiteral) and step.value < 0
        if not isinstance(step, ir.NumberLiteral):
            positive = ir.OperatorExpression(statement.step.dtype, ">", (step, ir.NumberLiteral(step.dtype, 0)), place)
            self.emit(AssertInstruction(place, self.evaluation(positive), "a step that is computed must be positive"))
        head = len(self.code)
        more = ir.OperatorExpression(dtype, ">" if down else "<", (counter, statement.stop), place)
        out = self.emit(BranchInstruction(place, self.evaluation(self.flatten(more)), -1))
        loop = LoopTargets([], [])
        self.loops.append(loop)
        self.block(statement.body)
        self.loops.pop()
        for jump in loop.again:
            self.patch(jump)
        following = ir.OperatorExpression(dtype, "+", (counter, step), place)
        self.emit(SetInstruction(place, name, self.evaluation(following), dtype.numpy))
        self.emit(JumpInstruction(place, head))
        for jump in [out, *loop.out]:
            self.patch(jump)

    def start(self, launch: ir.LaunchStatement) -> None:
        grid = tuple([self.evaluation(x) for x in self.flatten_all(launch.grid)])
        block = tuple([self.evaluation(x) for x in self.flatten_all(launch.block)])
        shared = self.evaluation(self.flatten(launch.shared))
        given: list[Evaluate | ir.Array] = []
        for x in launch.arguments:
            given.append(self.array(x) if isinstance(x, ir.Array) else self.evaluation(self.flatten(x)))
        self.emit(LaunchInstruction(launch.place, launch.routine, grid, block, shared, tuple(given)))


def reads_memory(statement: ir.Statement) -> bool:
    """Whether the statements of a loop read memory."""
    found = [x for e in expressions_of(statement) for x in subexpressions(e)]
    if any(isinstance(x, ir.ArrayElement | ir.AtomicOperation | ir.DeviceCall) for x in found):
        return True
    return any(reads_memory(s) for block in blocks_of(statement) for s in block)


def lower_to_instructions(routine: ir.Routine) -> InstructionList:
    """Lower a kernel to instructions."""
    made = InstructionLowering(routine)
    made.block(routine.body)
    made.emit(EndInstruction(routine.place))
    acquires = any(isinstance(x, AtomicInstruction) and x.name for x in made.code)
    return InstructionList(routine, made.code, tuple(made.arrays), made.waits, acquires)
