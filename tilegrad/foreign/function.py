"""C++ functions of tensors: check arguments, compile for their dtypes, run.

The signature is checked before any foreign code runs: number and names of arguments, dtypes, shapes, devices,
contiguity. The GIL is released during the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from time import perf_counter
from typing import Any, Literal

from ..config import settings
from ..errors import ArgumentError, DeviceError, DTypeError, ForeignError, ShapeError
from ..ir.dtype import DType, int32
from ..ir.graph import Input, TensorType, Value
from ..ir.location import Location
from ..lazy.bounded_recording import is_recorded
from ..lazy.evaluation import in_memory
from ..lazy.handle import Handle, handle_on, mode, wrap
from ..lazy.layout import in_memory_order, is_dense, layout
from ..ops.broadcasting import shown
from ..runtime.buffer import DeviceBuffer
from ..runtime.cache import key
from ..runtime.device import device
from ..runtime.events import timed
from ..runtime.singletons import lock
from . import glue
from .abi import CallRecord, HostCallbacks, TensorLayout, known_extent, prototype
from .build import BuildOptions, BuildReport, LoadedLibrary, build_library
from .direct_call import Direct, Ready, generate_direct_call, parameter_letters, prepare_entry
from .patterns import Signature, SignatureMatch
from .recorded import CppWork, record_call, without_gradient
from .source import ForeignSource, user_line

Contiguous = Literal["copy", "check", "strided"]
MAX_PREPARED_CALLS = 256
"""Largest number of prepared calls (by shapes and numbers) cached for one function."""


class PreparedCppCall:
    """A function prepared for argument types and numbers, complete except for addresses."""

    def __init__(self, function: CppFunction, match: SignatureMatch, inputs: Sequence[TensorLayout]) -> None:
        self.match = match
        self.inputs = inputs
        self.outputs = () if function.signature.open else function.signature.outputs(match)
        self.library = function.library(match.dtypes)
        self.place = function.library_address(self.library)
        self.entry = prototype(self.place)
        extents = [known_extent(match.sizes[name]) for name in function.extents]
        scalars = zip(function.signature.scalar_types, match.numbers, strict=True)
        self.scalars = [*scalars, *((int32, n) for n in extents)]
        self.bytes = [known_extent(t.bytes) for t in self.outputs]
        self.records: list[CallRecord] = []

    def record(self) -> CallRecord:
        """Return a free record; the caller puts it back in `records`."""
        try:
            return self.records.pop()
        except IndexError:
            return CallRecord(self.inputs, [TensorLayout(t) for t in self.outputs], self.scalars)


class ForeignFunction:
    """A foreign function with its signature; `device` is cpu or cuda."""

    device = "cpu"

    def __init__(self, signature: Signature, origin: Location | None, doc: str = "") -> None:
        self.signature = signature
        self.name = self.__name__ = signature.name
        self.origin = origin
        self._wanted = signature.tensors
        self._mixed = len(signature.parameters) != len(self._wanted)
        about = doc or signature.doc
        self.__doc__ = f"{signature}\n\n{about}" if about else str(signature)

    def __repr__(self) -> str:
        return f"<{self.device} function {self.signature}>"

    def tensors(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Sequence[Handle], tuple[float | int, ...]]:
        """Return the tensors and numbers of a call."""
        given: Sequence[Any] = args
        numbers: tuple[float | int, ...] = ()
        if kwargs or self._mixed or len(args) != len(self._wanted):
            given, numbers = self.signature.bind(args, kwargs)
        for x, p in zip(given, self._wanted, strict=True):
            if not isinstance(x, Handle):
                kind = type(x).__name__
                raise DTypeError(f"{self.name}: `{p}` takes a tensor, not {kind} {x!r:.40}: tilegrad.tensor({p.name})")
        return given, numbers

    def wrapped(self, buffers: Sequence[tuple[DeviceBuffer, TensorType]], given: Sequence[Handle]) -> list[Any]:
        """Wrap results as tensors that refuse to be differentiated."""
        values: list[Value] = []
        for buffer, type in buffers:
            made = Input(type)
            made.hold(buffer)
            values.append(made)
        arguments = [x._value if x._base is None else x.value for x in given]
        if mode.enabled and any(v.tracked for v in arguments):
            results = without_gradient(self.name, values, arguments)
            for result, value in zip(results, values, strict=True):
                result.hold(value.buffer)
            values = results
        return [wrap(v) for v in values]

    def returned(self, results: list[Any]) -> Any:
        """Arrange results by the signature: nothing, a tensor, a tuple, or a list."""
        match self.signature.open, results:
            case "list", _:
                return results
            case "Tensor", [one]:
                return one
            case "Tensor", _:
                raise ForeignError(f"{self.name} returned {len(results)} tensors; its signature says one: -> Tensor")
            case _, []:
                return None
            case _, [one]:
                return one
        return tuple(results)


class CppFunction(ForeignFunction):
    """A function in C++."""

    def __init__(
        self,
        plans: Sequence[glue.FunctionBinding],
        mine: glue.FunctionBinding,
        given: Sequence[ForeignSource],
        choices: BuildOptions,
        origin: Location | None,
        contiguous: Contiguous,
        doc: str = "",
    ) -> None:
        super().__init__(mine.signature, origin, doc)
        self.plans, self.plan, self.given, self.choices = plans, mine, given, choices
        self.contiguous = contiguous
        self.extents = glue.extents_of(mine.signature)
        self.variables = glue.variables_of(mine.signature)
        self._libraries: dict[tuple[DType, ...], LoadedLibrary] = {}
        self._calls: dict[tuple[Any, ...], PreparedCppCall] = {}
        self._ready: Ready = {}
        """Entries for `direct`, by tensor types and integer arguments."""
        self._first: BuildReport | None = None
        self._lock = lock()

    @cached_property
    def digest(self) -> str:
        """Digest of the sources; functions with equal digests are interchangeable."""
        return key("cpp", self.signature, *(s.text for s in self.given), *self.choices)

    # --- compiled ------------------------------------------------------------------------------

    def library(self, dtypes: Mapping[str, DType] = {}) -> LoadedLibrary:
        """Build the library for the dtypes of the signature's variables."""
        chosen = tuple([dtypes[name] for name in self.variables])
        found = self._libraries.get(chosen)
        if found is None:
            with self._lock:
                found = self._libraries.get(chosen)
                if found is None:
                    found = self._libraries[chosen] = self._built(dict(zip(self.variables, chosen, strict=True)))
                    self._first = self._first or found.report
        return found

    def _built(self, dtypes: Mapping[str, DType]) -> LoadedLibrary:
        start = perf_counter()
        others = [name for plan in self.plans for name in glue.variables_of(plan.signature)]
        units = glue.add_glue(self.plans, self.given, {**glue.default_dtypes(others), **dtypes})
        name = self.plans[0].signature.name if len(self.plans) == 1 else "module"
        return build_library(units, name, self.choices, start)

    def library_address(self, library: LoadedLibrary) -> int:
        return library.address(self.plan.symbol)

    def entry(self, dtypes: Mapping[str, DType] = {}) -> int:
        """Return the address of `int32_t entry(const tg_call *)` (tilegrad.h), valid for the life of the process.

        The call has the numbers of the signature, then its named extents in alphabetical order.
        """
        return self.library_address(self.library(dtypes))

    def report(self) -> BuildReport:
        """Build times: the compiler's and tilegrad's own."""
        if self._first is None:
            raise ArgumentError(f"{self.name} is compiled for the dtypes of its first call: call it first")
        return self._first

    # --- called --------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and self._ready:
            results = self.direct(args)
            if results is not None:
                return results
        given, numbers = self.tensors(args, kwargs)
        if is_recorded(given):
            return self.returned([wrap(v) for v in record_call(CppWork, self, [x.value for x in given], numbers)])
        call, buffers, addresses = self.prepared(given, numbers)
        with timed("launch", self.name, "cpu", sum(call.bytes)):
            if "foreign" in settings().check:
                from .child import run_checked

                results = run_checked(self, call, buffers, addresses)
            else:
                results = self.ran(call, buffers, addresses)
        return self.returned(self.wrapped(results, given))

    def direct(self, args: tuple[Any, ...], ready: Ready | None = None, blind: bool = False) -> Any:
        """Call directly if the tensors are in memory and their types known, else return None. `blind`: ignore
        gradients.
        """
        return self._direct(self._ready if ready is None else ready, args, blind)

    @cached_property
    def _direct(self) -> Direct:
        return generate_direct_call(parameter_letters(self), len(self.signature.results))

    def check(self, *args: Any, **kwargs: Any) -> Any:
        """Call in a child process on copies between guard pages: crashes and stray writes become errors."""
        from .child import run_checked

        given, numbers = self.tensors(args, kwargs)
        call, buffers, addresses = self.prepared(given, numbers)
        return self.returned(self.wrapped(run_checked(self, call, buffers, addresses), given))

    def prepared(
        self, given: Sequence[Handle], numbers: tuple[float | int, ...]
    ) -> tuple[PreparedCppCall, list[DeviceBuffer], list[int]]:
        """Return the prepared call for some tensors, their memory, and its addresses."""
        marks: list[Any] = [numbers]
        buffers, addresses, inputs = [], [], []
        for n, x in enumerate(given):
            x = in_memory_order(x) if x._moves else x
            strides, offset = (None, 0) if not x._moves else self._layout_of(n, x)
            value = in_memory(x if strides is None else handle_on(x.base().current()))
            type = x._value.type
            marks += (type.dtype, type.shape, type.device, strides)
            buffers.append(value.buffer)
            addresses.append(value.buffer.address + offset * type.dtype.bytes)
            inputs.append(TensorLayout(type, strides))
        found = self._calls.get(tuple(marks))
        if found is None:
            match = self.signature.match([x.type for x in inputs], numbers)
            self.check_device(match.device)
            found = PreparedCppCall(self, match, inputs)
            if len(self._calls) >= MAX_PREPARED_CALLS:
                self._calls.clear()
                self._ready.clear()
            self._calls[tuple(marks)] = found
            if found.outputs and not self.makes_tensors and all(x.strides is None for x in inputs):
                self._ready |= self.readied([x.type for x in inputs], numbers)
        return found, buffers, addresses

    def readied(self, types: Sequence[TensorType], numbers: Sequence[float | int]) -> Ready:
        """Prepare an entry of `direct` for these tensor types and integer arguments."""
        rest, others = iter(types), iter(numbers)
        marks = [next(rest) if p.is_tensor else next(others) for p in self.signature.parameters]
        call = self.prepare([TensorLayout(t) for t in types], numbers)
        return {tuple([mark for mark in marks if not isinstance(mark, float)]): prepare_entry(self, call)}

    def prepare(self, inputs: Sequence[TensorLayout], numbers: Sequence[float | int]) -> PreparedCppCall:
        """Return the prepared call for tensor types."""
        return PreparedCppCall(self, self.signature.match([x.type for x in inputs], numbers), inputs)

    def check_device(self, device: str, allowed: Sequence[str] = ("cpu",)) -> None:
        """Raise an error unless the function can be called for tensors on a device."""
        if device not in allowed:
            p = self.signature.tensors[0].name
            raise DeviceError(f"{self.name} is C++ for the CPU, and `{p}` is on {device}: {p}.cpu() is not")

    def _layout_of(self, n: int, x: Handle) -> tuple[tuple[int, ...] | None, int]:
        """Return strides and offset of a view to pass as it is; else None."""
        if self.contiguous == "copy" or (self.contiguous == "check" and is_dense(x)):
            return None, 0
        if self.contiguous == "check":
            name = self.signature.tensors[n].name
            raise ShapeError(
                f"{self.name}: `{name}` of shape {shown(x._value.shape)} is a view whose elements do not lie one after "
                f"the other: give it {name}.contiguous()"
            )
        found: Any = layout(x)
        return tuple(found.strides), int(found.offset)

    def ran(
        self, call: PreparedCppCall, buffers: Sequence[DeviceBuffer], addresses: Sequence[int]
    ) -> list[tuple[DeviceBuffer, TensorType]]:
        """Run on memory and return the results."""
        cpu = device("cpu")
        outputs = [cpu.allocate(bytes) for bytes in call.bytes]
        record = call.record()
        places = [*addresses, *[b.address for b in outputs]]
        if not self.makes_tensors:
            if record.run(call.entry, places):
                raise self.failure(*record.error)
            call.records.append(record)
            return list(zip(outputs, call.outputs, strict=True))
        base = record.address_of_tensors
        inputs = [(base + 40 * n, b, x.type) for n, (b, x) in enumerate(zip(buffers, call.inputs, strict=True))]
        with HostCallbacks(cpu, inputs) as host:
            record.call.host = host.number
            if record.run(call.entry, places):
                raise self.failed(host, record)
            call.records.append(record)
            return [*zip(outputs, call.outputs, strict=True), *host.results]

    @cached_property
    def makes_tensors(self) -> bool:
        """Whether the function may allocate tensors."""
        definition = self.plan.definition
        if self.signature.open or (definition is not None and (definition.takes_call or definition.returns)):
            return True
        return any("tg::" in s.text or '#include "' in s.text for s in self.given)

    def failed(self, host: HostCallbacks, record: CallRecord) -> Exception:
        """Convert the error of a call to an exception."""
        if isinstance(host.failure, MemoryError):
            return host.failure
        message, file, line = record.error
        return self.failure(str(host.failure) if host.failure else message, file, line)

    def failure(self, message: str, file: str, line: int) -> ForeignError:
        """Make an exception with the function's message at the user's source line."""
        place = user_line(file, line, self.given) if file and line else None
        where = f"\n{place.file}:{place.line}: {place.text.strip()}" if place else ""
        return ForeignError(f"{self.name}: {message or 'it failed without a message'}{where}")
