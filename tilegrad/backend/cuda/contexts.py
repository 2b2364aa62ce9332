"""Execution contexts on GPUs: a stream for each caller, and a CUDA graph of its own for each program."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ...runtime.executable import Runner
from .device import CudaDevice
from .executable import CudaBinding, CudaExecutable
from .queues import on_queue


class CallerStream:
    """The stream of one caller; what callers do runs concurrently."""

    def __init__(self, device: CudaDevice) -> None:
        device.start()
        with device.entered():
            self.queue = device.new_queue()

    def entered(self) -> AbstractContextManager[None]:
        """Run this thread's work on the stream within a block."""
        return on_queue(self.queue)

    def runner(self, executable: CudaExecutable) -> Runner:
        """Return a runner whose graph has the addresses of this caller."""
        return CudaBinding(executable, {})


context_factory = None
"""Programs run on the memory of streams, not of callers."""
