"""Loads, stores, atomics, block pointers and tensor descriptors."""

from __future__ import annotations

from typing import Any

from ...ir.dtype import DType, bool_, int64
from ...ir.tile import Apply, Arange, Atomic, BroadcastTo, Cast, ExpandDims, Literal, Load, Name, Store
from ...ir.tile_types import Refused, TileType
from .arithmetic import binary, to_bool
from .builtin import Builtin, builtin, method
from .values import BlockPointer, Descriptor, Operand, PointerType, SymbolicTile, describe, is_number, value_leaves
from .writer import TileWriter, in_dtype, static_int, static_shape

PADDINGS = {"": 0, "zero": 0, "nan": float("nan")}


def pointer_of(x: Any, what: str) -> SymbolicTile:
    """Return an operand that must be a pointer."""
    if isinstance(x, SymbolicTile) and x.type.pointer:
        return x
    raise Refused(f"{what} takes a pointer, and this is {describe(x)}: a tensor is given to the launch as it is")


def mask_of(w: TileWriter, mask: Any, pointer: SymbolicTile) -> Any:
    """Return a mask as an expression, or None if nothing is masked."""
    if mask is None or mask is True:
        return None
    if mask is False:
        return Literal(False)
    if not isinstance(mask, SymbolicTile):
        raise Refused(f"a mask is a tile of truth values, and not {describe(mask)}")
    if mask.type.pointer or mask.type.dtype is not bool_:
        raise Refused(f"a mask is made of truth values, and this is {describe(mask)}: compare it with something")
    if mask.shape and not pointer.shape:
        raise Refused(f"a mask of shape {list(mask.shape)} for one pointer: the pointer must be a tile too")
    return mask.tile


def element_operand(w: TileWriter, x: Any, pointer: SymbolicTile, role: str) -> Any:
    """Convert a value to the element type of a pointer."""
    if isinstance(x, SymbolicTile):
        return w.cast(x, pointer.type.dtype).tile
    if not is_number(x):
        raise Refused(f"{role} is a tile or a number, and not {describe(x)}")
    dtype = pointer.type.dtype
    return Literal(in_dtype(int(x) if dtype.is_integer and isinstance(x, float) else x, dtype))


@builtin
def load(
    w: TileWriter, pointer: Any, mask: Any = None, other: Any = None, boundary_check: Any = (),
    padding_option: str = "", cache_modifier: str = "", eviction_policy: str = "", volatile: bool = False,
) -> SymbolicTile:  # fmt: skip
    """Load the elements at a tile of pointers; where `mask` is false the result is `other` and nothing is read."""
    if isinstance(pointer, BlockPointer):
        if mask is not None or other is not None:
            raise Refused("a block pointer has no mask: say boundary_check=(0, 1), and padding_option")
        return window_load(w, pointer, boundary_check, padding_option)
    pointer = pointer_of(pointer, "tl.load")
    if other is not None and mask is None:
        raise Refused("`other` without `mask`: it is what the elements are where the mask is false")
    masked = mask_of(w, mask, pointer)
    if masked is None:
        return w.make(Load(pointer.tile))
    return w.make(Load(pointer.tile, masked, None if other is None else element_operand(w, other, pointer, "`other`")))


@builtin
def store(
    w: TileWriter, pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: str = "",
    eviction_policy: str = "",
) -> None:  # fmt: skip
    """Store elements at a tile of pointers where `mask` is true."""
    if isinstance(pointer, BlockPointer):
        if mask is not None:
            raise Refused("a block pointer has no mask: say boundary_check=(0, 1)")
        window_store(w, pointer, value, boundary_check)
        return
    pointer = pointer_of(pointer, "tl.store")
    made = element_operand(w, value, pointer, "the value")
    w.emit(Store(pointer.tile, made, mask_of(w, mask, pointer)))


def pointer_from_address(w: TileWriter, x: Any, dtype: DType) -> SymbolicTile:
    """Convert an address (a 64-bit integer) to a pointer to elements of a dtype."""
    if isinstance(x, SymbolicTile) and x.type.pointer:
        if x.type.dtype is dtype:
            return x
        raise Refused(
            f"a pointer keeps its type, and this is a {describe(x)}: give the kernel a view, x.view({dtype.name})"
        )
    if not isinstance(x, SymbolicTile) or not x.type.dtype.is_integer or x.type.dtype.bits < 64:
        raise Refused(f"an address is an integer of 64 bits (x.data_ptr()), and not {describe(x)}")
    steps = x if dtype.bytes == 1 else binary(w, "shr", x, dtype.bytes.bit_length() - 1)
    return w.make(Apply("add", (w.memory(dtype), steps.tile)))


