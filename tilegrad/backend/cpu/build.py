"""From tile kernels to the addresses of their code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakValueDictionary

from ...ir.tile import Kernel
from . import objects


class KernelCode:
    """The code of some kernels; stays in memory as long as this object does."""

    def __init__(self, addresses: Mapping[Kernel, int], owners: Sequence[object]) -> None:
        self._addresses = addresses
        self._owners = owners

    def __getitem__(self, kernel: Kernel) -> int:
        return self._addresses[kernel]


_linked: WeakValueDictionary[Kernel, objects.Code] = WeakValueDictionary()


def built(kernels: Sequence[Kernel]) -> KernelCode:
    """Compiles kernels; those that another program has in memory are shared with it."""
    from .lower import lower
    from .target import target

    owners, addresses = [], {}
    for kernel in dict.fromkeys(kernels):
        code = _linked.get(kernel)
        if code is None:
            code = objects.compile_kernels([(kernel.name, lower(kernel, target()))], objects.host())
            _linked[kernel] = code
        addresses[kernel] = code.addresses[kernel.name]
        owners.append(code)
    return KernelCode(addresses, owners)
