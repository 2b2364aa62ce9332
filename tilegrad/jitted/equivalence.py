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
    given = [[r for r in p.results if not isinstance(r, Tensor)] for p in (program, other)]
    alike = len(given[0]) == len(given[1]) and all(map(same, *given))
    return alike and _key(program, other) == _key(other, program)


def _key(program: Specialised, other: Specialised) -> tuple[Any, ...]:
    """Key what the program computes, for the numbers that are not inputs of the other one."""
    known: dict[Value, Any] = {}
    for n in program.signature.number_inputs - other.signature.number_inputs:
        known[program.placeholders[n]] = other.signature.call.leaves[n]  # type: ignore[index]
    watched = sorted(program.signature.captured_inputs)
    for n, host in zip(watched, program.host, strict=False):  # they come first
        if n not in other.signature.captured_inputs:
            known[host.placeholder] = other.signature.call.numbers[n]
    forms = [form and form.type for form in program.forms]
    ends = [id(holder) for holder, _ in program.gradients], [form and form.type for form in program.gradient_forms]
    return (
        program.result_structure, forms, program.changed, program.updated,
        [id(base.storage) for base in program.captured],
        ends, program.differentiable, [(n, a.key()) for n, a in program.aliases.items()], program.changed_with_gradient,
        [(w.key(), n) for w, n in program.assigned],
        [(n, form and form.type) for n, form, _ in program.own_gradients],
        graph_key(program.graph, known, program.constants),
    )  # fmt: skip
