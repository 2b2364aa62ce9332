"""Implement `tg.jit`: a function is compiled to one program for each kind of arguments.

The first call with arguments of some kind runs the Python function once, on placeholders (`tracing.py`), and compiles
what it recorded (`specialised.py`). Later calls gather buffers, run the program, and wrap the results.

- Captured tensors that the function reads are inputs too; those it writes are updated in place; for a variable
  that it assigns, the old value is an input and the new value an output.
- Python numbers, among the arguments or captured, are constants; one that varies becomes an input.
- When a size varies, a second program is compiled for all its values at once (a symbol).
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import RLock
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, ParamSpec, TypeVar, overload
from weakref import WeakSet

import numpy as np

from ..deferred import part
from ..errors import ArgumentError, TilegradError, TraceError, check_callable
from ..functions.creation import tensor
from ..ir.dtype import float64
from ..ir.graph import TensorType
from ..ir.size import Size
from ..lazy.handle import mode, state, wrap
from ..lazy.storage import one_writer
from ..runtime.buffer import DeviceBuffer
from ..runtime.cache_pressure import shrinkers
from ..runtime.guarded import MISS
from ..runtime.singletons import lock
from ..tensor import Tensor
from ..tree import flatten
from .assigned_variables import NewVariables, variables_for, with_variables
from .captured_state import CapturedState, display_name, outside
from .numbers import may_vary, present
from .signature import CallArguments, differs_in_numbers, generalise, signature_of, varies
from .specialised import Specialised
from .variables import WatchedVariable

if TYPE_CHECKING:
    from ..compiler import Compiled
    from .fast_call import FastCall
    from .memory_budget import ProgramMemory

_fast_call = part("jitted.fast_call", "fast_call")
P = ParamSpec("P")
R = TypeVar("R")


def tracing() -> bool:
    """Whether a function is being traced."""
    return state.trace is not None


def host_scalar(read: Callable[[], float]) -> Tensor:
    """Wrap a number of the host in a zero-dimensional tensor that a traced function reads anew at every call."""
    if state.trace is None:
        return tensor(read(), dtype=float64)
    return wrap(state.trace.number(read, TensorType(float64, ())))


@overload
def jit(fn: Callable[P, R], *, tune: str | float | None = None, fit: str | float | None = None) -> Jitted[P, R]: ...
@overload
def jit(
    fn: None = None, *, tune: str | float | None = None, fit: str | float | None = None
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...
def jit(fn: Callable[P, R] | None = None, *, tune: str | float | None = None, fit: str | float | None = None) -> Any:
    """Run a function as one compiled program per kind of arguments.

    With `tune="20s"` variants of its kernels are measured for so long before the first call of each kind runs, and the
    fastest are stored in `kernels.lock`: docs/tuning.md.

    With `fit="2GB"` each program takes at most so much memory: values are recomputed for the gradients instead of
    stored where it would take more. The function's `memory` says what that costs.
    """
    seconds = 0.0
    if tune is not None:
        from .tuning import seconds_of  # loads the compiler

        seconds = seconds_of(tune)
    bytes = 0
    if fit is not None:
        from .memory_budget import bytes_of

        bytes = bytes_of(fit)
    return functools.partial(Jitted, tune=seconds, fit=bytes) if fn is None else Jitted(fn, seconds, bytes)


kernels: list[Callable[[Any], Any]] = []
"""Makes a tile kernel from a function; set by `tilegrad.language`."""
MAX_STALE_PROGRAMS = 32
"""Number of programs kept for an earlier state of captured variables, which may return."""
OF_KERNELS = frozenset("check race ir source asm report as_torch warmup compiled".split())


_functions: WeakSet[Jitted[..., Any]] = WeakSet()
_adding = lock()


def _forget_half() -> None:
    """Evict the older half of each function's programs, and the only one of every other function."""
    with _adding:
        functions = list(_functions)
    for n, function in enumerate(functions):
        kept = len(function.programs) // 2 if len(function.programs) != 1 else n % 2
        del function.programs[kept:]
        function.fast_call = None