@builtin
def pointer_type(w: TileWriter, element_ty: Any) -> PointerType:
    """Return the type of pointers to a dtype: `x.to(tl.pointer_type(tl.float16))` converts an address."""
    if not isinstance(element_ty, DType):
        raise Refused(f"tl.pointer_type takes an element type, such as tl.float32, and not {describe(element_ty)}")
    return PointerType(element_ty)


# --- windows -------------------------------------------------------------------------------------


@builtin
def make_block_ptr(
    w: TileWriter, base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any = ()
) -> BlockPointer:
    """Make a window of `block_shape` on a tensor, at `offsets`."""
    block = static_shape(block_shape, "block_shape")
    parts = [_operands(w, x, len(block), n) for x, n in ((shape, "shape"), (strides, "strides"), (offsets, "offsets"))]
    return BlockPointer(pointer_of(base, "tl.make_block_ptr"), parts[0], parts[1], parts[2], block)


@method
def advance(w: TileWriter, base: Any, offsets: Any) -> BlockPointer:
    """Advance a block pointer."""
    if not isinstance(base, BlockPointer):
        raise Refused(f"tl.advance moves block pointers (tl.make_block_ptr), and not {describe(base)}")
    by = _operands(w, offsets, len(base.block_shape), "offsets")
    return base._replace(offsets=tuple([binary(w, "add", x, y) for x, y in zip(base.offsets, by, strict=True)]))


@builtin
def make_tensor_descriptor(
    w: TileWriter, base: Any, shape: Any, strides: Any, block_shape: Any, padding_option: str = "zero"
) -> Descriptor:
    """Describe a tensor whose blocks of `block_shape` are loaded with padding and stored within bounds."""
    block = static_shape(block_shape, "block_shape")
    extents, steps = _operands(w, shape, len(block), "shape"), _operands(w, strides, len(block), "strides")
    if padding_option not in ("zero", "nan"):
        raise Refused(f"padding_option is 'zero' or 'nan', and not {padding_option!r}")
    return Descriptor(pointer_of(base, "tl.make_tensor_descriptor"), extents, steps, block, padding_option)


def _window(w: TileWriter, x: Any, offsets: Any) -> BlockPointer:
    if not isinstance(x, Descriptor):
        raise Refused(f"{describe(x)} is no tensor descriptor: make one with tl.make_tensor_descriptor")
    at = _operands(w, offsets, len(x.block_shape), "offsets")
    return BlockPointer(x.base, x.shape, x.strides, at, x.block_shape)


@builtin
def load_tensor_descriptor(w: TileWriter, desc: Any, offsets: Any) -> SymbolicTile:
    """Load the block at some offsets."""
    return window_load(w, _window(w, desc, offsets), tuple(range(len(desc.block_shape))), desc.padding)


@builtin
def store_tensor_descriptor(w: TileWriter, desc: Any, offsets: Any, value: Any) -> None:
    """Store a block at some offsets."""
    window_store(w, _window(w, desc, offsets), value, tuple(range(len(desc.block_shape))))


def _operands(w: TileWriter, x: Any, count: int, role: str) -> tuple[Operand, ...]:
    parts = x if isinstance(x, tuple) else (x,)
    if len(parts) != count:
        raise Refused(f"{role} has {len(parts)} entries, and block_shape has {count}")
    for part in parts:
        if len(value_leaves(part)) != 1 or (isinstance(part, SymbolicTile) and part.shape):
            raise Refused(f"{role} has {describe(part)}, which is no single number")
    return tuple([w.held(part, role) for part in parts])


def window_load(w: TileWriter, window: BlockPointer, boundary: Any, padding: str) -> SymbolicTile:
    """Load a window; elements out of bounds along the axes in `boundary` are padding."""
    if padding not in PADDINGS:
        raise Refused(f"padding_option is 'zero' or 'nan', and not {padding!r}")
    pointer, mask = window_pointers(w, window, boundary)
    if mask is None:
        return w.make(Load(pointer.tile))
    return w.make(Load(pointer.tile, mask.tile, element_operand(w, PADDINGS[padding], pointer, "the padding")))


