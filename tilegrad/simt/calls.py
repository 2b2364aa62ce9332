"""Read calls: conversions, scalar functions, warp primitives, atomics, device functions, launches."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable
from typing import Any

from ..ir.dtype import DType, bool_, float32, float64, int32, uint32
from ..tiles.read.scope import TileFunction
from . import thread_ir as ir
from .builtin import FUNCTIONS, VOTES, ThreadBuiltin
from .kinds import UnsupportedCode, common_dtype, convert_to, describe, is_half, kind_of, rounded
from .reading import ThreadExpressionReader, function_name

TYPES: dict[Any, DType] = {int: int32, float: float32, bool: bool_}
MIN_ATOMIC_BITS = 32
"""Width of the narrowest elements that atomics update."""
MAX_DEPTH = 24
"""Maximal nesting depth of calls and of launches."""


class CallReader(ThreadExpressionReader):
    """Reads the calls in a kernel."""

    def routine(self, function: Any, given: dict[str, Any], node: ast.AST, launched: bool = False) -> ir.Routine:
        raise NotImplementedError

    def call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Subscript) and hasattr(self.value(node.func.value), "simt_role"):
            raise UnsupportedCode("a launch stands on a line of its own: its results are what the kernel stores")
        callee = self.value(node.func)
        for keyword in node.keywords:
            if keyword.arg is None:
                raise UnsupportedCode("** is not part of the language of kernels")
        name = function_name(callee)
        if name is not None:
            return self.function(name, node)
        dtype = callee if isinstance(callee, DType) else TYPES.get(callee) if isinstance(callee, type) else None
        if dtype is not None:
            return self.conversion(dtype, node)
        match callee:
            case ThreadBuiltin(kind="shuffle" | "vote"):
                return self.exchange(callee, node)
            case ThreadBuiltin(kind="atomic"):
                return self.atomic(callee, node)
        if getattr(callee, "simt_role", "") == "device":
            return self.device_call(callee, node)
        raise UnsupportedCode(_why_not_called(callee))

    def positional(self, node: ast.Call, name: str, least: int, most: int | None = None) -> list[ast.expr]:
        most = least if most is None else most
        if node.keywords or not least <= len(node.args) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise UnsupportedCode(
                f"{name} takes {wanted} argument{'s' * (wanted != '1')}, and {len(node.args) + len(node.keywords)} "
                f"are given"
            )
        return list(node.args)

    def conversion(self, dtype: DType, node: ast.Call) -> Any:
        (argument,) = self.positional(node, dtype.name, 1)
        x = self.number(argument)
        if is_half(dtype):
            return rounded(x, dtype)
        if not isinstance(x, ir.Expression) and dtype.is_integer:
            x = int(x)
        return convert_to(x, dtype) if isinstance(x, ir.Expression) or dtype is not bool_ else bool(x)

    def function(self, name: str, node: ast.Call) -> Any:
        found = FUNCTIONS[name]
        folded = name in ("min", "max")
        given = [self.number(x) for x in self.positional(node, name, found.count, 8 if folded else None)]
        if not any(isinstance(x, ir.Expression) for x in given):
            if name in ("min", "max", "abs"):
                now: dict[str, Any] = {"min": min, "max": max, "abs": abs}
                return now[name](*given)
            given = [convert_to(x, float32) for x in given]
        result = given[0]
        others: list[Any] = given[1:] or [None]
        for y in others:
            dtype = kind_of(result).dtype if y is None else common_dtype(result, y)
            if dtype.kind not in found.kinds and "float" in found.kinds:
                dtype = float32 if dtype.bits <= 32 else float64
            if dtype.kind not in found.kinds:
                raise UnsupportedCode(f"{name} takes whole numbers, and this is {dtype.name}")
            operands = (convert_to(result, dtype),) if y is None else (convert_to(result, dtype), convert_to(y, dtype))
            result = ir.FunctionCall(int32 if name == "popc" else dtype, name, operands)
        return result

    # --- together --------------------------------------------------------------------------------

    def exchange(self, callee: ThreadBuiltin, node: ast.Call) -> ir.WarpExchange:
        """Read a shuffle or vote."""
        names = ["mask", "condition"] if callee.name in VOTES else ["mask", "value", "lane", "width"]
        keywords = {str(k.arg): k.value for k in node.keywords}
        arguments: dict[str, ast.expr] = {**dict(zip(names, node.args, strict=False)), **keywords}
        if not set(names[:3]) <= set(arguments) <= set(names) or len(node.args) + len(keywords) != len(arguments):
            raise UnsupportedCode(f"{callee.name} is written {callee.form}")
        mask = self.value(arguments["mask"])
        if not isinstance(mask, int) or isinstance(mask, bool) or not 0 < mask <= 0xFFFF_FFFF:
            raise UnsupportedCode("the mask of lanes is a constant: 0xffffffff for all 32")
        place = self.scope.place(node)
        if callee.name in VOTES:
            condition = convert_to(self.condition(arguments["condition"]), bool_)
            dtype = uint32 if callee.name == "ballot_sync" else bool_
            return ir.WarpExchange(dtype, callee.name, (convert_to(mask, uint32), condition), 32, place)
        value = self.number(arguments["value"])
        dtype = kind_of(value).dtype
        lane = convert_to(self.integer(arguments["lane"], "a lane"), int32)
        width = self.value(arguments["width"]) if "width" in arguments else 32
        if width not in (1, 2, 4, 8, 16, 32):
            raise UnsupportedCode("the width of a shuffle is a constant, 1, 2, 4, 8, 16 or 32")
        return ir.WarpExchange(
            dtype, callee.name, (convert_to(mask, uint32), convert_to(value, dtype), lane), width, place
        )

    def atomic(self, callee: ThreadBuiltin, node: ast.Call) -> ir.AtomicOperation:
        name = callee.name
        count = 3 if name == "atomicCAS" else 2
        target, *rest = self.positional(node, name, count)
        if not isinstance(target, ast.Subscript):
            raise self.scope.wrong(target, f"{name} changes an element of an array: {callee.form}")
        element = self.element(target, "atomic")
        dtype = element.dtype
        if element.array.space == "local":
            raise UnsupportedCode(
                f"`{element.array.name}` is a thread's own: no other thread can interrupt, no atomic is needed"
            )
        _check_atomic(name, element.array.name, dtype)
        operands = [self.number(x) for x in rest]
        for x in operands:
            if kind_of(x).dtype.is_float and not dtype.is_float:
                raise UnsupportedCode(
                    f"{describe(x)} is given to {name} of `{element.array.name}`, which is {dtype.name}"
                )
        return ir.AtomicOperation(
            dtype, name, element, tuple([convert_to(x, dtype) for x in operands]), self.scope.place(node)
        )

    # --- other functions -------------------------------------------------------------------------

    def bound(self, function: Any, node: ast.Call) -> dict[str, Any]:
        """Bind the arguments of a call or launch to parameter names."""
        try:
            call = function.signature.bind(
                *[self.value(x) for x in node.args], **{str(k.arg): self.value(k.value) for k in node.keywords}
            )
        except TypeError as error:
            raise UnsupportedCode(f"{function.fn.__name__}: {error}; it takes {function.shown_signature}") from None
        call.apply_defaults()
        for name, x in call.arguments.items():
            if function.is_static(name) and isinstance(x, ir.Expression | ir.Array):
                raise UnsupportedCode(
                    f"`{name}` of {function.fn.__name__} is a constexpr, and {describe(x)} is known only when it runs"
                )
        return dict(call.arguments)

    def note_accesses(self, array: ir.Array, accesses: Iterable[str]) -> None:
        for how in accesses:
            self.scope.access(array, how)

    def specialised(
        self, function: Any, arguments: dict[str, Any], node: ast.AST, launched: bool = False
    ) -> tuple[ir.Routine, tuple[ir.Expression | ir.Array, ...]]:
        """Return the routine specialised for these arguments, and the arguments that it is passed at run time."""
        given: dict[str, Any] = {}
        passed: list[ir.Expression | ir.Array] = []
        for name, x in arguments.items():
            if function.is_static(name):
                given[name] = x
            elif isinstance(x, ir.Array):
                given[name] = ir.Array(name, x.dtype, x.space, x.shape)
                passed.append(x)
            elif isinstance(x, ir.Expression | int | float):
                dtype = function.declared(name) or kind_of(x).dtype
                if isinstance(x, ir.Expression) and x.dtype.is_float and not dtype.is_float:
                    raise UnsupportedCode(
                        f"`{name}` of {function.fn.__name__} is {dtype.name}, and {describe(x)} is given"
                    )
                given[name] = dtype
                passed.append(convert_to(x, dtype))
            else:
                raise UnsupportedCode(
                    f"{describe(x)} cannot be passed to `{name}` of {function.fn.__name__}: arrays and numbers can"
                )
        routine = self.routine(function, given, node, launched)
        for parameter, x in zip(routine.parameters, passed, strict=True):
            if isinstance(x, ir.Array):
                self.note_accesses(x, routine.accessed.get(parameter.name, ()))
        if routine not in self.scope.routines:
            self.scope.routines.append(routine)
        return routine, tuple(passed)

    def device_call(self, function: Any, node: ast.Call) -> ir.DeviceCall:
        routine, passed = self.specialised(function, self.bound(function, node), node)
        return ir.DeviceCall(routine.result or int32, routine, passed, self.scope.place(node))

    def launch(self, node: ast.Call) -> ir.LaunchStatement:
        """Read a launch inside a kernel: `child[grid, block](...)`."""
        assert isinstance(node.func, ast.Subscript)
        function = self.value(node.func.value)
        shape = node.func.slice
        parts = shape.elts if isinstance(shape, ast.Tuple) else [shape]
        name = function.fn.__name__
        if not 2 <= len(parts) <= 3:
            raise UnsupportedCode(
                f"a launch has blocks and threads, and perhaps bytes of shared memory: {name}[grid, block]"
            )
        grid, block = (self.extents(part) for part in parts[:2])
        shared = convert_to(self.integer(parts[2], "the bytes of shared memory") if len(parts) == 3 else 0, int32)
        arguments = self.bound(function, node)
        for x in arguments.values():
            if isinstance(x, ir.Array) and x.space != "global":
                raise UnsupportedCode(
                    f"{describe(x)} ends with its block: a kernel that is launched can be given global memory only"
                )
        routine, passed = self.specialised(function, arguments, node, True)
        return ir.LaunchStatement(self.scope.place(node), routine, grid, block, shared, passed)

    def extents(self, node: ast.expr) -> tuple[ir.Expression, ...]:
        parts = node.elts if isinstance(node, ast.Tuple) else [node]
        if not 1 <= len(parts) <= 3:
            raise UnsupportedCode("a grid and a block have one to three axes")
        return tuple([convert_to(self.integer(part, "an extent"), int32) for part in parts])


def _why_not_called(callee: Any) -> str:
    """Return the reason why something cannot be called inside an expression of a kernel."""
    if isinstance(callee, ThreadBuiltin) and callee.kind == "barrier":
        return f"{callee.name}() stands on a line of its own"
    if isinstance(callee, ThreadBuiltin) and callee.kind == "array":
        return f"{callee.form} is given a name, on a line of its own: tile = simt.{callee.form}"
    if getattr(callee, "simt_role", "") == "kernel":
        name = callee.fn.__name__
        return f"{name} is a kernel: launch it, {name}[blocks, threads](...), or mark it with @simt.device to call it"
    if isinstance(callee, TileFunction):
        return f"{callee.fn.__name__} is a kernel of the tile language (@tg.kernel), not one of threads"
    if inspect.isfunction(callee):
        return f"{callee.__name__} is a function of Python: mark it with @simt.device"
    if callee is print:
        return "kernels do not print: store what you want to see in an array"
    if callee is len:
        return "pointers have no length: pass it as an argument"
    return f"{describe(callee)} is not part of the language of kernels"


def _check_atomic(name: str, array: str, dtype: DType) -> None:
    """Refuse elements that an atomic function does not take."""
    integers = name not in ("atomicAdd", "atomicSub", "atomicExch")
    if dtype.bits < MIN_ATOMIC_BITS or (integers and dtype.is_float):
        kind = "whole numbers" if integers else "numbers"
        raise UnsupportedCode(f"{name} is for {kind} of 32 or 64 bits, and `{array}` is {dtype.name}")
    if name == "atomicSub" and (dtype.is_float or dtype.bits == 64):
        raise UnsupportedCode("atomicSub is for int32 and uint32: add the negative with atomicAdd")
    if name in ("atomicInc", "atomicDec") and dtype is not uint32:
        raise UnsupportedCode(f"{name} is for uint32, and `{array}` is {dtype.name}")