shrinkers.append(_forget_half)


class Jitted(Generic[P, R]):
    """A function and its programs, newest first."""

    def __init__(self, fn: Callable[P, R], tune: float = 0.0, fit: int = 0) -> None:
        check_callable(fn, "jit")
        if inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
            raise ArgumentError(
                f"jit: {fn.__name__} is a generator or a coroutine, which is left and entered again: "
                "jit a function that returns its results at once"
            )
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.tune = tune
        """Remaining time for tuning, in seconds."""
        self.fit = fit
        """Memory budget of each program, in bytes; 0: none."""
        self.programs: list[Specialised] = []
        self.outside: CapturedState | None = None
        self.varying: set[int] = set()
        """Indices of numbers among the arguments that are inputs, because they varied."""
        self.varying_outside: set[int] = set()
        self.control_numbers: set[tuple[bool, int]] = set()
        """Numbers that control flow depends on, so that they cannot be inputs; with whether they are captured."""
        self.previous_values: dict[tuple[bool, int], float] = {}
        """The values that varying numbers had in another call."""
        self.reported: set[str] = set()
        """Reasons for missing programs that have been reported."""
        self.fast_call: FastCall | None = None
        self.untraceable: set[tuple[Any, ...]] = set()
        """Symbolic kinds for which the function cannot be traced."""
        self._one_at_a_time: tuple[int, AbstractContextManager[bool]] = os.getpid(), RLock()
        with _adding:
            _functions.add(self)

    def __get__(self, owner: object, cls: type | None = None) -> Any:
        """Bind a method to its object, with programs of its own."""
        if owner is None:
            return self
        name = f"_jitted_{self.fn.__name__}"
        kept = getattr(owner, "__dict__", {})
        found = kept.get(name)
        if found is None or found.fn.__self__ is not owner:  # a copy of an object has that of the original
            if isinstance(owner, type) or not hasattr(owner, "__dict__"):
                return MethodType(self, owner)
            found = kept[name] = Jitted(self.fn.__get__(owner, cls), self.tune, self.fit)
        return found

    @functools.cached_property
    def tile_kernel(self) -> Any:
        """Convert the function to a tile kernel: Triton scripts mark kernels with `jit`."""
        if not kernels:
            raise ArgumentError(
                f"jit: {self.__name__}[...] launches a kernel of the tile language: `import tilegrad.language as tl`, "
                "and mark the function with @tilegrad.kernel"
            )
        return kernels[0](self.fn)

    def __getitem__(self, grid: Any) -> Any:
        """Launch the function as a tile kernel: `f[grid](...)`."""
        return self.tile_kernel[grid]

    def __getattr__(self, name: str) -> Any:
        if name in OF_KERNELS and kernels:
            try:
                kernel = self.tile_kernel
            except TilegradError as error:  # a lambda, a method
                raise AttributeError(f"a jitted function that is no kernel has no {name}: {error}") from None
            return getattr(kernel, name)
        raise AttributeError(f"a jitted function has no attribute {name!r}")

    def __deepcopy__(self, copied: dict[int, Any]) -> Jitted[P, R]:
        return self

    def __reduce__(self) -> Any:
        """Pickle by name, as functions are; programs are compiled again."""
        fn: Any = self.fn
        if isinstance(fn, MethodType):
            return getattr, (fn.__self__, fn.__name__)
        named = getattr(sys.modules.get(fn.__module__), fn.__qualname__, None) if hasattr(fn, "__qualname__") else None
        return fn.__qualname__ if named is self else (Jitted, (fn, self.tune, self.fit))

    def __repr__(self) -> str:
        return f"<jitted {getattr(self.fn, '__qualname__', self.fn)}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if state.trace is not None or state.stand_ins or state.inspect is not None:
            return self.fn(*args, **kwargs)
        known = self.fast_call
        if known is not None and not kwargs and len(args) == known.arity:
            if known.assigns:
                with self._exclusively(), one_writer:
                    result = known.call(*args)
            elif known.writes:
                with self._exclusively():
                    result = known.call(*args)
            else:
                result = known.call(*args)
            if result is not MISS:
                return result  # type: ignore[no-any-return]
        made = self._find_program(self._call(args, kwargs))
        if made is not None and not made.program.outputs.write and not made.program.outputs.gradients:
            return self._run(made, args, kwargs)  # type: ignore[no-any-return]
        with self._exclusively():  # looked for again: another thread may have made what this one would have made anew
            made = self.prepared(*args, **kwargs)
            if made.program.traced.assigned:
                with one_writer:  # a function that is traced meanwhile has placeholders in variables, and restores them
                    return self._run(self.prepared(*args, **kwargs), args, kwargs)  # type: ignore[no-any-return]
            return self._run(made, args, kwargs)  # type: ignore[no-any-return]

    def _exclusively(self) -> AbstractContextManager[bool]:
        """Lock a call until the state that it traced is in place; a forked child, without a holder, has a new lock."""
        if self._one_at_a_time[0] != os.getpid():
            self._one_at_a_time = os.getpid(), RLock()
        return self._one_at_a_time[1]

    def _run(self, made: PreparedProgram, args: Any, kwargs: Any) -> Any:
        _, program, leaves, sizes = made
        if program.must_run_unjitted(leaves):
            return self.fn(*args, **kwargs)
        result = program(leaves, sizes)
        known, moves = self.fast_call, program.environment.moves
        if not kwargs and not sizes and (known is None or known.program is not program or known.moves != moves):
            self.fast_call = _fast_call and _fast_call(program, self.outside.numbers if self.outside else [])
        return result

    @property
    def memory(self) -> ProgramMemory | None:
        """The memory of the newest program, and the cost of rematerialisation; None before a call.

        >>> step = jit(lambda x: (x.exp() * 2).sum())
        >>> _ = step(tensor([1.0, 2.0]))
        >>> print(step.memory)
        peak 12 bytes: 0 bytes for temporaries, 8 bytes for inputs, 4 bytes for results
        """
        from .memory_budget import memory

        known = next((p for p in self.programs if not p.unjitted_reason), None)
        return None if known is None else memory(known.compiled, known.outputs.gradient_bytes)

    def prepared(self, *args: P.args, **kwargs: P.kwargs) -> PreparedProgram:
        """Return the program for these arguments, compiled if needed; it is not run."""
        call = self._call(args, kwargs)
        known = self._find_program(call)
        if known is not None:
            return known
        program, call = self._make_program(self._search_captured_state(call))
        sizes = program.signature.sizes(call)
        assert sizes is not None
        made = PreparedProgram(self, program, call.leaves, sizes)
        if program.unjitted_reason:
            return made
        if self.tune > 0:
            self._tune(program, sizes)
        for watcher in watchers:
            watcher(made)
        return made

    def _call(self, args: Any, kwargs: Any) -> CallArguments:
        """Collect the arguments and the captured numbers."""
        if self.outside is None:
            self.outside = outside(self.fn)
        leaves, structure = flatten((args, kwargs))
        return CallArguments(
            structure, [_converted(x) for x in leaves], [w.read() for w in self.outside.numbers], mode.enabled, ()
        )

    def _find_program(self, call: CallArguments) -> PreparedProgram | None:
        present.leaves = call.leaves
        for program in self.programs:
            found = program.match(call)
            if found is not None and program.environment.is_current():
                return PreparedProgram(self, program, *found)
        return None

    def _tune(self, program: Specialised, sizes: dict[str, int]) -> None:
        """Recompile a program with its kernels tuned in the remaining time."""
        from .tuning import tune_compiled  # loads the compiler

        start = time.perf_counter()
        program.compiled = tune_compiled(program.compiled, sizes, self.tune)
        self.tune -= time.perf_counter() - start

    def _search_captured_state(self, call: CallArguments) -> CallArguments:
        """Search the captured state again; programs whose numbers are at other places are dropped."""
        before, self.outside = self.outside, outside(self.fn, call.leaves)
        if before is None or [w.key() for w in before.numbers] != [w.key() for w in self.outside.numbers]:
            self.programs.clear()
            self.varying_outside.clear()
            self.control_numbers.clear()
            self.previous_values.clear()
        return CallArguments(
            call.structure, call.leaves, [w.read() for w in self.outside.numbers], call.recorded, call.variables
        )

    def _make_program(self, call: CallArguments) -> tuple[Specialised, CallArguments]:
        """Make a program for a call without one; variables that it assigns become inputs."""
        assert self.outside is not None
        more: list[WatchedVariable] = []
        while True:
            given = with_variables(call, variables_for(self.outside, self.programs, more))
            assert given is not None
            try:
                return self._specialise(given), given
            except NewVariables as found:
                more += found.places

    def _specialise(self, call: CallArguments) -> Specialised:
        """Specialise the function for a call without a program."""
        self._mark_varying_numbers(call)
        types = [x.value.type if isinstance(x, Tensor) else None for x in call.leaves]
        for known in self.programs if not self.fit else ():  # how much fits depends on the sizes
            symbolic = generalise(known.signature, call, types)
            if symbolic is None or tuple(symbolic) in self.untraceable or self._sizes_conflict(call, symbolic):
                continue
            try:
                made = self._traced(call, symbolic)
            except TraceError:
                raise
            except (TilegradError, ValueError, TypeError, AssertionError):
                self.untraceable.add(tuple(symbolic))
                continue
            sizes = made.signature.sizes(call)
            if sizes is not None and not made.sizes_fit(sizes):
                self.programs.append(made)  # for other calls
                continue
            self._say_what_varies(types, known.signature.types, symbolic)
            break
        else:
            made = self._traced(call, types)
        self.programs.insert(0, made)
        if len(self.programs) > MAX_STALE_PROGRAMS:
            stale = [p for p in self.programs if not p.environment.is_current()]
            self.programs = [p for p in self.programs if p not in stale[MAX_STALE_PROGRAMS:]]
        return made

    def _sizes_conflict(self, call: CallArguments, symbolic: list[TensorType | None]) -> bool:
        """Whether a symbolic program was compiled under size inequalities that do not hold in a call."""
        for program in self.programs:
            sizes = program.signature.sizes(call) if program.signature.types == symbolic else None
            if sizes is not None and not program.sizes_fit(sizes):
                return True
        return False

    def _traced(self, call: CallArguments, types: list[TensorType | None]) -> Specialised:
        """Trace with the varying numbers as inputs, except those that control flow depends on."""
        varying = [(False, n) for n in sorted(self.varying) if n < len(call.leaves) and may_vary(call.leaves[n])]
        varying += [(True, n) for n in sorted(self.varying_outside) if may_vary(call.numbers[n])]
        tried = [v for v in varying if v not in self.control_numbers]
        untraceable = self._trace_with_inputs(call, types, [])
        if untraceable.unjitted_reason:
            return self._plain(untraceable)
        points = [untraceable, *self._trace_previous_numbers(call, types, tried)] if tried else []
        if len(points) < 2:
            return untraceable.compile()
        made = self._trace_checked(call, types, tried, points)
        if made is not None:
            return made.compile()
        inputs: list[tuple[bool, int]] = []
        best = untraceable
        for v in tried:
            made = self._trace_checked(call, types, [*inputs, v], points) if len(tried) > 1 else None
            if made is None:
                self.control_numbers.add(v)
            else:
                best, inputs = made, [*inputs, v]
        return best.compile()

    def _plain(self, made: Specialised) -> Specialised:
        """Record that calls of a kind run without a program, whatever the values of changing numbers."""
        made.signature = made.signature.replaced(captured_inputs=made.traced.effects.written & self.varying_outside)
        if made.unjitted_reason not in self.reported:
            self.reported.add(made.unjitted_reason)
            print(f"tilegrad: {made.name} runs without a program: {made.unjitted_reason}", file=sys.stderr)
        return made

    def _trace_previous_numbers(
        self, call: CallArguments, types: list[TensorType | None], varying: list[tuple[bool, int]]
    ) -> list[Specialised]:
        """Trace with the values that varying numbers had in another call."""
        known = [p for p in self.programs if differs_in_numbers(p.signature, call, types)]
        if known:
            return known[:1]
        leaves, numbers = list(call.leaves), list(call.numbers)
        for is_captured, n in varying:
            given = numbers if is_captured else leaves
            before = self.previous_values.get((is_captured, n), given[n])
            if before.__class__ is not given[n].__class__:
                return []
            given[n] = before
        try:
            return [self._trace_with_inputs(call.replaced(leaves=leaves, numbers=numbers), types, [])]
        except Exception:  # what was a number for another call need not be one for this
            return []

    def _trace_with_inputs(
        self, call: CallArguments, types: list[TensorType | None], inputs: list[tuple[bool, int]]
    ) -> Specialised:
        """Trace with some numbers as inputs, without compiling."""
        assert self.outside is not None
        among, outside = ({n for is_captured, n in inputs if is_captured is wanted} for wanted in (False, True))
        with one_writer:  # until the placeholders in variables are gone, no other thread assigns to these
            return Specialised(
                self.fn, signature_of(call, types, among, outside), call.leaves, self.outside.refreshed(), self.fit
            )

    def _trace_checked(
        self,
        call: CallArguments,
        types: list[TensorType | None],
        inputs: list[tuple[bool, int]],
        points: list[Specialised],
    ) -> Specialised | None:
        """Trace with inputs, and compare with traces in which the numbers are constants."""
        try:
            made = self._trace_with_inputs(call, types, inputs)
        except Exception:  # whatever a function raises that cannot do with placeholders for numbers
            return None
        computes_same = part("jitted.equivalence", "computes_same")
        return made if computes_same and all(computes_same(made, point) for point in points) else None

    def _mark_varying_numbers(self, call: CallArguments) -> None:
        """Mark the numbers that differ from an otherwise equal call: they become inputs."""
        for program in self.programs:
            known = program.signature.call
            if known.structure != call.structure:
                continue
            for n, (x, before) in enumerate(zip(call.leaves, known.leaves, strict=True)):
                if varies(x, before):
                    self.varying.add(n)
                    self.previous_values[False, n] = before
            for n, (x, before) in enumerate(zip(call.numbers, known.numbers, strict=True)):
                if varies(x, before):
                    self.varying_outside.add(n)
                    self.previous_values[True, n] = before

    def _say_what_varies(self, now: list[Any], before: list[Any], symbolic: list[Any]) -> None:
        for n, (new, old, both) in enumerate(zip(now, before, symbolic, strict=True)):
            for axis, extent in enumerate(() if both is None else both.shape):
                if isinstance(extent, Size) and not isinstance(old.shape[axis], Size):
                    sizes = f"{old.shape[axis]}, {new.shape[axis]}"
                    where = f"{display_name(self.fn)}: axis {axis} of argument {n}"
                    print(f"tilegrad: {where} varies ({sizes}): compiled for all sizes", file=sys.stderr)
                    return


class PreparedProgram(NamedTuple):
    """A program of a jitted function, with the arguments of one call."""

    function: Jitted[..., Any]
    program: Specialised
    leaves: list[Any]
    sizes: dict[str, int]

    @property
    def compiled(self) -> Compiled:
        """The compiled program; an error for a function that runs without one."""
        if self.program.unjitted_reason:
            raise TraceError(
                f"{self.program.name} runs without a program, so that there is none to look at: "
                f"{self.program.unjitted_reason}"
            )
        return self.program.compiled

    def buffers(self) -> list[DeviceBuffer]:
        """Return the current buffers of all inputs of the program."""
        return self.program.buffers(self.leaves)


watchers: list[Callable[[PreparedProgram], None]] = []
"""Called when a function has been compiled for another kind of calls, before it runs."""


def _converted(x: Any) -> Any:
    """Convert an argument: numpy arrays to tensors, numpy scalars to numbers."""
    if isinstance(x, np.ndarray):
        return tensor(x)
    return x.item() if isinstance(x, np.generic) else x
