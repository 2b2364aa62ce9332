"""Lower a form to instructions with jumps for the simulator; loads are separate, so that threads can interleave.

Set | Load | Save | Change (atomic) | Swap (shuffle, vote) | Branch | Jump | Turn | Wait | Start | Check | End
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..language.source import Place
from .builtin import FENCES
from .evaluating import Evaluate, evaluation
from .form import (
    Array,
    Assign,
    Atomic,
    Barrier,
    Both,
    Called,
    Cast,
    Choice,
    Claim,
    Element,
    Exchange,
    Expression,
    For,
    Function,
    If,
    Launch,
    Leave,
    Number,
    Operation,
    Return,
    Routine,
    Run,
    Special,
    Statement,
    Store,
    Variable,
    While,
)
from .walking import blocks_of, expressions_of, parts


class Set(NamedTuple):
    place: Place
    name: str
    value: Evaluate
    dtype: np.dtype


class Load(NamedTuple):
    place: Place
    name: str
    array: Array
    where: tuple[Evaluate, ...]


class Save(NamedTuple):
    place: Place
    array: Array
    where: tuple[Evaluate, ...]
    value: Evaluate


class Change(NamedTuple):
    """An atomic operation; `name` is empty if the old element is unused."""

    place: Place
    name: str
    how: str
    array: Array
    where: tuple[Evaluate, ...]
    operands: tuple[Evaluate, ...]


class Swap(NamedTuple):
    """A warp primitive; runs once all lanes in the mask have arrived."""

    place: Place
    name: str
    how: str
    mask: int
    operands: tuple[Evaluate, ...]
    width: int
    dtype: np.dtype


class Branch(NamedTuple):
    """Continue if the condition holds, else jump to `target`."""

    place: Place
    condition: Evaluate
    target: int


class Jump(NamedTuple):
    place: Place
    target: int


class Turn(NamedTuple):
    """Jump back to the head of a `while`; a thread that changed nothing since the last iteration waits for others."""

    place: Place
    target: int
    names: tuple[str, ...]


class Wait(NamedTuple):
    place: Place
    kind: str


class Start(NamedTuple):
    place: Place
    routine: Routine
    grid: tuple[Evaluate, ...]
    block: tuple[Evaluate, ...]
    shared: Evaluate
    arguments: tuple[Evaluate | Array, ...]


class Check(NamedTuple):
    place: Place
    condition: Evaluate
    message: str


class End(NamedTuple):
    place: Place


Instruction: TypeAlias = Set | Load | Save | Change | Swap | Branch | Jump | Turn | Wait | Start | Check | End


class Code(NamedTuple):
    """The instructions of a kernel; `waits` if some loop may wait for stores of other threads."""

    routine: Routine
    instructions: list[Any]
    arrays: tuple[Array, ...]
    """Arrays declared by the kernel and the device functions it calls."""
    waits: bool
    acquires: bool
    """Whether a thread uses the old element of an atomic operation, and so may synchronise with others."""


class Loop(NamedTuple):
    again: list[int]
    """Jumps to the next iteration whose target is not yet known."""
    out: list[int]


class Inlined(NamedTuple):
    """The function being inlined: a prefix for its variables, and its arrays."""

    routine: Routine
    prefix: str
    arrays: dict[int, Array]
    returns: list[int]


class Flattener:
    """Emits instructions in order; forward jumps are patched when their target is known."""

    def __init__(self, routine: Routine) -> None:
        self.code: list[Any] = []
        self.inlined = Inlined(routine, "", {}, [])
        self.loops: list[Loop] = []
        self.arrays: list[Array] = list(routine.arrays)
        self.temporaries = 0
        self.calls = 0
        self.waits = False
        self.at = routine.place

    # --- parts -----------------------------------------------------------------------------------

    def full(self, name: str) -> str:
        return f"{self.inlined.prefix}{name}"

    def evaluation(self, x: Expression) -> Evaluate:
        prefix = self.inlined.prefix
        return evaluation(x, lambda name: name if name.startswith("$") else prefix + name)

    def fresh(self, x: Expression) -> Evaluate:
        """Emit an evaluation into a new temporary."""
        found = self.evaluation(x)
        return (lambda lanes: found(lanes).copy()) if isinstance(x, Variable | Special) else found

    def temporary(self) -> str:
        self.temporaries += 1
        return f"${self.temporaries}"

    def array(self, array: Array) -> Array:
        return self.inlined.arrays.get(id(array), array)

    def emit(self, instruction: Any) -> int:
        self.code.append(instruction)
        return len(self.code) - 1

    def land(self, jump: int) -> None:
        """Set the target of a jump to the next instruction."""
        self.code[jump] = self.code[jump]._replace(target=len(self.code))

    # --- expressions -----------------------------------------------------------------------------

    def pure(self, x: Expression) -> Expression:
        """Return the expression without loads and calls, which are emitted before it in order."""
        if not any(isinstance(y, Element | Called | Atomic | Exchange) for y in parts(x)):
            return x
        match x:
            case Element():
                name = self.temporary()
                self.emit(Load(x.place, name, self.array(x.array), self.index(x)))
                return Variable(x.dtype, name)
            case Atomic():
                return self.atomic(x, self.temporary())
            case Exchange(operands=(mask, *others)):
                assert isinstance(mask, Number)
                name = self.temporary()
                given = tuple([self.evaluation(y) for y in self.all_pure(others)])
                self.emit(Swap(x.place, name, x.name, int(mask.value), given, x.width, x.dtype.numpy))
                return Variable(x.dtype, name)
            case Called():
                return self.called(x)
            case Both():
                return self.either(x)
            case Choice():
                return self.chosen(x)
            case Operation():
                return Operation(x.dtype, x.op, tuple(self.all_pure(x.operands)), x.place)
            case Function():
                return Function(x.dtype, x.name, tuple(self.all_pure(x.operands)))
            case Cast():
                return Cast(x.dtype, self.pure(x.operand))
            case _:
                raise NotImplementedError(type(x).__name__)

    def all_pure(self, given: Any) -> list[Expression]:
        """Flatten several expressions from left to right, so that side effects of later ones do not affect earlier
        ones.
        """
        made: list[Expression] = []
        for n, x in enumerate(given):
            y = self.pure(x)
            later = any(isinstance(z, Called) for other in given[n + 1 :] for z in parts(other))
            made.append(self.kept(y) if later and not isinstance(y, Number) else y)
        return made

    def kept(self, x: Expression) -> Expression:
        name = self.temporary()
        self.emit(Set(self.at, name, self.fresh(x), x.dtype.numpy))
        return Variable(x.dtype, name)

    def index(self, x: Element) -> tuple[Evaluate, ...]:
        return tuple([self.evaluation(y) for y in self.all_pure(x.index)])

    def atomic(self, x: Atomic, name: str) -> Expression:
        index = self.index(x.target)
        operands = tuple([self.evaluation(y) for y in self.all_pure(x.operands)])
        self.emit(Change(x.place, name, x.name, self.array(x.target.array), index, operands))
        return Variable(x.dtype, name)

    def either(self, x: Both) -> Expression:
        """Emit `and` or `or` whose right operand loads, with a branch around it."""
        name = self.temporary()
        left = self.pure(x.left)
        self.emit(Set(self.at, name, self.fresh(left), x.dtype.numpy))
        known: Expression = Variable(x.dtype, name)
        if x.op == "or":
            known = Operation(x.dtype, "not", (known,), self.at)
        jump = self.emit(Branch(self.at, self.evaluation(known), -1))
        self.emit(Set(self.at, name, self.fresh(self.pure(x.right)), x.dtype.numpy))
        self.land(jump)
        return Variable(x.dtype, name)

    def chosen(self, x: Choice) -> Expression:
        name = self.temporary()
        branch = self.emit(Branch(self.at, self.evaluation(self.pure(x.condition)), -1))
        self.emit(Set(self.at, name, self.fresh(self.pure(x.yes)), x.dtype.numpy))
        jump = self.emit(Jump(self.at, -1))
        self.land(branch)
        self.emit(Set(self.at, name, self.fresh(self.pure(x.no)), x.dtype.numpy))
        self.land(jump)
        return Variable(x.dtype, name)

    def called(self, x: Called) -> Expression:
        """Inline a device function."""
        self.calls += 1
        one = x.routine
        prefix = f"{one.name}#{self.calls}."
        arrays: dict[int, Array] = {}
        for parameter, given in zip(one.parameters, x.arguments, strict=True):
            if isinstance(parameter, Array):
                assert isinstance(given, Array)
                arrays[id(parameter)] = self.array(given)
            else:
                assert isinstance(given, Expression)
                value = self.fresh(self.pure(given))
                self.emit(Set(self.at, prefix + parameter.name, value, parameter.dtype.numpy))
        for array in one.arrays:
            arrays[id(array)] = fresh = Array(array.name, array.dtype, array.space, array.shape)
            self.arrays.append(fresh)
        before, self.inlined = self.inlined, Inlined(one, prefix, arrays, [])
        loops, self.loops = self.loops, []
        self.block(one.body)
        for jump in self.inlined.returns:
            self.land(jump)
        self.inlined, self.loops = before, loops
        return Variable(x.dtype, f"${prefix}result")

    # --- statements ------------------------------------------------------------------------------

    def block(self, body: tuple[Statement, ...]) -> None:
        for statement in body:
            self.at = statement.place
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        place = statement.place
        match statement:
            case Assign(name=name, value=value):
                self.emit(Set(place, self.full(name), self.fresh(self.pure(value)), value.dtype.numpy))
            case Store(target=target, value=value):
                index, stored = self.all_pure(target.index), self.pure(value)
                values = tuple([self.evaluation(x) for x in index])
                self.emit(Save(target.place, self.array(target.array), values, self.evaluation(stored)))
            case Run(value=Atomic() as atomic):
                self.atomic(atomic, "")
            case Run(value=value):
                self.pure(value)
            case If():
                self.branch(statement)
            case While():
                self.repeat(statement)
            case For():
                self.count(statement)
            case Leave(way=way):
                jump = self.emit(Jump(place, -1))
                (self.loops[-1].out if way == "break" else self.loops[-1].again).append(jump)
            case Return(value=value):
                self.back(place, value)
            case Barrier(kind=kind):
                if kind not in FENCES:
                    self.emit(Wait(place, kind))
            case Claim(condition=condition, message=message):
                self.emit(Check(place, self.evaluation(self.pure(condition)), message))
            case Launch():
                self.start(statement)

    def back(self, place: Place, value: Expression | None) -> None:
        if value is not None:
            name = f"${self.inlined.prefix}result"
            self.emit(Set(place, name, self.fresh(self.pure(value)), value.dtype.numpy))
        if self.inlined.prefix:
            self.inlined.returns.append(self.emit(Jump(place, -1)))
        else:
            self.emit(End(place))

    def branch(self, statement: If) -> None:
        condition = self.evaluation(self.pure(statement.condition))
        jump = self.emit(Branch(statement.place, condition, -1))
        self.block(statement.body)
        if not statement.other:
            self.land(jump)
            return
        over = self.emit(Jump(statement.place, -1))
        self.land(jump)
        self.block(statement.other)
        self.land(over)

    def repeat(self, statement: While) -> None:
        head = len(self.code)
        endless = isinstance(statement.condition, Number)
        out = None
        if not endless:
            out = self.emit(Branch(statement.place, self.evaluation(self.pure(statement.condition)), -1))
        loop = Loop([], [])
        self.loops.append(loop)
        self.block(statement.body)
        self.loops.pop()
        for jump in loop.again:
            self.land(jump)
        self.waits = self.waits or looks_at_memory(statement)
        names = tuple([self.full(name) for name in self.inlined.routine.types])
        self.emit(Turn(statement.place, head, names))
        for jump in loop.out if out is None else [out, *loop.out]:
            self.land(jump)

    def count(self, statement: For) -> None:
        place, dtype = statement.place, statement.start.dtype
        counter = Variable(dtype, statement.name)
        name = self.full(statement.name)
        self.emit(Set(place, name, self.fresh(self.pure(statement.start)), dtype.numpy))
        step = statement.step
        down = isinstance(step, Number) and step.value < 0
        if not isinstance(step, Number):
            positive = Operation(statement.step.dtype, ">", (step, Number(step.dtype, 0)), place)
            self.emit(Check(place, self.evaluation(positive), "a step that is computed must be positive"))
        head = len(self.code)
        more = Operation(dtype, ">" if down else "<", (counter, statement.stop), place)
        out = self.emit(Branch(place, self.evaluation(self.pure(more)), -1))
        loop = Loop([], [])
        self.loops.append(loop)
        self.block(statement.body)
        self.loops.pop()
        for jump in loop.again:
            self.land(jump)
        following = Operation(dtype, "+", (counter, step), place)
        self.emit(Set(place, name, self.evaluation(following), dtype.numpy))
        self.emit(Jump(place, head))
        for jump in [out, *loop.out]:
            self.land(jump)

    def start(self, launch: Launch) -> None:
        grid = tuple([self.evaluation(x) for x in self.all_pure(launch.grid)])
        block = tuple([self.evaluation(x) for x in self.all_pure(launch.block)])
        shared = self.evaluation(self.pure(launch.shared))
        given: list[Evaluate | Array] = []
        for x in launch.arguments:
            given.append(self.array(x) if isinstance(x, Array) else self.evaluation(self.pure(x)))
        self.emit(Start(launch.place, launch.routine, grid, block, shared, tuple(given)))


def looks_at_memory(statement: Statement) -> bool:
    """Whether the statements of a loop read memory."""
    found = [x for e in expressions_of(statement) for x in parts(e)]
    if any(isinstance(x, Element | Atomic | Called) for x in found):
        return True
    return any(looks_at_memory(s) for block in blocks_of(statement) for s in block)


def flat(routine: Routine) -> Code:
    """Lower a kernel to instructions."""
    made = Flattener(routine)
    made.block(routine.body)
    made.emit(End(routine.place))
    acquires = any(isinstance(x, Change) and x.name for x in made.code)
    return Code(routine, made.code, tuple(made.arrays), made.waits, acquires)
