"""One program of a jitted function: traced and compiled for one kind of arguments, and called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..compiler import Compiled, compile
from ..errors import TraceError
from ..functions.creation import tensor
from ..ir.graph import Input, Value, topological
from ..ir.size import Dim
from ..lazy.handle import Handle, Left, Surroundings, mode, wrap
from ..lazy.realize import plain_graph
from ..lazy.storage import one_writer
from ..ops.batched import Part, rebuilt
from ..ops.joint import joint_outputs
from ..runtime.buffer import Buffer
from ..runtime.device import device
from ..runtime.executable import Runner
from ..tensor import Tensor
from ..transform.autodiff import gradients
from ..tree import flatten, unflatten
from .kept import Kept
from .kind import Kind
from .memory import Form, HostMemory, apart, memory_in, memory_of, renewed_memory, settled
from .numbers import meaning, number_type, stand_for
from .straight import Look, look_at
from .tracing import Trace
from .watched import Outside, hooks_of, same, same_settings, settings_of, title, unchanged

MOST_LOOKS = 4


class Specialised:
    """A program, with what its inputs are and where its outputs go.

    Inputs: the tensors and numbers among the arguments, captured storages, numbers of the host, constants.
    Outputs: the tensors among the results, arguments that were changed, gradients that were given, and the new
    elements of captured storages, which are written in place.
    """

    def __init__(
        self, fn: Callable[..., Any], kind: Kind, leaves: Sequence[Any], outside: Outside, fit: int = 0
    ) -> None:
        self.kind = kind
        self.outside = outside.others
        self.layers = outside.layers
        self.name = title(fn)
        self.fit = fit
        self.runners: dict[tuple[tuple[str, int], ...], Runner] = {}
        self._look: Look | None = None
        self._looks = 0
        """How often what `look` compares was settled."""
        self._surroundings = Surroundings.changes
        trace = Trace()
        with one_writer:
            try:
                self._trace(trace, fn, leaves, outside)
            finally:
                trace.finish()
        self.hooked = [(x, hooks_of(x)) for x, _ in trace.seen.values()]
        self._plan(trace)

    def _trace(self, trace: Trace, fn: Callable[..., Any], leaves: Sequence[Any], outside: Outside) -> None:
        """Runs the function on placeholders."""
        self.placeholders: list[Input | None] = []
        self.arguments: list[Tensor | None] = []
        self.standing: list[Value | None] = []
        numbers = zip(outside.numbers, self.kind.call.numbers, strict=True)
        before = [(w, w.read(), x, n in self.kind.watched) for n, (w, x) in enumerate(numbers)]
        before = [(w, now, x, varies) for w, now, x, varies in before if varies or not same(now, x)]
        with trace:
            stand_ins = [self._stand_in(n, x) for n, x in enumerate(leaves)]
            args, kwargs = unflatten(self.kind.call.structure, stand_ins)
            try:
                for w, _, number, varies in before:
                    type, read = number_type(number), w.read
                    w.write(stand_for(trace.number(read, type, number.__class__), number) if varies else number)
                self.results, self.result_structure = flatten(fn(*args, **kwargs))
                self.result_values = [r.value if isinstance(r, Tensor) else None for r in self.results]
                _write_assigned(outside)
            finally:
                _put_back(trace, outside)
                for w, now, _, _ in before:
                    w.write(now)
        self.changed = [
            n
            for n, t in enumerate(self.arguments)
            if t is not None and t._base is not None and t._base.storage.version > 0
        ]

    def _stand_in(self, n: int, x: Any) -> Any:
        type = self.kind.types[n]
        if type is None and n in self.kind.inputs:
            type = number_type(x)
        made = None
        if type is not None:
            placeholder = Input(type, f"x{n}")
            made = wrap(placeholder) if isinstance(x, Tensor) else stand_for(placeholder, x)
            if not isinstance(x, Tensor):
                made._value.__dict__["number"] = True
        self.placeholders.append(None if made is None else made._value)  # type: ignore[arg-type]
        if made is not None and self.kind.tracked[n]:
            made.requires_grad_()
        self.arguments.append(made)
        self.standing.append(None if made is None else made._value)
        return x if made is None else made

    def _plan(self, trace: Trace) -> None:
        """What comes in, what goes out, and what is computed between."""
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
        self.forms = [None if v is None else Form(v.type) for v in self.result_values]
        self.gradient_forms = [None if g is None else Form(g._value.type) for _, g in self.gradients]
        self.left = [Left(Input(form.type), form.filled) for form in self.gradient_forms if form is not None]
        outputs = [v for v in self.result_values if v is not None]
        outputs += [t.own_value() for n in self.changed if (t := self.arguments[n]) is not None]
        outputs += [g.own_value() for _, g in self.gradients if g is not None]
        self.common = any(storage.common for storage in trace.written)
        self.updated = [n for n, (storage, _) in enumerate(captured) if storage in trace.written]
        self.written = {id(captured[n][0]) for n in self.updated}
        self.kept = {id(storage) for storage, _ in captured} - self.written
        self.writes = bool(self.changed or self.updated)
        self.updates = {len(outputs) + m: first + n for m, n in enumerate(self.updated)}
        outputs += [trace.finals[captured[n][0]] for n in self.updated]
        self.graph, self.constants = plain_graph(outputs, given)
        self.differentiable = [
            n for n, v in enumerate(self.result_values) if v is not None and v.tracked and "released" not in v.__dict__
        ]
        read = set(topological([self.result_values[n] for n in self.differentiable]))  # type: ignore[misc]
        self.remembered = {n for n in self.updated if captured[n][1].placeholder in read}
        """The captured storages that are written to, and that gradients of results read as they were before."""

    def means(self, other: Specialised) -> bool:
        """Whether the program does what another does, in which numbers are known that are inputs of this one."""
        given = [[r for r, v in zip(p.results, p.result_values, strict=True) if v is None] for p in (self, other)]
        alike = len(given[0]) == len(given[1]) and all(map(same, *given))
        return alike and self._meaning(other) == other._meaning(self)

    def _meaning(self, other: Specialised) -> tuple[Any, ...]:
        """What the program does, for the numbers that are not inputs of the other one, as a key."""
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
            ends, self.differentiable, meaning(self.graph, known, self.constants),
        )  # fmt: skip

    def compile(self) -> Specialised:
        """Makes it ready to run."""
        first = len([p for p in self.placeholders if p is not None])
        fixed = self._read_only(first)
        self.compiled: Compiled = compile(self.graph, self.updates, self.name, fit=self.fit, steady=fixed)
        self.passed = self._passed_on(range(first))
        """The arguments that are results as they are."""
        self.lent = frozenset([n - first for n in self._passed_on(range(first, len(self.given)))])
        """The captured storages and numbers whose memory is that of a result."""
        found = self.compiled.executable.steady
        self.steady = found and Kept(found, [self.captured[n - first].storage for n in found.inputs])
        return self

    def _read_only(self, first: int) -> tuple[int, ...]:
        """The inputs that are mostly what they were in the last call: what an inference reads, and does not write."""
        trained = any(self.captured_standing[n].tracked for n in self.updated)
        if trained or self.gradients or (self.differentiable and self.kind.call.recorded):
            return ()
        return tuple([first + n for n, t in enumerate(self.captured_types) if t.shape and n not in self.updated])

    def _passed_on(self, inputs: range) -> frozenset[int]:
        """Which inputs have the memory of a result."""
        program = self.compiled.program
        results = set(program.outputs[: len(program.outputs) - len(self.updated)])
        return frozenset([n for n in inputs if program.inputs[n] in results])

    def look(self) -> Sequence[Buffer] | None:
        """The memory of what was captured, if nothing outside is another thing than before; None: perhaps something is.

        What is looked at is settled at the second call, and anew when that has changed, but not again and again.
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

    def _are_read(self) -> bool:
        """Whether somebody reads the elements that the program would write over."""
        return any(self.captured[n].storage.free() is None for n in self.updated)

    def is_current(self) -> bool:
        """Whether what was read outside is still there, and of the kind that the program was made for."""
        for watched, found in self.outside:
            now = watched.read()
            if now is not found and not unchanged(now, found):
                return False
        for base, type, standing in zip(self.captured, self.captured_types, self.captured_standing, strict=True):
            have = base.storage.value.type
            if (have is not type and have != type) or base.current().tracked is not standing.tracked:
                return False
        if self._surroundings != Surroundings.changes and not self._is_in_its_surroundings():
            return False
        return all(number.is_its_kind() for number in self.host) and all(read() == v for read, v in self.guards)

    def _is_in_its_surroundings(self) -> bool:
        """Whether the settings of layers, and all hooks, are those that the program was made with."""
        now = Surroundings.changes
        same = all(same_settings(settings_of(layer), before) for layer, before in self.layers)
        if same and all(hooks_of(tensor) == before for tensor, before in self.hooked):
            self._surroundings = now
            return True
        return False

    @property
    def gradient_bytes(self) -> Dim:
        """What the gradients take that are left behind."""
        total: Dim = 0
        for form in self.gradient_forms:
            total = total + (0 if form is None else form.type.bytes)
        return total

    def overlapping(self, leaves: Sequence[Any]) -> bool:
        """Whether memory that the program writes to is reached in two ways, which it was not made for."""
        written, read = set(self.written), set(self.kept)
        for n, x in enumerate(leaves):
            if not isinstance(x, Handle):
                continue
            memory = id(x if x._base is None else x._base.storage)
            if memory in written or (n in self.changed and memory in read):
                return True
            (written if n in self.changed else read).add(memory)
        return False

    def __call__(self, leaves: Sequence[Any], sizes: Mapping[str, int]) -> Any:
        """Runs the program."""
        key = tuple(sizes.items())
        runner = self.runners.get(key)
        if runner is None:
            runner = self.runners[key] = self.compiled.executable.bound(sizes)
        if not self.common:
            return self._run(runner, leaves, sizes)
        with one_writer:
            return self._run(runner, leaves, sizes)

    def _run(self, runner: Runner, leaves: Sequence[Any], sizes: Mapping[str, int]) -> Any:
        present = self._present(leaves) if self.differentiable and mode.enabled else None
        buffers = self._buffers(leaves)
        self.let_go()
        return self.finished(leaves, runner(buffers), sizes, present)

    def let_go(self) -> None:
        """Forgets the gradients that others will replace, so that their memory is free for those."""
        for holder, _ in self.gradients:
            holder._gradient = None
        for left in self.left:
            left.owned = left.lent = None

    def _buffers(self, leaves: Sequence[Any]) -> list[Buffer]:
        """The memory of all inputs."""
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
        """The memory of captured storages, and of numbers of the host."""
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
        """Gives the memory of a number of the host where the program looks for it."""
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
        """Hands out what the program made; `present` is what it was given, if results are to have a history."""
        outputs = iter(made)
        results = [
            form.filled(next(outputs), sizes) if form is not None else settled(r, sizes)
            for r, form in zip(self.results, self.forms, strict=True)
        ]
        for n in self.changed:
            argument = self.arguments[n]
            assert argument is not None
            leaves[n].write(Form(argument._value.type).filled(next(outputs), sizes)._value, "jit")
        for (holder, _), form in zip(self.gradients, self.gradient_forms, strict=True):
            holder._gradient = None if form is None else form.filled(next(outputs), sizes)
        for n in self.updated:
            storage = self.captured[n].storage
            storage.version += 1
            storage.changes += 1
        if present is not None:
            self._with_history(results, present)
        return unflatten(self.result_structure, results)

    def leave(self, made: Sequence[Buffer]) -> None:
        """Leaves gradients behind: if nobody reads them, the next call writes to the same memory."""
        own = made[sum(form is not None for form in self.forms) :]
        for left, buffer in zip(self.left, own, strict=False):
            left.owned = buffer

    def _present(self, leaves: Sequence[Any]) -> dict[Value, Value]:
        """What stands for the inputs of a call in the gradients of its results: as they are before it."""
        present: dict[Value, Value] = {}
        for x, placeholder in zip(leaves, self.placeholders, strict=True):
            if placeholder is not None:
                present[placeholder] = x.value if isinstance(x, Handle) else tensor(x, dtype=placeholder.dtype).value
        first, updated = len(present), frozenset(self.updated)
        for n, base in enumerate(self.captured):
            forgotten = n in updated and n not in self.remembered  # nothing reads its elements
            present[self.given[first + n]] = base.standing() if forgotten else base.current()
        present |= {n.placeholder: tensor(n.read(), dtype=n.placeholder.dtype).value for n in self.host}
        standing = [s for s in [*self.standing, *self.captured_standing] if s is not None]
        return present | {s: present[s.inputs[0]] for s in standing if s not in present}

    def _with_history(self, results: list[Any], present: Mapping[Value, Value]) -> None:
        """Gives results a way back: their gradients are those of the traced graph, recorded when they are asked for."""
        inputs = [s for s in [*self.standing, *self.captured_standing] if s is not None and s.tracked]
        outputs = [v for n in self.differentiable if (v := self.result_values[n]) is not None]
        parts = {x: Part(value, False) for x, value in present.items()}

        def rule(upstreams: Sequence[Value | None]) -> Sequence[Value | None]:
            pairs = [(v, u) for v, u in zip(outputs, upstreams, strict=True) if u is not None]
            found = gradients([v for v, _ in pairs], [u for _, u in pairs], inputs)
            known = iter(rebuilt([g for g in found if g is not None], parts))
            return [None if g is None else next(known).value for g in found]

        made = joint_outputs([results[n]._value for n in self.differentiable], [present[s] for s in inputs], rule)
        for n, value in zip(self.differentiable, made, strict=True):
            value.hold(results[n]._value.buffer)
            results[n] = wrap(value)


def _write_assigned(outside: Outside) -> None:
    """What a traced function put in the place of a tensor outside becomes the new elements of that tensor."""
    assigned = []
    for watched, found in outside.others:
        now = watched.read()
        if now is not found and isinstance(found, Handle) and isinstance(now, Handle):
            value, type = now.value, found.value.type
            if value.type != type or value.tracked:
                problem = "must not require gradients: x.detach()" if value.tracked else "must have the same type"
                name = "a variable" if watched.name is None else repr(watched.name)
                raise TraceError(
                    f"{name} outside of a jitted function, a tensor {type}, is given {value.type}; what is assigned "
                    f"to is updated in place, so the new tensor {problem}; or return it"
                )
            assigned.append((watched, found, value))
    for watched, found, value in assigned:
        watched.write(found)
        with no_grad():
            found.write(value, "assignment")


def _put_back(trace: Trace, outside: Outside) -> None:
    """No placeholder stays where a tensor was before the function was traced."""
    for watched, found in outside.others:
        now = watched.read()
        if now is not found and isinstance(found, Handle) and id(now) in trace.own:
            watched.write(found)
