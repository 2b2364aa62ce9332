"""Generate a fast path for the calls of one program with plain tensor arguments.

It does what `CallSignature.sizes` and `Specialised.__call__` do, without loops over arguments and results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..lazy.handle import mode
from ..lazy.storage import one_writer
from ..runtime.guarded import MISS, GuardedCall, packed
from ..tensor import Tensor
from ..tree import LEAF, NOTHING
from .numbers import same_number
from .specialised import Specialised
from .variables import WatchedVariable


class FastCall(NamedTuple):
    arity: int
    call: Callable[..., Any]
    writes: bool
    """Whether a call has effects that outlive it."""
    assigns: bool
    """Whether it assigns tensors to variables, which no other function may be tracing meanwhile."""
    program: Specialised
    moves: int
    """How often captured tensors had been found on other memory when it was generated."""


def fast_call(program: Specialised, watched: Sequence[WatchedVariable]) -> FastCall | None:
    """Generate the fast path of a program, if its signature is simple enough."""
    traced, outputs, call = program.traced, program.outputs, program.signature.call
    given, count = call.structure.parts, len(program.signature.inputs)
    if traced.modified or outputs.history.results or any(a.is_lent or a.is_tracked for a in traced.arguments):
        return None
    if len(traced.arguments) < count or program.signature.number_inputs:
        return None
    if given[1].parts or any(p is not LEAF for p in given[0].parts):
        return None
    arity = count - len(call.variables)
    if call.variables and call.variable_leaves() != [*range(arity, count)]:
        return None  # one tensor is read twice
    moves = program.environment.moves
    made = _ProgramCall(program, arity).generate(watched)
    return FastCall(arity, made, outputs.write or bool(outputs.gradients), bool(traced.assigned), program, moves)


class _ProgramCall(GuardedCall):
    """The fast path of a program: checks, gathers memory, runs the program, and delivers its outputs."""

    def __init__(self, program: Specialised, arity: int) -> None:
        self.program = program
        self.environment, self.outputs = program.environment, program.outputs
        self.leaves = [f"x{n}" for n in range(len(program.signature.inputs))]
        super().__init__(
            "call", self.leaves[:arity], MISS, mode=mode, environment=self.environment, outputs=self.outputs,
            runner=program.compiled.executable.bound(), one_writer=one_writer, Tensor=Tensor,
        )  # fmt: skip

    def generate(self, watched: Sequence[WatchedVariable]) -> Callable[..., Any]:
        call, environment = self.program.signature.call, self.environment
        self.guard(f"mode.enabled is {call.recorded}")
        if call.variables:
            self._read_variables(call.variables)
        first = len(self.leaves) - len(call.variables)
        memory = [self._memory(x, n >= first and not environment.updated) for n, x in enumerate(self.leaves)]
        for n, number in enumerate(call.numbers):
            if n not in self.program.signature.captured_inputs:
                self._check_number(watched[n], number)
        if not environment.is_empty:
            memory.append(f"*{self._state()}")
        if self.program.constants:
            memory.append(f"*{self.bind('constants', tuple(self.program.constants))}")
        self.add(f"given = {packed(memory)}")
        self._run()
        return self.made()

    def _read_variables(self, variables: Sequence[WatchedVariable]) -> None:
        """Read the variables whose tensors are further inputs; miss if one tensor is an input twice."""
        names = self.leaves[len(self.leaves) - len(variables) :]
        with self.missing("LookupError", "ValueError"):
            self.add(*[f"{x} = {w.read_source(self)}" for x, w in zip(names, variables, strict=True)])
        if len(self.leaves) == 2:
            self.guard("x0 is not x1")
        elif len(self.leaves) > 2:
            self.guard(f"len({{{', '.join(f'id({x})' for x in self.leaves)}}}) == {len(self.leaves)}")
        if self.environment.required_objects:
            required = self.bind("required", self.environment.required_objects)
            self.guard(*[f"id({x}) not in {required}" for x in names])

    def _memory(self, x: str, shared: bool) -> str:
        """Check one tensor, and look up its memory, which others may share."""
        kind: Any = self.program.signature.inputs[self.leaves.index(x)]
        alone = f"not {x}._moves" if shared else f"{x}._base is None"
        strides = "is None" if kind.strides is None else f"== {self.bind('strides', kind.strides)}"
        self.guard(f"isinstance({x}, Tensor)", alone, f"{x}._strides {strides}")
        value, type = self.let("v", f"{x}.own_value()" if shared else f"{x}._value"), self.bind("T", kind.type)
        self.guard(f"({value}.type is {type} or {value}.type == {type})", f"not {value}.tracked")
        memory = self.let("b", f"{value}.buffer")
        self.guard(f"{memory} is not None")
        return memory

    def _check_number(self, watched: WatchedVariable, number: Any) -> None:
        """Compare a captured number that is a constant of the program."""
        before, now = self.bind("number", number), self.let("now", f"{self.bind('watched', watched)}.read()")
        same = f"{self.bind('same', same_number)}({now}, {before})"
        self.guard(f"({now} is {before} or ({now}.__class__ is {before}.__class__ and {same}))")

    def _state(self) -> str:
        """Check the guards of captured state, and gather its memory; miss if a captured tensor has moved to a storage
        that this call does not name.
        """
        state = self.let("state", "environment.checked_memory()")
        with self.block(f"if {state} is None"):
            self.guard("environment.is_current()")
            self.add(f"{state} = environment.memory()")
        self.guard(f"environment.moves == {self.environment.moves}")
        return state

    def _run(self) -> None:
        """Run the program on `given`, and deliver its outputs."""
        program, simple = self.program, self._is_simple()
        if program.compiled.elsewhere:
            self.add(f"given = {self.bind('brought', program.compiled.brought)}(given)")
        if program.hoisted is not None:
            self.add(f"given = (*given, *{self.bind('hoisted', program.hoisted.buffers)}(given))")
        if simple and self._reuses_gradient_memory():
            self._run_on_gradient_memory()
        else:
            simple = simple and not self.outputs.gradients and not self.environment.updated
            if self.outputs.gradients:
                self.add("outputs.drop_gradients()")
            self.add("with one_writer: made = runner(given)" if program.common else "made = runner(given)")
        if simple:
            self._deliver()
        else:
            self.add(f"return outputs.deliver({packed(self.leaves)}, made)")

    def _is_simple(self) -> bool:
        """Whether the function returns one tensor, or only writes tensors, with static sizes."""
        traced = self.program.traced
        returned = traced.result_structure is LEAF
        static = all(
            t is not None and not t.varies for n, t in enumerate(self.outputs.templates) if n not in traced.aliases
        )
        if not static or not (returned or (traced.result_structure is NOTHING and traced.assigned)):
            return False
        return len(traced.results) >= returned + len(traced.assigned)

    def _reuses_gradient_memory(self) -> bool:
        templates = [g.template for g in self.outputs.gradients]
        if not templates or self.program.common or any(t is None or t.varies for t in templates):
            return False
        return bool(getattr(self.objects["runner"], "can_keep", False))

    def _run_on_gradient_memory(self) -> None:
        """Run on the memory of the previous call's gradients if nothing reads them."""
        stored = [self.bind("stored", gradient) for gradient in self.outputs.stored]
        holders = [self.bind("holder", gradient.holder) for gradient in self.outputs.gradients]
        self.add(*[f"{holder}._gradient = None" for holder in holders])
        memory = [self.let("m", f"{gradient}.free()") for gradient in stored]
        with self.block(f"if {' and '.join(f'{m} is not None' for m in memory)}"):
            self.add(f"made = runner(given, {packed(memory)})")
        with self.block("else"):
            self.add("outputs.drop_gradients()", "made = runner(given)", "outputs.store_gradients(made)")
        self.add(*[f"{h}._gradient = {g}" for h, g in zip(holders, stored, strict=True)])

    def _deliver(self) -> None:
        """Wrap the results and assign them to variables; the returned one comes first."""
        traced, results = self.program.traced, dict[int, str]()
        storages = [self.bind("storage", c.base.storage) for c in self.environment.updated]
        self.add(*[f"{storage}.{count} += 1" for storage in storages for count in ("version", "changes")])
        for n, template in enumerate(self.outputs.templates):
            if template is not None:
                results[n] = template.source(self, f"made[{len(results)}]")
        for n, alias in traced.aliases.items():
            results[n] = self.let("z", alias.source(self, self.leaves, results))
        self.add(*[watched.write_source(self, results[n]) for watched, n in traced.assigned])
        self.add(f"return {results[0] if traced.result_structure is LEAF else None}")
