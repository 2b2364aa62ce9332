"""Deliver the outputs of a program: results, modified arguments, assigned gradients, updated storages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..autograd.modes import no_grad
from ..ir.graph import Input, Value, topological
from ..ir.size import Dim
from ..lazy.handle import Handle, StoredGradient
from ..lazy.handle import alias as alias_of
from ..lazy.result_template import ResultTemplate, substitute_sizes, template_of
from ..runtime.buffer import DeviceBuffer
from ..tree import unflatten
from .environment import Environment
from .memory import ProgramInput
from .traced_call import ArgumentInput, TracedCall


class AssignedGradient(NamedTuple):
    """A gradient that the function assigned, or None, to a tensor from outside or to an argument."""

    holder: Any
    """The tensor, or the number of the argument."""
    value: Value | None
    template: ResultTemplate | None

    @staticmethod
    def of(holder: Any, gradient: Handle | None) -> AssignedGradient:
        return AssignedGradient(holder, None if gradient is None else gradient.own_value(), template_of(gradient))


class ResultHistory:
    """The results and modified arguments that have gradients, and the inputs that the gradients flow to."""

    def __init__(self, traced: TracedCall, environment: Environment) -> None:
        self.inputs: list[ProgramInput] = [*traced.arguments, *environment.inputs]
        self.results = [
            n for n, v in enumerate(traced.values) if v is not None and v.tracked and not v.provenance.is_released
        ]
        self.modified = [
            a for a in traced.modified if a.is_tracked and not a.kind.is_leaf and a.tensor.own_value().tracked
        ]
        self.outputs: list[Value] = [v for n in self.results if (v := traced.values[n]) is not None]
        self.outputs += [a.tensor.own_value() for a in self.modified]
        self.standing = [a.standing for a in traced.arguments] + [c.standing for c in environment.captured]
        reached, first = topological(self.outputs), {*self.standing}
        self.rewritten = [v for v in reached if v.provenance.is_leaf and v.inputs and v not in first]
        """The values of leaves that the function wrote to, and the leaves that it made itself."""
        read = {*reached}
        for captured in environment.captured:
            captured.is_reread = captured.placeholder in read

    def present(self, leaves: Sequence[Any]) -> dict[Value, Value]:
        """Map the inputs of a program to their values before a call."""
        found: dict[Value, Value] = {x.placeholder: x.present(leaves) for x in self.inputs}
        return found | {s: found[s.inputs[0]] for s in self.standing if s not in found}


class ProgramOutputs:
    """The outputs of a program, in order: the tensors among the results, modified arguments, assigned gradients, and
    the new elements of captured storages.
    """

    def __init__(self, traced: TracedCall, environment: Environment) -> None:
        self.traced = traced
        self.environment = environment
        self.templates = [
            None if v is None else template_of(r) for v, r in zip(traced.values, traced.results, strict=True)
        ]
        """The templates of the results that are tensors of their own."""
        self.modified = {a: ResultTemplate(a.tensor.own_value().type) for a in traced.modified}
        self.gradients = [AssignedGradient.of(x, gradient) for x, gradient in traced.trace.changed_gradients]
        self.argument_gradients = [AssignedGradient.of(a.n, a.tensor._gradient) for a in traced.asked]  # type: ignore[arg-type]
        templates = [g.template for g in self.gradients if g.template is not None]
        self.stored = [StoredGradient(Input(template.type), template.filled) for template in templates]
        """The gradients of tensors from outside, to be made tensors on demand."""
        self.history = ResultHistory(traced, environment)

    def values(self) -> list[Value]:
        """List the values to compute, but for those of updated storages."""
        found = [v for v in self.traced.values if v is not None] + [a.tensor.own_value() for a in self.modified]
        return found + [g.value for g in (*self.gradients, *self.argument_gradients) if g.value is not None]

    @property
    def write(self) -> bool:
        """Whether calls have effects besides gradients of tensors from outside."""
        return bool(self.modified or self.environment.updated or self.argument_gradients or self.traced.assigned)

    @property
    def gradient_bytes(self) -> Dim:
        """Return the size of the gradients that calls leave behind."""
        found: list[Any] = [g.template.type.bytes for g in self.gradients if g.template is not None]
        return sum(found)  # type: ignore[no-any-return]

    def drop_gradients(self) -> None:
        """Drop gradients that the run replaces, so that their memory is reused."""
        for gradient in self.gradients:
            gradient.holder._gradient = None
        for stored in self.stored:
            stored.owned = stored.lent = None

    def store_gradients(self, made: Sequence[DeviceBuffer]) -> None:
        """Store gradients, so that the next call writes to the same memory if nothing reads them."""
        first = sum(template is not None for template in self.templates)
        for stored, buffer in zip(self.stored, made[first:], strict=False):
            stored.owned = buffer

    def deliver(
        self,
        leaves: Sequence[Any],
        made: Sequence[DeviceBuffer],
        sizes: Mapping[str, int] = {},
        present: Mapping[Value, Value] | None = None,
    ) -> Any:
        """Deliver the outputs of one call, and return its results; `present` are the inputs if results are to have a
        history.
        """
        outputs, traced = iter(made), self.traced
        results = [
            template.filled(next(outputs), sizes) if template is not None else substitute_sizes(r, sizes)
            for r, template in zip(traced.results, self.templates, strict=True)
        ]
        modified: Mapping[ArgumentInput, Value] = {
            a: template.filled(next(outputs), sizes)._value for a, template in self.modified.items()
        }
        for holder, _, template in self.gradients:
            holder._gradient = None if template is None else template.filled(next(outputs), sizes)
        for n, _, template in self.argument_gradients:
            leaves[n]._gradient = None if template is None else template.filled(next(outputs), sizes)
        for captured in self.environment.updated:
            storage = captured.base.storage
            storage.version += 1
            storage.changes += 1
        if present is not None:
            from .history import with_history  # loads the rules of gradients

            modified = with_history(self.history, results, modified, present, sizes)
        for argument, value in modified.items():
            _write(argument, leaves[argument.n], value)
        for n, alias in traced.aliases.items():
            results[n] = alias.made(leaves, results)
        for watched, n in traced.assigned:
            watched.write(results[n])
        return unflatten(traced.result_structure, results)


def _write(argument: ArgumentInput, x: Any, value: Value) -> None:
    """Write new elements to an argument as the function did: hidden (`.data`), or unrecorded."""
    if argument.tensor._version == 0:
        alias_of(x, hidden=True).write(value, "jit")
    elif argument.kind.is_leaf:
        with no_grad():
            x.write(value, "jit")
    else:
        x.write(value, "jit")
