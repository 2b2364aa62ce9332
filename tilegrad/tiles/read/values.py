"""Values of a kernel's expressions while it is read: Python constants or symbolic tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ...ir.dtype import DType, bool_, float32, float64, int32, int64, uint32, uint64
from ...ir.tile import Tile
from ...ir.tile_types import Refused, TileType

Number: TypeAlias = "int | float | bool"


class constexpr:
    """A compile-time constant: the annotation of such parameters, or the type of a global that kernels may use.

    >>> constexpr(64).value
    64
    """

    __slots__ = ("value",)
    value: Any

    def __init__(self, value: Any) -> None:
        self.value = value.value if isinstance(value, constexpr) else value

    def __repr__(self) -> str:
        return f"constexpr({self.value!r})"

    def __index__(self) -> int:
        return int(self.value)


class PointerType(NamedTuple):
    """The type of a pointer."""

    element_ty: DType

    def __str__(self) -> str:
        return f"pointer to {self.element_ty.name}"


class SymbolicTile:
    """A symbolic tile: an expression with its type. A number is a tile without axes."""

    __slots__ = ("tile", "type")

    def __init__(self, tile: Tile, type: TileType) -> None:
        self.tile, self.type = tile, type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType | PointerType:
        return PointerType(self.type.dtype) if self.type.pointer else self.type.dtype

    def __repr__(self) -> str:
        return f"<{self.type}: {self.tile}>"


Operand: TypeAlias = "SymbolicTile | int | float | bool"


class BlockPointer(NamedTuple):
    """A window on a tensor, made by `tl.make_block_ptr`."""

    base: SymbolicTile
    shape: tuple[Operand, ...]
    strides: tuple[Operand, ...]
    offsets: tuple[Operand, ...]
    block_shape: tuple[int, ...]


class Descriptor(NamedTuple):
    """A tensor whose blocks are loaded and stored, made by `tl.make_tensor_descriptor`."""

    base: SymbolicTile
    shape: tuple[Operand, ...]
    strides: tuple[Operand, ...]
    block_shape: tuple[int, ...]
    padding: str = "zero"


class MissingDtype(NamedTuple):
    """A Triton dtype that no tensor has; kernels may compare with it."""

    name: str

    def __str__(self) -> str:
        return f"tl.{self.name}"


class Unbound(NamedTuple):
    """A name without a value, and the reason."""

    reason: str


def is_number(x: object) -> bool:
    return isinstance(x, int | float | bool)


def number_dtype(x: Number) -> DType:
    """Return the dtype of a Python number, by Triton's rules."""
    if isinstance(x, bool):
        return bool_
    if isinstance(x, float):
        return (
            float32 if x != x or x in (0.0, float("inf"), float("-inf")) or 2.0**-126 <= abs(x) < 2.0**128 else float64
        )
    found = next((d for d in (int32, uint32, int64, uint64) if d.min <= x <= d.max), None)
    if found is None:
        raise Refused(f"the number {x} does not fit in 64 bits")
    return found


def value_leaves(value: Any) -> list[Operand]:
    """Return the tiles and numbers that a value consists of; none for compile-time values."""
    if isinstance(value, BlockPointer):
        return [value.base, *value.shape, *value.strides, *value.offsets]
    if isinstance(value, Descriptor):
        return [value.base, *value.shape, *value.strides]
    if isinstance(value, tuple) and not isinstance(value, Unbound | PointerType | MissingDtype):
        return [x for part in value for x in value_leaves(part)]
    return [value] if isinstance(value, SymbolicTile) or is_number(value) else []


def map_leaves(value: Any, change: Callable[[Operand], Any]) -> Any:
    """Rebuild a value with each leaf replaced."""
    if isinstance(value, BlockPointer):
        base, (shape, strides, offsets) = change(value.base), _each(value[1:4], change)
        return BlockPointer(base, shape, strides, offsets, value.block_shape)
    if isinstance(value, Descriptor):
        base, (shape, strides) = change(value.base), _each(value[1:3], change)
        return Descriptor(base, shape, strides, value.block_shape, value.padding)
    if isinstance(value, tuple) and not isinstance(value, Unbound | PointerType | MissingDtype):
        return tuple([map_leaves(part, change) for part in value])
    return change(value) if isinstance(value, SymbolicTile) or is_number(value) else value


def _each(parts: Sequence[Any], change: Callable[[Operand], Any]) -> list[tuple[Any, ...]]:
    return [tuple([change(x) for x in part]) for part in parts]


def same_structure(x: Any, y: Any) -> bool:
    """Whether two values have the same structure, leaves aside."""
    if isinstance(x, SymbolicTile) or is_number(x):
        return isinstance(y, SymbolicTile) or is_number(y)
    if type(x) is not type(y):
        return False
    if isinstance(x, BlockPointer | Descriptor):
        return bool(x.block_shape == y.block_shape)
    if isinstance(x, tuple) and not isinstance(x, PointerType | MissingDtype):
        return len(x) == len(y) and all(same_structure(a, b) for a, b in zip(x, y, strict=True))
    return bool(x == y)


def describe(value: Any) -> str:
    """Describe a value for error messages."""
    if isinstance(value, SymbolicTile):
        kind = "pointer to " if value.type.pointer else ""
        return f"{kind}{value.type.dtype.name}{list(value.shape)}" if value.shape else f"{kind}{value.type.dtype.name}"
    if isinstance(value, BlockPointer | Descriptor):
        return (
            f"{'block pointer' if isinstance(value, BlockPointer) else 'tensor descriptor'} {list(value.block_shape)}"
        )
    return str(value) if isinstance(value, MissingDtype | PointerType) else repr(value)
