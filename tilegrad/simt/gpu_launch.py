"""Run kernels on a GPU: compile with NVRTC, cache on disk, launch through the backend's driver."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from ..backend.cuda.build import report
from ..backend.cuda.driver import KernelCall
from ..backend.cuda.launcher import encode_argument, submit
from ..backend.cuda.nvrtc import compile, version
from ..backend.cuda.queues import QueuedWork
from ..errors import DeviceError, KernelError
from ..language.tensors import TensorMemory
from ..runtime import events
from ..runtime.cache import key, shared
from ..runtime.device import device
from .arguments import BoundCall
from .lanes import LaunchShape
from .limits import check_launch, gpu

if TYPE_CHECKING:
    from .kernel import SpecialisedThreadKernel

DEFAULT_SHARED_BYTES = 48 << 10
RELOCATABLE = "--relocatable-device-code=true"


class CompiledImage(NamedTuple):
    """Machine code for one architecture."""

    image: bytes
    registers: int
    spills: int


def compile_for(kernel: SpecialisedThreadKernel, architecture: str) -> CompiledImage:
    """Compile for an architecture such as `sm_90a`, or load from the disk cache. No GPU is needed."""
    found = kernel.built.get(architecture)
    if found is None:
        source = kernel.cuda()
        options = ((RELOCATABLE,) if kernel.launches else ()) + (("--fmad=true",) if kernel.fma else ())
        store, name = shared("kernels"), key("simt", str(version()), architecture, *options, source)
        data = store.read(name)
        if data is None:
            with events.timed("compile", kernel.routine.name, "cuda"):
                image, log = compile(source, architecture, *options)
            head = json.dumps(report(log)).encode()
            data = head + b"\0" + image
            store.write(name, data)
        head, _, image = data.partition(b"\0")
        registers, spills = json.loads(head)
        found = kernel.built[architecture] = CompiledImage(image, registers, spills)
    return found


def launch_on_gpu(
    kernel: SpecialisedThreadKernel, shape: LaunchShape, memories: dict[str, TensorMemory], call: BoundCall, place: str
) -> None:
    """Launch the kernel on the GPU that holds its tensors."""
    where: Any = device(place)
    where.start()
    name, origin = kernel.routine.name, str(kernel.routine.place)
    if kernel.launches:
        raise KernelError(
            f"kernel {name} launches kernels from its threads: NVRTC compiles that, but to run it NVIDIA's device "
            f"runtime must be "
            "linked, which is part of the CUDA toolkit. The simulator runs it: use tensors on the cpu"
        )
    made = compile_for(kernel, where.properties.architecture)
    check_launch(gpu(), name, shape, kernel.static_shared, origin, made.registers)
    with where.entered():
        driver = where.driver
        function = loaded_function(kernel, where, made)
        if kernel.static_shared + shape.shared > DEFAULT_SHARED_BYTES:
            driver.allow_shared(function, shape.shared)
        queue = where.queue
        numbers = call.numbers
        values = []
        for p in kernel.routine.parameters:
            values.append(
                address(memories[p.name]) if p.name in memories else encode_argument(numbers[p.name], p.dtype)
            )
        launch = KernelCall(
            name, function, shape.blocks, shape.threads, shape.shared, values, extents=(*shape.grid, *shape.block)
        )
        buffers: Any = {n: m.buffer for n, m in memories.items()}
        for buffer in buffers.values():
            queue.reads(buffer)
        for n in kernel.stored:
            queue.writes(buffers[n])
        with queue.lock:
            number = submit(where, launch, QueuedWork(name, ((name, origin),)), list(buffers.values()), runs=1)
        for n in kernel.stored:
            buffers[n].written = number


def address(memory: TensorMemory) -> int:
    return memory.buffer.address + memory.offset * memory.itemsize


def loaded_function(kernel: SpecialisedThreadKernel, where: Any, made: CompiledImage) -> int:
    """Return the loaded function on a device."""
    known: dict[str, int] = kernel.__dict__.setdefault("functions", {})
    if where.name not in known:
        if not made.image:
            raise DeviceError(f"kernel {kernel.routine.name} was not compiled")
        known[where.name] = where.driver.function(where.driver.load(made.image), kernel.routine.text)
    return known[where.name]
