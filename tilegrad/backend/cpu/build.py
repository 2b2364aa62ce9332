"""From tile kernels to the addresses of their code.

On disk, machine code is found by the kernel itself, so that a process which finds all of its kernels there
generates nothing: neither LLVM IR, nor code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from ...errors import CompileError
from ...ir.tile import Kernel
from ...runtime import events
from ...runtime.cache import key, shared, sources
from ...runtime.crowding import shrink
from ...runtime.index_faults import SYMBOL, IndexFaults
from ...runtime.once import lock
from . import objects
from .background_codegen import Beside


class KernelCode:
    """The code of some kernels; stays in memory as long as this object does."""

    def __init__(self, addresses: Mapping[str, int], owners: Sequence[objects.Code]) -> None:
        self._addresses = addresses
        self._owners = owners

    @property
    def checks_indices(self) -> bool:
        """Whether a kernel may report an index that is outside of its axis."""
        return any(owner.checks_indices for owner in self._owners)

    def __getitem__(self, kernel: Kernel) -> int:
        return self._addresses[kernel.digest()]


_linked: WeakValueDictionary[tuple[str, bool], objects.Code] = WeakValueDictionary()
"""By the form of a kernel, and whether it may use the matrix unit."""
_lock = lock()
index_faults = IndexFaults()
"""The indices outside of their axes that kernels of this process report."""
MOST_LINKED = 10_000
"""Pieces of code in memory from which on programs are let go of that were not made lately."""


def built(kernels: Sequence[Kernel]) -> KernelCode:
    """Compiles and links kernels; those that another program has in memory are shared with it."""
    from .target import target

    codes: dict[str, objects.Code] = {}
    unit = target().matrix_unit
    with _lock:
        different = {kernel.form(): kernel for kernel in kernels}
        for form in different:
            known = _linked.get((form, unit))
            if known is not None:
                codes[form] = known
        missing = [kernel for form, kernel in different.items() if form not in codes]
        if missing and len(_linked) >= MOST_LINKED:
            shrink()
        made = dict(zip(missing, _objects(missing), strict=True))
        for group in _by_unique_names(missing):
            names = [kernel.name for kernel in group]
            code = objects.link([made[kernel] for kernel in group], names, {SYMBOL: index_faults.address})
            for kernel in group:
                codes[kernel.form()] = _linked[kernel.form(), unit] = code
    addresses = {kernel.digest(): codes[kernel.form()].addresses[kernel.name] for kernel in kernels}
    return KernelCode(addresses, list(codes.values()))


def _objects(kernels: Sequence[Kernel]) -> list[bytes]:
    """The object files of kernels. While LLVM makes code of one, in a thread, the next one is lowered in this one."""
    if len(kernels) < 2:
        return [kernel_object(kernel) for kernel in kernels]
    with Beside() as beside:
        return [found() for found in [_begun(kernel, beside.submit) for kernel in kernels]]


def kernel_object(kernel: Kernel) -> bytes:
    """The object file of a kernel, from the disk if it was compiled before."""
    return _begun(kernel, None)()


def _begun(kernel: Kernel, submit: Callable[..., Any] | None) -> Callable[[], bytes]:
    """What gives the object file of a kernel in the end; `submit` has code made meanwhile."""
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
    found = store.read(name)
    if found is not None:
        return lambda: found
    ir = kernel_ir(kernel)

    def code() -> bytes:
        try:
            with events.timed("compile", kernel.name, "cpu"):
                made = objects.emitted(kernel.name, ir, host)
        except CompileError as e:
            raise CompileError(f"{e}\n{kernel.origin}") from e
        store.write(name, made)
        return made

    return code if submit is None else submit(code).result


def kernel_ir(kernel: Kernel) -> str:
    """The LLVM IR of a kernel."""
    from .code.lower import lower
    from .target import target

    return lower(kernel, target())


def of_parts(kernel: Kernel) -> str:
    """What is to be said of products of bfloat16 numbers and short integers; nothing if there are none."""
    from .code.bf16_dot import INSTRUCTION
    from .target import target

    machine = target()
    made = kernel_ir(kernel) if machine.matrix_unit or machine.pairs else ""
    if INSTRUCTION in made:
        return "products of bfloat16 numbers (AVX-512); in float32 where numbers are odd"
    if "llvm.x86.tdpbf16ps" in made:
        return "products in the matrix unit (AMX); in float32 where numbers are odd"
    return "products of integers in the matrix unit (AMX)" if "llvm.x86.ldtilecfg" in made else ""


def kernel_assembly(kernel: Kernel) -> str:
    """The machine code of a kernel, in print."""
    return objects.assembly(kernel.name, kernel_ir(kernel), objects.host())


def _by_unique_names(kernels: Sequence[Kernel]) -> list[list[Kernel]]:
    """Groups that can be linked together."""
    groups: list[list[Kernel]] = []
    for kernel in kernels:
        group = next((g for g in groups if all(kernel.name != other.name for other in g)), None)
        if group is None:
            groups.append([kernel])
        else:
            group.append(kernel)
    return groups
