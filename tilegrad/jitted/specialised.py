"""Compile one program of a jitted function, traced for one kind of arguments, and call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..autograd.modes import no_grad
from ..compiler import Compiled, compile
from ..errors import ShapeError, TilegradError
from ..functions.creation import tensor
from ..ir.graph import Input, Value, topological
from ..ir.size import Dim, Size, comparisons, known
from ..lazy.handle import Handle, StoredGradient, Surroundings, mode, wrap
from ..lazy.handle import alias as alias_of
from ..lazy.layout import lay
from ..lazy.realize import plain_graph
from ..lazy.result_template import ResultTemplate, substitute_sizes, template_of, varying
from ..lazy.storage import one_writer
from ..ops.joint import joint_outputs
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import device
from ..runtime.executable import HoistedProgram, Runner
from ..tensor import Tensor
from ..tree import flatten, unflatten
from .aliases import Alias, aliases
from .assigned_variables import assigned_tensors, restore_variables
from .captured_state import CapturedState, display_name, hooks_of, same_settings, settings_of
from .guards import Guards, make_guards
from .memory import (
    HostNumberBuffer,
    memory_in,
    memory_of,
    unshare_storage,
    unshared,
)
from .nondeterminism import same_again
from .numbers import from_argument, from_outside, number_placeholder, number_type
from .rebind import inputs_overlap, rebind, storages_of
from .side_effects import Effects
from .signature import CallSignature
from .tracing import NoProgram, Trace
from .variables import WatchedVariable, replaced_tensors, same

if TYPE_CHECKING:
    from .hoisted_values import HoistedValues

MAX_GUARD_GENERATIONS = 4


class Specialised:
    """A program with the sources of its inputs and the targets of its outputs.

    Inputs: the tensors and numbers among the arguments, captured storages, numbers of the host, constants. Outputs: the
    tensors among the results, modified arguments, assigned gradients, and the new elements of captured storages, which
    are updated in place.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        signature: CallSignature,
        leaves: Sequence[Any],
        outside: CapturedState,
        fit: int = 0,
    ) -> None:
        self.signature = signature
        self.input_variables = signature.call.variables
        """Variables whose tensors are arguments, too, after the others."""
        given = {w.key() for w in self.input_variables}
        self.outside = [(w, found) for w, found in outside.others if not given or w.key() not in given]
        self.required_objects = {id(x) for w, x in self.outside if given and isinstance(x, Handle) and w.writable}
        """Captured tensors that must be identical objects, if there are others that need not be."""
        self.assigned: list[tuple[WatchedVariable, int]] = []
        """Variables, and the output that is assigned to each."""
        self.layers = outside.layers
        self.name = display_name(fn)
        self.fit = fit
        self.runners: dict[tuple[tuple[str, int], ...], Runner] = {}
        self._guards: Guards | None = None
        self._guard_generations = 0
        self._surroundings = Surroundings.changes
        self.moves = 0
        """Number of calls that found captured tensors on other memory."""
        self.different: list[tuple[Size, Dim]] = []
        """Sizes that the trace took for unequal: the program does not handle calls in which they are equal."""
        self.unjitted_reason = ""
        """The reason if there is no program: the function runs unjitted."""
        trace, effects = Trace(), Effects(outside)
        try:
            with one_writer:
                try:
                    self._trace(trace, fn, leaves, effects)
                finally:
                    trace.finish()
        except NoProgram as reason:
            self.unjitted_reason = reason.args[0]
            effects.undo()
            trace = self._forget()
        self.written_numbers = effects.written
        self.seen = [(x, hooks_of(x)) for x, _ in trace.seen.values()]
        self.places = storages_of(x for x, _ in trace.seen.values())
        self._plan(trace)

    def _forget(self) -> Trace:
        """Clear the inputs and outputs."""
        for made in (self.placeholders, self.arguments, self.standing, self.assigned):
            made.clear()
        self.results, self.result_structure = flatten(None)
        self.result_values: list[Value | None] = []
        self.changed: list[int] = []
        self.gradient_arguments: list[int] = []
        self.aliases: dict[int, Alias] = {}
        trace = Trace()
        trace.finish()
        return trace

    def _trace(self, trace: Trace, fn: Callable[..., Any], leaves: Sequence[Any], effects: Effects) -> None:
        """Run the function on placeholders."""
        outside = effects.outside
        self.placeholders: list[Input | None] = []
        self.arguments: list[Tensor | None] = []
        self.standing: list[Value | None] = []
        self.sources: dict[int, Tensor] = {}
        """The tensors from which non-leaf arguments were computed."""
        numbers = zip(outside.numbers, self.signature.call.numbers, strict=True)
        before = [(w, w.read(), x, n in self.signature.captured_inputs) for n, (w, x) in enumerate(numbers)]
        before = [(w, now, x, varies) for w, now, x, varies in before if varies or not same(now, x)]
        with same_again(outside.asks, outside.drawn, outside.unseen), trace:
            stand_ins = [self._stand_in(n, x) for n, x in enumerate(leaves)]
            trace.arguments.update(id(x) for x in self.arguments if x is not None)
            call = self.signature.call
            args, kwargs, *_ = unflatten(call.structure, stand_ins)
            at = [(w, n, w.read()) for w, n in zip(self.input_variables, call.variable_leaves(), strict=True)]
            try:
                for w, _, number, varies in before:
                    made = trace.number(w.read, number_type(number), number.__class__) if varies else None
                    w.write(number if made is None else number_placeholder(made, number, from_outside(w.read)))
                for watched, n, found in at:
                    replaced_tensors[id(stand_ins[n])] = found
                    watched.write(stand_ins[n])
                effects.begin()
                symbols = any(type is not None and varying(type) for type in self.signature.types)
                self._run_traced(fn, args, kwargs, symbols)
                if effects.note((args, kwargs), call.arguments(), call.argument_leaves(stand_ins)):
                    self._note_assigned(assigned_tensors(outside, {w.key(): stand_ins[n] for w, n, _ in at}))
                self.aliases = aliases(self.results, self.arguments, trace, symbols)
                self.result_values = [
                    r.value if isinstance(r, Tensor) and n not in self.aliases else None
                    for n, r in enumerate(self.results)
                ]
                trace.refuse_history([v for v in self.result_values if v is not None])
            finally:
                restore_variables(trace, outside, [(w, found) for w, _, found in at])
                replaced_tensors.clear()
                for w, now, _, _ in before:
                    w.write(now)
        effects.refuse()
        self.changed = [
            n
            for n, t in enumerate(self.arguments)
            if t is not None and t._base is not None and t._base.storage.changes > 0
        ]
        self.gradient_arguments = [n for n, t in enumerate(self.arguments) if id(t) in trace.asked and t is not None]
        """The arguments whose gradient is requested or assigned: they have none before a call."""
        if any(source._gradient is not None for source in self.sources.values()):
            raise NoProgram("a gradient flows out of it, to what an argument was computed from")

    def _run_traced(self, fn: Callable[..., Any], args: Any, kwargs: Any, symbols: bool) -> None:
        """Record what the function returns for placeholders."""
        raised = TilegradError.raised
        with comparisons() as found:
            self.results, self.result_structure = flatten(fn(*args, **kwargs))
        self.different = [*found.values()]
        if symbols and TilegradError.raised != raised:
            raise ShapeError(f"{self.name}: an error that it caught may depend on sizes that vary")

    def sizes_fit(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes that the trace took for unequal are unequal in a call."""
        if not self.different or tuple(sizes.items()) in self.runners:
            return True
        return all(a.value(sizes) != known(b, sizes) for a, b in self.different)

    def _note_assigned(self, made: Sequence[tuple[WatchedVariable, Handle]]) -> None:
        """Append the tensors that the function has assigned to variables to the outputs."""
        for watched, x in made:
            self.assigned.append((watched, len(self.results)))
            self.results.append(x)

    def _stand_in(self, n: int, x: Any) -> Any:
        type = self.signature.types[n]
        if type is None and n in self.signature.number_inputs:
            type = number_type(x)
        made = None
        if type is not None:
            placeholder = Input(type, f"x{n}")
            if isinstance(x, Tensor):
                made = lay(wrap(placeholder), self.signature.strides[n])
            else:
                made = number_placeholder(placeholder, x, from_argument(n))
                made._value.note().is_number = True
        self.placeholders.append(None if made is None else made._value)  # type: ignore[arg-type]
        if made is not None and self.signature.tracked[n]:
            if self.signature.leaf[n]:
                made.requires_grad_()
            else:
                source = self.sources[n] = wrap(made._value).requires_grad_()
                (made._value,) = joint_outputs([made._value], [source._value], lambda upstreams: upstreams)
        self.arguments.append(made)
        self.standing.append(None if made is None else made._value)
        return x if made is None else made

    def _plan(self, trace: Trace) -> None:
        """Collect the inputs, the outputs and the values to compute."""
        captured = list(trace.captured.items())
        self.captured = [c.base for _, c in captured]
        self.captured_types = [c.placeholder.type for _, c in captured]
        self.captured_values = [trace.standing[c.base] for _, c in captured]
        for standing in self.captured_values:
            standing.note().hooks = None  # of the tensors that it stands for: they call them themselves
        self.host = [HostNumberBuffer(n) for n in trace.numbers]
        self.guards = trace.guards
        self.gradients = trace.changed_gradients
        given: list[Value] = [p for p in self.placeholders if p is not None]
        first = len(given)
        given += [c.placeholder for _, c in captured] + [n.placeholder for n in trace.numbers]
        self.given = given
        self.forms = [
            None if v is None else template_of(r) for v, r in zip(self.result_values, self.results, strict=True)
        ]
        self.gradient_forms = [template_of(g) for _, g in self.gradients]
        self.stored_gradients = [
            StoredGradient(Input(form.type), form.filled) for form in self.gradient_forms if form is not None
        ]
        outputs = [v for v in self.result_values if v is not None]
        outputs += [self._changed(n) for n in self.changed]
        outputs += [g.own_value() for _, g in self.gradients if g is not None]
        self.own_gradients = [(n, template_of(g), g) for n in self.gradient_arguments for g in [self._gradient_of(n)]]
        outputs += [g.own_value() for _, _, g in self.own_gradients if g is not None]
        self.common = any(storage.common for storage in trace.written)
        self.updated = [n for n, (storage, _) in enumerate(captured) if storage in trace.written]
        self.written = {id(captured[n][0]) for n in self.updated}
        self.kept = {id(storage) for storage, _ in captured} - self.written
        self.writes = bool(self.changed or self.updated or self.gradient_arguments or self.assigned)
        self.updates = {len(outputs) + m: first + n for m, n in enumerate(self.updated)}
        outputs += [trace.finals[captured[n][0]] for n in self.updated]
        self.graph, self.constants = plain_graph(outputs, given)
        self.differentiable = [
            n for n, v in enumerate(self.result_values) if v is not None and v.tracked and not v.provenance.is_released
        ]
        self.changed_with_gradient = [
            n
            for n in self.changed
            if self.signature.tracked[n] and not self.signature.leaf[n] and self._changed(n).tracked
        ]
        """The modified arguments that have a gradient flowing back from their new value."""
        self.tracked = [v for n in self.differentiable if (v := self.result_values[n]) is not None]
        self.tracked += [self._changed(n) for n in self.changed_with_gradient]
        self.rewritten_leaves = self._rewritten()
        read = set(topological(self.tracked))
        self.read_before_write = {n for n in self.updated if captured[n][1].placeholder in read}
        """The written storages whose old elements are read by gradients of results."""

    def _rewritten(self) -> list[Value]:
        """List the values of leaves that the function wrote to, and the leaves that it made itself."""
        first = {s for s in [*self.standing, *self.captured_values] if s is not None}
        return [v for v in topological(self.tracked) if v.provenance.is_leaf and v.inputs and v not in first]

    def _changed(self, n: int) -> Value:
        """Return the last value of an argument."""
        argument = self.arguments[n]
        assert argument is not None
        return argument.own_value()

    def _gradient_of(self, n: int) -> Any:
        argument = self.arguments[n]
        return None if argument is None else argument._gradient

    def compile(self) -> Specialised:
        """Compile the program."""
        first = len([p for p in self.placeholders if p is not None])
        fixed = self._read_only(first)
        self.compiled: Compiled = compile(self.graph, self.updates, self.name, fit=self.fit, constant_inputs=fixed)
        self.returned_arguments = self._passed_on(range(first))
        """The arguments that are returned unchanged."""
        self.lent = frozenset([n - first for n in self._passed_on(range(first, len(self.given)))])
        """The captured storages and numbers whose memory a result shares."""
        found = self.compiled.executable.hoisted
        self.hoisted = None if found is None else self._hoisted_values(found, first)
        return self

    def _hoisted_values(self, hoisted: HoistedProgram, first: int) -> HoistedValues:
        from .hoisted_values import HoistedValues

        return HoistedValues(hoisted, [self.captured[n - first].storage for n in hoisted.inputs])

    def _read_only(self, first: int) -> tuple[int, ...]:
        """List the inputs that seldom change: captured storages that are only read."""
        trained = any(self.captured_values[n].tracked for n in self.updated)
        if trained or self.gradients or (self.differentiable and self.signature.call.recorded):
            return ()
        return tuple([first + n for n, t in enumerate(self.captured_types) if t.shape and n not in self.updated])

    def _passed_on(self, inputs: range) -> frozenset[int]:
        """Find the inputs whose memory a result shares."""
        program = self.compiled.program
        results = set(program.outputs[: len(program.outputs) - len(self.updated)])
        return frozenset([n for n in inputs if program.inputs[n] in results])

    def check_guards(self) -> Sequence[DeviceBuffer] | None:
        """Return the buffers of captured storages if all guards hold; None if one may not.

        Guards are generated at the second call, and again when the captured state has changed, a limited number of
        times.
        """
        if self._surroundings != Surroundings.changes and not self._is_in_its_surroundings():
            return None
        if self._guards is not None:
            found = self._guards()
            if found is not None or self._guard_generations == MAX_GUARD_GENERATIONS or self._have_readers():
                return found
            self._guards = None
        if self._guard_generations < MAX_GUARD_GENERATIONS and self.is_current():
            self._guard_generations += 1
            self._guards = make_guards(self)
            if self._guards is not None:
                return self._guards()
            self._guard_generations = MAX_GUARD_GENERATIONS
        return None

    def drop_guards(self) -> None:
        """Drop the guards: captured storages have changed."""
        self._guards, self._guard_generations = None, 0
        self.moves += 1

    def _have_readers(self) -> bool:
        """Whether elements that the program would overwrite have readers."""
        return any(self.captured[n].storage.free() is None for n in self.updated)

    def is_current(self) -> bool:
        """Whether captured variables hold the same values, or compatible ones."""
        for watched, found in self.outside:
            if not watched.holds_same(found):
                return False
        for base, type, standing in zip(self.captured, self.captured_types, self.captured_values, strict=True):
            have = base.storage.value.type
            if (have is not type and have != type) or base.current().tracked is not standing.tracked:
                return False
        if self._surroundings != Surroundings.changes and not self._is_in_its_surroundings():
            return False
        return all(number.is_its_kind() for number in self.host) and all(read() == v for read, v in self.guards)

    def _is_in_its_surroundings(self) -> bool:
        """Whether settings of layers, hooks, and the storages of tensors are those of the trace."""
        now = Surroundings.changes
        same = all(same_settings(settings_of(layer), before) for layer, before in self.layers)
        if same and all(hooks_of(tensor) == before for tensor, before in self.seen) and rebind(self):
            self._surroundings = now
            return True
        return False

    @property
    def gradient_bytes(self) -> Dim:
        """Return the size of the gradients left behind."""
        found: list[Any] = [form.type.bytes for form in self.gradient_forms if form is not None]
        return sum(found)  # type: ignore[no-any-return]

    def must_run_unjitted(self, leaves: Sequence[Any]) -> bool:
        """Whether the function is to run unjitted on these arguments: the program does not handle them."""
        if self.unjitted_reason or (self.writes and inputs_overlap(self, leaves)):
            return True
        if any(leaves[n]._gradient is not None for n in self.gradient_arguments):
            return True
        return any(flag and leaves[n].own_value().provenance.hooks for n, flag in enumerate(self.signature.tracked))

    def __call__(self, leaves: Sequence[Any], sizes: Mapping[str, int]) -> Any:
        """Run the program."""
        key = tuple(sizes.items())
        runner = self.runners.get(key)
        if runner is None:
            runner = self.runners[key] = self.compiled.executable.bound(sizes)
        if not self.common:
            return self._run(runner, leaves, sizes)
        with one_writer:
            return self._run(runner, leaves, sizes)

    def _run(self, runner: Runner, leaves: Sequence[Any], sizes: Mapping[str, int]) -> Any:
        present = None
        if self.tracked and mode.enabled:
            from .history import given_values

            present = given_values(self, leaves)
        buffers = self._buffers(leaves)
        self.drop_gradients()
        return self.wrap_outputs(leaves, runner(buffers), sizes, present)

    def drop_gradients(self) -> None:
        """Drop gradients that the run replaces, so that their memory is reused."""
        for holder, _ in self.gradients:
            holder._gradient = None
        for stored_gradients in self.stored_gradients:
            stored_gradients.owned = stored_gradients.lent = None

    def _buffers(self, leaves: Sequence[Any]) -> list[DeviceBuffer]:
        """Collect the buffers of all inputs."""
        buffers: list[DeviceBuffer] = []
        for x, placeholder in zip(leaves, self.placeholders, strict=True):
            if placeholder is not None:
                found = memory_of(x if isinstance(x, Handle) else tensor(x, dtype=placeholder.dtype))
                buffers.append(unshared(found) if len(buffers) in self.returned_arguments else found)
        buffers += self.state() + self.constants
        if self.compiled.elsewhere:
            buffers = self.compiled.brought(buffers)
        return buffers if self.hoisted is None else [*buffers, *self.hoisted.buffers(buffers)]

    def state(self) -> list[DeviceBuffer]:
        """Collect the buffers of captured storages and of numbers of the host."""
        buffers: list[DeviceBuffer] = []
        updated = frozenset(self.updated)
        for n, base in enumerate(self.captured):
            owned = base.storage.owned
            if n in updated:
                buffers.append(base.storage.free() or unshare_storage(base))
            elif owned is None or n in self.lent:
                found = memory_in(base.current())
                buffers.append(unshared(found) if n in self.lent else found)
            else:
                buffers.append(owned)
        for n, number in enumerate(self.host):
            buffers.append(number.copied_buffer() if len(self.captured) + n in self.lent else number.updated_buffer())
        return buffers

    def number_at(self, n: int) -> Callable[[], DeviceBuffer]:
        """Copy a number of the host to the program's device."""
        number = self.host[n]
        if len(self.captured) + n in self.lent:
            return number.copied_buffer
        if number.array is None or len(self.given) - len(self.host) + n not in self.compiled.elsewhere:
            return number.updated_buffer
        return number.on(device(self.compiled.device))

    def wrap_outputs(
        self,
        leaves: Sequence[Any],
        made: Sequence[DeviceBuffer],
        sizes: Mapping[str, int] = {},
        present: Mapping[Value, Value] | None = None,
    ) -> Any:
        """Wrap the outputs; `present` are the inputs if results are to have a history."""
        outputs = iter(made)
        results = [
            form.filled(next(outputs), sizes) if form is not None else substitute_sizes(r, sizes)
            for r, form in zip(self.results, self.forms, strict=True)
        ]
        changed = {n: ResultTemplate(self._changed(n).type).filled(next(outputs), sizes)._value for n in self.changed}
        for (holder, _), form in zip(self.gradients, self.gradient_forms, strict=True):
            holder._gradient = None if form is None else form.filled(next(outputs), sizes)
        for n, form, _ in self.own_gradients:
            leaves[n]._gradient = None if form is None else form.filled(next(outputs), sizes)
        for n in self.updated:
            storage = self.captured[n].storage
            storage.version += 1
            storage.changes += 1
        for n, value in changed.items():
            if n not in self.changed_with_gradient or present is None:
                self._write(leaves[n], n, value)
        if present is not None:
            from .history import with_history

            changed_with_gradient = with_history(
                self, results, [changed[n] for n in self.changed_with_gradient], present, sizes
            )
            for n, value in zip(self.changed_with_gradient, changed_with_gradient, strict=True):
                self._write(leaves[n], n, value)
        for n, alias in self.aliases.items():
            results[n] = alias.made(leaves, results)
        for watched, n in self.assigned:
            watched.write(results[n])
        return unflatten(self.result_structure, results)

    def _write(self, x: Any, n: int, value: Value) -> None:
        """Write new elements to an argument as the function did: hidden (`.data`), or unrecorded."""
        argument = self.arguments[n]
        if argument is not None and argument._version == 0:
            alias_of(x, hidden=True).write(value, "jit")
        elif self.signature.leaf[n]:
            with no_grad():
                x.write(value, "jit")
        else:
            x.write(value, "jit")

    def store_gradients(self, made: Sequence[DeviceBuffer]) -> None:
        """Store gradients, so that the next call writes to the same memory if nothing reads them."""
        own = made[sum(form is not None for form in self.forms) :]
        for stored_gradients, buffer in zip(self.stored_gradients, own, strict=False):
            stored_gradients.owned = buffer
