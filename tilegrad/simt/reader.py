"""Read a kernel or device function, specialised for types and constants, into its form.

A name has one type, which a later assignment may widen: the function is read again until no type changes.
"""

from __future__ import annotations

import ast
from typing import Any

from ..errors import KernelSourceError
from ..ir.dtype import bool_
from . import thread_ir as ir
from .builtin import ThreadBuiltin
from .calls import MAX_DEPTH, TYPES, CallReader
from .kinds import NameType, UnsupportedCode, common_dtype, convert_to, describe, element_type, kind_of, supported
from .scope import RoutineScope

MAX_READINGS = 12
RESULT_NAME = "return"
"""Name that stands for the result in the table of types."""
STATEMENTS: dict[type, str] = {
    ast.Try: "kernels have no exceptions",
    ast.Raise: "kernels have no exceptions: use assert, which the simulator sees to",
    ast.With: "kernels have no `with`",
    ast.FunctionDef: "functions that kernels call are written outside of them, with @simt.device",
    ast.ClassDef: "kernels have no classes",
    ast.Import: "imports stand outside of kernels",
    ast.ImportFrom: "imports stand outside of kernels",
    ast.Global: "a kernel changes nothing outside but what it stores in its arrays",
    ast.Nonlocal: "a kernel changes nothing outside but what it stores in its arrays",
    ast.Delete: "names need not be deleted",
    ast.Match: "kernels have no `match`: write if and elif",
}


