"""Realize tensors: compute recorded values into memory.

The recorded graph is looked up by its structure, so that code that runs again (the next step of a training loop) finds
its program in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import filterfalse
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..compiler import Compiled, compile
from ..config import settings
from ..deferred import part
from ..errors import ShapeError, TraceError
from ..ir.dtype import bool_
from ..ir.graph import Graph, Input, TensorType, Value, topological
from ..ir.node import amend
from ..ir.size import Size
from ..ops.arithmetic import Add, Div, Mul, Sub
from ..ops.broadcasting import Fill, number_key
from ..ops.movement import Slice
from ..runtime.buffer import DeviceBuffer
from ..runtime.cache_pressure import shrinkers
from ..runtime.device import Device, device
from ..runtime.executable import Runner
from ..runtime.garbage_collection import collected_seldom
from ..runtime.singletons import lock
from ..transform.share import on_inputs
from .handle import state, watching

Key: TypeAlias = tuple[Any, ...]


class StructureKey(tuple[Any, ...]):
    """The key of a structure, hashed once: it is looked up again and again, and that of a long loop is large."""

    def __hash__(self) -> int:
        own = vars(self)
        return own["hash"] if own else own.setdefault("hash", super().__hash__())  # type: ignore[no-any-return]


class Numbers(NamedTuple):
    """The numbers in graphs of one structure."""

    first: Key
    """Numbers of the first graph."""
    varied: frozenset[int]
    """Indices of those that have varied since. A number that changes from step to step (a rate, a power of one) would
    otherwise compile a program at every step.
    """

    def compared(self, exactly: Key) -> Numbers:
        """Add the indices of numbers that differ from the first ones."""
        differ = {n for n, (x, y) in enumerate(zip(exactly, self.first, strict=True)) if x != y}
        return Numbers(self.first, self.varied | differ)


_programs: dict[Key, tuple[Compiled, Runner]] = {}
_numbers: dict[Key, Numbers] = {}
MIXED = (Add, Sub, Mul, Div)
"""Ops that accept a number in memory as well as a literal: a power, say, does not."""
_lock = lock()
MAX_PROGRAMS = 4096


def realize(values: Sequence[Value]) -> None:
    """Compute values in one program and attach their memory."""
    wanted = [v for v in dict.fromkeys(values) if v.buffer is None]
    try:
        places = {v.type.device for v in wanted}
        with collected_seldom() if len(wanted) > 1 or (wanted and wanted[0].tracked) else nullcontext():
            for place in places:
                _realize_on_one_device([v for v in wanted if v.type.device == place] if len(places) > 1 else wanted)
    except Exception:
        for v in topological(wanted, lambda v: v.buffer is not None):
            v.note().attempt = "failed"  # `timing` does not try it again: only who looks does
        raise
    if state.inspect is not None:
        state.inspect(wanted)


def _realize_on_one_device(wanted: list[Value]) -> None:
    key, order, leaves, numbers = structure(wanted)
    place, choose = device(wanted[0].device), part("lazy.held_intermediates", "kept_values")
    kept = {} if choose is None else choose(order, wanted, leaves)
    if kept:
        numbered = {v: n for n, v in enumerate(order)}
        key = StructureKey((*key[:-1], (*key[-1], *[numbered[v] for v in kept])))
        wanted = [*wanted, *kept]
    buffers: list[DeviceBuffer] = [v.buffer for v in leaves]
    known = part("lazy.known_programs", "known")
    found, compiled = None if known is None else known.find(key, numbers), None
    if found is None:
        with _lock:
            plan = None if settings().tier == "compiled" else _plan(key, order, numbers, place)
            if plan is None:
                try:
                    (compiled, runner), given = _program(key, order, numbers)
                    _note_known(known, key, numbers, runner, compiled)
                except Exception as e:
                    plan = _plan_despite(key, order, place, e)
        found = (runner, given) if plan is None else (plan.run, numbers)
    runner, given = found
    if given:
        buffers += [place.from_host(np.asarray(v.value, v.dtype.numpy)) for v in given]
    if compiled is not None and compiled.elsewhere:
        buffers = compiled.brought(buffers)
    for value, buffer in zip(wanted, runner(buffers), strict=True):
        value.hold(buffer.device.copy(buffer) if buffer.shared else buffer)  # an input: others may write there
    for after in part("lazy.held_intermediates", "after_keeping") if kept else ():
        after(kept)
    if watching() is not None:
        for v in order:
            v.note().attempt = "done"  # `timing` does not compute it once more


def _plan_despite(key: Key, order: Sequence[Value], place: Device, error: Exception) -> Any:
    """Return the plan by which a graph runs that cannot be compiled; raise the error if there is none."""
    go_on = part("first_tier.decision", "plan_despite")
    plan = None if go_on is None else go_on(key, order, place, error)
    if plan is None:
        raise error
    return plan


def _note_known(known: Any, key: Key, numbers: Sequence[Fill], runner: Runner, compiled: Compiled) -> None:
    """Note the program of a graph, which one look-up finds the next time."""
    if known is not None and not compiled.elsewhere:
        exactly = tuple([number_key(v.value) for v in numbers])
        known.add(key, runner, exactly, _compared(key, exactly).varied)


def _plan(key: Key, order: Sequence[Value], numbers: Sequence[Fill], place: Device) -> Any:
    """Return the plan by which a graph runs in the first tier; None if it runs compiled."""
    decide, knobs = part("first_tier.decision", "plan_for"), settings()
    exactly = tuple([number_key(v.value) for v in numbers])
    is_counted = decide is not None and knobs.tier == "counted"
    if is_counted and _fixed(key, exactly, _compared(key, exactly)) not in _programs:
        if _for_all_sizes(key, order, numbers, part("first_tier.decision", "sizes_to_compile")(order)):
            return None
    plan = None if decide is None else decide(key, order, place)
    if plan is not None and numbers:
        while len(_numbers) >= MAX_PROGRAMS:
            del _numbers[next(iter(_numbers))]
        _numbers[key] = _compared(key, exactly)  # compiled, it takes what varied
    return plan


def _program(key: Key, order: Sequence[Value], numbers: Sequence[Fill]) -> tuple[tuple[Compiled, Runner], list[Fill]]:
    """Find or compile the program for a graph, and the numbers passed to it: those that have varied."""
    exactly = tuple([number_key(v.value) for v in numbers])
    first, varied = compared = _compared(key, exactly)
    given = [v for n, v in enumerate(numbers) if n in varied]
    fixed = _fixed(key, exactly, compared)
    known = _programs.get(fixed)
    if known is None:
        if len(_programs) >= MAX_PROGRAMS:
            _forget_half()
        if any(isinstance(extent, Size) for v in order for extent in v.shape):
            raise ShapeError("the elements of a tensor are asked for whose extents vary")  # `jit` takes each by itself
        if not _for_all_sizes(key, order, numbers):
            compiled = compile(_graph_of(key, order, given))
            _programs[fixed] = compiled, compiled.executable.bound()
            _numbers[key] = Numbers(first, varied)
        return _program(key, order, numbers)
    return known, given


def _for_all_sizes(key: Key, order: Sequence[Value], numbers: Sequence[Fill], meetings: int = 0) -> bool:
    """Whether a graph runs by a program for all sizes, made now if graphs of other sizes have been met so often."""
    exactly = tuple([number_key(v.value) for v in numbers])
    find = part("lazy.varying_sizes", "symbolic_program")
    found = None if find is None else find(key, order, numbers, Numbers(exactly, frozenset()), meetings)
    if found is not None:
        _programs[_fixed(key, exactly, found.numbers)] = found.compiled, found.compiled.executable.bound(found.sizes)
        _numbers[key] = found.numbers
    return found is not None


def _fixed(key: Key, exactly: Key, numbers: Numbers) -> Key:
    """Return the key of a program, with the numbers that are no inputs of it."""
    return key, tuple([None if n in numbers.varied else x for n, x in enumerate(exactly)])


def _compared(key: Key, exactly: Key) -> Numbers:
    """Compare the numbers of a graph with those of the first graph of its structure."""
    return _numbers.get(key, Numbers(exactly, frozenset())).compared(exactly)


def _forget_half() -> None:
    """Evict the older half of the programs."""
    with _lock:
        for known in list(_programs)[: (len(_programs) + 1) // 2]:
            del _programs[known]
            _numbers.pop(known[0], None)


shrinkers.append(_forget_half)


def compiled_programs() -> list[Compiled]:
    """List the programs compiled for evaluated tensors."""
    return [compiled for compiled, _ in _programs.values()]


def undetermined(value: Value) -> TraceError:
    """Build the error for reading a value that depends on the arguments of a traced function."""
    if state.trace is None:
        return TraceError(
            f"the elements of a tensor are asked for that depend on a placeholder ({value}: {value.type}): on an "
            "argument of a function while vmap maps it, where a choice is written with tilegrad.where; or it was kept "
            "from a function that jit traced, and is used outside of it. Return it from the function"
        )
    return TraceError(
        "the elements of a tensor are asked for while a jitted function is traced, but depend on what it will be "
        f"called with ({value}: {value.type}). For a choice that depends on data write tilegrad.where or "
        "tilegrad.cond, for a loop tilegrad.while_loop or tilegrad.scan; to print or log, return the tensor and look "
        "at it outside"
    )


def structure(wanted: Sequence[Value]) -> tuple[Key, list[Value], list[Value], list[Fill]]:
    """Return the cache key of a graph apart from the numbers mixed into it; its values in order, its inputs in memory,
    and those numbers.
    """
    number: dict[Value, int] = {}
    leaves: list[Value] = []
    numbers: dict[Fill, int] = {}
    fixed: set[Value] = set(wanted)
    key: list[Any] = []
    stack = list(reversed(wanted))
    is_numbered, number_of = number.__contains__, number.__getitem__
    while stack:
        value = stack[-1]
        if value in number:
            stack.pop()
            continue
        own = value.__dict__
        if type(value) is Slice and own.get("buffer") is None:
            copy_rows = part("lazy.copied_rows", "copy_rows")
            if copy_rows is not None:
                copy_rows(value, realize)
        if own.get("buffer") is not None:
            stack.pop()
            key.append(own["type"])
            leaves.append(value)
            number[value] = len(number)
            continue
        inputs = own["inputs"]
        waiting = [*filterfalse(is_numbered, inputs)]
        if waiting:
            waiting.reverse()
            stack.extend(waiting)
            continue
        stack.pop()
        if not inputs and isinstance(value, Input):
            raise undetermined(value)
        if type(value) is Fill and not value.declared.shape and value.declared.dtype is not bool_:
            numbers[value] = len(key)
        elif numbers and type(value) not in MIXED:
            fixed.update(inputs)
        key.append((type(value), value.attributes, *map(number_of, inputs)))
        number[value] = len(number)
    loose = [v for v in numbers if v not in fixed]
    for v in loose:
        key[numbers[v]] = Fill, v.declared
    key.append(tuple([number[v] for v in wanted]))
    return StructureKey(key), list(number), leaves, loose


def _graph_of(key: Key, order: Sequence[Value], given: Sequence[Value]) -> Graph:
    """Rebuild the graph of a key with plain inputs, so that the program keeps no memory alive. The edges come from the
    key: other threads may have computed some values meanwhile.
    """
    made: list[Value] = []
    leaves: list[Value] = []
    count = sum(isinstance(entry, TensorType) for entry in key)
    numbers: dict[Value, Value] = {v: Input(v.type, f"x{count + n}") for n, v in enumerate(given)}
    for value, entry in zip(order, key, strict=False):
        if value in numbers:
            made.append(numbers[value])
        elif isinstance(entry, TensorType):
            leaves.append(Input(entry, f"x{len(leaves)}"))
            made.append(leaves[-1])
        else:
            made.append(_copied(value, tuple([made[n] for n in entry[2:]])))
    return Graph((*leaves, *numbers.values()), tuple([made[n] for n in key[-1]]))


def plain_graph(outputs: Sequence[Value], given: Sequence[Value]) -> tuple[Graph, list[DeviceBuffer]]:
    """Build a graph from given placeholders and whatever is in memory (as further inputs, with their memory)."""
    leaves = topological(outputs, lambda v: v.buffer is not None)
    placeholders = set(given)
    constants = [v for v in leaves if v.buffer is not None and v not in placeholders]
    new: dict[Value, Value] = {v: v for v in given}
    new |= {v: Input(v.type, f"constant{n}") for n, v in enumerate(constants)}
    inputs = tuple(new.values())
    return Graph(inputs, tuple(_rebuilt(outputs, new))), [v.buffer for v in constants]


def _rebuilt(outputs: Sequence[Value], new: dict[Value, Value]) -> list[Value]:
    for value in topological(outputs, new.__contains__):
        if value not in new:
            new[value] = _copied(value, tuple([new[x] for x in value.inputs]))
    return [new[v] for v in outputs]


def _copied(value: Value, inputs: tuple[Value, ...]) -> Value:
    """Copy an op, so that the copy stays without memory when the original is computed."""
    if inputs:
        return on_inputs(value, inputs)
    if isinstance(value, Input):
        return value
    made: Value = value.replaced()
    amend(made, location=value.location)
    return made
