"""Compile the kernels of a program while the program is still being made: LLVM generates code in a thread meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from ...deferred import part
from ...ir.program import Launch
from ...ir.size import Dim
from ...ir.tile import Kernel
from ...runtime.announce import note_progress
from . import build
from .background_codegen import CodegenThread
from .build import compiling, is_linked, start_compiling
from .target import target


class KernelsAhead:
    """Context in which kernels are compiled in the background; it is called with each launch of a program."""

    def __init__(self) -> None:
        self.codegen = CodegenThread()
        self.results: dict[str, Callable[[], bytes]] = {}
        """Functions that wait for the object file of a kernel, by its form."""

    def __enter__(self) -> KernelsAhead:
        self.codegen.__enter__()
        self.outer, compiling.objects = compiling.objects, self.objects
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        compiling.objects = self.outer
        self.codegen.__exit__(kind, error, at)

    def __call__(self, launch: Launch, bytes: Mapping[str, Dim], left: int) -> None:
        note_progress(f"{left} kernels left")
        split = part("backend.cpu.prepack", "packed_launch")
        packed = None if split is None else split(launch, target(), bytes)
        kernels = [launch.kernel] if packed is None else [*[p.kernel for p in packed.packers], packed.kernel]
        for kernel in kernels:
            if kernel.form() not in self.results and not is_linked(kernel):
                self.results[kernel.form()] = start_compiling(kernel, self.codegen.submit)

    def objects(self, kernels: Sequence[Kernel]) -> list[bytes]:
        """Return the object files of kernels."""
        if len(kernels) == 1 and not self.results:
            return [build.kernel_object(kernels[0])]  # a thread would not help
        pending = [
            self.results.get(kernel.form()) or start_compiling(kernel, self.codegen.submit) for kernel in kernels
        ]
        found: list[bytes] = []
        for n, result in enumerate(pending):
            note_progress(f"machine code of {len(kernels) - n} kernels left")
            found.append(result())
        return found
