"""Functions marked `@simt.kernel` and `@simt.device`: read, simulated, compiled for CUDA, launched."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any, NoReturn, overload

import numpy as np

from ..errors import DeviceError, KernelError, KernelFault
from ..language.tensors import TensorMemory, memory_of, refuse_overlap, refuse_tracing, unwritten, writing
from ..runtime.singletons import lock
from .arguments import BoundCall, SimtFunction, bind_call, device_of, launch_shape
from .counters import Counters
from .happens_before import RaceTracker, RestartLaunch
from .kinds import UnsupportedCode
from .lanes import LaunchShape
from .limits import Gpu, check_launch, gpu
from .machine import ThreadSimulator, acquires
from .memory import ArrayStorage, shared_layout
from .orders import compare_orders
from .races import Shadow
from .reader import read_routine
from .report import LaunchReport
from .thread_ir import Array, LaunchStatement, Routine
from .writer import cuda_source, statements

_reading = lock()


class SpecialisedThreadKernel:
    """A kernel specialised for certain types and constants."""

    def __init__(self, function: ThreadKernel, call: BoundCall) -> None:
        try:
            self.routine: Routine = read_routine(function, call.described)
        except UnsupportedCode as refused:
            raise KernelError(refused.reason) from None
        self.fma = function.fma
        self.arrays = {p.name: p for p in self.routine.parameters if isinstance(p, Array)}
        self.built: dict[str, Any] = {}
        """Machine code by architecture."""
        self.followed: frozenset[int] = frozenset()
        """Ids of arrays whose accesses atomic operations may order; races on them are tracked element by element."""

    @property
    def stored(self) -> frozenset[str]:
        """Array parameters that the kernel writes."""
        found = self.routine.accessed
        return frozenset(n for n in self.arrays if found.get(n, frozenset()) & {"store", "atomic"})

    @property
    def loaded(self) -> frozenset[str]:
        """Array parameters that the kernel reads."""
        found = self.routine.accessed
        return frozenset(n for n in self.arrays if found.get(n, frozenset()) & {"load", "atomic"})

    @property
    def launches(self) -> bool:
        """Whether its threads launch kernels."""
        return any(isinstance(s, LaunchStatement) for s in statements(self.routine.body))

    @property
    def static_shared(self) -> int:
        return shared_layout(self.routine.arrays, 0)[1]

    def cuda(self) -> str:
        return cuda_source(self.routine)


class LaunchMode:
    """A mode of launching, with its options: `k.simulate(seed=1)[grid, block](...)`."""

    def __init__(self, kernel: ThreadKernel, seed: int, orders: int, on: Any) -> None:
        self.kernel, self.seed, self.orders, self.on = kernel, seed, orders, on

    def __getitem__(self, configuration: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: self.kernel.launch(configuration, args, kwargs, self)


class DeviceFunction(SimtFunction):
    """A function that kernels call."""

    simt_role = "device"

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__(fn)
        update_wrapper(self, fn)

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise KernelError(f"{self.fn.__name__} is a device function: kernels call it")

    def __repr__(self) -> str:
        return f"<simt.device {self.fn.__name__}{self.shown_signature}>"


class ThreadKernel(SimtFunction):
    """A thread kernel: `k[grid, block](x, n)` launches it, `k[grid, block, bytes]` with dynamic shared memory."""

    simt_role = "kernel"

    def __init__(self, fn: Callable[..., Any], fma: bool = False) -> None:
        super().__init__(fn)
        update_wrapper(self, fn)
        self.fma = fma
        self.known: dict[tuple[Any, ...], SpecialisedThreadKernel] = {}
        self._last: tuple[SpecialisedThreadKernel, LaunchShape | None, Gpu | None] | None = None
        self._counters: Counters | None = None

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        name = self.fn.__name__
        raise KernelError(f"kernel {name} is launched with blocks and threads: {name}[grid, block](...)")

    def __getitem__(self, configuration: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: self.launch(configuration, args, kwargs)

    def simulate(self, seed: int = 0, orders: int = 20, gpu: Any = None) -> LaunchMode:
        """Simulate a launch on the CPU in lockstep, then in random orders of blocks and threads, which must all agree.

        `gpu` selects the limits to apply: a name in `simt.GPUS`.
        """
        return LaunchMode(self, seed, orders, gpu)

    # --- launching -------------------------------------------------------------------------------

    def launch(
        self, configuration: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mode: LaunchMode | None = None
    ) -> None:
        name = self.fn.__name__
        shape = launch_shape(self, configuration)
        call = bind_call(self, args, kwargs)
        refuse_tracing(name, list(call.given.values()))
        place = device_of(self, call)
        found = self.specialised(call)
        on_gpu = place.startswith("cuda")
        if mode is not None and place != "cpu":
            raise DeviceError(
                f"kernel {name}: the simulator runs on the CPU, and the tensors are on {place}: use .cpu()"
            )
        if not on_gpu and place != "cpu":
            raise DeviceError(f"kernel {name}: kernels for threads run on cpu and cuda, and the tensors are on {place}")
        limits = gpu(mode.on if mode is not None else None)
        check_launch(limits, name, shape, found.static_shared, str(found.routine.place))
        self._last = (found, shape, limits)
        self._counters = None
        fresh = unwritten(_CallView(call))
        with writing(name, call.parameters, list(call.tensors.values()), found.stored, found.loaded):
            memories = {n: memory_of(x) for n, x in call.tensors.items()}
            refuse_overlap(name, list(memories.items()), found.stored)
            if on_gpu:
                from .gpu_launch import launch_on_gpu

                launch_on_gpu(found, shape, memories, call, place)
            else:
                self.run_here(found, shape, memories, call, fresh, limits, mode)

    def run_here(
        self,
        found: SpecialisedThreadKernel,
        shape: LaunchShape,
        memories: dict[str, TensorMemory],
        call: BoundCall,
        fresh: frozenset[str],
        limits: Gpu,
        mode: LaunchMode | None,
    ) -> None:
        """Run the simulator in lockstep, then in random orders if requested."""
        data = {n: host_array(m, found.arrays[n]) for n, m in memories.items()}
        orders = mode.orders if mode is not None else 0
        before = {n: data[n].copy() for n in found.stored} if orders or acquires(found.routine) else {}
        numbers = call.numbers

        def run(arrays: dict[str, np.ndarray], seed: tuple[int, int] | None) -> Counters | None:
            while True:
                watch = RaceTracker(shape, found.followed)
                storages = parameter_storage(found, arrays, memories, fresh, watch)
                order = None if seed is None else np.random.default_rng(seed)
                counters = Counters() if seed is None else None
                try:
                    ThreadSimulator(found.routine, shape, storages, numbers, limits, order, counters, watch=watch).run()
                except RestartLaunch as anew:
                    found.followed |= anew.arrays
                    for name, x in before.items():
                        arrays[name][...] = x
                    continue
                return counters

        self._counters = run(data, None)
        for n in range(orders if before else 0):
            arrays = {**data, **{name: x.copy() for name, x in before.items()}}
            share_arrays(arrays, memories)
            try:
                run(arrays, (mode.seed, n))  # type: ignore[union-attr]
            except KernelFault as error:
                raise KernelFault(f"{error.args[0]}\n  found in random order {n} of seed {mode.seed}") from None  # type: ignore[union-attr]
            compare_orders(found.routine, data, arrays, found.stored, n, mode.seed)  # type: ignore[union-attr]

    def specialised(self, call: BoundCall) -> SpecialisedThreadKernel:
        with _reading:
            made = self.known.get(call.key)
            if made is None:
                made = self.known[call.key] = SpecialisedThreadKernel(self, call)
            return made

    # --- what is known of it ---------------------------------------------------------------------

    def compiled(self, *args: Any, **kwargs: Any) -> SpecialisedThreadKernel:
        """Compile for some arguments without running."""
        found = self.specialised(bind_call(self, args, kwargs))
        self._last = (found, None, None)
        return found

    @property
    def counters(self) -> Counters:
        """Counters of the last launch on the CPU."""
        if self._counters is None:
            raise KernelError(
                f"kernel {self.fn.__name__} has not run on the CPU: a launch on tensors of the CPU counts"
            )
        return self._counters

    def source(self, kind: str = "cuda") -> str:
        """Return CUDA C++ for the types of the last launch or `compiled`."""
        if kind != "cuda":
            raise KernelError(f"the source of a kernel for threads is asked for as 'cuda', and not as {kind!r}")
        return self.latest()[0].cuda()

    def report(self) -> LaunchReport:
        """Report the last launch line by line, with its occupancy on a GPU."""
        found, shape, limits = self.latest()
        if shape is None or limits is None:
            raise KernelError(f"kernel {self.fn.__name__} has not been launched: what it does depends on the grid")
        return LaunchReport(found, shape, limits, self._counters)

    def latest(self) -> tuple[SpecialisedThreadKernel, LaunchShape | None, Gpu | None]:
        if self._last is None:
            name = self.fn.__name__
            raise KernelError(
                f"kernel {name} has not been read yet, as it depends on the types of its arguments: launch it, or say "
                f"{name}.compiled(...) with the arguments of a launch"
            )
        return self._last

    def __repr__(self) -> str:
        return f"<simt.kernel {self.fn.__name__}{self.shown_signature}>"


class _CallView:
    """A call, as seen by `unwritten`."""

    def __init__(self, call: BoundCall) -> None:
        self.parameters, self.given = call.parameters, list(call.tensors.values())


def host_array(memory: TensorMemory, array: Array) -> np.ndarray:
    """Return the memory of a CPU tensor as an array."""
    buffer = memory.buffer
    whole = buffer.device.view(buffer, array.dtype, (buffer.bytes // array.dtype.bytes,))
    if whole is None:
        raise DeviceError(f"`{array.name}` is on {buffer.device.name}, whose memory the simulator cannot reach")
    return whole[memory.offset : memory.offset + memory.extent]


def share_arrays(arrays: dict[str, np.ndarray], memories: dict[str, TensorMemory]) -> None:
    """Give parameters that have the same tensor the same array."""
    first: dict[tuple[int, int], str] = {}
    for name, memory in memories.items():
        known = first.setdefault(memory.address, name)
        arrays[name] = arrays[known]


def parameter_storage(
    found: SpecialisedThreadKernel,
    arrays: dict[str, np.ndarray],
    memories: dict[str, TensorMemory],
    fresh: frozenset[str],
    watch: RaceTracker,
) -> dict[int, ArrayStorage]:
    """Return the storage of the array parameters; written arrays are checked for races."""
    writing = {memories[name].address for name in found.stored}
    shadows: dict[tuple[int, int], Shadow] = {}
    made: dict[int, ArrayStorage] = {}
    for name, array in found.arrays.items():
        data = arrays[name]
        storage = ArrayStorage(array, data, len(data), "", memories[name].offset * data.itemsize)
        address = memories[name].address
        if address in writing:
            if address not in shadows:
                alike = [a for n, a in found.arrays.items() if memories[n].address == address]
                shadows[address] = watch.shadow(alike, len(data), name in fresh)
            storage.shadow = shadows[address]
        made[id(array)] = storage
    return made


@overload
def kernel(fn: Callable[..., Any]) -> ThreadKernel: ...
@overload
def kernel(*, fma: bool = False) -> Callable[[Callable[..., Any]], ThreadKernel]: ...
def kernel(fn: Callable[..., Any] | None = None, *, fma: bool = False) -> Any:
    """Mark a function as a kernel: many threads run it.

    With `fma` a GPU may contract a product and sum to one rounding, as nvcc does by default: faster, but no longer
    bit-identical to the simulator.
    """
    return partial(ThreadKernel, fma=fma) if fn is None else ThreadKernel(fn, fma)


def device(fn: Callable[..., Any]) -> DeviceFunction:
    """Mark a function that kernels call."""
    return DeviceFunction(fn)
