"""Runs tile kernels with numpy, one instance after the other: slowly, and surely.

Every element function is applied in the type of its arguments; those of 16-bit floats are computed in float32
and rounded each time. What is outside the memory of a parameter is always refused. A checked run also refuses

- to read elements that nobody has written (of the parameters named in `unwritten`),
- what two instances, which may run at once, do to one element, unless atomic operations order them (`order.py`);
  what two lanes store in one element,
- offsets that overflow,

and puts a value that spoils results where the mask of a load is false and there is no `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np

from ...errors import KernelError
from ...ir import tile as ir
from ...ir.dtype import DType, float32
from ...ir.functions import FUNCTIONS, REDUCERS, convert
from ...ir.precision import product as product_at
from ...ir.tile_checker import Types, check
from ...ir.tile_printer import show_statement
from ...ir.tile_types import dot_dtype
from ...runtime.index_faults import IndexFaults
from .interleave import interleave, used_atomics, waits
from .memory import Fault, History, Memory, Pointer, View, first, poison
from .order import Order
from .positions import position_parts


def run(
    kernel: ir.Kernel,
    arguments: Sequence[Any] | Mapping[str, Any],
    grid: Sequence[int],
    *,
    checked: bool = False,
    unwritten: Collection[str] = (),
    types: Types | None = None,
    order: Sequence[int] | None = None,
    strict: bool = False,
    complete: bool = False,
    nan: bool = True,
    views: Mapping[str, View] = {},
    index_faults: IndexFaults | None = None,
) -> None:
    """Run all instances of a grid; what they store is then in the arrays among the arguments.

    `types` are those that the checker found, if the kernel has been checked already; `order` has the numbers of the
    instances (counted along the first axis first) as they should run. A `strict` run also refuses that two instances
    store one value in one element; a `complete` one, that what was unwritten stays so in part; one without `nan`, that
    a NaN is stored which was not loaded. `views` are parameters of which not all memory may be touched. An index that
    is outside goes to `index_faults`, or raises in the end.

    >>> from ...ir.tile_parser import parse
    >>> kernel = parse('''
    ... def iota(out: "*i32", n: "i32"):
    ...     i = tl.program_id(0) * 4 + tl.arange(0, 4)
    ...     tl.store(out + i, i * i, mask=i < n)
    ... ''')
    >>> out = np.zeros(6, np.int32)
    >>> run(kernel, [out, 6], (2,))
    >>> out
    array([ 0,  1,  4,  9, 16, 25], dtype=int32)
    """
    memories, names = _given(kernel, _named(kernel, arguments), views)
    if checked:
        _remember(kernel, memories, unwritten, strict)
    extents = (*grid, 1, 1)[:3]
    interpreter = Interpreter(kernel, types or check(kernel), memories, extents, checked)
    interpreter.nan, interpreter.index_faults = nan, index_faults or IndexFaults()
    programs = [(n, program_of(n, extents)) for n in (range(prod(extents)) if order is None else order)]
    with np.errstate(all="ignore"):
        if waits(kernel):
            interleave(interpreter, programs, names)
        for number, program in () if waits(kernel) else programs:
            interpreter.instance(number, program, names)
    if index_faults is None:
        interpreter.index_faults.look()
    if complete:
        _all_written(kernel, memories, unwritten)


def program_of(number: int, grid: Sequence[int]) -> tuple[int, ...]:
    """Return the place in a grid of three axes of an instance with a number.

    >>> program_of(7, (3, 2, 2))
    (1, 0, 1)
    """
    return number % grid[0], number // grid[0] % grid[1], number // grid[0] // grid[1]


def _given(
    kernel: ir.Kernel, by_name: Mapping[str, Any], views: Mapping[str, View]
) -> tuple[dict[str, Memory], dict[str, Any]]:
    """Return the memory of the pointers, and what all parameters are in the beginning."""
    memories: dict[str, Memory] = {}
    names: dict[str, Any] = {}
    for p in kernel.parameters:
        if p.pointer:
            memories[p.name] = _memory(kernel, p, by_name[p.name])
            memories[p.name].view = views.get(p.name)
            names[p.name] = Pointer(p.name, np.zeros((), np.int64))
        else:
            names[p.name] = _number(kernel, p, by_name[p.name])
    return memories, names


def _named(kernel: ir.Kernel, arguments: Sequence[Any] | Mapping[str, Any]) -> Mapping[str, Any]:
    wanted = [p.name for p in kernel.parameters]
    named = arguments if isinstance(arguments, Mapping) else dict(zip(wanted, arguments, strict=False))
    if len(arguments) != len(wanted) or set(named) != set(wanted):
        given = ", ".join(named) if isinstance(arguments, Mapping) else f"{len(arguments)} arguments"
        raise KernelError(f"kernel {kernel.name} takes ({', '.join(wanted)}) and was given {given}")
    return named


def _memory(kernel: ir.Kernel, p: ir.TileParameter, given: Any) -> Memory:
    if not isinstance(given, np.ndarray) or given.dtype != p.dtype.numpy or not given.flags.c_contiguous:
        what = f"an array of {given.dtype}" if isinstance(given, np.ndarray) else type(given).__name__
        raise KernelError(f"kernel {kernel.name}: `{p.name}` takes a dense array of {p.dtype.name}, and not {what}")
    return Memory(p.name, given.reshape(-1))


def _number(kernel: ir.Kernel, p: ir.TileParameter, given: Any) -> Any:
    value = np.asarray(given)
    fits = value.shape == () and (
        p.dtype.is_float or (value.dtype.kind in "biu" and p.dtype.min <= value <= p.dtype.max)
    )
    if not fits:
        raise KernelError(f"kernel {kernel.name}: `{p.name}` takes a number of {p.dtype.name}, and not {given!r}")
    return value.astype(p.dtype.numpy)


class Misstep(KernelError):
    """An error of a run: its place and reason. `statement` is None for errors that show only at the end."""

    def __init__(
        self,
        kernel: str,
        statement: ir.Statement | None,
        program: tuple[int, ...],
        lane: tuple[int, ...],
        reason: str,
        tile: ir.Tile | None = None,
    ) -> None:
        where = f", in `{show_statement(statement).split(chr(10))[0]}`" if statement is not None else ""
        where += f", program ({', '.join(map(str, program))})" if program else ""
        where += f", lane ({', '.join(map(str, lane))})" if lane else ""
        super().__init__(f"kernel {kernel}{where}: {reason}")
        self.statement, self.program, self.lane, self.reason, self.tile = statement, program, lane, reason, tile


def _all_written(kernel: ir.Kernel, memories: Mapping[str, Memory], unwritten: Collection[str]) -> None:
    """Refuse gaps in a tensor that the kernel alone writes: each element, or none, must be written."""
    for name in unwritten:
        history = memories[name].history
        if history is None or not history.written.any():
            continue
        view = memories[name].view
        inside = np.ones(history.written.shape, np.bool_) if view is None else view.inside
        gaps = inside & ~history.written
        if gaps.any():
            missing, place = int(gaps.sum()), first(gaps)[0]
            reason = (
                f"{missing} of the {int(inside.sum())} elements of {name} were never written, the first is "
                f"{name}[{place}]: a mask is too narrow, or the grid too small"
            )
            raise Misstep(kernel.name, None, (), (), reason)


def _remember(kernel: ir.Kernel, memories: Mapping[str, Memory], unwritten: Collection[str], strict: bool) -> None:
    """Parameters on the same memory have one history."""
    order = Order() if used_atomics(kernel) else None
    histories: dict[int, History] = {}
    for memory in memories.values():
        address = memory.array.__array_interface__["data"][0] if memory.array.size else id(memory)
        new = History(memory.array.size, memory.name not in unwritten, strict, order)
        memory.history = histories.setdefault(address, new)


class Interpreter:
    """One instance at a time."""

    def __init__(
        self,
        kernel: ir.Kernel,
        types: Types,
        memories: Mapping[str, Memory],
        grid: tuple[int, ...],
        checked: bool,
    ) -> None:
        self.kernel, self.types, self.memories, self.grid, self.checked = kernel, types, memories, grid, checked
        self.positions = position_parts(kernel) if checked else frozenset()
        self.used = used_atomics(kernel)
        self.nan = True
        self.index_faults = IndexFaults()
        self.made: dict[int, Any] = {}
        """The values of expressions within one statement: a part that is used twice is computed once."""

    def instance(self, number: int, program: tuple[int, ...], names: Mapping[str, Any]) -> None:
        self.begin(number, program, names)
        self.block(self.kernel.body)

    def begin(self, number: int, program: tuple[int, ...], names: Mapping[str, Any]) -> None:
        self.number, self.program, self.names = number, program, dict(names)
        self.birth: tuple[ir.Statement, ir.Tile] | None = None
        self.tainted = False

    def block(self, body: tuple[ir.Statement, ...]) -> None:
        for statement in body:
            with self.at(statement):
                self.statement(statement)

    @contextmanager
    def at(self, statement: ir.Statement) -> Iterator[None]:
        """Within the block a fault is that of a statement."""
        try:
            self.present = statement
            yield
        except Fault as fault:
            culprit = statement if fault.statement is None else fault.statement
            raise Misstep(self.kernel.name, culprit, self.program, fault.lane, fault.reason, fault.tile) from None

    def statement(self, statement: ir.Statement) -> None:
        match statement:
            case ir.Assign(name, value):
                self.names[name] = self.fresh(value)
            case ir.Store(pointer, value, mask):
                self.store(pointer, value, mask)
            case ir.Atomic():
                self.atomic(statement)
            case ir.Print(text, values):
                self.print(text, values)
            case ir.Assert(condition, text):
                self.claim(condition, text)
            case ir.For():
                self.loop(statement)
            case ir.While(condition, body):
                while self.fresh(condition):
                    self.block(body)
            case ir.If(condition, body, otherwise):
                self.block(body if self.fresh(condition) else otherwise)

    def loop(self, loop: ir.For) -> None:
        for index in self.indices(loop):
            self.names[loop.index] = index
            self.block(loop.body)

    def indices(self, loop: ir.For) -> Iterator[Any]:
        start, stop, step = (int(self.fresh(x)) for x in (loop.start, loop.stop, loop.step))
        if step <= 0:
            raise Fault((), f"the step of the loop is {step}, and not positive")
        dtype = self.types.variables[loop.index].dtype.numpy
        for index in range(start, stop, step):
            yield np.array(index, dtype)

    def store(self, pointer: ir.Tile, value: ir.Tile, mask: ir.Tile | None) -> None:
        self.made.clear()
        target: Pointer = self.value(pointer)
        dtype = self.types.of(pointer).dtype
        stored = np.broadcast_to(self.operand(value, dtype), target.offsets.shape)
        active = self.mask(mask, target.offsets.shape)
        if not self.nan and dtype.is_float:
            self.refuse_nan(target, active & np.isnan(stored))
        self.memories[target.parameter].store(target.offsets, active, stored, self.number)

    def refuse_nan(self, target: Pointer, wrong: Any) -> None:
        """Report a stored NaN as loaded, or as made in this kernel."""
        if not wrong.any() or self.tainted:
            return
        lane = first(wrong)
        stored = f"{target.parameter}[{target.offsets[lane]}]"
        if self.birth is None:
            raise Fault(
                lane,
                f"an element that was never loaded gets into {stored}: its mask was false; give that load an `other`",
            )
        fault = Fault(lane, f"a NaN is born in `{self.birth[1]}`, and stored in {stored}", self.birth[0])
        fault.tile = self.birth[1]
        raise fault

    def note_nan(self, x: ir.Tile, made: Any, *operands: Any) -> None:
        """Remembers where the first NaN came from that no operand had."""
        if self.birth is not None or self.tainted or np.asarray(made).dtype.kind not in "fV":
            return
        if not np.isnan(made).any() or any(_has_nan(y) for y in operands):
            return
        self.birth = (self.present, x)

    def atomic(self, x: ir.Atomic) -> None:
        self.made.clear()
        target: Pointer = self.value(x.pointer)
        dtype, shape = self.types.of(x.pointer).dtype, target.offsets.shape
        given = [np.broadcast_to(self.operand(y, dtype), shape) for y in (x.value, x.expected) if y is not None]
        active = self.mask(x.mask, shape)
        if not self.nan and dtype.is_float:
            self.refuse_nan(target, active & np.isnan(given[0]))
        used = x.name in self.used
        before = self.memories[target.parameter].atomic(x.fn, target.offsets, active, given, self.number, used)
        if x.name:
            self.names[x.name] = before

    def print(self, text: str, values: Sequence[ir.Tile]) -> None:
        """As Triton does: a line for each element."""
        program = f"pid ({', '.join(map(str, self.program))})"
        for value in values or (None,):
            if value is None:
                print(f"{program} {text}")
                continue
            array = np.asarray(self.fresh(value))
            for place in np.ndindex(array.shape):
                print(f"{program} idx ({', '.join(map(str, place))}) {text}: {array[place]}")

    def claim(self, condition: ir.Tile, text: str) -> None:
        wrong = np.atleast_1d(~np.asarray(self.fresh(condition)))
        if wrong.any():
            raise Fault(first(wrong), f"the assertion failed: {text}" if text else "the assertion failed")

    def mask(self, mask: ir.Tile | None, shape: tuple[int, ...]) -> Any:
        return np.broadcast_to(True if mask is None else self.value(mask), shape)

    def fresh(self, tile: ir.Tile) -> Any:
        self.made.clear()
        return self.value(tile)

    def value(self, tile: ir.Tile) -> Any:
        found = self.made.get(id(tile))
        if found is None:
            found = self.made[id(tile)] = _EVALUATE[type(tile)](self, tile)
        return found

    def operand(self, tile: ir.Tile, dtype: DType) -> Any:
        """Return the value of an operand that meets others in a dtype."""
        if type(tile) is ir.Literal:
            return np.array(tile.value, dtype.numpy)
        return np.asarray(self.value(tile)).astype(dtype.numpy, copy=False)


def _load(run: Interpreter, x: ir.Load) -> Any:
    dtype = run.types.of(x).dtype
    pointer: Pointer = run.value(x.pointer)
    unspecified = poison(dtype) if run.checked else np.zeros((), dtype.numpy)
    other = unspecified if x.other is None else run.operand(x.other, dtype)
    active = run.mask(x.mask, pointer.offsets.shape)
    try:
        loaded = run.memories[pointer.parameter].load(pointer.offsets, active, other, run.number)
    except Fault as fault:
        fault.tile = x
        raise
    if not run.nan and dtype.is_float and not run.tainted:
        run.tainted = bool((np.isnan(loaded) & active).any())
    return loaded


def _apply(run: Interpreter, x: ir.Apply) -> Any:
    if run.types.of(x).pointer:
        return _moved(run, x)
    function = FUNCTIONS[x.fn].evaluate
    assert function is not None
    dtype = run.types.arguments(x)
    first_arg = run.value(x.args[0]) if x.fn == "where" else run.operand(x.args[0], dtype)
    args = [run.operand(a, dtype) for a in x.args[1:]]
    result = _rounded(function, dtype, [first_arg, *args])
    if x.fn == "inside":
        _report(run, result, first_arg, *args)
    if id(x) in run.positions and x.fn in ("add", "sub", "mul") and dtype.kind == "int":
        _overflow(x, function, [first_arg, *args], result)
    if not run.nan and dtype.is_float:
        run.note_nan(x, result, first_arg, *args)
    return np.asarray(result).astype(run.types.of(x).dtype.numpy, copy=False)


def _report(run: Interpreter, kept: Any, *given: Any) -> None:
    """Note the first index that is outside of its axis."""
    wrong = np.asarray(kept != given[0])
    for index, extent, number in zip(*(np.broadcast_to(a, wrong.shape)[wrong] for a in given), strict=True):
        run.index_faults.report(int(number), int(index), int(extent))


def _has_nan(x: Any) -> bool:
    array = np.asarray(x)
    return array.dtype.kind in "fV" and bool(np.isnan(array).any())


def _rounded(function: Callable[..., Any], dtype: DType, args: Sequence[Any]) -> Any:
    if dtype.is_float and dtype.bits == 16:
        args = [a if a.dtype == np.bool_ else a.astype(np.float32) for a in args]
    return function(*args)


def _overflow(x: ir.Apply, function: Callable[..., Any], args: Sequence[Any], result: Any) -> None:
    exact = function(*(np.asarray(a).astype(object) for a in args))
    wrong = np.asarray(exact != np.asarray(result).astype(object), np.bool_)
    if wrong.any():
        raise Fault(first(wrong), f"`{x}` overflows {np.asarray(result).dtype}")


def _moved(run: Interpreter, x: ir.Apply) -> Pointer:
    base, offset = (x.args[1], x.args[0]) if run.types.of(x.args[1]).pointer else x.args
    pointer: Pointer = run.value(base)
    distance = np.asarray(run.value(offset)).astype(np.int64)
    return Pointer(pointer.parameter, np.asarray(pointer.offsets + (distance if x.fn == "add" else -distance)))


def _reduce(run: Interpreter, x: ir.Reduce) -> Any:
    value = run.value(x.x)
    dtype = run.types.of(x).dtype.numpy
    return np.asarray(
        _rounded(lambda v: REDUCERS[x.fn].evaluate(v, axis=x.axis), run.types.of(x.x).dtype, [value])
    ).astype(dtype)


def _scan(run: Interpreter, x: ir.Scan) -> Any:
    accumulate = REDUCERS[x.fn].accumulate
    assert accumulate is not None
    dtype = run.types.of(x).dtype
    return _rounded(lambda v: accumulate(v, axis=x.axis, dtype=v.dtype), dtype, [run.value(x.x)]).astype(dtype.numpy)


def _dot(run: Interpreter, x: ir.Dot) -> Any:
    given = run.types.of(x.x).dtype
    dtype = dot_dtype(given).numpy
    precision = x.precision if given is float32 else "highest"
    result = product_at(run.value(x.x).astype(dtype), run.value(x.y).astype(dtype), precision, np.matmul)
    return result if x.accumulator is None else run.value(x.accumulator) + result


def _gather(run: Interpreter, x: ir.GatherAlongAxis) -> Any:
    value, index = np.asarray(run.value(x.x)), np.asarray(run.value(x.index)).astype(np.int64)
    outside = (index < 0) | (index >= value.shape[x.axis])
    if outside.any():
        lane = first(outside)
        raise Fault(lane, f"gather takes element {index[lane]} of an axis of {value.shape[x.axis]}")
    return np.take_along_axis(value, index, x.axis)


def _shaped(run: Interpreter, x: ir.Tile, change: Callable[[Any], Any]) -> Any:
    """Return a tile, or a tile of pointers, in another shape."""
    value = run.value(x)
    return value._replace(offsets=change(value.offsets)) if isinstance(value, Pointer) else change(value)


_EVALUATE: dict[type, Callable[[Interpreter, Any], Any]] = {
    ir.Name: lambda run, x: run.names[x.name],
    ir.Literal: lambda run, x: np.array(x.value, run.types.of(x).dtype.numpy),
    ir.ProgramId: lambda run, x: np.array(run.program[x.axis], np.int32),
    ir.NumPrograms: lambda run, x: np.array(run.grid[x.axis], np.int32),
    ir.Arange: lambda run, x: np.arange(x.start, x.stop, dtype=np.int32),
    ir.Load: _load,
    ir.Apply: _apply,
    ir.Cast: lambda run, x: convert(run.value(x.x), x.dtype),
    ir.Bitcast: lambda run, x: np.asarray(run.value(x.x)).copy().view(x.dtype.numpy),
    ir.Full: lambda run, x: np.full(x.shape, run.operand(x.value, x.dtype)),
    ir.ExpandDims: lambda run, x: _shaped(run, x.x, lambda v: np.expand_dims(v, x.axes)),
    ir.BroadcastTo: lambda run, x: _shaped(run, x.x, lambda v: np.broadcast_to(v, x.shape)),
    ir.Reshape: lambda run, x: _shaped(run, x.x, lambda v: np.reshape(v, x.shape)),
    ir.Trans: lambda run, x: _shaped(run, x.x, lambda v: np.transpose(v, x.permutation)),
    ir.Reduce: _reduce,
    ir.Scan: _scan,
    ir.Dot: _dot,
    ir.GatherAlongAxis: _gather,
}
