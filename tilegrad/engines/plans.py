"""Plans: the compiled programs of an engine, one for each kind of sizes, and the weights that they share."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from functools import cached_property

from ..autograd.modes import no_grad
from ..compiler import compile
from ..deferred import part
from ..ir.dtype import uint8
from ..ir.graph import Graph, Input, Value
from ..ir.size import known
from ..lazy.evaluation import compute
from ..nn.graph_module import NetworkGraph, input_name
from ..ops.bind_sizes import bind_sizes
from ..runtime.buffer import DeviceBuffer
from ..runtime.device import device
from ..runtime.executable import Runner
from ..runtime.execution_context import ContextFactory
from ..saved.exported import ExportedProgram

ALIGNMENT = 64
"""Alignment of arguments and results in the memory of an inferencer, in bytes: a cache line."""


class SharedWeights:
    """The tensors of a network as they were when its engine was made, and what plans have packed of them.

    Their values are held, so that a later change of the module's parameters goes to other memory.
    """

    def __init__(self, program: ExportedProgram, is_own: bool) -> None:
        tensors = [program.tensor(name).detach() for name in program.graph.tensor_names]
        self.values: list[Value] = compute(*tensors) if tensors else []
        self.buffers: list[DeviceBuffer] = [
            v.buffer if is_own or not v.buffer.shared else v.buffer.device.copy(v.buffer) for v in self.values
        ]
        self._packed: dict[tuple[int, bytes], DeviceBuffer] = {}

    def shared(self, packed: DeviceBuffer) -> DeviceBuffer:
        """Return memory that another plan has packed with the same elements, if there is some."""
        view = packed.device.view(packed, uint8, (packed.bytes,))
        elements = packed.device.to_host(packed, uint8, (packed.bytes,)) if view is None else view
        key = packed.bytes, hashlib.blake2b(elements.data, digest_size=16).digest()
        return self._packed.setdefault(key, packed)

    @property
    def bytes(self) -> int:
        """Bytes of all tensors, each counted once, and of what is packed."""
        distinct = {id(b.owner): b.bytes for b in (*self.buffers, *self._packed.values())}
        return sum(distinct.values())


class Plan:
    """The program of a network for known sizes."""

    def __init__(self, network: NetworkGraph, weights: SharedWeights, sizes: Mapping[str, int]) -> None:
        start = time.perf_counter()
        self.sizes = dict(sizes)
        self.may_be_padded = False
        """Whether batches of fewer rows run on it."""
        graph = with_known_sizes(network, sizes)
        self.arguments = graph.inputs[: len(network.argument_inputs)]
        self.outputs = graph.outputs
        constant = range(len(self.arguments), len(graph.inputs))
        self.compiled = compile(
            graph, name="network", constant_inputs=tuple([n for n in constant if _is_array(graph, n)])
        )
        place = device(self.compiled.device)
        shared = [x if x.device is place else place.copy(x) for x in weights.buffers]
        hoisted = self.compiled.executable.hoisted
        if hoisted is not None:
            given: list[DeviceBuffer] = [shared[n - len(self.arguments)] for n in hoisted.inputs]
            shared += [weights.shared(x) for x in hoisted.executable.bound()(given)]
        self.shared: list[DeviceBuffer] = shared
        """The memory of all inputs that are no arguments."""
        self.constants = dict(enumerate(shared, len(self.arguments)))
        """The same by the numbers of these inputs."""
        specialise = part(f"backend.{place.kind}.contexts", "context_factory")
        self.contexts: ContextFactory | None = specialise and specialise(self.compiled.executable)
        self.written: list[int]
        self.copied: list[tuple[int, int]]
        shape = self.outputs[0].type.shape if self.outputs else ()
        self.rows = known(shape[0], {}) if shape else 1
        """The number of rows of a batch, where all arguments and results have one."""
        self._place_results()
        if self.contexts is not None:
            self.contexts.learn([*map(_zeros, self.arguments), *shared])
        self.seconds = time.perf_counter() - start
        """Time that it took to make it: the cost of sizes that are met for the first time."""

    def _place_results(self) -> None:
        """Find the results that a run writes; others are arguments, constants, or the same as those."""
        count = len(self.arguments) + len(self.shared)
        self.written, self.copied = [], []
        if self.contexts is None:
            return
        places = list(self.contexts.results)
        made = [places.index(count + k) for k in range(len(self.contexts.outputs))]
        self.written = made
        """The results that a run writes, in its order."""
        self.copied = [
            (n, at if at < count else made[at - count] - len(places)) for n, at in enumerate(places) if n not in made
        ]
        """Other results, with what they are copied from: an input of the program, or (negative) another result."""

    @cached_property
    def is_parallel(self) -> bool:
        """Whether the program has work for several threads."""
        return self.contexts is not None and self.contexts.is_parallel

    @cached_property
    def padded_offsets(self) -> list[int]:
        """Return the places of arguments and results in the activations while a batch is padded."""
        assert self.contexts is not None
        at, found = self.contexts.arena, []
        for bytes in (*[known(x.type.bytes, {}) for x in self.arguments], *self.contexts.outputs):
            at = -(-at // ALIGNMENT) * ALIGNMENT
            found.append(at)
            at += bytes
        return [*found, at]

    @property
    def activation_bytes(self) -> int:
        """Bytes that an inferencer needs: for temporaries, and for a batch that is padded."""
        if self.contexts is None:
            return 0
        bytes = self.padded_offsets[-1] if self.may_be_padded else self.contexts.arena
        return self.contexts.allocated(max(1, bytes))

    @property
    def runner(self) -> Runner:
        """Run the program on memory of the device's pool: arguments, then `shared`."""
        return self.compiled.executable.bound()


def with_known_sizes(network: NetworkGraph, sizes: Mapping[str, int]) -> Graph:
    """Return the graph of a network for one set of sizes."""
    inputs = tuple([Input(bind_sizes(x.type, sizes), input_name(x)) for x in network.graph.inputs])
    with no_grad():
        outputs = network.values(dict(zip(network.graph.inputs, inputs, strict=True)), sizes)
    return Graph(inputs, tuple(outputs))


def _is_array(graph: Graph, n: int) -> bool:
    """Whether an input is more than a number: numbers may be on another device than the program."""
    return bool(graph.inputs[n].shape)


def _zeros(x: Value) -> DeviceBuffer:
    place, bytes = device(x.device), bind_sizes(x.type.bytes, {})
    made = place.allocate(bytes)
    view = place.view(made, uint8, (bytes,))
    if view is not None:
        view[:] = 0
    return made


def batch_parts(rows: int, batches: Sequence[int]) -> list[tuple[int, int, int]]:
    """Cut a batch into parts that plans of some batch sizes run: (first row, rows, batch size of the plan).

    A part with fewer rows than its plan is padded. The cost of a run is taken to be its rows and one more.

    >>> batch_parts(5, (1, 4, 16)), batch_parts(3, (1, 4, 16)), batch_parts(14, (1, 4, 16))
    ([(0, 4, 4), (4, 1, 1)], [(0, 3, 4)], [(0, 14, 16)])
    """
    best: list[tuple[int, int]] = [(0, 0)]
    for n in range(1, rows + 1):
        best.append(min((best[max(0, n - b)][0] + b + 1, -b) for b in batches))
    parts, left = [], rows
    while left:
        batch = -best[left][1]
        taken = min(left, batch)
        parts.append((rows - left, taken, batch))
        left -= taken
    return parts
