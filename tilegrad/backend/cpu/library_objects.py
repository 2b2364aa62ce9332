"""Compile kernels to object files for shared objects: position-independent, with a symbol of their own each."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...errors import CompileError
from ...ir.tile import Kernel
from . import objects
from .build import kernel_ir


def library_object(kernel: Kernel, symbol: str) -> bytes:
    """Compile a kernel to an object file that a linker takes; the symbol is hidden outside of the shared object."""
    llvm, host = objects.initialised_llvm(), objects.host()
    module = llvm.parse_assembly(kernel_ir(kernel))
    module.triple = host.triple
    for value in (*module.functions, *module.global_variables):
        if value.name == kernel.name:
            value.name = symbol
            value.visibility = "hidden"
        elif not value.is_declaration:
            value.linkage = "internal"
    try:
        return bytes(_machine(host).emit_object(module))
    except RuntimeError as e:
        raise CompileError(f"kernel {kernel.name}: LLVM could not generate code for a library: {e}") from e


@cache
def _machine(host: objects.HostProcessor) -> Any:
    target = objects.initialised_llvm().Target.from_triple(host.triple)
    return target.create_target_machine(cpu=host.cpu, features=host.features, opt=2, reloc="pic", codemodel="small")