class RoutineReader(CallReader):
    """Reads routines, together with those they call or launch."""

    def __init__(self) -> None:
        self.made: dict[Any, ir.Routine] = {}
        self.in_progress: list[Any] = []
        self.texts: dict[str, int] = {}

    def routine(self, function: Any, given: dict[str, Any], node: ast.AST, launched: bool = False) -> ir.Routine:
        described = tuple(
            [(n, (x.dtype, x.space, x.shape) if isinstance(x, ir.Array) else x) for n, x in given.items()]
        )
        key = (id(function), launched, described)
        if key in self.made:
            return self.made[key]
        name = function.fn.__name__
        if key in self.in_progress or len(self.in_progress) >= MAX_DEPTH:
            end = (
                "launches itself: that needs an end that is known when it is read; write a loop on the host"
                if launched
                else ("calls itself: write a loop")
            )
            raise UnsupportedCode(f"{name} {end}")
        self.in_progress.append(key)
        known: dict[str, NameType] = {}
        try:
            for _ in range(MAX_READINGS):
                scope, body = self.once(function, given, known, False)
                if not scope.changed:
                    break
            scope, body = self.once(function, given, known, True)
        finally:
            self.in_progress.pop()
        self.made[key] = self.finished(scope, body, launched)
        return self.made[key]

    def once(
        self, function: Any, given: dict[str, Any], known: dict[str, NameType], final: bool
    ) -> tuple[RoutineScope, Any]:
        before = getattr(self, "scope", None)
        self.scope = RoutineScope(function, dict(given), known, final)
        try:
            body = self.block(self.scope.source.tree.body)
            return self.scope, body
        finally:
            if before is not None:
                self.scope = before

    def finished(self, scope: RoutineScope, body: tuple[ir.Statement, ...], launched: bool) -> ir.Routine:
        name = scope.source.name
        result = scope.known[RESULT_NAME].dtype if RESULT_NAME in scope.known else None
        if scope.function.simt_role == "device" and result is not None and not never_falls_through(body):
            raise scope.wrong(
                scope.source.tree.args, f"{name} returns a number on one way through it, and nothing on another"
            )
        self.texts[name] = number = self.texts.get(name, 0) + 1
        types = {n: scope.fixed.get(n) or scope.known[n].dtype for n in scope.types if n != RESULT_NAME}
        accessed = {n: frozenset(how) for n, how in scope.accessed.items()}
        place = scope.place(scope.source.tree)
        text = name if number == 1 else f"{name}_{number}"
        return ir.Routine(
            name,
            scope.parameters(),
            body,
            result,
            types,
            tuple(scope.own),
            accessed,
            tuple(scope.routines),
            place,
            text,
        )

    # --- statements ------------------------------------------------------------------------------

    def block(self, body: list[ast.stmt]) -> tuple[ir.Statement, ...]:
        made: list[ir.Statement] = []
        self.scope.depth += 1
        for node in body:
            try:
                made += self.statement(node)
            except KernelSourceError:
                raise
            except UnsupportedCode as refused:
                raise self.scope.wrong(node, refused.reason) from None
        self.scope.depth -= 1
        return tuple(made)

    def statement(self, node: ast.stmt) -> list[ir.Statement]:
        place = self.scope.place(node)
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if self.is_array(call):
                return self.declare(name, call)
            case ast.Assign(targets=targets, value=value):
                return self.assign(node, targets, value)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                return self.declared(node, name, annotation, value)
            case ast.AugAssign(target=target, op=op, value=value):
                return self.change(node, target, op, value)
            case ast.Expr(value=ast.Constant()) | ast.Pass():
                return []
            case ast.Expr(value=ast.Call() as call):
                return [self.called(call, place)]
            case ast.Expr(value=value):
                self.value(value)
                raise UnsupportedCode("this computes something and does nothing with it")
            case ast.Assert(test=test, msg=message):
                text = message.value if isinstance(message, ast.Constant) else ""
                return [ir.AssertStatement(place, convert_to(self.condition(test), bool_), str(text))]
            case _:
                return self.control(node)

    def control(self, node: ast.stmt) -> list[ir.Statement]:
        """Read a statement of control flow."""
        match node:
            case ast.If(test=test, body=body, orelse=other):
                return self.branch(node, test, body, other)
            case ast.While():
                return self.repeat(node)
            case ast.For():
                return self.loop(node)
            case ast.Break() | ast.Continue():
                return [ir.LoopExit(self.scope.place(node), "break" if isinstance(node, ast.Break) else "continue")]
            case ast.Return(value=value):
                return self.back(node, value)
        raise UnsupportedCode(
            STATEMENTS.get(type(node), f"{type(node).__name__} is not part of the language of kernels")
        )

    # --- assignments -----------------------------------------------------------------------------

    def is_array(self, call: ast.Call) -> bool:
        if not isinstance(call.func, ast.Name | ast.Attribute):
            return False
        callee = self.value(call.func)
        return isinstance(callee, ThreadBuiltin) and callee.kind == "array"

    def declare(self, name: str, call: ast.Call) -> list[ir.Statement]:
        """Read an array declaration: `tile = simt.shared(simt.float32, (16, 16))`."""
        scope, callee = self.scope, self.value(call.func)
        if scope.depth > 1:
            raise UnsupportedCode(f"{callee.form} stands at the beginning of a kernel, not in a loop or branch")
        if scope.function.simt_role == "device" and callee.name != "local":
            raise UnsupportedCode("shared memory is declared by the kernel: pass the array to the device function")
        if name in scope.arrays or name in scope.assigned:
            raise UnsupportedCode(f"`{name}` is there already: an array has a name of its own")
        dynamic = callee.name == "dynamic_shared"
        given = [self.value(x) for x in self.positional(call, callee.name, 1 if dynamic else 2)]
        if dynamic and any(array.space == "dynamic" for array in scope.own):
            raise UnsupportedCode("a kernel has one dynamic_shared array: all would begin at the same byte")
        dtype = element_type(given[0], f"the first argument of {callee.name}")
        shape = () if dynamic else _array_shape(given[1])
        array = ir.Array(name, dtype, "dynamic" if dynamic else callee.name, shape)
        scope.arrays[name] = array
        scope.own.append(array)
        return []

    def value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Tuple):
            return tuple([self.value(x) for x in node.elts])
        return super().value(node)

    def assign(self, node: ast.AST, targets: list[ast.expr], value: ast.expr) -> list[ir.Statement]:
        if len(targets) > 1:
            raise UnsupportedCode("one name is assigned at a time")
        match targets[0]:
            case ast.Name(id=name):
                return [self.assign_name(node, name, self.given(value))]
            case ast.Subscript() as target:
                return [self.store(node, target, self.number(value))]
            case ast.Tuple(elts=names) if isinstance(value, ast.Tuple) and len(names) == len(value.elts):
                return self.several(node, names, value.elts)
            case ast.Tuple():
                raise UnsupportedCode("several names are given as many expressions: x, y = y, x")
            case _:
                raise UnsupportedCode("only names and elements of arrays are assigned in kernels")

    def given(self, node: ast.expr) -> Any:
        value = self.value(node)
        if not isinstance(value, ir.Expression | int | float):
            if isinstance(value, ir.Array):
                raise self.scope.wrong(
                    node, f"an array has one name: use `{value.name}` itself; a second name could hide a race"
                )
            raise self.scope.wrong(node, f"{describe(value)} is no number: only numbers are assigned to names")
        return value

    def several(self, node: ast.AST, names: list[ast.expr], values: list[ast.expr]) -> list[ir.Statement]:
        """Read `x, y = y, x`: all values are evaluated first."""
        if self.independent(names, values):
            return [s for name, x in zip(names, values, strict=True) for s in self.assign(node, [name], x)]
        made: list[ir.Statement] = []
        held: list[ir.Expression] = []
        for n, value in enumerate(values):
            x = self.given(value)
            dtype = self.scope.give(f"next_{n}", kind_of(x))
            made.append(ir.AssignStatement(self.scope.place(node), f"next_{n}", convert_to(x, dtype)))
            held.append(ir.VariableReference(dtype, f"next_{n}"))
        for target, x in zip(names, held, strict=True):
            if isinstance(target, ast.Name):
                made.append(self.assign_name(node, target.id, x))
            elif isinstance(target, ast.Subscript):
                made.append(self.store(node, target, x))
            else:
                raise UnsupportedCode("only names and elements of arrays are assigned in kernels")
        return made

    def independent(self, names: list[ast.expr], values: list[ast.expr]) -> bool:
        """Whether no value depends on a name assigned in the same statement, so that order is irrelevant."""
        given = {n.id for n in names if isinstance(n, ast.Name)}
        used = {n.id for x in values for n in ast.walk(x) if isinstance(n, ast.Name)}
        return len(given) == len(names) and not given & used

    def assign_name(self, node: ast.AST, name: str, value: Any) -> ir.Statement:
        scope = self.scope
        if name in scope.arrays:
            raise UnsupportedCode(f"`{name}` is an array: assign its elements, {name}[i] = ...")
        if name in scope.given and name not in scope.fixed:
            raise UnsupportedCode(f"`{name}` is a constant of the kernel and stays what it is")
        if name in scope.loops:
            raise UnsupportedCode(f"`{name}` is counted by the loop around and is not assigned in it: use another name")
        dtype = scope.give(name, kind_of(value))
        scope.assigned.add(name)
        return ir.AssignStatement(scope.place(node), name, convert_to(value, dtype))

    def declared(self, node: ast.AST, name: str, annotation: ast.expr, value: ast.expr | None) -> list[ir.Statement]:
        """Read an annotated assignment: `total: simt.float64 = 0.0`."""
        found = self.value(annotation)
        dtype = supported(TYPES.get(found, found) if isinstance(found, type) else found, f"the type of `{name}`")
        if name in self.scope.assigned and self.scope.fixed.get(name) is not dtype:
            raise UnsupportedCode(f"`{name}` has a value already: its type is said where it is assigned first")
        self.scope.fixed[name] = dtype
        self.scope.known[name] = NameType(dtype)
        self.scope.types[name] = dtype
        return [] if value is None else [self.assign_name(node, name, self.given(value))]

    def store(self, node: ast.AST, target: ast.Subscript, value: Any) -> ir.Statement:
        try:
            element = self.element(target, "store")
        except UnsupportedCode as refused:
            raise self.scope.wrong(target, refused.reason) from None
        kind = kind_of(value)
        if kind.dtype.is_float and not element.dtype.is_float:
            raise UnsupportedCode(
                f"`{element.array.name}` is {element.dtype.name}, and {kind.dtype.name} is stored: convert it, "
                f"simt.{element.dtype.name}(...)"
            )
        return ir.StoreStatement(self.scope.place(node), element, convert_to(value, element.dtype))

    def change(self, node: ast.AST, target: ast.expr, op: ast.operator, value: ast.expr) -> list[ir.Statement]:
        """Read an augmented assignment: `x += 1`, `A[i] += 1`."""
        x = self.number(target)
        result = self.operation(node, op, x, self.number(value))
        match target:
            case ast.Name(id=name):
                return [self.assign_name(node, name, result)]
            case ast.Subscript():
                return [self.store(node, target, result)]
            case _:
                raise UnsupportedCode("only names and elements of arrays are assigned in kernels")

    # --- flow ------------------------------------------------------------------------------------

    def called(self, call: ast.Call, place: Any) -> ir.Statement:
        """Read a call statement."""
        if isinstance(call.func, ast.Subscript):
            base = self.value(call.func.value)
            if getattr(base, "simt_role", "") == "kernel":
                return self.launch(call)
        callee = self.value(call.func)
        if isinstance(callee, ThreadBuiltin) and callee.kind == "barrier":
            self.positional(call, callee.name, 0)
            return ir.BarrierStatement(place, callee.name)
        value = self.value(call)
        if not isinstance(value, ir.Expression):
            raise UnsupportedCode("this computes something and does nothing with it")
        if isinstance(value, ir.DeviceCall | ir.WarpExchange | ir.AtomicOperation):
            return ir.ExpressionStatement(place, value)
        raise UnsupportedCode("this computes something and does nothing with it")

    def branch(self, node: ast.AST, test: ast.expr, body: list[ast.stmt], other: list[ast.stmt]) -> list[ir.Statement]:
        scope = self.scope
        condition = self.condition(test)
        if not isinstance(condition, ir.Expression):  # a static condition: the other branch is not read
            scope.depth -= 1
            chosen = list(self.block(body if condition else other))
            scope.depth += 1
            return chosen
        before = set(scope.assigned)
        yes = self.block(body)
        after_yes, scope.assigned = scope.assigned, set(before)
        no = self.block(other)
        if never_falls_through(yes) and not never_falls_through(no):
            pass
        elif never_falls_through(no) and not never_falls_through(yes):
            scope.assigned = after_yes
        else:
            self.forget((after_yes | scope.assigned) - (after_yes & scope.assigned), "on one way of the `if` above")
            scope.assigned &= after_yes
        return [ir.IfStatement(scope.place(node), condition, yes, no)]

    def forget(self, names: set[str], where: str) -> None:
        for name in names:
            self.scope.partly[name] = f"`{name}` is assigned only {where}: give it a value before"

    def inside(self, body: list[ast.stmt], where: str) -> tuple[ir.Statement, ...]:
        """Read a loop body, which may not run at all."""
        before = set(self.scope.assigned)
        made = self.block(body)
        self.forget(self.scope.assigned - before, where)
        self.scope.assigned = before
        return made

    def repeat(self, node: ast.While) -> list[ir.Statement]:
        if node.orelse:
            raise self.scope.wrong(node.orelse[0], "a loop has no else")
        condition = self.condition(node.test)
        if condition is False:
            return []
        body = self.inside(node.body, "inside the loop above")
        if condition is True and not exits_loop(body):
            raise UnsupportedCode("this loop never ends: it has no break and no return")
        return [ir.WhileStatement(self.scope.place(node), convert_to(condition, bool_), body)]

    def counted_range(self, node: ast.For) -> tuple[str, ast.Call]:
        """Return the name that a loop counts, and the call of range that it runs over."""
        if node.orelse:
            raise self.scope.wrong(node.orelse[0], "a loop has no else")
        if not isinstance(node.target, ast.Name):
            raise self.scope.wrong(node.target, "a loop counts one name")
        if not isinstance(node.iter, ast.Call) or self.value(node.iter.func) is not range:
            raise self.scope.wrong(node.iter, "a loop runs over range(...)")
        return node.target.id, node.iter

    def loop(self, node: ast.For) -> list[ir.Statement]:
        scope, place = self.scope, self.scope.place(node)
        name, called = self.counted_range(node)
        bounds: list[Any] = [self.integer(x, "a bound of a loop") for x in self.positional(called, "range", 1, 3)]
        start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
        if not isinstance(step, ir.Expression) and step == 0:
            raise scope.wrong(node.iter, "the step of a loop is not 0")
        if name in scope.loops or name in scope.arrays or name in scope.assigned:
            raise scope.wrong(node.target, f"`{name}` has a value already: a loop counts a name of its own")
        dtype = scope.give(name, NameType(common_dtype(common_bound_type(start, stop), common_bound_type(step, 0))))
        before, bounds = [], [convert_to(x, dtype) for x in (start, stop, step)]
        for n, (word, x) in enumerate(zip(("start", "stop", "step"), bounds, strict=True)):
            if n and not is_loop_invariant(x, assigned_in(node.body)):
                held = f"{name}_{word}"
                before.append(ir.AssignStatement(place, held, convert_to(x, scope.give(held, NameType(dtype)))))
                bounds[n] = ir.VariableReference(dtype, held)
        scope.loops.append(name)
        scope.assigned.add(name)
        body = self.inside(node.body, "inside the loop above")
        scope.loops.pop()
        scope.assigned.discard(name)
        scope.partly[name] = f"`{name}` is counted by the loop above and ends with it: keep it in another name"
        return [*before, ir.ForStatement(place, name, bounds[0], bounds[1], bounds[2], body)]

    def back(self, node: ast.AST, value: ast.expr | None) -> list[ir.Statement]:
        place = self.scope.place(node)
        if value is None or (isinstance(value, ast.Constant) and value.value is None):
            return [ir.ReturnStatement(place, None)]
        if self.scope.function.simt_role == "kernel":
            raise UnsupportedCode("a kernel returns nothing: store what it computes in an array")
        x = self.given(value)
        return [ir.ReturnStatement(place, convert_to(x, self.scope.give(RESULT_NAME, kind_of(x))))]


