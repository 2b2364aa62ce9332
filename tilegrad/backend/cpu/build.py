"""From tile kernels to the addresses of their code.

On disk, machine code is found by the kernel itself, so that a process which finds all of its kernels there
generates nothing: neither LLVM IR, nor code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import RLock
from weakref import WeakValueDictionary

from ...errors import CompileError
from ...ir.tile import Kernel
from ...runtime import events
from ...runtime.cache import key, shared
from ...runtime.once import once
from . import objects


class KernelCode:
    """The code of some kernels; stays in memory as long as this object does."""

    def __init__(self, addresses: Mapping[Kernel, int], owners: Sequence[objects.Code]) -> None:
        self._addresses = addresses
        self._owners = owners

    def __getitem__(self, kernel: Kernel) -> int:
        return self._addresses[kernel]


_linked: WeakValueDictionary[Kernel, objects.Code] = WeakValueDictionary()
_lock = RLock()


def built(kernels: Sequence[Kernel]) -> KernelCode:
    """Compiles and links kernels; those that another program has in memory are shared with it."""
    owners, addresses = [], {}
    with _lock:
        codes = {kernel: _linked.get(kernel) for kernel in dict.fromkeys(kernels)}
        for group in _by_unique_names([kernel for kernel, code in codes.items() if code is None]):
            code = objects.link([kernel_object(kernel) for kernel in group], [kernel.name for kernel in group])
            for kernel in group:
                codes[kernel] = _linked[kernel] = code
        for kernel, found in codes.items():
            assert found is not None
            addresses[kernel] = found.addresses[kernel.name]
            owners.append(found)
    return KernelCode(addresses, owners)


def kernel_object(kernel: Kernel) -> bytes:
    """The object file of a kernel, from the disk if it was compiled before."""
    store = shared("kernels")
    host = objects.host()
    name = key("kernel", _generator(), *host, objects.version(), repr(kernel.replaced(origin="")))
    found = store.read(name)
    if found is None:
        try:
            with events.timed("compile", kernel.name, "cpu"):
                found = objects.emitted(kernel.name, kernel_ir(kernel), host)
        except CompileError as e:
            raise CompileError(f"{e}\n{kernel.origin}") from e
        store.write(name, found)
    return found


def kernel_ir(kernel: Kernel) -> str:
    """The LLVM IR of a kernel."""
    from .code.lower import lower
    from .target import target

    return lower(kernel, target())


def kernel_assembly(kernel: Kernel) -> str:
    """The machine code of a kernel, in print."""
    return objects.assembly(kernel.name, kernel_ir(kernel), objects.host())


@once
def _generator() -> str:
    """Which generator this is: code that another one made is not taken for its own."""
    package = Path(__file__).parents[2]
    files = [*(package / "backend" / "cpu").rglob("*.py"), *(package / "ir").glob("*.py")]
    status = [(str(f.relative_to(package)), f.stat()) for f in sorted(files)]
    return key(*[(name, s.st_size, s.st_mtime_ns) for name, s in status])


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
