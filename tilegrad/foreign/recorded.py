"""Record calls of foreign functions in a graph: each is a value, and a step of the compiled program."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ..errors import GradientError
from ..ir.graph import TensorType, Value
from ..lazy.handle import mode
from ..ops.external_call import external_call
from ..ops.joint import joint_outputs
from ..runtime.device import device as device_of
from ..runtime.external_work import ENTRY, ExternalWork, PreparedWork
from .abi import CallRecord, HostCallbacks, TensorLayout

HOST_DEVICES = ("cpu", "null", "reference")
"""Devices whose programs can contain calls of host functions."""
TENSOR_STRUCTURE_BYTES = 40
"""Size of a `tg_tensor` in bytes; its first field is the address of its elements."""


class ForeignWork(ExternalWork):
    """A foreign function with its numbers; equal if made from the same source."""

    def __init__(self, function: Any, numbers: Sequence[float | int]) -> None:
        self.function = function
        self.numbers = tuple(numbers)
        self.name = function.name
        self._same = (function.digest, function.name, self.numbers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ForeignWork) and self._same == other._same

    def __hash__(self) -> int:
        return hash(self._same)


class CppWork(ForeignWork):
    """A call of a C++ function."""

    def __init__(self, function: Any, numbers: Sequence[float | int]) -> None:
        super().__init__(function, numbers)
        self.kind = "python" if function.makes_tensors else "c"  # type: ignore[misc]

    @property
    def mark(self) -> str:
        return f"{self.function.digest} {self.name} {self.numbers!r}"

    def prepared(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType], device: str) -> PreparedWork:
        call = self.function.prepare([TensorLayout(t) for t in inputs], self.numbers)
        record = call.record()
        return (_AllocatingCall if self.kind == "python" else _CppNativeCall)(self.function, call.place, record, call)


class _CppNativeCall(PreparedWork):
    """A call made by native code, with tensors as its only arguments."""

    def __init__(self, function: Any, place: int, record: CallRecord, keep: object) -> None:
        self.function, self.record = function, record
        count = len(record.extents)
        data = [record.address_of_tensors + TENSOR_STRUCTURE_BYTES * n for n in range(count)]
        super().__init__(function.name, place, record.address, data, keep)

    def failed(self, status: int) -> Exception:
        return self.function.failure(*self.record.error)  # type: ignore[no-any-return]


class _AllocatingCall(_CppNativeCall):
    """A call that may allocate memory through Python while it runs."""

    def __init__(self, function: Any, place: int, record: CallRecord, keep: object) -> None:
        super().__init__(function, place, record, keep)
        self.failure: BaseException | None = None
        native = ENTRY(place)

        def entry(call: int) -> int:
            with HostCallbacks(device_of("cpu"), ()) as host:
                record.call.host = host.number
                status: int = native(call)
                self.failure = host.failure
            return status

        self.thunk = ENTRY(entry)
        self.entry = ctypes.cast(self.thunk, ctypes.c_void_p).value or 0

    def failed(self, status: int) -> Exception:
        failure, self.failure = self.failure, None
        return failure if isinstance(failure, Exception) else super().failed(status)


class CudaWork(ForeignWork):
    """A launch of a CUDA kernel."""

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


def record_call(
    kind: type[CppWork | CudaWork], function: Any, values: Sequence[Value], numbers: Sequence[float | int]
) -> list[Value]:
    """Return the results of a call as values that refuse to be differentiated."""
    match = function.signature.match([v.type for v in values], numbers)
    function.check_device(match.device, HOST_DEVICES)
    work = kind(function, match.numbers)
    return without_gradient(function.name, external_call(work, values, function.signature.outputs(match)), values)


def without_gradient(name: str, made: list[Value], values: Sequence[Value]) -> list[Value]:
    """Make values refuse to be differentiated."""
    if not (mode.enabled and any(v.tracked for v in values)):
        return made

    def refuse(_: Sequence[Value | None]) -> Sequence[Value | None]:
        raise GradientError(
            f"{name} has no derivative: call it within `with tilegrad.no_grad():`, on x.detach(), in the forward of a "
            "tilegrad.autograd.Function, or make it a kernel of a tilegrad.op with a gradient"
        )

    return joint_outputs(made, values, refuse)
