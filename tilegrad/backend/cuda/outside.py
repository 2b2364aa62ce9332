"""External functions called by a program, on the host, with the stream of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.size import known
from ...runtime.external_work import ExternalWork, PreparedWork

if TYPE_CHECKING:
    from ...ir.graph import TensorType
    from .driver import Driver


class ForeignCall:
    """A prepared call; `slots` are the addresses of its tensors. It may submit any work to the stream, so a program
    with one is not a CUDA graph.
    """

    maps: tuple[Any, ...] = ()

    def __init__(
        self, work: ExternalWork, inputs: Sequence[TensorType], outputs: Sequence[TensorType], device: str
    ) -> None:
        self.name = work.name
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.on_arrays = work.kind == "python"
        self.prepared: PreparedWork = work.prepared(inputs, outputs, "cpu" if self.on_arrays else device)
        self.slots = memoryview(bytearray(8 * (len(inputs) + len(outputs)))).cast("Q")

    def start(self, driver: Driver, stream: int) -> None:
        """Call the function; for a Python function, copy arrays to the host and results back."""
        if not self.on_arrays:
            self.prepared.run(list(self.slots), stream)
            return
        arrays = [np.empty(known(t.bytes, {}), np.uint8) for t in (*self.inputs, *self.outputs)]
        places = [int(a.__array_interface__["data"][0]) for a in arrays]
        for place, address, array in zip(places, self.slots, arrays, strict=True):
            if array.size:  # outputs too: the function may read them
                driver.to_host(place, address, array.size, stream)
        driver.await_stream(stream)
        self.prepared.run(places)
        count = len(self.inputs)
        for place, address, array in zip(places[count:], self.slots[count:], arrays[count:], strict=True):
            if array.size:
                driver.to_device(address, place, array.size, stream)
        driver.await_stream(stream)
