"""Hold one version of a model while it is served: its tensors, its inferencers and its queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .batching import Batcher, BatchSettings, Inferencer, run_halving
from .metrics import ModelMetrics
from .protocol import InferenceRequest, KnownBodies
from .tensor_data import Elements, ServedTensor

PROBE_ROWS = 3
"""Rows of the examples that show whether rows depend on one another."""
PROBE_TOLERANCE = 1e-2
"""Largest relative difference of results that come from other batches: kernels for other sizes round otherwise."""
EXAMPLE_EXTENT = 8
"""Extent of sizes that vary, other than the number of rows, in examples."""


@dataclass(frozen=True)
class LoadedNetwork:
    """A network that can be called, wherever it comes from."""

    inputs: tuple[ServedTensor, ...]
    outputs: tuple[ServedTensor, ...]
    inferencers: tuple[Inferencer, ...]
    platform: str = "tilegrad"

    @property
    def row_size(self) -> str | None:
        """The name of the size that counts rows: the first axis of all inputs and outputs; None if there is none."""
        first = {x.shape[0] if x.shape else 0 for x in (*self.inputs, *self.outputs)}
        name = first.pop() if len(first) == 1 else 0
        return name if isinstance(name, str) else None

    def example(self, rows: int, seed: int) -> tuple[Elements, ...]:
        """Make inputs of random elements."""
        random = np.random.default_rng(seed)
        sizes = {self.row_size: rows}
        made = []
        for spec in self.inputs:
            shape = [n if isinstance(n, int) else sizes.get(n, EXAMPLE_EXTENT) for n in spec.shape]
            integers = random.integers(0, 2, shape)  # 0 and 1 are good as booleans, and as rows of tables
            made.append((random.random(shape) if spec.dtype.kind in "fV" else integers).astype(spec.dtype))
        return tuple(made)


def objection_to_batches(network: LoadedNetwork) -> str | None:
    """Say why requests for a network must not run together; None if they may.

    Requests of different people run together only if a row of the results depends on nothing but its row of the
    inputs. The shapes must allow it, and examples must show it: random rows run together and each alone.
    """
    if network.row_size is None:
        return "the first axes of inputs and outputs are not one size that varies"
    examples = [network.example(1, seed) for seed in range(PROBE_ROWS)]
    call = network.inferencers[0]
    for order in (examples, examples[::-1]):
        together = run_halving(call, order, True)
        alone = [run_halving(call, [x], True)[0] for x in order]
        for x, y in zip(together, alone, strict=True):
            if isinstance(x, Exception) or isinstance(y, Exception):
                return f"it failed for examples of random elements: {x if isinstance(x, Exception) else y}"
            if not all(map(_is_near, x, y)):
                return "rows of its results depend on other rows of the inputs"
    return None


def _is_near(x: Elements, y: Elements) -> bool:
    """Compare results up to the rounding that differs between sizes of batches."""
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if x.dtype.kind in "iub":
        return bool((x == y).all())
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    scale = np.abs(wide_y[np.isfinite(wide_y)]).max(initial=0.0)
    return bool(np.allclose(wide_x, wide_y, rtol=PROBE_TOLERANCE, atol=PROBE_TOLERANCE * scale, equal_nan=True))


@dataclass
class ServedModel:
    """One version of a model that answers requests."""

    name: str
    version: str
    network: LoadedNetwork
    settings: BatchSettings
    metrics: ModelMetrics
    loaded: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        wanted = self.settings.max_batch > 1
        self.objection = objection_to_batches(self.network) if wanted else "max_batch is 1"
        """Why requests do not run together; None if they do."""
        self.known = KnownBodies()
        self.batcher = Batcher(self.network.inferencers, self.objection is None, self.settings, self.metrics)

    @property
    def inputs(self) -> Sequence[ServedTensor]:
        """The inputs, in order."""
        return self.network.inputs

    @property
    def outputs(self) -> Sequence[ServedTensor]:
        """The outputs, in order."""
        return self.network.outputs

    async def infer(self, request: InferenceRequest, deadline: float) -> list[Elements]:
        """Return all outputs for a request; `deadline` is a time of `time.monotonic`."""
        return await self.batcher.run(request.inputs, deadline)

    def metadata(self, versions: Sequence[str]) -> dict[str, Any]:
        """Describe the model as the protocol does."""
        return {
            "name": self.name,
            "versions": list(versions),
            "platform": self.network.platform,
            "inputs": [x.metadata() for x in self.inputs],
            "outputs": [x.metadata() for x in self.outputs],
        }

    def state(self) -> dict[str, Any]:
        """Describe what the model does now, for the status page."""
        return {
            "name": self.name,
            "version": self.version,
            "inputs": [f"{x.name}: {x}" for x in self.inputs],
            "outputs": [f"{x.name}: {x}" for x in self.outputs],
            "max_batch": self.batcher.max_batch,
            "objection": self.objection,
            "waiting": len(self.batcher.waiting),
            "running": self.batcher.running,
            "loaded": self.loaded,
            **self.metrics.summary(),
        }
