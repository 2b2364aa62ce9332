"""Compile one program of a jitted function, traced for one kind of arguments, and call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..compiler import Compiled, compile
from ..ir.size import known
from ..lazy.handle import Handle, Surroundings, mode
from ..lazy.realize import plain_graph
from ..lazy.storage import one_writer
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import device
from ..runtime.executable import Runner
from .assigned_variables import with_variables
from .captured_state import CapturedState, display_name
from .environment import Environment
from .memory import CapturedInput, HostNumberInput, ProgramInput
from .outputs import ProgramOutputs
from .signature import CallArguments, CallSignature
from .traced_call import TracedCall

if TYPE_CHECKING:
    from .hoisted_values import HoistedValues


class Specialised:
    """A program with the sources of its inputs and the targets of its outputs.

    Inputs: the tensors and numbers among the arguments, captured storages, numbers of the host, constants. Captured
    storages that the function writes to are updated in place.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        signature: CallSignature,
        leaves: Sequence[Any],
        outside: CapturedState,
        fit: int = 0,
    ) -> None:
        surroundings = Surroundings.changes
        self.signature = signature
        self.name = display_name(fn)
        self.fit = fit
        self.traced = TracedCall(fn, self.name, signature, leaves, outside)
        self.environment = Environment(self.traced, outside, surroundings)
        self.outputs = ProgramOutputs(self.traced, self.environment)
        self.inputs: list[ProgramInput] = [*self.traced.arguments, *self.environment.inputs]
        self.runners: dict[tuple[tuple[str, int], ...], Runner] = {}
        self.common = any(storage.common for storage in self.traced.trace.finals)
        """Whether it writes to memory that unrelated threads share."""
        values = self.outputs.values()
        updated = [n for n, x in enumerate(self.inputs) if isinstance(x, CapturedInput) and x.is_updated]
        self.updates = {len(values) + m: n for m, n in enumerate(updated)}
        """The outputs that are written to the memory of inputs, with these."""
        finals = [self.traced.trace.finals[c.base.storage] for c in self.environment.updated]
        self.graph, self.constants = plain_graph([*values, *finals], [x.placeholder for x in self.inputs])

    @property
    def unjitted_reason(self) -> str:
        """The reason if there is no program: the function runs unjitted."""
        return self.traced.unjitted_reason

    def match(self, call: CallArguments) -> tuple[list[Any], dict[str, int]] | None:
        """Match a call: return its leaves and the values of the symbols, or None if it is of another kind."""
        given = with_variables(call, self.signature.call.variables, self.environment.required_objects)
        sizes = None if given is None else self.signature.sizes(given)
        return None if given is None or sizes is None or not self.sizes_fit(sizes) else (given.leaves, sizes)

    def sizes_fit(self, sizes: Mapping[str, int]) -> bool:
        """Whether sizes that the trace took for unequal are unequal in a call."""
        if not self.traced.different or tuple(sizes.items()) in self.runners:
            return True
        return all(a.value(sizes) != known(b, sizes) for a, b in self.traced.different)

    def compile(self) -> Specialised:
        """Compile the program."""
        self.compiled: Compiled = compile(
            self.graph, self.updates, self.name, fit=self.fit, constant_inputs=self._read_only()
        )
        program = self.compiled.program
        results = set(program.outputs[: len(program.outputs) - len(self.updates)])
        for n, x in enumerate(self.inputs):
            x.is_lent = program.inputs[n] in results
            if isinstance(x, HostNumberInput) and n in self.compiled.elsewhere:
                x.place = device(self.compiled.device)
        found = self.compiled.executable.hoisted
        if found is not None:
            from .hoisted_values import HoistedValues

            first = len(self.traced.arguments)
            captured = [self.environment.captured[n - first] for n in found.inputs]
            self.environment.hoisted = HoistedValues(found, captured)
        return self

    @property
    def hoisted(self) -> HoistedValues | None:
        """Values that are computed from captured tensors alone, and cached between calls."""
        return self.environment.hoisted

    def _read_only(self) -> tuple[int, ...]:
        outputs = self.outputs
        trained = any(c.standing.tracked for c in self.environment.updated)
        if trained or outputs.gradients or (outputs.history.results and self.signature.call.recorded):
            return ()
        read = [(n, x) for n, x in enumerate(self.inputs) if isinstance(x, CapturedInput) and not x.is_updated]
        return tuple([n for n, x in read if x.placeholder.type.shape])

    def must_run_unjitted(self, leaves: Sequence[Any]) -> bool:
        """Whether the function is to run unjitted on these arguments: the program does not handle them."""
        if self.unjitted_reason or (self.outputs.write and self._inputs_overlap(leaves)):
            return True
        if any(leaves[a.n]._gradient is not None for a in self.traced.asked):
            return True
        return any(a.is_tracked and leaves[a.n].own_value().provenance.hooks for a in self.traced.arguments)

    def _inputs_overlap(self, leaves: Sequence[Any]) -> bool:
        """Whether two inputs overlap in memory that the program writes to, which it was not compiled for."""
        written = {id(c.base.storage) for c in self.environment.captured if c.is_updated}
        read = {id(c.base.storage) for c in self.environment.captured if not c.is_updated}
        modified = {a.n for a in self.traced.modified}
        for n, x in enumerate(leaves):
            if isinstance(x, Handle):
                memory = id(x if x._base is None else x._base.storage)
                if memory in written or (n in modified and memory in read):
                    return True
                (written if n in modified else read).add(memory)
        return False

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
        outputs = self.outputs
        present = outputs.history.present(leaves) if outputs.history.outputs and mode.enabled else None
        buffers = self.buffers(leaves)
        outputs.drop_gradients()
        return outputs.deliver(leaves, runner(buffers), sizes, present)

    def buffers(self, leaves: Sequence[Any]) -> list[DeviceBuffer]:
        """Gather the buffers of all inputs."""
        buffers = [a.memory(leaves) for a in self.traced.arguments] + self.environment.memory() + self.constants
        if self.compiled.elsewhere:
            buffers = self.compiled.brought(buffers)
        return buffers if self.hoisted is None else [*buffers, *self.hoisted.buffers(buffers)]