def window_store(w: TileWriter, window: BlockPointer, value: Any, boundary: Any) -> None:
    """Store a window; elements out of bounds along the axes in `boundary` are skipped."""
    pointer, mask = window_pointers(w, window, boundary)
    w.emit(Store(pointer.tile, element_operand(w, value, pointer, "the value"), None if mask is None else mask.tile))


def window_pointers(w: TileWriter, window: BlockPointer, boundary: Any) -> tuple[SymbolicTile, SymbolicTile | None]:
    """Return the pointers of a window, and the mask of those in bounds."""
    rank = len(window.block_shape)
    checked = [static_int(axis, "an axis of boundary_check") for axis in boundary or ()]
    if any(not 0 <= axis < rank for axis in checked):
        raise Refused(f"boundary_check names axes of a block of {rank} axes, and not {checked}")
    pointer, mask = window.base, None
    for axis, extent in enumerate(window.block_shape):
        along = w.make(Arange(0, extent))
        place = binary(w, "add", along, widen(w, window.offsets[axis]))
        if rank > 1:
            place = w.make(ExpandDims(place.tile, tuple([n for n in range(rank) if n != axis])))
        if axis in checked:
            inside = binary(w, "lt", place, window.shape[axis])
            if window.offsets[axis] != 0:
                inside = binary(w, "bitand", binary(w, "ge", place, 0), inside)
            mask = inside if mask is None else binary(w, "bitand", mask, inside)
        distance = binary(w, "mul", place, widen(w, window.strides[axis]))
        pointer = w.make(Apply("add", (pointer.tile, distance.tile)))
    if mask is not None and mask.shape != window.block_shape:
        mask = w.make(BroadcastTo(mask.tile, window.block_shape))
    return pointer, mask


def widen(w: TileWriter, x: Operand) -> Operand:
    """Widen to 64 bits: products of offsets and strides may be large."""
    return w.make(Cast(x.tile, int64)) if isinstance(x, SymbolicTile) and x.type.dtype.bits < 64 else x


# --- atomics -------------------------------------------------------------------------------------


def _atomic(w: TileWriter, fn: str, pointer: Any, value: Any, mask: Any, expected: Any = None) -> SymbolicTile:
    pointer = pointer_of(pointer, f"tl.atomic_{fn}")
    made = element_operand(w, value, pointer, "the value")
    compared = None if expected is None else element_operand(w, expected, pointer, "the expected value")
    if pointer.type.dtype.is_float and fn in ("and", "or", "xor"):
        raise Refused(f"tl.atomic_{fn} takes integers, and this is {describe(pointer)}")
    if pointer.type.dtype is bool_ and fn not in ("and", "or", "xor", "xchg", "cas"):
        raise Refused(f"tl.atomic_{fn} takes numbers, and this is {describe(pointer)}")
    target = TileType(pointer.type.dtype, pointer.shape)
    name = w.fresh("old", target)
    w.emit(Atomic(fn, pointer.tile, made, mask_of(w, mask, pointer), compared, name))
    return SymbolicTile(Name(name), target)


def _named(fn: str) -> Builtin:
    def atomic(
        w: TileWriter, pointer: Any, val: Any, mask: Any = None, sem: str | None = None, scope: str | None = None
    ) -> SymbolicTile:
        return _atomic(w, fn, pointer, to_bool(w, val) if val is True or val is False else val, mask)

    atomic.__name__ = atomic.__qualname__ = f"atomic_{fn}"
    atomic.__doc__ = f"Changes elements ({fn}) so that no other program comes between; gives what was there before."
    return builtin(atomic)


atomic_add, atomic_max, atomic_min = _named("add"), _named("max"), _named("min")
atomic_and, atomic_or, atomic_xor, atomic_xchg = _named("and"), _named("or"), _named("xor"), _named("xchg")


@builtin
def atomic_cas(
    w: TileWriter, pointer: Any, cmp: Any, val: Any, sem: str | None = None, scope: str | None = None
) -> SymbolicTile:
    """Compare and swap: store `val` where the element equals `cmp`, and return the old element."""
    return _atomic(w, "cas", pointer, val, None, cmp)
