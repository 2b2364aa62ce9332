"""Tensors of PyTorch (and of others that speak DLPack) in kernels: the same memory, nothing is copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DeviceError, KernelLaunchError
from ..functions.creation import from_numpy
from ..lazy.handle import Handle

if TYPE_CHECKING:
    from .kernel import Launchable


def is_foreign(x: Any) -> bool:
    """Whether it is a tensor of another library."""
    return hasattr(x, "__dlpack__") and not isinstance(x, Handle)


def borrowed(x: Any, name: str, flat: bool = False) -> Any:
    """A tensor on the memory of another library's; with `flat`, all memory between its first and its last element."""
    import numpy as np

    if x.__dlpack_device__()[0] != 1:
        raise DeviceError(
            f"{name}: a tensor of {type(x).__module__.partition('.')[0]} is not in the memory of the CPU: x.cpu()"
        )
    if hasattr(x, "detach"):
        x = x.detach()  # a kernel has no derivative, and who gives one to an operator says so
    if flat and hasattr(x, "as_strided"):
        span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if 0 not in x.shape else 0
        x = x.as_strided((span,), (1,))
    try:
        array = np.from_dlpack(x)
    except (BufferError, TypeError, RuntimeError) as error:
        raise KernelLaunchError(f"{name}: a tensor cannot be taken over by DLPack: {error}") from None
    return from_numpy(array)


class ForTorch:
    """A kernel for PyTorch's tensors: `k.as_torch()[grid](x, out, n)`. They are written in place."""

    def __init__(self, kernel: Launchable) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            name = self.kernel.kernel.fn.__name__
            known: dict[tuple[int, Any], Any] = {}
            given = [_given(x, name, known) for x in args]
            named = {key: _given(x, name, known) for key, x in kwargs.items()}
            _refuse_overlaps(name, [x for x in (*args, *kwargs.values()) if is_foreign(x)])
            self.kernel.launch(grid, tuple(given), named)

        return launch

    def __repr__(self) -> str:
        return f"<{self.kernel!r} for PyTorch>"


def _given(x: Any, name: str, known: dict[tuple[int, Any], Any]) -> Any:
    """An argument of a kernel: one tensor for one place in memory, so that the kernel knows it is one."""
    if not is_foreign(x):
        return x
    key = (x.data_ptr(), x.dtype) if hasattr(x, "data_ptr") else (id(x), None)
    if key not in known:
        known[key] = borrowed(x, name, flat=True)
    return known[key]


def _refuse_overlaps(name: str, tensors: Sequence[Any]) -> None:
    """Two tensors on one memory must begin at one place."""
    spans = []
    for x in tensors:
        if hasattr(x, "data_ptr") and 0 not in x.shape:
            span = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True))
            spans.append((x.data_ptr(), x.data_ptr() + span * x.element_size()))
    for n, (start, end) in enumerate(spans):
        for other, stop in spans[n + 1 :]:
            if start != other and start < stop and other < end:
                raise KernelLaunchError(
                    f"kernel {name}: two tensors overlap in memory and begin at different elements: give the kernel "
                    "one "
                    "tensor and an offset, or a copy (x.clone())"
                )
