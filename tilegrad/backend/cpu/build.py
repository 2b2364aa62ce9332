"""Compile tile kernels to machine code and link them.

The cache on disk is keyed by the kernel itself: a process that finds all of its kernels there generates neither LLVM IR
nor code.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from ...errors import CompileError
from ...ir.tile import Kernel
from ...runtime import events
from ...runtime.cache import key, shared, sources
from ...runtime.cache_pressure import shrink
from ...runtime.index_faults import SYMBOL, IndexFaults
from ...runtime.singletons import lock
from . import objects


class KernelCode:
    """Linked code of some kernels; the code stays mapped as long as this object lives."""

    def __init__(self, addresses: Mapping[str, int], owners: Sequence[objects.LinkedCode]) -> None:
        self._addresses = addresses
        self._owners = owners

    @property
    def checks_indices(self) -> bool:
        """Whether a kernel may report an out-of-range index."""
        return any(owner.checks_indices for owner in self._owners)

    def __getitem__(self, kernel: Kernel) -> int:
        return self._addresses[kernel.digest()]


_linked: WeakValueDictionary[tuple[str, bool], objects.LinkedCode] = WeakValueDictionary()
"""Linked code by the form of a kernel and whether it may use the matrix unit."""
_lock = lock()
index_faults = IndexFaults()
"""Records of out-of-range indices reported by kernels of this process."""
_shown: dict[tuple[str, object], str] = {}
"""The latest LLVM IR that readers have asked for, by the digest of a kernel and the machine."""
_shown_lock = lock()
MAX_SHOWN_IR = 4
"""Texts in LLVM IR that are kept."""
MAX_LINKED = 10_000
"""Linked pieces of code from which on the least recently compiled programs are dropped."""


def build_kernels(kernels: Sequence[Kernel]) -> KernelCode:
    """Compile and link kernels; code that another program has in memory is shared."""
    from .target import target

    codes: dict[str, objects.LinkedCode] = {}
    unit = target().matrix_unit
    with _lock:
        different = {kernel.form(): kernel for kernel in kernels}
        for form in different:
            known = _linked.get((form, unit))
            if known is not None:
                codes[form] = known
        missing = [kernel for form, kernel in different.items() if form not in codes]
        if missing and len(_linked) >= MAX_LINKED:
            shrink()
        made = dict(zip(missing, compiling.objects(missing), strict=True))
        for group in _by_unique_names(missing):
            names = [kernel.name for kernel in group]
            code = objects.link([made[kernel] for kernel in group], names, {SYMBOL: index_faults.address})
            for kernel in group:
                codes[kernel.form()] = _linked[kernel.form(), unit] = code
    addresses = {kernel.digest(): codes[kernel.form()].addresses[kernel.name] for kernel in kernels}
    return KernelCode(addresses, list(codes.values()))


def kernel_objects(kernels: Sequence[Kernel]) -> list[bytes]:
    """Compile kernels to object files, one after the other."""
    return [kernel_object(kernel) for kernel in kernels]


class CompilingThread(threading.local):
    """How each thread compiles kernels."""

    objects: Callable[[Sequence[Kernel]], list[bytes]] = staticmethod(kernel_objects)
    """Compiles kernels to object files; `KernelsAhead` replaces it while a program is being made."""


compiling = CompilingThread()


def is_linked(kernel: Kernel) -> bool:
    """Whether the code of a kernel is in memory."""
    from .target import target

    return (kernel.form(), target().matrix_unit) in _linked


def kernel_object(kernel: Kernel) -> bytes:
    """Return the object file of a kernel, from the disk cache if it is there."""
    return start_compiling(kernel, None)()


def start_compiling(kernel: Kernel, submit: Callable[..., Any] | None) -> Callable[[], bytes]:
    """Start compiling a kernel; return a function that waits for its object file. `submit` queues code generation."""
    from .target import target

    store = shared("kernels")
    host = objects.host()
    name = key(
        "kernel",
        sources("backend/cpu", "ir", "runtime/target_model.py"),
        *host,
        *target(),
        objects.version(),
        kernel.form(),
    )
    result = store.read(name)
    if result is not None:
        return lambda: result
    ir = kernel_ir(kernel)

    def code() -> bytes:
        try:
            with events.timed("compile", kernel.name, "cpu"):
                made = objects.compile_object(kernel.name, ir, host)
        except CompileError as e:
            raise CompileError(f"{e}\n{kernel.origin}") from e
        store.write(name, made)
        return made

    return code if submit is None else submit(code).result


def kernel_ir(kernel: Kernel) -> str:
    """Lower a kernel to LLVM IR for this machine."""
    from .code.lower import lower
    from .target import target

    return lower(kernel, target())


def shown_ir(kernel: Kernel) -> str:
    """Return the LLVM IR of a kernel for readers, who ask for its IR and its assembly in turn: it is lowered once."""
    from .target import target

    with _shown_lock:
        name = (kernel.digest(), target())
        if name not in _shown:
            while len(_shown) >= MAX_SHOWN_IR:
                del _shown[next(iter(_shown))]
            _shown[name] = kernel_ir(kernel)
        return _shown[name]


def describe_low_precision(kernel: Kernel) -> str:
    """Describe how a kernel computes its bfloat16 and 8-bit integer products; empty if it has none."""
    from .code.bf16_dot import INSTRUCTION
    from .target import target

    machine = target()
    made = shown_ir(kernel) if machine.matrix_unit or machine.pairs else ""
    if INSTRUCTION in made:
        return "products of bfloat16 numbers (AVX-512); in float32 where numbers are odd"
    if "llvm.x86.tdpbf16ps" in made:
        return "products in the matrix unit (AMX); in float32 where numbers are odd"
    return "products of integers in the matrix unit (AMX)" if "llvm.x86.ldtilecfg" in made else ""


def kernel_assembly(kernel: Kernel) -> str:
    """Return the assembly of a kernel."""
    from . import ir_modules

    return ir_modules.assembly(kernel.name, shown_ir(kernel), objects.host())


def _by_unique_names(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """Group kernels so that names are unique within a group, which can then be linked as one library."""
    groups: list[list[Kernel]] = []
    for kernel in kernels:
        group = next((g for g in groups if all(kernel.name != other.name for other in g)), None)
        if group is None:
            groups.append([kernel])
        else:
            group.append(kernel)
    return groups
