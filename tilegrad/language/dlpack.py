"""Run kernels on the tensors of other libraries, in place, through DLPack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import KernelLaunchError
from ..functions.creation import from_dlpack
from ..lazy.handle import Handle


class DlpackKernel:
    """A kernel for tensors of PyTorch, numpy or any library with `__dlpack__`: `k.as_torch()[grid](x, y, n)`."""

    def __init__(self, launch: Callable[..., None]) -> None:
        self.launch = launch

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *args, **kwargs: self.launch(
            grid,
            tuple([wrap_dlpack(x, n) for n, x in enumerate(args)]),
            {name: wrap_dlpack(x, name) for name, x in kwargs.items()},
        )


def wrap_dlpack(x: Any, name: object) -> Any:
    """Wrap another library's tensor without a copy; other arguments are returned unchanged."""
    if isinstance(x, tuple):
        return tuple([wrap_dlpack(part, name) for part in x])
    if isinstance(x, Handle) or not hasattr(x, "__dlpack__"):
        return x
    what = f"argument {name} ({type(x).__module__}.{type(x).__name__} of shape {list(x.shape)})"
    if getattr(x, "requires_grad", False):
        raise KernelLaunchError(f"{what} requires gradients, and a kernel has none: give x.detach()")
    if x.__dlpack_device__()[0] != 1:
        raise KernelLaunchError(
            f"{what} is not in the CPU's memory: copy it there, or launch the kernel on a tilegrad tensor"
        )
    try:
        made = from_dlpack(x)
    except (TypeError, BufferError, RuntimeError) as problem:
        raise KernelLaunchError(f"{what} cannot be shared: {problem}") from None
    if _address(x) != made.data_ptr() or not made.is_contiguous():
        raise KernelLaunchError(
            f"{what} cannot be shared, and a copy would not be written to: its elements must lie one after the other "
            "in memory that may be written to; give x.contiguous()"
        )
    return made


def _address(x: Any) -> int:
    return int(x.data_ptr() if hasattr(x, "data_ptr") else x.__array_interface__["data"][0])
