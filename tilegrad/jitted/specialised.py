"""Compile one program of a jitted function, traced for one kind of arguments, and call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..compiler import Compiled, compile
from ..errors import ShapeError, TilegradError
from ..functions.creation import tensor
from ..ir.graph import Input, Value, topological
from ..ir.size import Dim, Size, comparisons, known
from ..lazy.handle import Handle, Left, Surroundings, mode, wrap
from ..lazy.handle import alias as alias_of
from ..lazy.layout import lay
from ..lazy.realize import plain_graph
from ..lazy.storage import one_writer
from ..ops.joint import joint_outputs
from ..runtime.buffer import Buffer
from ..runtime.device import device
from ..runtime.executable import Runner
from ..tensor import Tensor
from ..tree import flatten, unflatten
from .aliases import Alias, aliases
from .assigned_variables import left_behind, put_back
from .side_effects import Effects
from .guards import Look, look_at
from .history import given_values, with_history
from .hoisted_values import Kept
from .signature import Kind
from .memory import Form, HostMemory, apart, form_of, memory_in, memory_of, renewed_memory, settled, varying
from .rebind import follow, overlapping, places_of
from .numbers import from_argument, from_outside, meaning, number_type, stand_for
from .variables import Watched, same, stood
from .nondeterminism import same_again
from .tracing import NoProgram, Trace
from .captured_state import Outside, hooks_of, same_settings, settings_of, title

MOST_LOOKS = 4


class Specialised:
    """A program with the sources of its inputs and the targets of its outputs.

    Inputs: the tensors and numbers among the arguments, captured storages, numbers of the host, constants. Outputs: the
    tensors among the results, modified arguments, assigned gradients, and the new elements of captured storages, which
    are updated in place.
    """

    def __init__(
        self, fn: Callable[..., Any], kind: Kind, leaves: Sequence[Any], outside: Outside, fit: int = 0
    ) -> None:
        self.kind = kind
        self.incoming = kind.call.places
        """Variables whose tensors are arguments, too, after the others."""
        given = {w.key() for w in self.incoming}
        self.outside = [(w, found) for w, found in outside.others if not given or w.key() not in given]
        self.elsewhere = {id(x) for w, x in self.outside if given and isinstance(x, Handle) and w.writable}
        """Captured tensors that must be identical objects, if there are others that need not be."""
        self.assigned: list[tuple[Watched, int]] = []
        """Variables, and the output that is assigned to each."""
        self.layers = outside.layers
        self.name = title(fn)
        self.fit = fit
        self.runners: dict[tuple[tuple[str, int], ...], Runner] = {}
        self._look: Look | None = None
        self._looks = 0
        self._surroundings = Surroundings.changes
        self.moves = 0
        """How often captured tensors were found on other memory."""
        self.different: list[tuple[Size, Dim]] = []
        """Sizes that the trace took for unequal: the program does not handle calls in which they are equal."""
        self.plainly = ""
        """The reason if there is no program: the function runs unjitted."""
        trace, effects = Trace(), Effects(outside)
        try:
            with one_writer:
                try:
                    self._trace(trace, fn, leaves, effects)
                finally:
                    trace.finish()
        except NoProgram as reason:
            self.plainly = reason.args[0]
            effects.undo()
            trace = self._forget()
        self.written_numbers = effects.written
        self.seen = [(x, hooks_of(x)) for x, _ in trace.seen.values()]
        self.places = places_of(x for x, _ in trace.seen.values())
        self._plan(trace)

    def _forget(self) -> Trace:
        """Clear the inputs and outputs."""
        for made in (self.placeholders, self.arguments, self.standing, self.assigned):
            made.clear()
        self.results, self.result_structure = flatten(None)
        self.result_values: list[Value | None] = []
        self.changed: list[int] = []
        self.graded: list[int] = []
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
        numbers = zip(outside.numbers, self.kind.call.numbers, strict=True)
        before = [(w, w.read(), x, n in self.kind.watched) for n, (w, x) in enumerate(numbers)]
        before = [(w, now, x, varies) for w, now, x, varies in before if varies or not same(now, x)]
        with same_again(outside.asks, outside.drawn, outside.unseen), trace:
            stand_ins = [self._stand_in(n, x) for n, x in enumerate(leaves)]
            trace.arguments.update(id(x) for x in self.arguments if x is not None)
            call = self.kind.call
            args, kwargs, *_ = unflatten(call.structure, stand_ins)
            at = list(zip(self.incoming, call.at_places(), strict=True))
            try:
                for w, _, number, varies in before:
                    made = trace.number(w.read, number_type(number), number.__class__) if varies else None
                    w.write(number if made is None else stand_for(made, number, from_outside(w.read)))
                for watched, n in at:
                    stood[id(stand_ins[n])] = leaves[n]
                    watched.write(stand_ins[n])
                effects.begin()
                symbols = any(type is not None and varying(type) for type in self.kind.types)
                self._run_traced(fn, args, kwargs, symbols)
                if effects.note((args, kwargs), call.arguments(), call.of_arguments(stand_ins)):
                    self._note_assigned(left_behind(outside, {w.key(): stand_ins[n] for w, n in at}))
                self.aliases = aliases(self.results, self.arguments, trace, symbols)
                self.result_values = [
                    r.value if isinstance(r, Tensor) and n not in self.aliases else None
                    for n, r in enumerate(self.results)
                ]
                trace.refuse_history([v for v in self.result_values if v is not None])
            finally:
                put_back(trace, outside, [(w, leaves[n]) for w, n in at])
                stood.clear()
                for w, now, _, _ in before:
                    w.write(now)
        effects.refuse()
        self.changed = [
            n
            for n, t in enumerate(self.arguments)
            if t is not None and t._base is not None and t._base.storage.changes > 0
        ]
        self.graded = [n for n, t in enumerate(self.arguments) if id(t) in trace.asked and t is not None]
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

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes that the trace took for unequal are unequal in a call."""
        if not self.different or tuple(sizes.items()) in self.runners:
            return True
        return all(a.value(sizes) != known(b, sizes) for a, b in self.different)

    def _note_assigned(self, made: Sequence[tuple[Watched, Handle]]) -> None:
        """Append the tensors that the function has assigned to variables to the outputs."""
        for watched, x in made:
            self.assigned.append((watched, len(self.results)))
            self.results.append(x)

    def _stand_in(self, n: int, x: Any) -> Any:
        type = self.kind.types[n]
        if type is None and n in self.kind.inputs:
            type = number_type(x)
        made = None
        if type is not None:
            placeholder = Input(type, f"x{n}")
            if isinstance(x, Tensor):
                made = lay(wrap(placeholder), self.kind.strides[n])
            else:
                made = stand_for(placeholder, x, from_argument(n))
                made._value.__dict__["number"] = True
        self.placeholders.append(None if made is None else made._value)  # type: ignore[arg-type]
        if made is not None and self.kind.tracked[n]:
            if self.kind.leaf[n]:
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
        self.captured_standing = [trace.standing[c.base] for _, c in captured]
        for standing in self.captured_standing:
            standing.__dict__.pop("hooks", None)  # of the tensors that it stands for: they call them themselves
        self.host = [HostMemory(n) for n in trace.numbers]
        self.guards = trace.guards
        self.gradients = trace.changed_gradients
        given: list[Value] = [p for p in self.placeholders if p is not None]
        first = len(given)
        given += [c.placeholder for _, c in captured] + [n.placeholder for n in trace.numbers]
        self.given = given
        self.forms = [None if v is None else form_of(r) for v, r in zip(self.result_values, self.results, strict=True)]
        self.gradient_forms = [form_of(g) for _, g in self.gradients]
        self.left = [Left(Input(form.type), form.filled) for form in self.gradient_forms if form is not None]
        outputs = [v for v in self.result_values if v is not None]
        outputs += [self._changed(n) for n in self.changed]
        outputs += [g.own_value() for _, g in self.gradients if g is not None]
        self.own_gradients = [(n, form_of(g), g) for n in self.graded for g in [self._gradient_of(n)]]
        outputs += [g.own_value() for _, _, g in self.own_gradients if g is not None]
        self.common = any(storage.common for storage in trace.written)
        self.updated = [n for n, (storage, _) in enumerate(captured) if storage in trace.written]
        self.written = {id(captured[n][0]) for n in self.updated}
        self.kept = {id(storage) for storage, _ in captured} - self.written
        self.writes = bool(self.changed or self.updated or self.graded or self.assigned)
        self.updates = {len(outputs) + m: first + n for m, n in enumerate(self.updated)}
        outputs += [trace.finals[captured[n][0]] for n in self.updated]
        self.graph, self.constants = plain_graph(outputs, given)
        self.differentiable = [
            n for n, v in enumerate(self.result_values) if v is not None and v.tracked and "released" not in v.__dict__
        ]
        self.moved = [
            n for n in self.changed if self.kind.tracked[n] and not self.kind.leaf[n] and self._changed(n).tracked
        ]
        """The modified arguments that have a gradient flowing back from their new value."""
        self.tracked = [v for n in self.differentiable if (v := self.result_values[n]) is not None]
        self.tracked += [self._changed(n) for n in self.moved]
        self.rewritten = self._rewritten()
        read = set(topological(self.tracked))
        self.remembered = {n for n in self.updated if captured[n][1].placeholder in read}
        """The written storages whose old elements are read by gradients of results."""

    def _rewritten(self) -> list[Value]:
        """List the values of leaves that the function wrote to, and the leaves that it made itself."""
        first = {s for s in [*self.standing, *self.captured_standing] if s is not None}
        return [v for v in topological(self.tracked) if "leaf" in v.__dict__ and v.inputs and v not in first]

    def _changed(self, n: int) -> Value:
        """Return the last value of an argument."""
        argument = self.arguments[n]
        assert argument is not None
        return argument.own_value()

    def _gradient_of(self, n: int) -> Any:
        argument = self.arguments[n]
        return None if argument is None else argument._gradient

    def means(self, other: Specialised) -> bool:
        """Whether the program computes the same as another in which the numbers are constants."""
        if self.plainly or other.plainly:
            return False
        given = [[r for r in p.results if not isinstance(r, Tensor)] for p in (self, other)]
        alike = len(given[0]) == len(given[1]) and all(map(same, *given))
        return alike and self._meaning(other) == other._meaning(self)

    def _meaning(self, other: Specialised) -> tuple[Any, ...]:
        """Key what the program computes, for the numbers that are not inputs of the other one."""
        known: dict[Value, Any] = {}
        for n in self.kind.inputs - other.kind.inputs:
            known[self.placeholders[n]] = other.kind.call.leaves[n]  # type: ignore[index]
        watched = sorted(self.kind.watched)
        for n, host in zip(watched, self.host, strict=False):  # they come first
            if n not in other.kind.watched:
                known[host.placeholder] = other.kind.call.numbers[n]
        forms = [form and form.type for form in self.forms]
        ends = [id(holder) for holder, _ in self.gradients], [form and form.type for form in self.gradient_forms]
        return (
            self.result_structure, forms, self.changed, self.updated, [id(base.storage) for base in self.captured],
            ends, self.differentiable, [(n, a.key()) for n, a in self.aliases.items()], self.moved,
            [(w.key(), n) for w, n in self.assigned],
            [(n, form and form.type) for n, form, _ in self.own_gradients], meaning(self.graph, known, self.constants),
        )  # fmt: skip

    def compile(self) -> Specialised:
        """Compile the program."""
        first = len([p for p in self.placeholders if p is not None])
        fixed = self._read_only(first)
        self.compiled: Compiled = compile(self.graph, self.updates, self.name, fit=self.fit, steady=fixed)
        self.passed = self._passed_on(range(first))
        """The arguments that are returned unchanged."""
        self.lent = frozenset([n - first for n in self._passed_on(range(first, len(self.given)))])
        """The captured storages and numbers whose memory a result shares."""
        found = self.compiled.executable.steady
        self.steady = found and Kept(found, [self.captured[n - first].storage for n in found.inputs])
        return self

    def _read_only(self, first: int) -> tuple[int, ...]:
        """List the inputs that seldom change: captured storages that are only read."""
        trained = any(self.captured_standing[n].tracked for n in self.updated)
        if trained or self.gradients or (self.differentiable and self.kind.call.recorded):
            return ()
        return tuple([first + n for n, t in enumerate(self.captured_types) if t.shape and n not in self.updated])

    def _passed_on(self, inputs: range) -> frozenset[int]:
        """Find the inputs whose memory a result shares."""
        program = self.compiled.program
        results = set(program.outputs[: len(program.outputs) - len(self.updated)])
        return frozenset([n for n in inputs if program.inputs[n] in results])

    def look(self) -> Sequence[Buffer] | None:
        """Return the buffers of captured storages if all guards hold; None if one may not.

        Guards are generated at the second call, and again when the captured state has changed, a limited number of
        times.
        """
        if self._surroundings != Surroundings.changes and not self._is_in_its_surroundings():
            return None
        if self._look is not None:
            found = self._look()
            if found is not None or self._looks == MOST_LOOKS or self._are_read():
                return found
            self._look = None
        if self._looks < MOST_LOOKS and self.is_current():
            self._looks += 1
            self._look = look_at(self)
            if self._look is not None:
                return self._look()
            self._looks = MOST_LOOKS
        return None

    def forget_look(self) -> None:
        """Drop the guards: captured storages have changed."""
        self._look, self._looks = None, 0
        self.moves += 1

    def _are_read(self) -> bool:
        """Whether elements that the program would overwrite have readers."""
        return any(self.captured[n].storage.free() is None for n in self.updated)

    def is_current(self) -> bool:
        """Whether captured variables hold the same values, or compatible ones."""
        for watched, found in self.outside:
            if not watched.keeps(found):
                return False
        for base, type, standing in zip(self.captured, self.captured_types, self.captured_standing, strict=True):
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
        if same and all(hooks_of(tensor) == before for tensor, before in self.seen) and follow(self):
            self._surroundings = now
            return True
        return False

    @property
    def gradient_bytes(self) -> Dim:
        """Return the size of the gradients left behind."""
        found: list[Any] = [form.type.bytes for form in self.gradient_forms if form is not None]
        return sum(found)  # type: ignore[no-any-return]

    def runs_plainly(self, leaves: Sequence[Any]) -> bool:
        """Whether the function is to run unjitted on these arguments: the program does not handle them."""
        if self.plainly or (self.writes and overlapping(self, leaves)):
            return True
        if any(leaves[n]._gradient is not None for n in self.graded):
            return True
        return any(flag and leaves[n].own_value().__dict__.get("hooks") for n, flag in enumerate(self.kind.tracked))

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
        present = given_values(self, leaves) if self.tracked and mode.enabled else None
        buffers = self._buffers(leaves)
        self.let_go()
        return self.finished(leaves, runner(buffers), sizes, present)

    def let_go(self) -> None:
        """Drop gradients that the run replaces, so that their memory is reused."""
        for holder, _ in self.gradients:
            holder._gradient = None
        for left in self.left:
            left.owned = left.lent = None

    def _buffers(self, leaves: Sequence[Any]) -> list[Buffer]:
        """Collect the buffers of all inputs."""
        buffers: list[Buffer] = []
        for x, placeholder in zip(leaves, self.placeholders, strict=True):
            if placeholder is not None:
                found = memory_of(x if isinstance(x, Handle) else tensor(x, dtype=placeholder.dtype))
                buffers.append(apart(found) if len(buffers) in self.passed else found)
        buffers += self.state() + self.constants
        if self.compiled.elsewhere:
            buffers = self.compiled.brought(buffers)
        return buffers if self.steady is None else [*buffers, *self.steady.buffers(buffers)]

    def state(self) -> list[Buffer]:
        """Collect the buffers of captured storages and of numbers of the host."""
        buffers: list[Buffer] = []
        updated = frozenset(self.updated)
        for n, base in enumerate(self.captured):
            owned = base.storage.owned
            if n in updated:
                buffers.append(base.storage.free() or renewed_memory(base))
            elif owned is None or n in self.lent:
                found = memory_in(base.current())
                buffers.append(apart(found) if n in self.lent else found)
            else:
                buffers.append(owned)
        for n, number in enumerate(self.host):
            buffers.append(number.copied() if len(self.captured) + n in self.lent else number.renewed())
        return buffers

    def number_at(self, n: int) -> Callable[[], Buffer]:
        """Copy a number of the host to the program's device."""
        number = self.host[n]
        if len(self.captured) + n in self.lent:
            return number.copied
        if number.array is None or len(self.given) - len(self.host) + n not in self.compiled.elsewhere:
            return number.renewed
        return number.on(device(self.compiled.device))

    def finished(
        self,
        leaves: Sequence[Any],
        made: Sequence[Buffer],
        sizes: Mapping[str, int] = {},
        present: Mapping[Value, Value] | None = None,
    ) -> Any:
        """Wrap the outputs; `present` are the inputs if results are to have a history."""
        outputs = iter(made)
        results = [
            form.filled(next(outputs), sizes) if form is not None else settled(r, sizes)
            for r, form in zip(self.results, self.forms, strict=True)
        ]
        changed = {n: Form(self._changed(n).type).filled(next(outputs), sizes)._value for n in self.changed}
        for (holder, _), form in zip(self.gradients, self.gradient_forms, strict=True):
            holder._gradient = None if form is None else form.filled(next(outputs), sizes)
        for n, form, _ in self.own_gradients:
            leaves[n]._gradient = None if form is None else form.filled(next(outputs), sizes)
        for n in self.updated:
            storage = self.captured[n].storage
            storage.version += 1
            storage.changes += 1
        for n, value in changed.items():
            if n not in self.moved or present is None:
                self._write(leaves[n], n, value)
        if present is not None:
            moved = with_history(self, results, [changed[n] for n in self.moved], present, sizes)
            for n, value in zip(self.moved, moved, strict=True):
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
        elif self.kind.leaf[n]:
            with no_grad():
                x.write(value, "jit")
        else:
            x.write(value, "jit")

    def leave(self, made: Sequence[Buffer]) -> None:
        """Store gradients, so that the next call writes to the same memory if nothing reads them."""
        own = made[sum(form is not None for form in self.forms) :]
        for left, buffer in zip(self.left, own, strict=False):
            left.owned = buffer
