"""Flatten launch arguments that hold several tensors: tensor descriptors and tuples.

Each becomes one parameter of the tile kernel for each tensor and number in it; the reader rebuilds the whole under the
argument's name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..errors import KernelLaunchError
from ..lazy.handle import Handle
from ..tiles.read.values import Descriptor


class TensorDescriptor:
    """A tensor whose blocks a kernel loads and stores, made on the host: `desc.load([i, j])` in the kernel.

    >>> import tilegrad as tg
    >>> TensorDescriptor.from_tensor(tg.zeros(100, 64), [32, 64])
    TensorDescriptor([100, 64], strides [64, 1], blocks [32, 64])
    """

    def __init__(
        self, base: Any, shape: Sequence[int], strides: Sequence[int], block_shape: Sequence[int], padding: str = "zero"
    ) -> None:
        self.base, self.padding = base, padding
        self.shape, self.strides, self.block_shape = list(shape), list(strides), list(block_shape)
        if not isinstance(base, Handle):
            raise KernelLaunchError(f"TensorDescriptor: the first argument is a tensor, and not {type(base).__name__}")
        if not len(self.shape) == len(self.strides) == len(self.block_shape) > 0:
            raise KernelLaunchError(
                f"TensorDescriptor: shape {self.shape}, strides {self.strides} and block_shape {self.block_shape} must "
                "have one entry for each axis"
            )
        if padding not in ("zero", "nan"):
            raise KernelLaunchError(f"TensorDescriptor: padding is 'zero' or 'nan', and not {padding!r}")

    @classmethod
    def from_tensor(cls, tensor: Any, block_shape: Sequence[int], padding: str = "zero") -> TensorDescriptor:
        """Describe a whole tensor with its own strides."""
        if not isinstance(tensor, Handle):
            raise KernelLaunchError(f"TensorDescriptor.from_tensor takes a tensor, and not {type(tensor).__name__}")
        whole: Any = tensor
        return cls(whole, whole.shape, whole.stride(), block_shape, padding)

    def __repr__(self) -> str:
        return f"TensorDescriptor({self.shape}, strides {self.strides}, blocks {self.block_shape})"


class ParameterPath(NamedTuple):
    """Path of a parameter within a nested argument."""

    name: str


class DescriptorPath(NamedTuple):
    """Path of a descriptor within a nested argument."""

    base: ParameterPath
    shape: tuple[ParameterPath, ...]
    strides: tuple[ParameterPath, ...]
    block_shape: tuple[int, ...]
    padding: str


def expands(value: Any) -> bool:
    """Whether an argument expands into several parameters."""
    return isinstance(value, TensorDescriptor) or (
        isinstance(value, tuple) and any(isinstance(x, Handle) or expands(x) for x in value)
    )


def flatten(name: str, value: Any, given: list[tuple[str, Any]]) -> Any:
    """Flatten an argument: return its structure, and add its tensors and numbers to `given` under new names."""
    if isinstance(value, TensorDescriptor):
        shape = tuple([_part(f"{name}_extent{n}", x, given) for n, x in enumerate(value.shape)])
        strides = tuple([_part(f"{name}_stride{n}", x, given) for n, x in enumerate(value.strides)])
        base = _part(f"{name}_base", value.base, given)
        return DescriptorPath(base, shape, strides, tuple(value.block_shape), value.padding)
    if isinstance(value, tuple):
        return tuple([flatten(f"{name}_{n}", x, given) for n, x in enumerate(value)])
    return _part(name, value, given)


def _part(name: str, value: Any, given: list[tuple[str, Any]]) -> ParameterPath:
    given.append((name, value))
    return ParameterPath(name)


def rebuild(form: Any, part: Callable[[str], Any], describe: Callable[..., Any]) -> Any:
    """Rebuild a value of some structure; callbacks supply the leaves and descriptors."""
    if isinstance(form, ParameterPath):
        return part(form.name)
    if isinstance(form, DescriptorPath):
        parts = [tuple([part(x.name) for x in group]) for group in (form.shape, form.strides)]
        return describe(part(form.base.name), *parts, form.block_shape, form.padding)
    return tuple([rebuild(x, part, describe) for x in form])


def in_kernel(form: Any, part: Callable[[str], Any]) -> Any:
    """Rebuild the value as kernels see it."""
    return rebuild(form, part, Descriptor)


def as_passed(form: Any, part: Callable[[str], Any]) -> Any:
    """Rebuild the value as the caller passed it."""
    return rebuild(form, part, TensorDescriptor)


def tensors_in(values: Iterable[Any]) -> list[Handle]:
    """Return the tensors among arguments, nested ones included."""
    found: list[Handle] = []
    for x in values:
        if isinstance(x, Handle):
            found.append(x)
        elif isinstance(x, TensorDescriptor):
            found.append(x.base)
        elif isinstance(x, tuple):
            found += tensors_in(x)
    return found


def map_tensors(x: Any, change: Callable[[Any], Any]) -> Any:
    """Replace the tensors in an argument."""
    if isinstance(x, TensorDescriptor):
        return TensorDescriptor(change(x.base), x.shape, x.strides, x.block_shape, x.padding)
    if isinstance(x, tuple):
        return tuple([map_tensors(part, change) for part in x])
    return change(x)
