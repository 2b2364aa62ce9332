"""Hand out the memory of tensors: to other libraries by DLPack, and to C code by address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..errors import DeviceError, DTypeError
from ..ir import dtype as dtypes
from ..lazy.evaluation import in_memory
from ..lazy.exclusive_memory import own_memory
from ..lazy.foreign_memory import share_memory
from ..lazy.handle import handle_on, state
from ..lazy.layout import in_memory_order, layout
from ..runtime.device import device
from ..runtime.exposure import expose


def dlpack_capsule(given: Any, options: Mapping[str, Any]) -> Any:
    """Export the memory of a tensor as a DLPack capsule."""
    if given._value.dtype in (dtypes.bfloat16, *dtypes.FLOAT8):
        raise DTypeError(f"DLPack by numpy does not know {given._value.dtype.name}; convert it: x.float()")
    x = in_memory_order(given)
    if state.trace is None and not x.base().is_tracked():
        own_memory(x)  # what is recorded keeps the elements that it reads
    whole = x.base().current() if x._moves else x.own_value()
    if whole.dtype is not x._value.dtype:
        x, whole = given, given.own_value()
    value = in_memory(handle_on(whole))
    shared = device(value.device).view(value.buffer, value.dtype, value.shape)  # type: ignore[arg-type]
    if shared is None:
        raise DeviceError(f"the memory of {value.device} cannot be reached from here; copy it: x.cpu()")
    share_memory(value.buffer, export=True)
    shared = strided_array(shared, x) if whole is not x.own_value() else shared
    return shared.__dlpack__(**{k: v for k, v in options.items() if k == "stream"})


def address_of(given: Any) -> int:
    """Return the address of the first element of a tensor."""
    x = in_memory_order(given)
    if x is not given:
        given.__dict__["in_order"] = x  # the address is good as long as the tensor is
    value = in_memory(handle_on(x.base().current()) if x._moves else x)
    expose(value.buffer)
    offset: Any = layout(x).offset
    return int(value.buffer.address + offset * x._value.dtype.bytes)


def strided_array(memory: np.ndarray[Any, Any], x: Any) -> np.ndarray[Any, Any]:
    """Return a view as an array on the memory of its whole storage."""
    found: Any = layout(x)
    shape: Any = x._value.shape
    steps = [stride * memory.itemsize for stride in found.strides]
    start = memory.reshape(-1)[found.offset :]
    return np.lib.stride_tricks.as_strided(start, shape, steps, writeable=memory.flags.writeable)
