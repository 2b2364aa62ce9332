"""Record CUDA kernel calls in a graph: each is a value, and a launch of the compiled program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.graph import TensorType, Value
from ..ops.external_call import external_call
from ..runtime.device import device as device_of
from ..runtime.external_work import ExternalWork, PreparedWork
from .recorded import without_gradient


class CudaWork(ExternalWork):
    """A CUDA kernel with its numbers; equal if made from the same source."""

    def __init__(self, function: Any, numbers: Sequence[float | int]) -> None:
        self.function = function
        self.numbers = tuple(numbers)
        self.name = function.name
        self._same = (function.digest, function.name, self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CudaWork) and self._same == other._same

    def __hash__(self) -> int:
        return hash(self._same)

    def prepared(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType], device: str) -> PreparedWork:
        return _RecordedLaunch(self.function, inputs, self.numbers, device)


class _RecordedLaunch(PreparedWork):
    """A launch prepared except for addresses and stream."""

    def __init__(
        self, function: Any, inputs: Sequence[TensorType], numbers: Sequence[float | int], device: str
    ) -> None:
        self.driver = function.gpu_of(device_of(device)).driver
        self.launched, self.places = function.prepared_launch(inputs, numbers, device_of(device))
        super().__init__(function.name, 0, 0, [0] * len(function.names), function)

    def run(self, addresses: Sequence[int], stream: int = 0) -> None:
        call = self.launched
        if call is None:
            return
        for offsets in self.offsets:
            for slot, tensor in self.places:
                call.slots[slot] = addresses[tensor] + offsets[tensor]
            self.driver.launch(call, stream)


def record_cuda_call(function: Any, values: Sequence[Value], numbers: Sequence[float | int]) -> list[Value]:
    """Return the results of a call as values that refuse to be differentiated."""
    match = function.signature.match([v.type for v in values], numbers)
    function.gpu_of(device_of(match.device))
    made = external_call(CudaWork(function, match.numbers), values, function.signature.outputs(match))
    return without_gradient(function.name, made, values)