def common_bound_type(x: Any, y: Any) -> ir.NumberLiteral:
    """Return the common type of two bounds, as a number of that type."""
    return ir.NumberLiteral(common_dtype(x, y), 0)


def assigned_in(body: list[ast.stmt]) -> set[str]:
    nodes = [node for statement in body for node in ast.walk(statement)]
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def is_loop_invariant(x: ir.Expression, changed: set[str]) -> bool:
    """Whether a bound is loop-invariant."""
    match x:
        case ir.NumberLiteral():
            return True
        case ir.VariableReference(name=name):
            return name not in changed
        case ir.OperatorExpression(operands=operands):
            return all(is_loop_invariant(y, changed) for y in operands)
        case _:
            return isinstance(x, ir.BuiltinVariable)


def never_falls_through(body: tuple[ir.Statement, ...]) -> bool:
    """Whether control never reaches the end of these statements."""
    last = body[-1] if body else None
    match last:
        case ir.ReturnStatement() | ir.LoopExit():
            return True
        case ir.IfStatement(body=yes, other=no):
            return never_falls_through(yes) and never_falls_through(no)
        case ir.WhileStatement(condition=ir.NumberLiteral(value=True), body=inner):
            return not any(isinstance(s, ir.LoopExit) and s.kind == "break" for s in inner)
        case _:
            return False


