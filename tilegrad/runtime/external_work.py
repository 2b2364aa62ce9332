"""Call external functions in machine code through one entry point.

    int32_t entry(const void *call)      0: success; anything else: failure

The maker of the work defines what `call` points to; this module and the executors know only the addresses of its fields
that hold the pointers to the tensors' elements.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ..errors import ForeignError
from ..ir.size import known

if TYPE_CHECKING:
    from ..ir.graph import TensorType

ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


class PreparedWork:
    """A prepared call for tensors of given types: only their addresses change from run to run.

    `data` are the addresses of the fields for the inputs, then the outputs. `stream`, unless it is 0, is the address of
    the field for a stream handle. The call is repeated for each of the `offsets`, which are added to the tensors'
    addresses, in bytes.
    """

    stream = 0

    def __init__(self, name: str, entry: int, call: int, data: Sequence[int], keep: object = None) -> None:
        self.name = name
        self.entry, self.call, self.data = entry, call, tuple(data)
        self.offsets: list[tuple[int, ...]] = [(0,) * len(self.data)]
        self.keep = keep
        """Objects to keep alive as long as this."""

    def failed(self, status: int) -> Exception:
        """Build the error for a failed run."""
        return ForeignError(f"{self.name} failed with status {status}")

    def run(self, addresses: Sequence[int], stream: int = 0) -> None:
        """Run once, from Python."""
        entry = ENTRY(self.entry)
        if self.stream:
            ctypes.c_void_p.from_address(self.stream).value = stream
        for offsets in self.offsets:
            for field, address, offset in zip(self.data, addresses, offsets, strict=True):
                ctypes.c_void_p.from_address(field).value = address + offset
            status = entry(self.call)
            if status:
                raise self.failed(status)


class ExternalWork(ABC):
    """A pure function of tensors, by contract: calls may be repeated, dropped, or shared between equal uses."""

    is_external_work: ClassVar[bool] = True
    name: str
    kind: ClassVar[str] = "c"
    """`c`: runs without the interpreter; `python`: takes the interpreter's lock and gets arrays on the CPU."""

    @property
    def mark(self) -> str:
        """A name that identifies it in all processes; empty if there is none."""
        return ""

    @abstractmethod
    def prepared(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType], device: str) -> PreparedWork:
        """Prepare the call for tensors of these types (with static extents)."""

    def __str__(self) -> str:
        return self.name


class ArrayWork(ExternalWork):
    """A Python function from numpy arrays to one or several arrays."""

    kind = "python"

    def __init__(self, name: str, fn: Callable[..., Any]) -> None:
        self.name = name
        self.fn = fn

    def prepared(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType], device: str) -> PreparedWork:
        return _PreparedArrays(self, inputs, outputs)

    def into(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Call the function and copy its results to the outputs."""
        made = self.fn(*inputs)
        given = made if isinstance(made, tuple | list) else (made,)
        if len(given) != len(outputs):
            raise ForeignError(f"{self.name} returned {len(given)} arrays; {len(outputs)} are declared")
        for n, (array, target) in enumerate(zip(given, outputs, strict=True)):
            found = np.asarray(array)
            if found.shape != target.shape or found.dtype != target.dtype:
                raise ForeignError(
                    f"{self.name}: result {n} is {found.dtype} of shape {list(found.shape)}; {target.dtype} of shape "
                    f"{list(target.shape)} is declared"
                )
            target[...] = found


class _PreparedArrays(PreparedWork):
    """The function behind an entry point: an exception is kept until the run is over."""

    def __init__(self, work: ArrayWork, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> None:
        types = [*inputs, *outputs]
        self.fields = (ctypes.c_void_p * max(1, len(types)))()
        self.error: BaseException | None = None

        def entry(_: int) -> int:
            try:
                arrays = [_array(self.fields[n], t) for n, t in enumerate(types)]
                given = arrays[: len(inputs)]
                for x in given:
                    x.flags.writeable = False
                work.into(given, arrays[len(inputs) :])
            except BaseException as error:
                self.error = error
                return 1
            return 0

        thunk = ENTRY(entry)
        start = ctypes.addressof(self.fields)
        data = [start + 8 * n for n in range(len(types))]
        super().__init__(work.name, ctypes.cast(thunk, ctypes.c_void_p).value or 0, start, data, thunk)

    def failed(self, status: int) -> Exception:
        error, self.error = self.error, None
        if isinstance(error, ForeignError) or not isinstance(error, Exception):
            return error if isinstance(error, Exception) else ForeignError(f"{self.name} was interrupted")
        made = ForeignError(f"{self.name} raised {type(error).__name__}: {error}")
        made.__cause__ = error
        return made


def with_known_sizes(type: TensorType, sizes: Mapping[str, int]) -> TensorType:
    """Replace symbolic extents by numbers."""
    return type.with_shape(tuple([known(extent, sizes) for extent in type.shape]))


def _array(address: int | None, type: TensorType) -> Any:
    """Wrap the elements at an address in an array."""
    shape: Any = type.shape
    count = int(np.prod(shape, dtype=np.int64)) * type.dtype.bytes
    if not count or not address:
        return np.empty(shape, type.dtype.numpy)
    memory = memoryview((ctypes.c_char * count).from_address(address)).cast("B")
    return np.frombuffer(memory, np.uint8).view(type.dtype.numpy).reshape(shape)


class Each(ExternalWork):
    """Work repeated for each entry of the leading (batch) axis of the tensors that have it; all outputs do."""

    def __init__(self, inner: ExternalWork, mapped: tuple[bool, ...]) -> None:
        self.inner, self.mapped = inner, mapped
        self.name = f"{inner.name}_each"
        self.kind = inner.kind  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Each) and (self.inner, self.mapped) == (other.inner, other.mapped)

    def __hash__(self) -> int:
        return hash((self.inner, self.mapped))

    @property
    def mark(self) -> str:
        return f"{self.mapped} {self.inner.mark}" if self.inner.mark else ""

    def prepared(self, inputs: Sequence[TensorType], outputs: Sequence[TensorType], device: str) -> PreparedWork:
        types = [*inputs, *outputs]
        single = [t.with_shape(t.shape[1:]) if m else t for t, m in zip(types, self.mapped, strict=True)]
        made = self.inner.prepared(single[: len(inputs)], single[len(inputs) :], device)
        moves = [known(t.bytes, {}) if m else 0 for t, m in zip(single, self.mapped, strict=True)]
        entries = outputs[0].shape[0]
        assert isinstance(entries, int)
        made.offsets = [
            tuple([n * move + within for move, within in zip(moves, inner, strict=True)])
            for n in range(entries)
            for inner in made.offsets
        ]
        return made
