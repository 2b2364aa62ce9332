"""Engines: a network with one set of weights, and the plans by which inferencers run it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..errors import ArgumentError, ShapeError
from ..ir.size import Size
from ..nn.graph_module import RANDOM, NetworkGraph
from ..runtime.singletons import lock
from ..saved.exported import ExportedProgram
from .independent_rows import has_independent_rows
from .inferencer import Inferencer
from .plans import Plan, SharedWeights
from .specs import TensorSpec, input_specs, output_specs

MAX_PLANS = 32
"""Plans that an engine keeps, where shapes vary from call to call: each is some machine code and packed weights."""


class EngineMemory(NamedTuple):
    """Bytes of memory: what all inferencers share, and what each of them adds."""

    weights: int
    activations: int

    def __str__(self) -> str:
        return f"{self.weights:,} bytes of weights, shared; {self.activations:,} bytes for each inferencer"


class Engine:
    """A network that is ready for inference."""

    def __init__(
        self,
        program: ExportedProgram,
        max_batch: int | None,
        *,
        batches: Sequence[int] = (),
        names: Sequence[str] | None = None,
        owns_tensors: bool = False,
        max_plans: int = MAX_PLANS,
    ) -> None:
        if program.graph.updates or RANDOM in program.graph.tensor_names:
            raise ArgumentError(
                "the network draws random numbers or writes to its buffers in evaluation mode: an engine shares its "
                "tensors between threads"
            )
        self.network: NetworkGraph = program.graph
        self.device = program.graph.graph.outputs[0].device
        self.inputs: list[TensorSpec] = input_specs(self.network)
        """The inputs in order; sizes that vary are words."""
        self.outputs: list[TensorSpec] = output_specs(self.network, names)
        """The outputs in order."""
        self.max_batch = max_batch
        """The largest number of examples in a call; None if there is no bound."""
        self.max_plans = max_plans
        self.weights = SharedWeights(program, owns_tensors)
        self.calls = 0
        """Calls that run now: more than one share the cores."""
        self._plans: OrderedDict[tuple[tuple[str, int], ...], Plan] = OrderedDict()
        self._making = lock()
        first = self.network.argument_inputs[0].type.shape[:1] if self.network.argument_inputs else ()
        self.batch = str(first[0]) if first and isinstance(first[0], Size) else None
        """The size that counts the examples of a batch."""
        self.batches: tuple[int, ...] = ()
        """The batch sizes that have plans; batches in between run in parts, or padded. Empty: each has its own."""
        self._prepare(batches)

    def _prepare(self, batches: Sequence[int]) -> None:
        """Make the plans that need no example, and see whether batches may be cut and padded."""
        words = {d for spec in self.inputs for d in spec.shape if isinstance(d, str)}
        if words - {self.batch}:
            return  # other sizes vary, too: plans are made for what calls bring
        if self.batch is None or self.max_batch is None:
            if not words:
                self.plan({})
            return
        wanted = sorted({*(() if self._refuses_one() else (1,)), *batches, self.max_batch})
        if wanted[0] < 1 or wanted[-1] > self.max_batch:
            raise ArgumentError(f"batches are numbers from 1 to max_batch={self.max_batch}, not {list(batches)}")
        plans = [self.plan({self.batch: n}) for n in wanted]
        if len(plans) > 1 and plans[0].rows == 1 and has_independent_rows(plans[-1], plans[0]):
            self.batches = tuple(wanted)
            for plan in plans[1:]:
                plan.may_be_padded = True

    def _refuses_one(self) -> bool:
        """Whether the network was recorded for batches of more than one example."""
        return any(str(size) == self.batch and other == 1 for size, other in self.network.unequal)

    def plan(self, sizes: Mapping[str, int]) -> Plan:
        """Find or make the plan for known sizes; the least recently used one is evicted if there are too many."""
        key = tuple(sorted(sizes.items()))
        found = self._plans.get(key)
        if found is None:
            with self._making:
                found = self._plans.get(key) or Plan(self.network, self.weights, sizes)
                self._plans[key] = found
                while len(self._plans) > max(1, self.max_plans):
                    self._plans.popitem(last=False)
        self._plans.move_to_end(key)
        return found

    @property
    def plans(self) -> list[Plan]:
        """The plans that are kept, the least recently used first."""
        return list(self._plans.values())

    @property
    def memory(self) -> EngineMemory:
        """The memory of the plans so far."""
        return EngineMemory(self.weights.bytes, max([p.activation_bytes for p in self.plans], default=0))

    def inferencer(self) -> Inferencer:
        """Make an inferencer, which runs the network for one caller at a time; several run at the same time."""
        return Inferencer(self)

    def check_batch(self, sizes: Mapping[str, int]) -> None:
        """Raise if a call has more examples than the engine takes."""
        rows = 0 if self.batch is None else sizes[self.batch]
        if self.max_batch is not None and rows > self.max_batch:
            raise ShapeError(
                f"a batch of {rows} examples is larger than max_batch={self.max_batch}: call the engine with parts of "
                f"it, or make an engine with max_batch={rows}"
            )
