"""Engines: a network with one set of weights, and the plans by which inferencers run it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from ..deferred import part
from ..errors import ArgumentError, ShapeError
from ..ir.size import Size
from ..nn.graph_module import RANDOM, NetworkGraph
from ..runtime.device import device
from ..runtime.singletons import lock
from ..saved.exported import ExportedProgram
from .independent_rows import has_independent_rows
from .inferencer import Inferencer
from .inferencer_pool import InferencerPool
from .modes import run_double_buffered, run_in_threads, run_pipelined, run_sequentially
from .plans import Plan, SharedWeights
from .pooled_inferencer import PooledInferencer
from .report import EngineReport, measured
from .specs import TensorSpec, input_specs, output_specs
from .stages import cut_into_stages

DEFAULT_CALLERS = 2
"""Calls at a time, and stages of a pipeline, unless others are asked for."""
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
        self.program = program
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
        with suppress(KeyError):  # another thread has evicted it
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
        return (
            Inferencer if part(f"backend.{device(self.device).kind}.contexts", "context_factory") else PooledInferencer
        )(self)

    def pool(self, cap: int) -> InferencerPool:
        """Make a pool of at most `cap` inferencers, which callers share."""
        return InferencerPool(self, cap)

    def stages(self, count: int) -> list[Engine]:
        """Cut the network into stages of about equal cost; the next takes what one returns."""
        bound = {"batches": self.batches, "owns_tensors": True, "max_plans": self.max_plans}
        return [Engine(stage, self.max_batch, **bound) for stage in cut_into_stages(self.program, count)]  # type: ignore[arg-type]

    def mode(self, mode: str, callers: int | None = None) -> Callable[[Iterable[Any]], Iterator[Any]]:
        """Return a function that runs calls in one of the modes, and yields their results in order.

        `sequential`: one after the other, with the least memory. `double`: while one is computed, the caller makes the
        next one ready. `threads`: `callers` at a time. `pipeline`: through `callers` stages at a time.
        """
        count = callers or DEFAULT_CALLERS
        match mode:
            case "sequential":
                return partial(run_sequentially, self.inferencer())
            case "double":
                return partial(run_double_buffered, (self.inferencer(), self.inferencer()))
            case "threads":
                return partial(run_in_threads, self.pool(count))
            case "pipeline":
                return partial(run_pipelined, [stage.inferencer() for stage in self.stages(count)])
        raise ArgumentError(f"the modes are sequential, double, threads and pipeline, not {mode!r:.40}")

    def map(self, calls: Iterable[Any], mode: str = "threads", callers: int | None = None) -> Iterator[Any]:
        """Run many calls in a mode (`Engine.mode`), each a tuple of arguments or a single one; yield their results."""
        return self.mode(mode, callers)(calls)

    def report(self, batch: int | None = None, seconds: float = 4.0, callers: int | None = None) -> EngineReport:
        """Measure all modes on this machine with calls of one batch size; say which is best, and why."""
        return measured(self, batch or self.max_batch or 1, seconds, callers or DEFAULT_CALLERS)

    def check_batch(self, sizes: Mapping[str, int]) -> None:
        """Raise if a call has more examples than the engine takes."""
        rows = 0 if self.batch is None else sizes[self.batch]
        if self.max_batch is not None and rows > self.max_batch:
            raise ShapeError(
                f"a batch of {rows} examples is larger than max_batch={self.max_batch}: call the engine with parts of "
                f"it, or make an engine with max_batch={rows}"
            )