def exits_loop(body: tuple[ir.Statement, ...]) -> bool:
    """Whether a statement in a loop exits it."""
    for statement in body:
        match statement:
            case ir.ReturnStatement() | ir.LoopExit(kind="break"):
                return True
            case ir.IfStatement(body=yes, other=no):
                if exits_loop(yes) or exits_loop(no):
                    return True
            case ir.WhileStatement(body=inner) | ir.ForStatement(body=inner):
                if any(isinstance(s, ir.ReturnStatement) for s in inner) or exits_loop(
                    tuple(s for s in inner if isinstance(s, ir.IfStatement))
                ):
                    return True
            case _:
                pass
    return False


def read_routine(function: Any, given: dict[str, Any]) -> ir.Routine:
    """Read a kernel; `given` has an Array, a DType or a constant for each parameter."""
    reader = RoutineReader()
    try:
        return reader.routine(function, given, function.source_text.tree)
    except UnsupportedCode as refused:
        raise function.source_text.place(function.source_text.tree.args).error(refused.reason) from None


def _array_shape(given: Any) -> tuple[int, ...]:
    """Return the shape of a declared array, or refuse extents that are unknown or no positive integers."""
    shape = given if isinstance(given, tuple) else (given,)
    if any(isinstance(n, ir.Expression) for n in shape):
        raise UnsupportedCode(
            "the extents of an array are known when the kernel is compiled: make what they come from a parameter "
            "`NAME: simt.constexpr`, or use simt.dynamic_shared(dtype), whose size the launch gives"
        )
    if not shape or any(not isinstance(n, int) or n < 1 for n in shape):
        raise UnsupportedCode(f"the shape of an array is whole numbers from 1 on, and not {given!r}")
    return shape
