"""Engines and inferencers: one set of weights, and any number of callers that run it at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..autograd.modes import no_grad
from ..errors import ShapeError
from ..ir.size import Dim, Size
from ..lazy.evaluation import array_of, compute
from ..lazy.handle import Handle
from ..saved.exported import ExportedProgram
from ..tree import flatten, unflatten
from .specs import TensorSpec, input_specs, output_specs


class Engine:
    """A network that is ready for inference."""

    def __init__(self, program: ExportedProgram, max_batch: int | None, names: Sequence[str] | None = None) -> None:
        self.program = program
        self.network = program.graph
        self.inputs: list[TensorSpec] = input_specs(self.network)
        """The inputs in order; sizes that vary are words."""
        self.outputs: list[TensorSpec] = output_specs(self.network, names)
        """The outputs in order."""
        self.max_batch = max_batch
        """The largest number of examples in a call; None if there is no bound."""

    def inferencer(self) -> Inferencer:
        """Make an inferencer, which runs the network for one caller at a time; several run at the same time."""
        return Inferencer(self)

    def check_batch(self, sizes: dict[str, Dim]) -> None:
        """Raise if a call has more examples than the engine takes."""
        if self.max_batch is None or not self.inputs or not self.inputs[0].shape:
            return
        rows = sizes.get(str(self.inputs[0].shape[0]), 0)
        if not isinstance(rows, Size) and rows > self.max_batch:
            raise ShapeError(
                f"a batch of {rows} examples is larger than max_batch={self.max_batch}: call the engine with parts of "
                f"it, or make an engine with max_batch={rows}"
            )


class Inferencer:
    """Runs the network of an engine: called with its inputs, by place or by name, it returns the outputs.

    Numpy arrays are answered with numpy arrays, tensors with tensors, in the structure that the network returns.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        engine, network = self.engine, self.engine.network
        leaves = network.leaves_of(args, kwargs)
        engine.check_batch(network.sizes_of(leaves))
        with no_grad():
            found, structure = flatten(engine.program(*args, **kwargs))
            compute(*found)
        given = flatten((args, kwargs))[0]
        is_array = not any(isinstance(x, Handle) for x in given)
        return unflatten(structure, [array_of(x).copy() if is_array else x for x in found])
