"""Generate direct calls of C++ functions on tensors in memory, without graph or program lookup.

Everything but addresses and numbers depends on the tensor types alone and is found once, by `CppFunction.prepared`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from ..config import settings
from ..lazy import handle
from ..lazy.result_template import ResultTemplate, wrap_source
from ..runtime import events
from ..runtime.device import device
from ..runtime.guarded import GuardedCall

if TYPE_CHECKING:
    from .function import CppFunction, PreparedCppCall

Ready = dict[tuple[Any, ...], tuple[Any, ...]]
"""Prepared calls by tensor types and integer arguments."""
Direct = Callable[[Ready, tuple[Any, ...], bool], Any]
"""The generated function, from prepared calls, arguments, and whether to ignore gradients, to results; None: fall back.
"""
TENSOR_WORDS = 5
"""Words of a `tg_tensor`; the first is the address of its elements."""


def parameter_letters(function: CppFunction) -> str:
    """Return one letter per parameter: t tensor, f float, i other number."""
    letters = (p.type.dtype.is_float for p in function.signature.scalars)  # type: ignore[union-attr]
    return "".join("t" if p.is_tensor else "f" if next(letters) else "i" for p in function.signature.parameters)


def prepare_entry(function: CppFunction, call: PreparedCppCall) -> tuple[Any, ...]:
    """Return the entry of `Ready` for all calls on tensors of the same types as a prepared one."""
    found: list[Any] = [call.entry, call.record, call.records, function.failure]
    for type, bytes in zip(call.outputs, call.bytes, strict=True):
        found += [device("cpu").maker(bytes), {**ResultTemplate(type).attributes, "location": None}]
    return tuple(found)


def is_whole(x: handle.Handle) -> bool:
    """Whether a tensor covers its whole storage and has seen all writes to it."""
    base = x._base
    return base is not None and not x._moves and x._seen == base.storage.changes


@cache
def generate_direct_call(kinds: str, outputs: int) -> Direct:
    """Generate the function for a string of `parameter_letters`, once.

    It returns None for tensors not in memory, unknown types and wrong arguments; the full path then tells these apart.
    """
    call = GuardedCall(
        "direct", ["ready", "args", "blind"], state=handle.state, mode=handle.mode, listeners=events.listeners,
        settings=settings, is_whole=is_whole,
    )  # fmt: skip
    call.guard("state.trace is None", "state.inspect is None", "not listeners", "not settings().check")
    with call.missing("AttributeError", "KeyError", "TypeError", "ValueError"):
        given = call.unpack("x", len(kinds), "args")
        tensors = [x for x, kind in zip(given, kinds, strict=True) if kind == "t"]
        values = {x: call.let("v", f"{x}._value.__dict__") for x in tensors}
        memory = [call.let("b", f"{values[x]}['buffer']") for x in tensors]
        marks = [f"{values[x]}['type']" if x in values else x for x, k in zip(given, kinds, strict=True) if k != "f"]
        results = [name for n in range(outputs) for name in (f"make{n}", f"like{n}")]
        call.add(f"{', '.join(['entry', 'record', 'records', 'failure', *results])} = ready[{', '.join(marks)},]")
    call.guard(*[f"({x}._base is None or is_whole({x}))" for x in tensors])
    call.guard(*[f"type({x}) in (float, int)" for x, kind in zip(given, kinds, strict=True) if kind == "f"])
    call.guard(*[f"type({x}) is int" for x, kind in zip(given, kinds, strict=True) if kind == "i"])
    tracked = " or ".join(f"{values[x]}['tracked']" for x in tensors)
    call.guard(f"blind or not ({tracked}) or not mode.enabled")
    memory += [call.let("y", f"make{n}()") for n in range(outputs)]
    call.add("call = record()", "words = call.words")
    call.add(*[f"words[{TENSOR_WORDS * n}] = {name}.address" for n, name in enumerate(memory)])
    numbers = [(x, kind) for x, kind in zip(given, kinds, strict=True) if kind != "t"]
    call.add(*[f"call.floats[{n}] = {x}" for n, (x, kind) in enumerate(numbers) if kind == "f"])
    call.add("if entry(call.address): raise failure(*call.error)", "records.append(call)")
    made = [wrap_source(call, f"like{n}", name) for n, name in enumerate(memory[len(tensors) :])]
    call.add(f"return {', '.join(made)}")
    return call.made()
