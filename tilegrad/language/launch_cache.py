"""Cache launches: a launch like an earlier one skips the binding and lookup of its arguments.

The kernel of a launch depends on the types of its tensors, on its constants, and on which arguments are the same
tensor. Once `KernelFunction.launch_anew` has found the kernel, a launch with the same key only inspects each argument
and calls. Everything less simple (a view, a tensor not in memory or with shared memory, a gradient, a wrong argument)
falls back to `launch_anew`, which computes, copies, records or refuses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from ..config import settings
from ..ir.dtype import DType
from ..ir.location import current_location
from ..ir.tile import TileParameter
from ..lazy.exclusive_memory import own_memory
from ..lazy.handle import Handle, mode, state
from ..lazy.storage import WriteRecord, one_writer, write_listeners
from ..runtime.executable import CompiledKernel
from .arguments import IGNORED_OPTIONS, MAX_PROGRAMS, BoundArguments
from .past_launch import PastLaunch, record_argument
from .tensors import allocate, note_write

if TYPE_CHECKING:
    from .kernel import KernelFunction, SpecialisedKernel

CONSTANT_CLASSES = frozenset({int, bool, float, str, DType, type(None)})
"""Classes of constants that are part of the cache key."""
INT32 = range(-(2**31), 2**31)
MAX_CACHED_LAUNCHES = 256
UNALLOCATED = object()
"""Key entry of a tensor made by `empty` that has no memory yet."""


class CachedLaunch(NamedTuple):
    """A cache entry: everything shared by the launches with one key."""

    found: SpecialisedKernel
    run: CompiledKernel
    order: tuple[int, ...]
    """The number of the argument for each parameter of the compiled kernel."""
    stored: tuple[int, ...]
    """Numbers of the arguments that the kernel writes."""
    fresh: tuple[int, ...]
    """Written arguments that may be tensors without memory yet."""
    given: tuple[int, ...]
    parameters: tuple[TileParameter, ...]
    """Arguments that are not constants, and their parameters."""
    constants: dict[str, Any]
    defaults: Mapping[str, Any]


def is_simple() -> bool:
    """Whether a launch runs at once: no tracer or listener is active."""
    return state.trace is None and not write_listeners and not settings().check


def call_form(kernel: KernelFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallForm:
    """Return the call form of a launch, interned."""
    written = (len(args), *kwargs)
    found = kernel.forms.get(written)
    if found is None:
        found = kernel.forms[written] = CallForm(kernel, len(args), tuple(kwargs))
    return found


class CallForm:
    """The syntactic form of a launch: the number of positional arguments, and the keyword names."""

    def __init__(self, kernel: KernelFunction, count: int, by_name: tuple[str, ...]) -> None:
        parameters = tuple(kernel.signature.parameters)
        self.names = (*parameters[:count], *by_name)
        self.hints = tuple([name for name in by_name if name in IGNORED_OPTIONS and name not in parameters])
        self.fixed = tuple([(n, kernel.is_static(x)) for n, x in enumerate(self.names) if x not in self.hints])
        """The arguments that the kernel does not ignore, and whether each is a constant."""
        self.plans: dict[tuple[Any, ...], CachedLaunch] = {}

    def key(self, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """Return the cache key, or None if the launch needs the full path."""
        marks: list[Any] = []
        tensors: list[int] = []
        place = None
        for n, fixed in self.fixed:
            x = values[n]
            kind = x.__class__
            if fixed or x is None:
                if kind not in CONSTANT_CLASSES:
                    return None
                marks += kind, x
            elif kind is int and x in INT32:
                marks.append(x == 1)
            elif kind in (float, bool):
                marks.append(kind)
            elif not is_plain_tensor(x):
                return None
            else:
                type = x._value.type
                if type.device != place is not None:
                    return None
                place = type.device
                tensors.append(id(x))
                marks.append(type.dtype)
                if x._value.buffer is None and (x._base is None or x._base.storage.owned is None):
                    marks.append(UNALLOCATED)
        if len(set(tensors)) != len(tensors):
            marks += map(tensors.index, tensors)
        return place, *marks

    def learn(self, key: tuple[Any, ...], found: SpecialisedKernel, call: BoundArguments, run: CompiledKernel) -> None:
        """Add a cache entry for this key, if the key covers everything that the launch depends on."""
        at = {name: n for n, name in enumerate(self.names)}
        given = {p.name: x for p, x in zip(call.parameters, call.given, strict=True)}
        differs = any(given[one] is not given[other] for one, other in call.same.items())
        if differs or found.read.hidden or call.several or not given.keys() <= at.keys():
            return
        loaded, stored = found.accesses.loaded, found.accesses.stored
        written = [p.name for p in found.ir.parameters if p.name in stored]
        fresh = [name for name in written if name not in loaded] if UNALLOCATED in key else []
        if len(self.plans) >= MAX_CACHED_LAUNCHES:
            self.plans.clear()
        self.plans[key] = CachedLaunch(
            found=found,
            run=run,
            order=tuple([at[p.name] for p in found.ir.parameters]),
            stored=tuple([at[name] for name in written]),
            fresh=tuple([at[name] for name in fresh]),
            given=tuple([at[name] for name in given]),
            parameters=call.parameters,
            constants=call.constants,
            defaults={name: x for name, x in call.named.items() if name not in at},
        )

    def again(self, kernel: KernelFunction, key: tuple[Any, ...], grid: Any, values: Sequence[Any]) -> bool:
        """Run from the cache; False on a miss."""
        plan = self.plans.get(key)
        if plan is None or (plan.found.read.captured and not plan.found.is_current()):
            return False
        extents = self.extents(plan, grid, values)
        if extents is None:
            return False
        with one_writer:
            for n in plan.fresh:
                allocate(values[n])
            before = {}
            for n in plan.stored:
                base = values[n]._base
                if base is None:
                    before[n] = own_memory(values[n])
                elif base.hidden:
                    return False
                elif base.storage.owned is None or ((lent := base.storage.lent) is not None and lent() is not None):
                    before[n] = own_memory(values[n])
            memory = [
                x
                if not isinstance(x := values[n], Handle)
                else x._value.buffer
                if (base := x._base) is None or base.storage.owned is None
                else base.storage.owned
                for n in plan.order
            ]
            if None in memory:
                return False
            given = tuple([record_argument(x) if isinstance(x := values[n], Handle) else x for n in plan.given])
            plan.found.last = PastLaunch(extents, plan.constants, plan.parameters, given, {})
            kernel.last = plan.found
            plan.run(memory, extents)
            _note_writes(plan, kernel.fn.__name__, values, before)
        return True

    def extents(self, plan: CachedLaunch, grid: Any, values: Sequence[Any]) -> tuple[int, ...] | None:
        """Return the extents of the grid, or None unless they are valid plain numbers."""
        if callable(grid):
            named = {**plan.defaults, **dict(zip(self.names, values, strict=True))}
            for hint in self.hints:
                del named[hint]
            try:
                grid = grid(named)
            except KeyError:
                return None
        found = grid if grid.__class__ is tuple else tuple(grid) if grid.__class__ is list else (grid,)
        total = 1
        for extent in found:
            if extent.__class__ is not int or extent < 1:
                return None
            total *= extent
        return found if 1 <= len(found) <= 3 and total <= MAX_PROGRAMS else None


def _note_writes(plan: CachedLaunch, name: str, values: Sequence[Any], before: dict[int, Any]) -> None:
    for n in plan.stored:
        if n in before:
            note_write(name, values[n], before[n])
        else:
            note_changed(values[n], name)


def is_plain_tensor(x: Any) -> bool:
    """Whether x is a tensor that is contiguous, up to date, in memory or made by `empty`, and needs no gradient."""
    if not isinstance(x, Handle):
        return False
    base = x._base
    owned = None
    if x._strides is not None:
        return False
    if base is not None:
        if x._moves:
            return False
        owned = base.storage.owned
        if owned is None and x._seen != base.storage.changes:
            x.own_value()
    value = x._value
    if value.tracked and mode.enabled:
        return False
    if owned is None and value.buffer is None:
        return value.provenance.is_uninitialised and value.type.count != 0
    return not value.provenance.is_number


def note_changed(x: Any, name: str) -> None:
    """Note that a tensor's elements have changed (see `tensors.note_write`); nobody holds its old value."""
    base = x._base
    storage = base.storage
    storage.change = WriteRecord(name, current_location(), ref(base.value))
    if storage.value.provenance.severed:
        storage.value.note().severed = ""
    storage.version += 1
    storage.changes += 1
    base.seen = storage.changes
