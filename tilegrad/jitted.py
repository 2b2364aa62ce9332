"""`tg.jit`: a function becomes one program for each kind of arguments that it meets.

The first call with arguments of some kind runs the Python function once, on placeholders (`tracing.py`),
and compiles what it recorded. Later calls gather memory, run the program, and hand out results.

- Tensors that the function reads from outside are inputs too; those it writes are updated in place.
- Python numbers among the arguments are taken as they are; one that varies becomes an input.
- When a size varies, a second program is compiled for all its values at once (a symbol).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar, overload

from .compiler import Compiled, compile
from .creation import tensor
from .errors import TilegradError, TraceError
from .handle import state, wrap
from .ir.dtype import float64, int64
from .ir.graph import Graph, Input, TensorType, Value
from .ir.size import Dim, Size
from .realize import plain_graph, realize
from .runtime.buffer import Buffer
from .runtime.device import Runner, device
from .storage import Base, replaced
from .tensor import Tensor
from .tracing import Trace
from .tree import flatten, unflatten

P = ParamSpec("P")
R = TypeVar("R")


def tracing() -> bool:
    """Whether a function is being traced."""
    return state.trace is not None


def host_scalar(read: Callable[[], float]) -> Tensor:
    """A number of the host as a 0-d tensor, which a traced function reads anew at every call."""
    if state.trace is None:
        return tensor(read(), dtype=float64)
    return wrap(state.trace.number(read, TensorType(float64, ())))  # type: ignore[attr-defined]


@overload
def jit(fn: Callable[P, R]) -> Jitted[P, R]: ...
@overload
def jit(fn: None = None) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def jit(fn: Callable[P, R] | None = None) -> Any:
    """Makes a function run as one compiled program per kind of arguments."""
    return Jitted if fn is None else Jitted(fn)


class Number:
    """Stands in a signature for a number that is an input."""

    def __init__(self, type: type) -> None:
        self.type = type

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and other.type is self.type

    def __hash__(self) -> int:
        return hash(self.type)


class Jitted(Generic[P, R]):
    """A function and its programs."""

    def __init__(self, fn: Callable[P, R]) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.programs: list[Specialised] = []
        self.varying_numbers: set[int] = set()
        self.fixed_sizes: set[tuple[Any, ...]] = set()

    def __get__(self, owner: object, cls: type | None = None) -> Any:
        """As a method: bound to its object, one set of programs for each."""
        if owner is None:
            return self
        name = f"_jitted_{self.fn.__name__}"
        found = owner.__dict__.get(name)
        if found is None:
            found = owner.__dict__[name] = Jitted(self.fn.__get__(owner, cls))
        return found

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if state.trace is not None:
            return self.fn(*args, **kwargs)
        leaves: list[Any] = []
        shape = flatten((args, kwargs), leaves)
        for program in self.programs:
            sizes = program.fits(shape, leaves)
            if sizes is not None:
                return program.call(leaves, sizes)  # type: ignore[no-any-return]
        program = self._specialise(args, kwargs, shape, leaves)
        sizes = program.fits(shape, leaves)
        assert sizes is not None
        for watcher in watchers:
            watcher(Prepared(self, program, leaves, sizes))
        return program.call(leaves, sizes)  # type: ignore[no-any-return]

    def prepared(self, *args: Any, **kwargs: Any) -> Prepared:
        """The program for these arguments, compiled if need be, not run."""
        leaves: list[Any] = []
        shape = flatten((args, kwargs), leaves)
        for program in self.programs:
            sizes = program.fits(shape, leaves)
            if sizes is not None:
                return Prepared(self, program, leaves, sizes)
        program = self._specialise(args, kwargs, shape, leaves)
        sizes = program.fits(shape, leaves)
        assert sizes is not None
        return Prepared(self, program, leaves, sizes)

    def _specialise(self, args: Any, kwargs: Any, shape: Any, leaves: list[Any]) -> Specialised:
        """Traces the function for arguments that no program fits."""
        self._notice_numbers(shape, leaves)
        types = [_type_of(x) if isinstance(x, Tensor) else None for x in leaves]
        for known in self.programs:
            symbolic = _generalised(known, shape, leaves, types)
            if symbolic is None or tuple(symbolic) in self.fixed_sizes:
                continue
            try:
                made = self._traced(args, kwargs, shape, leaves, symbolic)
            except (TilegradError, ValueError, TypeError, AssertionError) as problem:
                if isinstance(problem, TraceError):
                    raise
                self.fixed_sizes.add(tuple(symbolic))
                continue
            self._say_what_varies(types, known.types, symbolic)
            self.programs.insert(0, made)
            return made
        made = self._traced(args, kwargs, shape, leaves, types)
        self.programs.insert(0, made)
        return made

    def _notice_numbers(self, shape: Any, leaves: list[Any]) -> None:
        """Marks numbers that were different in an otherwise equal call: they become inputs."""
        for known in self.programs:
            if known.shape != shape:
                continue
            for n, (x, before) in enumerate(zip(leaves, known.leaves, strict=True)):
                if type(x) in (int, float) and type(before) is type(x) and x != before:
                    self.varying_numbers.add(n)

    def _traced(self, args: Any, kwargs: Any, shape: Any, leaves: list[Any], types: list[Any]) -> Specialised:
        numbers = {n for n in self.varying_numbers if n < len(leaves) and type(leaves[n]) in (int, float)}
        try:
            return Specialised(self.fn, shape, leaves, types, numbers)
        except TraceError:
            if not numbers:
                raise
            self.varying_numbers -= numbers  # its value decides what is computed: one program for each
            return Specialised(self.fn, shape, leaves, types, set())

    def _say_what_varies(self, now: list[Any], before: list[Any], symbolic: list[Any]) -> None:
        for n, (new, old, both) in enumerate(zip(now, before, symbolic, strict=True)):
            if both is None:
                continue
            for axis, extent in enumerate(both.shape):
                if isinstance(extent, Size) and not isinstance(old.shape[axis], Size):
                    name = getattr(self.fn, "__name__", "function")
                    sizes = f"{old.shape[axis]}, {new.shape[axis]}"
                    print(
                        f"tilegrad: {name}: axis {axis} of argument {n} varies ({sizes}): compiled for all sizes",
                        file=sys.stderr,
                    )
                    return


class Prepared(NamedTuple):
    """A program of a jitted function with the arguments of one call."""

    function: Jitted[..., Any]
    program: Specialised
    leaves: list[Any]
    sizes: dict[str, int]

    def buffers(self) -> list[Buffer]:
        """The memory of all inputs of the program, as it is now."""
        return self.program._buffers(self.leaves)


watchers: list[Callable[[Prepared], None]] = []
"""Who is told when a function was compiled for another kind of arguments, before it runs."""


class Specialised:
    """One program of a jitted function, and how arguments become its inputs."""

    def __init__(
        self, fn: Callable[..., Any], shape: Any, leaves: list[Any], types: list[Any], numbers: set[int]
    ) -> None:
        self.shape = shape
        self.types = types
        self.leaves = [None if isinstance(x, Tensor) else x for x in leaves]
        self.numbers = numbers
        self.tracked = [x._value.tracked if isinstance(x, Tensor) else False for x in leaves]
        self.symbols = any(isinstance(d, Size) for t in types if t is not None for d in t.shape)
        self.runners: dict[tuple[tuple[str, int], ...], Runner] = {}
        trace = Trace()
        try:
            self._trace(trace, fn, leaves)
        finally:
            trace.finish()
        self._compile(trace, getattr(fn, "__name__", "function"))

    def _trace(self, trace: Trace, fn: Callable[..., Any], leaves: list[Any]) -> None:
        """Runs the function on placeholders."""
        self.placeholders: list[Input | None] = []
        self.arguments: list[Tensor | None] = []
        with trace:
            stand_ins = [self._stand_in(n, x) for n, x in enumerate(leaves)]
            args, kwargs = unflatten(self.shape, iter(stand_ins))
            self.results: list[Any] = []
            self.result_shape = flatten(fn(*args, **kwargs), self.results)
            self.result_values = [r.value if isinstance(r, Tensor) else None for r in self.results]
        self.changed_arguments = [
            n
            for n, (t, p) in enumerate(zip(self.arguments, self.placeholders, strict=True))
            if t is not None and t._base is not None and t._base.storage.version > 0 and p is not None
        ]

    def _stand_in(self, n: int, x: Any) -> Any:
        type = self.types[n]
        if type is None and n in self.numbers:
            type = TensorType(float64 if isinstance(x, float) else int64, ())
        if type is None:
            self.placeholders.append(None)
            self.arguments.append(None)
            return x
        placeholder = Input(type, f"x{n}")
        made = wrap(placeholder)
        if isinstance(x, Tensor) and x.requires_grad:
            made.requires_grad_()
        self.placeholders.append(placeholder)
        self.arguments.append(made)
        return made

    def _compile(self, trace: Trace, name: str) -> None:
        """Makes the program: inputs are arguments, captured tensors, numbers and constants, in this order."""
        self.captured = [c.base for c in trace.captured.values()]
        self.host = [n.read for n in trace.numbers]
        given: list[Value] = [p for p in self.placeholders if p is not None]
        given += [c.placeholder for c in trace.captured.values()] + [n.placeholder for n in trace.numbers]
        self.gradients = trace.changed_gradients
        outputs = [v for v in self.result_values if v is not None]
        outputs += [t.own_value() for n in self.changed_arguments if (t := self.arguments[n]) is not None]
        outputs += [g.own_value() for _, g in self.gradients if g is not None]
        position = {c.placeholder: n for n, c in enumerate(trace.captured.values())}
        updates: dict[int, int] = {}
        first = sum(p is not None for p in self.placeholders)
        for key, captured in trace.captured.items():
            if key in trace.written:
                updates[len(outputs)] = first + position[captured.placeholder]
                outputs.append(trace.finals[key])
        self.updated = [position[trace.captured[k].placeholder] for k in trace.captured if k in trace.written]
        graph, constants = plain_graph(outputs, given)
        self.constants: list[Buffer] = constants
        self.compiled: Compiled = compile(graph, updates, name)

    def fits(self, shape: Any, leaves: list[Any]) -> dict[str, int] | None:
        """The sizes that arguments give to the symbols of the program, or None if it is not for them."""
        if shape != self.shape:
            return None
        sizes: dict[str, int] = {}
        for n, x in enumerate(leaves):
            type = self.types[n]
            if type is not None:
                if x.__class__ is not Tensor and not isinstance(x, Tensor):
                    return None
                have = x._value.type
                if (
                    have is not type and have != type and not _binds(type, have, sizes)
                ) or x._value.tracked != self.tracked[n]:
                    return None
            elif n not in self.numbers:
                known = self.leaves[n]
                if isinstance(x, Tensor) or (x is not known and (type_differs(x, known) or x != known)):
                    return None
            elif type_differs(x, self.leaves[n]):
                return None
        return sizes

    def call(self, leaves: list[Any], sizes: dict[str, int]) -> Any:
        """Runs the program."""
        key = tuple(sizes.items())
        runner = self.runners.get(key)
        if runner is None:
            runner = self.runners[key] = self.compiled.executable.bound(sizes)
        buffers = self._buffers(leaves)
        made = runner(buffers)
        return self._results(leaves, made, sizes)

    def _buffers(self, leaves: list[Any]) -> list[Buffer]:
        """The memory of all inputs."""
        buffers = []
        for n, placeholder in enumerate(self.placeholders):
            if placeholder is not None:
                x = leaves[n]
                buffers.append(
                    _memory(x.value) if n not in self.numbers else _memory(tensor(x, dtype=placeholder.dtype).value)
                )
        for n, base in enumerate(self.captured):
            buffers.append(self._captured_memory(n, base))
        for read in self.host:
            buffers.append(_memory(tensor(read(), dtype=float64).value))
        return buffers + self.constants

    def _captured_memory(self, n: int, base: Base) -> Buffer:
        value = base.current()
        if n in self.updated and _others_hold(value):
            value = _renewed(base, value)
        return _memory(value)

    def _results(self, leaves: list[Any], made: Sequence[Buffer], sizes: Mapping[str, int]) -> Any:
        outputs = iter(made)
        results = []
        for r, value in zip(self.results, self.result_values, strict=True):
            results.append(r if value is None else _held(value, next(outputs), sizes))
        for n in self.changed_arguments:
            argument = self.arguments[n]
            assert argument is not None
            leaves[n].write(_held(argument._value, next(outputs), sizes)._value, "jit")
        for holder, gradient in self.gradients:
            holder._gradient = None if gradient is None else _held(gradient._value, next(outputs), sizes)
        for n in self.updated:
            self.captured[n].storage.version += 1
        return unflatten(self.result_shape, iter(results))


def _held(value: Value, buffer: Buffer, sizes: Mapping[str, int]) -> Tensor:
    """A tensor on memory that a program filled."""
    type = value.type
    if sizes:
        type = type.with_shape(tuple(d.value(sizes) if isinstance(d, Size) else d for d in type.shape))
    made = Input(type)
    made.hold(buffer)
    return wrap(made)


def _memory(value: Value) -> Buffer:
    if value.buffer is None:
        realize([value])
    return value.buffer  # type: ignore[no-any-return]


def _others_hold(value: Value) -> bool:
    """Whether something recorded, but not computed yet, reads the memory that is about to be overwritten."""
    owned = value.__dict__.get("references")
    return owned is None or sys.getrefcount(value) > owned


def _renewed(base: Base, value: Value) -> Value:
    """Gives a storage memory of its own with the same elements, so that only its tensors see the update."""
    fresh = Input(value.type)
    fresh.hold(device(value.device).copy(_memory(value)))
    new = replaced(value, fresh)
    new.hold(fresh.buffer)
    base.value = base.storage.value = new
    base.storage.changes += 1
    base.seen = base.storage.changes
    new.__dict__["references"] = sys.getrefcount(new)
    return new


def type_differs(x: object, y: object) -> bool:
    return x.__class__ is not y.__class__


def _type_of(x: Tensor) -> TensorType:
    return x.value.type


def _binds(type: TensorType, have: TensorType, sizes: dict[str, int]) -> bool:
    """Whether a type with symbols fits one without, and what the symbols then are."""
    if type.dtype is not have.dtype or len(type.shape) != len(have.shape) or type.device != have.device:
        return False
    for wanted, extent in zip(type.shape, have.shape, strict=True):
        if isinstance(wanted, Size):
            (name,) = wanted.names()
            if type_differs(extent, 0) or extent < 2 or sizes.setdefault(name, extent) != extent:  # type: ignore[operator]
                return False
        elif wanted != extent:
            return False
    return True


def _generalised(known: Specialised, shape: Any, leaves: list[Any], types: list[Any]) -> list[Any] | None:
    """Types in which the sizes that differ from those of a known program are symbols, or None."""
    if known.shape != shape:
        return None
    names: dict[tuple[Dim, Dim], Size] = {}
    result: list[Any] = []
    for _x, type, before in zip(leaves, types, known.types, strict=True):
        if type is None or before is None:
            if type is not before:
                return None
            result.append(None)
            continue
        if type.dtype is not before.dtype or len(type.shape) != len(before.shape):
            return None
        extents: list[Dim] = []
        for new, old in zip(type.shape, before.shape, strict=True):
            if new == old:
                extents.append(new)
            elif isinstance(old, Size) or old < 2 or new < 2:
                return None
            else:
                extents.append(
                    names.setdefault((old, new), Size.named("nmpq"[len(names) % 4] + "_" * (len(names) // 4)))
                )
        result.append(type.with_shape(tuple(extents)))
    return result if names else None


__all__ = ["Graph", "Jitted", "host_scalar", "jit", "tracing"]
