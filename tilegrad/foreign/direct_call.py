"""Generate direct calls of C++ functions on tensors in memory, without graph or program lookup.

Everything but addresses and numbers depends on the tensor types alone and is found once, by `CppFunction.prepared`. The
generated function is unrolled over the parameters: loops over them would take longer than a small call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from ..config import settings
from ..ir.graph import Input
from ..lazy import handle
from ..runtime import events
from ..runtime.device import device

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
    """Prepare the calls on tensors of the types of one: an entry for `generate_direct_call`."""
    place = device("cpu")
    found: list[Any] = [call.entry, call.record, call.records, function.failure]
    for type, bytes in zip(call.outputs, call.bytes, strict=True):
        like = Input(type)
        found += [place.maker(bytes), {**like.__dict__, "location": None}]
    return tuple(found)


@cache
def generate_direct_call(kinds: str, outputs: int) -> Direct:
    """Generate the function for a parameter kind string, once."""
    names: dict[str, Any] = {
        "state": handle.state, "mode": handle.mode, "listeners": events.listeners, "settings": settings,
        "is_whole": is_whole, "Input": Input, "Tensor": handle.result_class(), "new": object.__new__,
    }  # fmt: skip
    exec(source(kinds, outputs), names)
    return names["direct"]  # type: ignore[no-any-return]


def is_whole(x: handle.Handle) -> bool:
    """Whether a tensor covers its whole storage and has seen all writes to it."""
    base = x._base
    return base is not None and not x._moves and x._seen == base.storage.changes


def source(kinds: str, outputs: int) -> str:
    """Generate the source of a direct call. It returns None for tensors not in memory, unknown types and wrong
    arguments; the full path then tells these apart.

    >>> print(source("tf", 1))
    def direct(ready, args, blind):
        if state.trace is not None or state.inspect is not None or listeners or settings().check:
            return None
        try:
            x0, n1 = args
            v0 = x0._value.__dict__
            b0 = v0['buffer']
            entry, record, records, failure, make0, like0 = ready[v0['type'],]
        except (AttributeError, KeyError, TypeError, ValueError):
            return None
        if not (x0._base is None or is_whole(x0)) or type(n1) not in (float, int):
            return None
        if not blind and (v0['tracked']) and mode.enabled:
            return None
        y0 = make0()
        call = record()
        words = call.words
        words[0] = b0.address
        words[5] = y0.address
        call.floats[0] = n1
        if entry(call.address):
            raise failure(*call.error)
        records.append(call)
        r0 = new(Input)
        own = r0.__dict__
        own.update(like0)
        own['buffer'] = y0
        z0 = new(Tensor)
        z0._value = r0
        return z0
    """
    lines = [*_lookup_lines(kinds, outputs), *_call_lines(kinds, outputs), *_result_lines(outputs)]
    return "\n".join(["def direct(ready, args, blind):", *(f"    {line}" for line in lines)])


def _lookup_lines(kinds: str, outputs: int) -> list[str]:
    """Generate the lines that find the arguments' memory and the prepared call."""
    tensors = [n for n, kind in enumerate(kinds) if kind == "t"]
    taken = ", ".join(f"{'x' if kind == 't' else 'n'}{n}" for n, kind in enumerate(kinds))
    marks = [f"v{n}['type']" if kind == "t" else f"n{n}" for n, kind in enumerate(kinds) if kind != "f"]
    made = "".join(f", make{n}, like{n}" for n in range(outputs))
    words = {"f": "not in (float, int)", "i": "is not int"}
    strange = [f"not (x{n}._base is None or is_whole(x{n}))" for n in tensors]
    strange += [f"type(n{n}) {words[kind]}" for n, kind in enumerate(kinds) if kind in words]
    tracked = " or ".join(f"v{n}['tracked']" for n in tensors)
    return [
        "if state.trace is not None or state.inspect is not None or listeners or settings().check:",
        "    return None",
        "try:",
        f"    {taken}{',' if len(kinds) == 1 else ''} = args",
        *(f"    v{n} = x{n}._value.__dict__" for n in tensors),
        *(f"    b{n} = v{n}['buffer']" for n in tensors),
        f"    entry, record, records, failure{made} = ready[{', '.join(marks)},]",
        "except (AttributeError, KeyError, TypeError, ValueError):",
        "    return None",
        f"if {' or '.join(strange)}:",
        "    return None",
        f"if not blind and ({tracked}) and mode.enabled:",
        "    return None",
    ]


def _call_lines(kinds: str, outputs: int) -> list[str]:
    """Generate the lines that allocate the results and call."""
    places = [*(f"b{n}" for n, kind in enumerate(kinds) if kind == "t"), *(f"y{n}" for n in range(outputs))]
    numbers = [n for n, kind in enumerate(kinds) if kind != "t"]
    return [
        *(f"y{n} = make{n}()" for n in range(outputs)),
        "call = record()",
        "words = call.words",
        *(f"words[{TENSOR_WORDS * place}] = {name}.address" for place, name in enumerate(places)),
        *(f"call.floats[{place}] = n{n}" for place, n in enumerate(numbers) if kinds[n] == "f"),
        "if entry(call.address):",
        "    raise failure(*call.error)",
        "records.append(call)",
    ]


def _result_lines(outputs: int) -> list[str]:
    """Generate the lines that make result tensors, as `wrap(Input(type))` does but without a source location."""
    lines: list[str] = []
    for n in range(outputs):
        lines += [f"r{n} = new(Input)", f"own = r{n}.__dict__", f"own.update(like{n})", f"own['buffer'] = y{n}"]
        lines += [f"z{n} = new(Tensor)", f"z{n}._value = r{n}"]
    return [*lines, f"return {', '.join(f'z{n}' for n in range(outputs))}"]
