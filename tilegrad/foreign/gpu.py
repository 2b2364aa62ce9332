"""User CUDA kernels as functions of GPU tensors.

Without a GPU the kernel still compiles, and `launch` checks its configuration against the limits of an H200.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backend.cuda.driver import KernelCall
from ..backend.cuda.functions import DEFAULT_SHARED_BYTES
from ..backend.cuda.launcher import encode_argument, submit
from ..backend.cuda.null import NullDriver
from ..backend.cuda.properties import GpuProperties, properties
from ..backend.cuda.queues import QueuedWork
from ..errors import ArgumentError, CompileError, DeviceError
from ..ir.dtype import DType
from ..ir.graph import TensorType
from ..ir.location import Location, user_location
from ..lazy.bounded_recording import is_recorded
from ..lazy.evaluation import compute
from ..lazy.handle import wrap
from ..runtime.cache import key
from ..runtime.device import Device, device
from ..runtime.singletons import lock, once
from . import glue
from .abi import known_extent
from .build import BuildOptions, BuildReport
from .definitions import Definition
from .function import ForeignFunction
from .inline import as_module, read_signatures, texts
from .kernels import CudaKernel, compile_kernel, kernel_parameters
from .launches import DEFAULT_BLOCK_THREADS, Configured, LaunchConfiguration, checked_launch, evaluate_extents
from .patterns import AxisGroup, Signature, SignatureMatch
from .recorded import CudaWork, record_call
from .source import ForeignSource, sources

if TYPE_CHECKING:
    from ..backend.cuda.device import CudaDevice

MAX_PREPARED_CALLS = 256


class PreparedLaunch(NamedTuple):
    """A call prepared for argument types: kernel, launch (None: nothing to do), parameter words."""

    match: SignatureMatch
    outputs: tuple[TensorType, ...]
    kernel: CudaKernel
    launch: LaunchConfiguration | None
    call: KernelCall | None


class CudaFunction(ForeignFunction):
    """A CUDA kernel of the user."""

    device = "cuda"

    def __init__(
        self,
        signature: Signature,
        definition: Definition | None,
        given: Sequence[ForeignSource],
        choices: BuildOptions,
        configuration: Mapping[str, Configured],
        origin: Location | None,
        doc: str,
    ) -> None:
        super().__init__(signature, origin, doc)
        self.definition, self.given, self.choices, self.configuration = definition, given, choices, configuration
        self.variables = glue.variables_of(signature)
        self._kernels: dict[tuple[Any, ...], CudaKernel] = {}
        self._handles: dict[tuple[str, str], int] = {}
        self._calls: dict[tuple[Any, ...], PreparedLaunch] = {}
        self._first: BuildReport | None = None
        self._runs = 0
        self._lock = lock()

    @cached_property
    def digest(self) -> str:
        """Digest of the sources; functions with equal digests are interchangeable."""
        return key(
            "cuda",
            self.signature,
            *(s.text for s in self.given),
            *self.choices.flags,
            *map(_configuration_key, self.configuration.values()),
        )

    # --- compiled ------------------------------------------------------------------------------

    def kernel(self, dtypes: Mapping[str, DType], ranks: Mapping[str, int], architecture: str) -> CudaKernel:
        """Return the machine code for some dtypes and ranks."""
        marks = (architecture, tuple(sorted(ranks.items())), tuple([dtypes[name] for name in self.variables]))
        found = self._kernels.get(marks)
        if found is None:
            with self._lock:
                chosen = {name: dtypes[name] for name in self.variables}
                found = self._kernels[marks] = compile_kernel(
                    self.signature, self.definition, self.given, chosen, ranks, self.choices, architecture
                )
                self._first = self._first or found.report
        return found

    def compile_early(self) -> None:
        """Compile when the function is made if possible, so that errors surface there and not at the first call."""
        groups = any(isinstance(a, AxisGroup) for p in self.signature.parameters for a in getattr(p.type, "axes", ()))
        if self.variables or (groups and self.definition is None):
            return
        patterns = (*self.signature.tensors, *self.signature.results)
        ranks = {p.name: 0 if groups else len(p.type.axes) for p in patterns}  # type: ignore[union-attr]
        self.kernel({}, {} if self.definition else ranks, limits_of(None).architecture)

    def report(self) -> BuildReport:
        """Build times: the compiler's and tilegrad's own."""
        if self._first is None:
            raise ArgumentError(f"{self.name} is compiled for the types of its first call: call it first")
        return self._first

    # --- prepare -------------------------------------------------------------------------------

    def prepare(
        self, types: Sequence[TensorType], numbers: Sequence[float | int], gpu: CudaDevice | None
    ) -> PreparedLaunch:
        """Prepare a call except for its addresses; LaunchError if the GPU cannot run it."""
        marks = (gpu, tuple(numbers), *((t.dtype, t.shape) for t in types))
        found = self._calls.get(marks)
        if found is None:
            match = self.signature.match(types, numbers)
            outputs = self.signature.outputs(match)
            all: dict[str, Any] = dict(zip(self.names, [t.shape for t in (*types, *outputs)], strict=True))
            limits = limits_of(gpu)
            kernel = self.kernel(match.dtypes, {} if self.definition else self._ranks(all), limits.architecture)
            launch = self._launch(kernel, match, outputs, all, limits)
            call = self._call(kernel, launch, match, all, gpu) if launch is not None and gpu is not None else None
            found = PreparedLaunch(match, outputs, kernel, launch, call)
            if len(self._calls) >= MAX_PREPARED_CALLS:
                self._calls.clear()
            self._calls[marks] = found
        return found

    @cached_property
    def names(self) -> list[str]:
        """Names of the tensors: inputs, then results."""
        return [p.name for p in (*self.signature.tensors, *self.signature.results)]

    def _ranks(self, shapes: Mapping[str, Sequence[Any]]) -> dict[str, int]:
        return {name: len(shape) for name, shape in shapes.items()}

    def _launch(
        self,
        kernel: CudaKernel,
        match: SignatureMatch,
        outputs: Sequence[TensorType],
        shapes: Mapping[str, Any],
        limits: GpuProperties,
    ) -> LaunchConfiguration | None:
        names: dict[str, Any] = {**dict(match.sizes), **shapes}
        names |= {p.name: n for p, n in zip(self.signature.scalars, match.numbers, strict=True)}
        counts = [known_extent(t.count) for t in outputs] or [prod(shape) for shape in shapes.values()] or [1]
        given = self.configuration["block"]
        block = evaluate_extents("block", DEFAULT_BLOCK_THREADS if given is None else given, names, self.name)
        across = -(-max(counts) // max(1, prod(block)))
        wanted = self.configuration["grid"]
        grid = evaluate_extents("grid", across if wanted is None else wanted, names, self.name)
        shared = evaluate_extents("shared", self.configuration["shared"] or 0, names, self.name)[0]
        if 0 in grid and max(counts) == 0:
            return None
        return checked_launch(self.name, grid, block, shared, kernel.registers, kernel.static_shared, limits)

    def _call(
        self,
        kernel: CudaKernel,
        launch: LaunchConfiguration,
        match: SignatureMatch,
        shapes: Mapping[str, Sequence[int]],
        gpu: CudaDevice,
    ) -> KernelCall:
        numbers: dict[str, Any] = {p.name: n for p, n in zip(self.signature.scalars, match.numbers, strict=True)}
        numbers |= match.sizes
        values = []
        for w in kernel.words:
            if w.axis is not None:
                values.append(shapes[w.name][w.axis])
            else:
                values.append(0 if w.dtype is None else encode_argument(numbers[w.name], w.dtype))
        handle = self._loaded(kernel, launch, gpu)
        return KernelCall(
            self.name, handle, launch.blocks, launch.threads, launch.shared, values, (), (*launch.grid, *launch.block)
        )

    def _loaded(self, kernel: CudaKernel, launch: LaunchConfiguration, gpu: CudaDevice) -> int:
        mark = (gpu.name, key(kernel.image))
        if mark not in self._handles:
            gpu.start()
            with gpu.entered():
                self._handles[mark] = gpu.driver.function(gpu.driver.load(kernel.image), kernel.symbol)
        if launch.shared + launch.static_shared > DEFAULT_SHARED_BYTES:
            with gpu.entered():
                gpu.driver.allow_shared(self._handles[mark], launch.shared)
        return self._handles[mark]

    # --- called --------------------------------------------------------------------------------

    def launch(self, *args: Any, **kwargs: Any) -> LaunchConfiguration | None:
        """Return the launch configuration of a call, without a GPU and for tensors of any device. None: nothing to
        launch.
        """
        given, numbers = self.tensors(args, kwargs)
        types = [x.value.type for x in given]
        gpu: Any = device(types[0].device) if types and types[0].device.startswith("cuda") else None
        return self.prepare(types, numbers, gpu).launch

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given, numbers = self.tensors(args, kwargs)
        if is_recorded(given):
            return self.returned([wrap(v) for v in record_call(CudaWork, self, [x.value for x in given], numbers)])
        types = [x._value.type for x in given]
        gpu = self.gpu_of(device(types[0].device if types else "cuda:0"))
        compute(*given)
        found = self.prepare(types, numbers, gpu)
        inputs = [x.value.buffer for x in given]
        outputs = [gpu.allocate(known_extent(t.bytes)) for t in found.outputs]
        if found.call is not None:
            self._start(found.call, inputs, outputs, gpu)
            _warn_null_device(self.name, gpu)
        return self.returned(self.wrapped(list(zip(outputs, found.outputs, strict=True)), given))

    def check_device(self, device_name: str, _: Sequence[str] = ()) -> None:
        """Raise an error unless the tensors are on a GPU."""
        self.gpu_of(device(device_name))

    def gpu_of(self, place: Device) -> CudaDevice:
        """Return the device, which must be a GPU."""
        if place.kind != "cuda":
            name = self.signature.tensors[0].name
            raise DeviceError(
                f"{self.name} is a CUDA kernel, and `{name}` is on {place.name}: give it {name}.cuda(); without a GPU "
                f"{self.name}.launch(...) compiles it and checks its launch"
            )
        return place  # type: ignore[return-value]

    def prepared_launch(
        self, types: Sequence[TensorType], numbers: Sequence[float | int], gpu: Any
    ) -> tuple[KernelCall | None, list[tuple[int, int]]]:
        """Prepare a launch for a program (None: nothing to do), and the tensor whose address goes in each slot."""
        found = self.prepare(types, numbers, gpu)
        if found.launch is None:
            return None, []
        shapes: dict[str, Any] = dict(zip(self.names, [t.shape for t in (*types, *found.outputs)], strict=True))
        call = self._call(found.kernel, found.launch, found.match, shapes, gpu)
        named = [(slot, name) for slot, name in enumerate(self._words_of()) if name is not None]
        return call, [(slot, self.names.index(name)) for slot, name in named]

    def _start(self, call: KernelCall, inputs: Sequence[Any], outputs: Sequence[Any], gpu: CudaDevice) -> None:
        queue, buffers = gpu.queue, (*inputs, *outputs)
        for buffer in inputs:
            queue.reads(buffer)
        for buffer in outputs:
            queue.writes(buffer)
        places = dict(zip(self.names, buffers, strict=True))
        work = QueuedWork(self.name, ((self.name, str(self.origin or "")),))
        with self._lock, queue.lock:
            for slot, w in enumerate(self._words_of()):
                if w is not None:
                    call.slots[slot] = places[w].address
            self._runs += 1
            number = submit(gpu, call, work, buffers, self._runs)
        for buffer in outputs:
            buffer.written = number

    def _words_of(self) -> Sequence[str | None]:
        """Return the tensor whose address goes in each slot."""
        if self.definition is None:
            return self.names
        return [w.name if w.dtype is None else None for w in kernel_parameters(self.signature, self.definition)]


def _configuration_key(evaluate_extents: Configured) -> str:
    code = getattr(evaluate_extents, "__code__", None)
    return repr(evaluate_extents) if code is None else f"{code.co_code!r} {code.co_consts!r} {code.co_names!r}"


def limits_of(gpu: CudaDevice | None) -> GpuProperties:
    """Return the limits of a GPU; by default of the first GPU present, else an H200."""
    if gpu is not None:
        return gpu.properties
    from ..backend.cuda import devices

    found: Any = devices()
    return found[0].properties if found else _recorded()


@once
def _recorded() -> GpuProperties:
    return properties(NullDriver(), 0)._replace(name="an NVIDIA H200")


def _warn_null_device(name: str, gpu: CudaDevice) -> None:
    """Warn once that nothing runs on the null device."""
    if isinstance(gpu.driver, NullDriver) and name not in _said:
        _said.add(name)
        print(
            f"tilegrad: {name} is compiled and its launch is checked, but TILEGRAD_CUDA=null runs nothing: its results "
            "are 0",
            file=sys.stderr,
        )


_said: set[str] = set()


def cuda_inline(
    source: Any,
    signature: str | Sequence[str],
    *,
    grid: Configured = None,
    block: Configured = None,
    shared: Configured = None,
    flags: Sequence[str] = (),
    include: Sequence[Any] = (),
    build_directory: Any = None,
    verbose: bool = False,
    doc: str | None = None,
) -> Any:
    """Make a function from CUDA C++: a kernel body or `__global__` kernels, as a text, a file, or a list of both.

    `signature` names the arguments, their dtypes and shapes, and the results, as for `tilegrad.cpp.inline`. A kernel's
    parameters are matched by name: addresses of tensors, extents, numbers. `grid` and `block` are one to three numbers,
    or a function that computes them from its parameters (extents, numbers, and tensors as their shapes); `shared` is
    the size of dynamic shared memory in bytes. The default is 256 threads per block, and a thread for each element of
    the largest result.
    """
    origin = user_location()
    wanted = read_signatures(signature)
    given = sources(source, origin)
    open_ones = [s.name for s in wanted if s.open or not s.results]
    if open_ones:
        raise ArgumentError(
            f"{open_ones[0]}: a kernel writes to results that are there before: write their shapes after ->"
        )
    plans = glue.bind_functions(wanted, given, "kernel")
    choices = BuildOptions(
        texts(flags, "flags"), texts(include, "include"), (), str(build_directory) if build_directory else "", verbose
    )
    functions = []
    for plan in plans:
        definition = plan.definition
        if definition is not None and not definition.is_kernel:
            raise CompileError(f"{definition} is no kernel: write __global__ void {definition} {{ ... }}")
        if definition is not None:
            kernel_parameters(plan.signature, definition)
        configuration = {"grid": grid, "block": block, "shared": shared}
        functions.append(CudaFunction(plan.signature, definition, given, choices, configuration, origin, doc or ""))
    for f in functions:
        f.compile_early()
    return as_module(functions, "module")
