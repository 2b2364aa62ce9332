"""Trace one call of a function: run it on placeholders, and collect what it returns, changes and assigns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ShapeError, TilegradError
from ..functions.creation import tensor
from ..ir.graph import Input, Value
from ..ir.size import Dim, Size, comparisons
from ..lazy.handle import Handle, wrap
from ..lazy.layout import lay
from ..lazy.result_template import varying
from ..lazy.storage import one_writer
from ..ops.joint import identity_rule, joint_outputs
from ..runtime.buffer import DeviceBuffer
from ..tensor import Tensor
from ..tree import flatten, unflatten
from .aliases import Alias, aliases
from .assigned_variables import assigned_tensors, restore_variables
from .captured_state import CapturedState
from .memory import ProgramInput, memory_of, unshared
from .nondeterminism import same_again
from .numbers import from_argument, from_outside, number_placeholder, number_type
from .side_effects import Effects
from .signature import CallSignature, ConstantArgument, TensorInput
from .tracing import NoProgram, Trace
from .variables import WatchedVariable, replaced_tensors, same


class ArgumentInput(ProgramInput):
    """An argument that is an input: its placeholder, and the tensor on it that the function works on."""

    def __init__(self, n: int, x: Any, kind: Any) -> None:
        self.n = n
        self.kind = kind
        self.source: Tensor | None = None
        """The tensor from which the trace computes an argument that is no leaf."""
        if isinstance(kind, TensorInput):
            self.placeholder = Input(kind.type, f"x{n}")
            self.tensor = lay(wrap(self.placeholder), kind.strides)
        else:
            self.placeholder = Input(number_type(x), f"x{n}")
            self.tensor = number_placeholder(self.placeholder, x, from_argument(n))
            self.tensor._value.note().is_number = True
        if self.is_tracked and kind.is_leaf:
            self.tensor.requires_grad_()
        elif self.is_tracked:
            source = self.source = wrap(self.tensor._value).requires_grad_()
            (self.tensor._value,) = joint_outputs([self.tensor._value], [source._value], identity_rule)
        self.standing: Value = self.tensor._value
        """The value of the tensor when the function begins."""

    @property
    def is_tracked(self) -> bool:
        return isinstance(self.kind, TensorInput) and self.kind.tracked

    @property
    def is_modified(self) -> bool:
        """Whether the function has written to it."""
        return self.tensor._base is not None and self.tensor._base.storage.changes > 0

    def memory(self, leaves: Sequence[Any] = ()) -> DeviceBuffer:
        x = leaves[self.n]
        found = memory_of(x if isinstance(x, Handle) else tensor(x, dtype=self.placeholder.dtype))
        return unshared(found) if self.is_lent else found

    def present(self, leaves: Sequence[Any] = ()) -> Value:
        x = leaves[self.n]
        return x.value if isinstance(x, Handle) else tensor(x, dtype=self.placeholder.dtype).value


class TracedCall:
    """A function traced for one kind of arguments; if `unjitted_reason` is not empty, it cannot be compiled."""

    def __init__(
        self, fn: Callable[..., Any], name: str, signature: CallSignature, leaves: Sequence[Any], outside: CapturedState
    ) -> None:
        self.name = name
        self.signature = signature
        self.different: list[tuple[Size, Dim]] = []
        """Sizes that the trace took for unequal: the program does not handle calls in which they are equal."""
        self.unjitted_reason = ""
        self._clear()
        self.trace, self.effects = Trace(), Effects(outside)
        try:
            with one_writer:
                try:
                    self._trace(fn, leaves)
                finally:
                    self.trace.finish()
        except NoProgram as reason:
            self.unjitted_reason = reason.args[0]
            self.effects.undo()
            self._clear()
            self.trace = Trace()
            self.trace.finish()

    def _clear(self) -> None:
        self.arguments: list[ArgumentInput] = []
        self.results, self.result_structure = flatten(None)
        self.values: list[Value | None] = []
        """The values of the results that are tensors of their own."""
        self.aliases: dict[int, Alias] = {}
        self.assigned: list[tuple[WatchedVariable, int]] = []
        """Variables, and the result that is assigned to each."""
        self.modified: list[ArgumentInput] = []
        self.asked: list[ArgumentInput] = []
        """The arguments whose gradient is requested or assigned: they have none before a call."""

    def _trace(self, fn: Callable[..., Any], leaves: Sequence[Any]) -> None:
        """Run the function on placeholders."""
        trace, outside, call = self.trace, self.effects.outside, self.signature.call
        numbers = zip(outside.numbers, call.numbers, strict=True)
        before = [(w, w.read(), x, n in self.signature.captured_inputs) for n, (w, x) in enumerate(numbers)]
        before = [(w, now, x, varies) for w, now, x, varies in before if varies or not same(now, x)]
        with same_again(outside.asks, outside.drawn, outside.unseen), trace:
            stand_ins = self._stand_ins(leaves)
            trace.arguments.update(id(a.tensor) for a in self.arguments)
            args, kwargs, *_ = unflatten(call.structure, stand_ins)
            at = [(w, n, w.read()) for w, n in zip(call.variables, call.variable_leaves(), strict=True)]
            try:
                for w, _, number, varies in before:
                    made = trace.number(w.read, number_type(number), number.__class__) if varies else None
                    w.write(number if made is None else number_placeholder(made, number, from_outside(w.read)))
                for watched, n, found in at:
                    replaced_tensors[id(stand_ins[n])] = found
                    watched.write(stand_ins[n])
                self.effects.begin()
                self._run(fn, args, kwargs)
                if self.effects.note((args, kwargs), call.arguments(), call.argument_leaves(stand_ins)):
                    self._note_assigned(assigned_tensors(outside, {w.key(): stand_ins[n] for w, n, _ in at}))
                self._note_results(leaves)
            finally:
                restore_variables(trace, outside, [(w, found) for w, _, found in at])
                replaced_tensors.clear()
                for w, now, _, _ in before:
                    w.write(now)
        self.effects.refuse()
        self.modified = [a for a in self.arguments if a.is_modified]
        self.asked = [a for a in self.arguments if id(a.tensor) in trace.asked]
        if any(a.source is not None and a.source._gradient is not None for a in self.arguments):
            raise NoProgram("a gradient flows out of it, to what an argument was computed from")

    def _stand_ins(self, leaves: Sequence[Any]) -> list[Any]:
        """Replace the arguments that are inputs by tensors on placeholders."""
        made = list(leaves)
        for n, (x, kind) in enumerate(zip(leaves, self.signature.inputs, strict=True)):
            if not isinstance(kind, ConstantArgument):
                self.arguments.append(ArgumentInput(n, x, kind))
                made[n] = self.arguments[-1].tensor
        return made

    @property
    def is_symbolic(self) -> bool:
        return any(type is not None and varying(type) for type in self.signature.types)

    def _run(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        """Record what the function returns for placeholders."""
        raised = TilegradError.raised
        with comparisons() as found:
            self.results, self.result_structure = flatten(fn(*args, **kwargs))
        self.different = [*found.values()]
        if self.is_symbolic and TilegradError.raised != raised:
            raise ShapeError(f"{self.name}: an error that it caught may depend on sizes that vary")

    def _note_assigned(self, made: Sequence[tuple[WatchedVariable, Handle]]) -> None:
        """Append the tensors that the function has assigned to variables to the results."""
        for watched, x in made:
            self.assigned.append((watched, len(self.results)))
            self.results.append(x)

    def _note_results(self, leaves: Sequence[Any]) -> None:
        """Tell the results that are tensors of their own from those that share memory with others."""
        given: list[Tensor | None] = [None] * len(leaves)
        for argument in self.arguments:
            given[argument.n] = argument.tensor
        self.aliases = aliases(self.results, given, self.trace, self.is_symbolic)
        self.values = [
            r.value if isinstance(r, Tensor) and n not in self.aliases else None for n, r in enumerate(self.results)
        ]
        self.trace.refuse_history([v for v in self.values if v is not None])
