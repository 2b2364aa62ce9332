"""Compare programs: one that takes numbers as inputs must compute the same as one in which they are constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir.graph import Value
from ..tensor import Tensor
from .graph_key import graph_key
from .variables import same

if TYPE_CHECKING:
    from .specialised import Specialised


def computes_same(program: Specialised, other: Specialised) -> bool:
    """Whether the program computes the same as another in which the numbers are constants."""
    if program.unjitted_reason or other.unjitted_reason:
        return False
    given = [[r for r in p.traced.results if not isinstance(r, Tensor)] for p in (program, other)]
    alike = len(given[0]) == len(given[1]) and all(map(same, *given))
    return alike and _key(program, other) == _key(other, program)


def _key(program: Specialised, other: Specialised) -> tuple[Any, ...]:
    """Key what the program computes, for the numbers that are not inputs of the other one."""
    traced, outputs, captured = program.traced, program.outputs, program.environment.captured
    known: dict[Value, Any] = {}
    for argument in traced.arguments:
        if argument.n in program.signature.number_inputs - other.signature.number_inputs:
            known[argument.placeholder] = other.signature.call.leaves[argument.n]
    watched = sorted(program.signature.captured_inputs)
    for n, host in zip(watched, program.environment.host, strict=False):  # they come first
        if n not in other.signature.captured_inputs:
            known[host.placeholder] = other.signature.call.numbers[n]
    gradients = [(id(g.holder), g.template and g.template.type) for g in outputs.gradients]
    return (
        traced.result_structure, [t and t.type for t in outputs.templates], [a.n for a in traced.modified],
        [(id(c.base.storage), c.is_updated) for c in captured], gradients, outputs.history.results,
        [(n, a.key()) for n, a in traced.aliases.items()], [a.n for a in outputs.history.modified],
        [(w.key(), n) for w, n in traced.assigned],
        [(g.holder, g.template and g.template.type) for g in outputs.argument_gradients],
        graph_key(program.graph, known, program.constants),
    )  # fmt: skip
