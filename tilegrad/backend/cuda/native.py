"""The driver of this machine, through ctypes: needs no toolkit and no bindings."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import CompileError, DeviceError
from . import activity, libraries, nvrtc
from .driver import (
    ATTRIBUTES,
    MIN_DRIVER_VERSION,
    NOT_READY,
    Call,
    CopyCall,
    Driver,
    DriverFault,
    KernelCall,
    LibraryCall,
    NodeCall,
    OpenLibrary,
)
from .tensor_map import TensorMap

if TYPE_CHECKING:
    from .launch_times import LaunchTimer

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"

word, words, handle, out = c_uint, c_size_t, c_void_p, POINTER(c_void_p)
number = POINTER(c_int)
TABLE: dict[str, tuple[Any, ...]] = {
    "cuInit": (word,),
    "cuDriverGetVersion": (number,),
    "cuDeviceGetCount": (number,),
    "cuDeviceGet": (number, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (number, c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (out, c_int),
    "cuDeviceGetDefaultMemPool": (out, c_int),
    "cuMemPoolSetAttribute": (handle, c_int, c_void_p),
    "cuDeviceCanAccessPeer": (number, c_int, c_int),
    "cuMemPoolSetAccess": (handle, c_void_p, words),
    "cuMemPoolTrimTo": (handle, words),
    "cuCtxSetCurrent": (handle,),
    "cuCtxGetCurrent": (out,),
    "cuCtxGetDevice": (number,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuStreamCreateWithPriority": (out, word, c_int),
    "cuStreamDestroy_v2": (handle,),
    "cuStreamSynchronize": (handle,),
    "cuStreamQuery": (handle,),
    "cuStreamWaitEvent": (handle, handle, word),
    "cuStreamWriteValue32_v2": (handle, c_uint64, c_uint, word),
    "cuEventCreate": (out, word),
    "cuEventDestroy_v2": (handle,),
    "cuEventRecord": (handle, handle),
    "cuEventSynchronize": (handle,),
    "cuEventQuery": (handle,),
    "cuEventElapsedTime": (POINTER(c_float), handle, handle),
    "cuMemAllocAsync": (POINTER(c_uint64), words, handle),
    "cuMemFreeAsync": (c_uint64, handle),
    "cuMemHostAlloc": (out, words, word),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, words, handle),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, words, handle),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, words, handle),
    "cuMemcpyPeerAsync": (c_uint64, handle, c_uint64, handle, words, handle),
    "cuModuleLoadData": (out, c_char_p),
    "cuModuleGetFunction": (out, handle, c_char_p),
    "cuFuncSetAttribute": (handle, c_int, c_int),
    "cuTensorMapEncodeTiled": (c_void_p, c_int, word, *[c_void_p] * 5, *[c_int] * 4),
    "cuLaunchKernelEx": (c_void_p, handle, c_void_p, c_void_p),
    "cuGraphCreate": (out, word),
    "cuGraphDestroy": (handle,),
    "cuGraphAddKernelNode_v2": (out, handle, c_void_p, words, c_void_p),
    "cuGraphAddMemcpyNode": (out, handle, c_void_p, words, c_void_p, handle),
    "cuGraphAddChildGraphNode": (out, handle, c_void_p, words, handle),
    "cuStreamBeginCapture_v2": (handle, c_int),
    "cuStreamEndCapture": (handle, out),
    "cuGraphInstantiateWithFlags": (out, handle, c_uint64),
    "cuGraphExecDestroy": (handle,),
    "cuGraphExecKernelNodeSetParams_v2": (handle, handle, c_void_p),
    "cuGraphExecChildGraphNodeSetParams": (handle, handle, handle),
    "cuGraphExecMemcpyNodeSetParams": (handle, handle, c_void_p, handle),
    "cuGraphLaunch": (handle, handle),
}
"""Argument types of each driver function; all return a `CUresult`."""

NON_BLOCKING, UNTIMED, RELEASE_THRESHOLD, MAX_DYNAMIC_SHARED, PORTABLE = 1, 2, 4, 8, 1
DEVICE_MEMORY = 2
"""`CU_MEMORYTYPE_DEVICE`."""
ON_DEVICE, READ_AND_WRITE = 1, 3
RELAXED = 2
"""Capture mode that does not restrict other threads."""


DELAY = """
extern "C" __global__ void delay(unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)); while (now - start < nanoseconds);
}
"""
"""A kernel that keeps its stream busy."""


class MemoryAccess(ctypes.Structure):
    """`CUmemAccessDesc`."""

    _fields_ = (("kind", c_int), ("device", c_int), ("flags", c_int))


class LaunchConfig(ctypes.Structure):
    """`CUlaunchConfig`."""

    _fields_ = (
        *((name, c_uint) for name in ("blocks", "blocks_y", "blocks_z", "threads", "threads_y", "threads_z", "shared")),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    )


class KernelNode(ctypes.Structure):
    """`CUDA_KERNEL_NODE_PARAMS_v2`."""

    _fields_ = (
        ("function", c_void_p),
        *((name, c_uint) for name in ("blocks", "blocks_y", "blocks_z", "threads", "threads_y", "threads_z", "shared")),
        *((name, c_void_p) for name in ("parameters", "extra", "kernel", "context")),
    )


class CopyNode(ctypes.Structure):
    """`CUDA_MEMCPY3D`, used for one dimension."""

    _fields_: ClassVar[Any] = (
        *(
            field
            for side in ("source", "target")
            for field in (
                *((f"{side}_{axis}", c_size_t) for axis in ("x", "y", "z", "level")),
                (f"{side}_kind", c_uint),
                *((f"{side}_{name}", c_void_p) for name in ("host", "address", "array", "reserved")),
                *((f"{side}_{name}", c_size_t) for name in ("pitch", "rows")),
            )
        ),
        *((name, c_size_t) for name in ("bytes", "height", "depth")),
    )


class NativeDriver(Driver):
    """`libcuda.so.1`; raises DeviceError if it is missing or unusable."""

    def __init__(self) -> None:
        super().__init__()
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError:
            raise DeviceError(
                f"there is no NVIDIA driver here ({LIBRARY} is not found; TILEGRAD_CUDA=null compiles without one)"
            ) from None
        asked = c_int()
        if code := self.library.cuDriverGetVersion(byref(asked)):
            raise DeviceError(f"the NVIDIA driver does not work: {self._fault(code, 'cuDriverGetVersion').reason}")
        self.version = asked.value
        if self.version < MIN_DRIVER_VERSION:
            raise DeviceError(
                f"the NVIDIA driver is for CUDA {self.version // 1000}.{self.version % 1000 // 10}, and 12.0 or newer "
                "is needed (driver 525; 580 for kernels made by NVRTC 13): update it"
            )
        for name, arguments in TABLE.items():
            function = getattr(self.library, name)
            function.argtypes = arguments
            function.restype = c_int
        self._launch = self.library.cuLaunchKernelEx
        self._mark = self.library.cuStreamWriteValue32_v2
        self._launch_graph = self.library.cuGraphLaunch
        code = self.library.cuInit(0)
        if code:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            more = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible!r} says which it may find)"
            raise DeviceError(f"the NVIDIA driver finds no GPU: {self._fault(code, 'cuInit').reason}{more}")
        self.pools: dict[int, int] = {}
        self._libraries: dict[tuple[int, str], OpenLibrary | None] = {}
        self._delays: dict[int, int] = {}
        """The kernel that waits, of each context."""
        self._launch_timer: LaunchTimer | None = None

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function and raise an error unless it succeeds."""
        code = getattr(self.library, name)(*arguments)
        if code:
            raise self.explained(self._fault(code, name))

    def made(self, name: str, *arguments: Any) -> int:
        """Call a function whose first argument receives a handle; return the handle."""
        found = c_void_p()
        self.call(name, byref(found), *arguments)
        return found.value or 0

    def asked(self, name: str, *arguments: Any) -> bool:
        """Return whether something is ready."""
        code = getattr(self.library, name)(*arguments)
        if code not in (0, NOT_READY):
            raise self.explained(self._fault(code, name))
        return bool(code == 0)

    def _fault(self, code: int, call: str) -> DriverFault:
        texts = []
        for asked in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            getattr(self.library, asked)(c_int(code), byref(text))
            texts.append((text.value or b"unknown error").decode())
        return DriverFault(code, texts[0], texts[1], call)

    # --- devices -------------------------------------------------------------------------------

    def device_count(self) -> int:
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        return count.value

    def device_name(self, number: int) -> str:
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, 256, number)
        return text.value.decode()

    def attribute(self, number: int, attribute: str) -> int:
        value = c_int()
        self.call("cuDeviceGetAttribute", byref(value), ATTRIBUTES[attribute], number)
        return value.value

    def total_memory(self, number: int) -> int:
        bytes = c_size_t()
        self.call("cuDeviceTotalMem_v2", byref(bytes), number)
        return bytes.value

    def context(self, number: int) -> int:
        made = self.made("cuDevicePrimaryCtxRetain", number)
        pool = self.pools[number] = self.made("cuDeviceGetDefaultMemPool", number)
        everything = c_uint64((1 << 64) - 1)
        self.call("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, byref(everything))
        return made

    def share(self, owner: int, reader: int) -> None:
        possible = c_int()
        self.call("cuDeviceCanAccessPeer", byref(possible), reader, owner)
        if possible.value:
            self.call(
                "cuMemPoolSetAccess", self.pools[owner], byref(MemoryAccess(ON_DEVICE, reader, READ_AND_WRITE)), 1
            )

    def enter(self, context: int) -> None:
        self.call("cuCtxSetCurrent", context)

    def memory_info(self) -> tuple[int, int]:
        free, total = c_size_t(), c_size_t()
        self.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value, total.value

    def synchronize(self) -> None:
        self.call("cuCtxSynchronize")

    # --- streams and events --------------------------------------------------------------------

    def new_stream(self, priority: int) -> int:
        return self.made("cuStreamCreateWithPriority", NON_BLOCKING, priority)

    def await_stream(self, stream: int) -> None:
        self.call("cuStreamSynchronize", stream)

    def stream_done(self, stream: int) -> bool:
        return self.asked("cuStreamQuery", stream)

    def new_event(self, timed: bool) -> int:
        return self.made("cuEventCreate", 0 if timed else UNTIMED)

    def end_event(self, event: int) -> None:
        self.call("cuEventDestroy_v2", event)

    def record(self, event: int, stream: int) -> None:
        self.call("cuEventRecord", event, stream)

    def stream_waits(self, stream: int, event: int) -> None:
        self.call("cuStreamWaitEvent", stream, event, 0)

    def await_event(self, event: int) -> None:
        self.call("cuEventSynchronize", event)

    def event_done(self, event: int) -> bool:
        return self.asked("cuEventQuery", event)

    def elapsed(self, start: int, stop: int) -> float:
        milliseconds = c_float()
        self.call("cuEventElapsedTime", byref(milliseconds), start, stop)
        return milliseconds.value

    def delay_call(self, nanoseconds: int) -> KernelCall | None:
        context = c_void_p()
        self.call("cuCtxGetCurrent", byref(context))
        if (context.value or 0) not in self._delays:
            self._delays[context.value or 0] = self._delay_function()
        function = self._delays[context.value or 0]
        return KernelCall("delay", function, 1, 1, 0, [nanoseconds]) if function else None

    def launch_timer(self) -> LaunchTimer | None:
        from .launch_times import LaunchTimer

        if self._launch_timer is None:
            found = activity.recorder()
            self._launch_timer = LaunchTimer(found) if found is not None else None
        return self._launch_timer

    def _delay_function(self) -> int:
        """Compile the kernel that waits; 0 without a compiler."""
        device = c_int()
        self.call("cuCtxGetDevice", byref(device))
        major, minor = (self.attribute(device.value, name) for name in ("major", "minor"))
        try:
            return self.function(self.load(nvrtc.compile(DELAY, f"sm_{major}{minor}").image), "delay")
        except (CompileError, DeviceError):
            return 0

    def mark(self, stream: int, address: int, number: int) -> None:
        code = self._mark(stream, address, number & 0xFFFF_FFFF, 0)
        if code:
            raise self.explained(self._fault(code, "cuStreamWriteValue32"))

    # --- memory --------------------------------------------------------------------------------

    def allocate(self, bytes: int, stream: int) -> int:
        address = c_uint64()
        self.call("cuMemAllocAsync", byref(address), bytes, stream)
        return address.value

    def free(self, address: int, stream: int) -> None:
        self.call("cuMemFreeAsync", address, stream)

    def trim(self, number: int) -> None:
        self.call("cuMemPoolTrimTo", self.pools[number], 0)

    def allocate_host(self, bytes: int) -> int:
        return self.made("cuMemHostAlloc", bytes, PORTABLE)

    def to_device(self, target: int, source: int, bytes: int, stream: int) -> None:
        self.call("cuMemcpyHtoDAsync_v2", target, source, bytes, stream)

    def to_host(self, target: int, source: int, bytes: int, stream: int) -> None:
        self.call("cuMemcpyDtoHAsync_v2", target, source, bytes, stream)

    def copy(self, target: int, source: int, bytes: int, stream: int) -> None:
        self.call("cuMemcpyDtoDAsync_v2", target, source, bytes, stream)

    def copy_between(
        self, target: int, target_context: int, source: int, source_context: int, bytes: int, stream: int
    ) -> None:
        self.call("cuMemcpyPeerAsync", target, target_context, source, source_context, bytes, stream)

    # --- kernels -------------------------------------------------------------------------------

    def load(self, image: bytes) -> int:
        return self.made("cuModuleLoadData", image)

    def function(self, module: int, name: str) -> int:
        return self.made("cuModuleGetFunction", module, name.encode())

    def allow_shared(self, function: int, bytes: int) -> None:
        self.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, bytes)

    def encode(self, place: int, map: TensorMap, address: int) -> None:
        self.call("cuTensorMapEncodeTiled", place, *map.arguments(address))

    def launch(self, call: Call, stream: int) -> None:
        if isinstance(call, CopyCall):
            source, target = call.slots
            self.copy(target, source, call.bytes, stream)
            return
        config: Any = call.native
        if config is None:
            config = call.native = LaunchConfig(*call.extents, call.shared)
        config.stream = stream
        code = self._launch(byref(config), call.function, call.pointers, None)
        if code:
            raise self.explained(self._fault(code, f"the launch of {call.name}"))

    def open_library(self, name: str) -> OpenLibrary | None:
        context = c_void_p()
        self.call("cuCtxGetCurrent", byref(context))
        key = (context.value or 0, name)
        if key not in self._libraries:
            self._libraries[key] = libraries.open_library(name, self.version)
        return self._libraries[key]

    # --- graphs --------------------------------------------------------------------------------

    def new_graph(self) -> int:
        return self.made("cuGraphCreate", 0)

    def add_node(self, graph: int, call: NodeCall, after: Sequence[int], context: int) -> int:
        before = (c_void_p * len(after))(*after)
        if isinstance(call, LibraryCall):
            part = self._captured(call)
            node = self.made("cuGraphAddChildGraphNode", graph, before, len(after), part)
            self.call("cuGraphDestroy", part)
            return node
        described = byref(_node_parameters(call, context))
        if isinstance(call, CopyCall):
            return self.made("cuGraphAddMemcpyNode", graph, before, len(after), described, context)
        return self.made("cuGraphAddKernelNode_v2", graph, before, len(after), described)

    def _captured(self, call: LibraryCall) -> int:
        """Capture the work of a library call as a graph."""
        stream = self.new_stream(0)
        self.call("cuStreamBeginCapture_v2", stream, RELAXED)
        try:
            call.start(self, stream)
        finally:
            found = self._end_capture(stream)
            self.call("cuStreamDestroy_v2", stream)
        return found

    def _end_capture(self, stream: int) -> int:
        """End a capture and return its graph."""
        found = c_void_p()
        self.call("cuStreamEndCapture", stream, byref(found))
        return found.value or 0

    def instantiate(self, graph: int) -> int:
        return self.made("cuGraphInstantiateWithFlags", graph, 0)

    def renew_node(self, executable: int, node: int, call: NodeCall, context: int) -> None:
        if isinstance(call, LibraryCall):
            part = self._captured(call)
            self.call("cuGraphExecChildGraphNodeSetParams", executable, node, part)
            self.call("cuGraphDestroy", part)
            return
        changed = byref(_node_parameters(call, context))
        if isinstance(call, CopyCall):
            self.call("cuGraphExecMemcpyNodeSetParams", executable, node, changed, context)
        else:
            self.call("cuGraphExecKernelNodeSetParams_v2", executable, node, changed)

    def launch_graph(self, executable: int, stream: int) -> None:
        code = self._launch_graph(executable, stream)
        if code:
            raise self.explained(self._fault(code, "cuGraphLaunch"))

    def end_graph(self, graph: int, executable: int) -> None:
        self.call("cuGraphExecDestroy", executable)
        self.call("cuGraphDestroy", graph)


def _node_parameters(call: Call, context: int) -> ctypes.Structure:
    if isinstance(call, KernelCall):
        parameters = ctypes.addressof(call.pointers)
        sizes = (*call.extents, call.shared)
        return KernelNode(call.function, *sizes, parameters, None, None, context)
    source, target = call.slots
    return CopyNode(
        source_kind=DEVICE_MEMORY,
        source_address=source,
        source_pitch=call.bytes,
        target_kind=DEVICE_MEMORY,
        target_address=target,
        target_pitch=call.bytes,
        bytes=call.bytes,
        height=1,
        depth=1,
    )
