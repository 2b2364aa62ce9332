"""Infer the types of tile expressions.

The type of an expression follows from its form and from the types of its names, and a name has one type in a whole
kernel: so `Types.of` answers for every expression over a kernel's names, also for one that a backend has just made.
Answers are cached by object.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import KernelError
from . import tile as ir
from .dtype import DTYPES, DType, bool_, float32, float64, int32, int64, uint64
from .functions import FUNCTIONS, REDUCERS
from .node import Structure
from .precision import PRECISIONS

_KINDS = {d: {"bool": "b", "float": "f"}.get(d.kind, "i") for d in DTYPES}
_KIND_NAMES = {"b": "bool", "i": "integers", "f": "floats"}


class Refused(KernelError):
    """A tile expression that has no type. The caller adds the location."""

    def __init__(self, reason: str, tile: ir.Tile | None = None) -> None:
        super().__init__(reason)
        self.reason, self.tile = reason, tile


class TileType(Structure):
    """Elements of a dtype, or pointers to such elements, in a static shape.

    >>> print(TileType(float32, (4, 8)), TileType(float32, (), pointer=True))
    f32[4,8] *f32
    """

    dtype: DType
    shape: tuple[int, ...] = ()
    pointer: bool = False

    def __str__(self) -> str:
        extents = f"[{','.join(map(str, self.shape))}]" if self.shape else ""
        return f"{'*' if self.pointer else ''}{self.dtype}{extents}"


class Types:
    """The types of a kernel's variables and of the expressions over them."""

    def __init__(self, variables: dict[str, TileType]) -> None:
        self.variables = variables
        self.known: dict[int, tuple[ir.Tile, TileType]] = {}
        """Cached types by the identity of the expression, which is kept alive here."""

    def of(self, tile: ir.Tile) -> TileType:
        """Return the type of an expression; of a literal, its default type."""
        found = self.known.get(id(tile))
        if found is not None:
            return found[1]
        made = _RULES[type(tile)](self, tile)
        self.known[id(tile)] = (tile, made)
        return made

    def arguments(self, apply: ir.Apply) -> DType:
        """Return the dtype to which the arguments of a function are promoted (of `where`: its two values).

        Literal arguments take this dtype too. For pointers it is the dtype of their offsets.
        """
        args = apply.args[1:] if apply.fn == "where" else apply.args
        types = [self.of(a) for a in args if type(a) is not ir.Literal]
        offsets = [t.dtype for t in types if not t.pointer]
        if len(offsets) < len(types):
            return offsets[0] if offsets else self.of(args[-1]).dtype
        return self.meet(apply, args)

    def meet(self, whole: ir.Tile, args: tuple[ir.Tile, ...]) -> DType:
        """Promote the dtypes of several operands; integers of different widths become the wider."""
        dtype: DType | None = None
        literals: list[ir.Literal] = []
        for a in args:
            if type(a) is ir.Literal:
                literals.append(a)
                continue
            other = self.of(a).dtype
            if dtype is None or dtype is other:
                dtype = other
                continue
            wider = wider_integer(dtype, other)
            if wider is None:
                shown = " and ".join(f"`{x}` is {self.of(x)}" for x in args if type(x) is not ir.Literal)
                raise Refused(f"{shown}: convert one of them with .to(...)", whole)
            dtype = wider
        if dtype is None:
            return _meeting_literals(literals)
        for x in literals:
            fit_literal(x, dtype)
        return dtype

    def takes(self, x: ir.Tile, dtype: DType, role: str) -> tuple[int, ...]:
        """Return the shape of an operand that must have a given dtype (a literal takes it)."""
        if type(x) is ir.Literal:
            fit_literal(x, dtype)
            return ()
        found = self.number(x)
        if found.dtype is not dtype:
            raise Refused(f"{role} `{x}` is {found}, and not {dtype}: convert it with .to({dtype_text(dtype)})", x)
        return found.shape

    def number(self, x: ir.Tile) -> TileType:
        """Return the type of an operand that must not be a pointer."""
        found = self.of(x)
        if found.pointer:
            raise Refused(f"`{x}` is a pointer: read through it with tl.load", x)
        return found


def wider_integer(x: DType, y: DType) -> DType | None:
    """Return the wider of two integer types if it holds the values of both."""
    if not (x.is_integer and y.is_integer):
        return None
    if x.kind == y.kind:
        return x if x.bits > y.bits else y
    signed, unsigned = (x, y) if x.kind == "int" else (y, x)
    return signed if signed.bits > unsigned.bits else None


def literal_dtype(x: ir.Literal) -> DType:
    """Return the default dtype of a literal."""
    match x.value:
        case bool():
            return bool_
        case int():
            dtype = next((d for d in (int32, int64, uint64) if d.min <= x.value <= d.max), None)
            if dtype is None:
                raise Refused(f"the number {x.value} does not fit in 64 bits", x)
            return dtype
        case float():
            return float32
    raise Refused(f"a literal is an int, a float or a bool, and not {type(x.value).__name__}", x)


def fit_literal(x: ir.Literal, dtype: DType) -> None:
    """Reject a literal that the dtype cannot represent."""
    kind = type(x.value)
    if kind is bool:
        fits = dtype is bool_
    elif kind is int:
        fits = dtype.is_float or (dtype.is_integer and dtype.min <= x.value <= dtype.max)
    else:
        fits = dtype.is_float and kind is float
    if not fits:
        raise Refused(f"the literal {x} is no value of {dtype}", x)


def _meeting_literals(literals: list[ir.Literal]) -> DType:
    dtypes = [literal_dtype(x) for x in literals]
    if float32 in dtypes and bool_ not in dtypes:
        return float32
    if bool_ not in dtypes:
        return max(dtypes, key=lambda d: (d.bits, d.kind == "uint"))
    for x in literals:
        fit_literal(x, dtypes[0])
    return dtypes[0]


def broadcast(whole: ir.Tile, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Broadcast shapes as in numpy."""
    result = shapes[0]
    for shape in shapes[1:]:
        if shape == result or not shape:
            continue
        if not result:
            result = shape
            continue
        rank = max(len(shape), len(result))
        x, y = (1,) * (rank - len(result)) + result, (1,) * (rank - len(shape)) + shape
        if any(m != n and m != 1 and n != 1 for m, n in zip(x, y, strict=True)):
            raise Refused(f"shapes {list(result)} and {list(shape)} do not fit together in `{whole}`", whole)
        result = tuple([n if m == 1 else m for m, n in zip(x, y, strict=True)])
    return result


def spreads(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to exactly the other."""
    if shape == target or not shape:
        return True
    if len(shape) > len(target):
        return False
    return all(m in (1, n) for m, n in zip(reversed(shape), reversed(target), strict=False))


def dtype_text(dtype: DType) -> str:
    """Return a kernel's name for a dtype."""
    return "tl.int1" if dtype is bool_ else f"tl.{dtype.name}"


def _static_shape(shape: tuple[int, ...], whole: ir.Tile) -> tuple[int, ...]:
    if not all(type(extent) is int and extent >= 1 for extent in shape):
        raise Refused(f"the extents of a tile are positive numbers, and not {list(shape)}", whole)
    return shape


def _axis(axis: int, rank: int, whole: ir.Tile) -> int:
    if not 0 <= axis < rank:
        raise Refused(f"axis {axis} in `{whole}`: the tile has {rank} axes", whole)
    return axis


# One rule for each class of expression.


def _name(types: Types, x: ir.Name) -> TileType:
    found = types.variables.get(x.name)
    if found is None:
        raise Refused(f"there is no variable `{x.name}`", x)
    return found


def _program(types: Types, x: ir.ProgramId | ir.NumPrograms) -> TileType:
    if x.axis not in (0, 1, 2):
        raise Refused(f"a grid has axes 0, 1 and 2, and no axis {x.axis}", x)
    return TileType(int32)


def _arange(types: Types, x: ir.Arange) -> TileType:
    if not int32.min <= x.start < x.stop <= int32.max:
        raise Refused(f"`{x}` must have at least one element, all of them int32", x)
    return TileType(int32, (x.stop - x.start,))


def _load(types: Types, x: ir.Load) -> TileType:
    pointer = pointer_type(types, x.pointer)
    mask_fits(types, x.mask, pointer)
    if x.other is not None:
        if x.mask is None:
            raise Refused("`other` without `mask`: it is what the elements are where the mask is false", x)
        shape = types.takes(x.other, pointer.dtype, "`other`")
        if not spreads(shape, pointer.shape):
            raise Refused(f"`other` of shape {list(shape)} does not fit the pointers' {list(pointer.shape)}", x)
    return TileType(pointer.dtype, pointer.shape)


def pointer_type(types: Types, x: ir.Tile) -> TileType:
    """Return the type of an expression that must be a pointer."""
    found = types.of(x)
    if not found.pointer:
        raise Refused(f"`{x}` is {found}, and not a pointer", x)
    return found


def mask_fits(types: Types, mask: ir.Tile | None, pointer: TileType) -> None:
    """Reject a mask that does not broadcast to the shape of its pointers."""
    if mask is None:
        return
    shape = types.takes(mask, bool_, "the mask")
    if not spreads(shape, pointer.shape):
        raise Refused(f"the mask `{mask}` of shape {list(shape)} does not fit pointers of {list(pointer.shape)}", mask)


def _apply(types: Types, x: ir.Apply) -> TileType:
    function = FUNCTIONS.get(x.fn)
    if function is None or function.result == "given" or not function.in_kernels:
        raise Refused(f"there is no function {x.fn!r}", x)
    if len(x.args) != function.arity:
        raise Refused(f"{x.fn} takes {function.arity} arguments, and not {len(x.args)}", x)
    found = [types.of(a) for a in x.args]
    shape = broadcast(x, *[t.shape for t in found])
    if any(t.pointer for t in found):
        return _moved_pointer(x, found, shape)
    if x.fn == "where":
        types.takes(x.args[0], bool_, "the condition")
        return TileType(types.meet(x, x.args[1:]), shape)
    dtype = types.meet(x, x.args)
    if _KINDS.get(dtype, "n") not in function.domain:
        takes = " or ".join(_KIND_NAMES[k] for k in function.domain)
        raise Refused(f"{x.fn} takes {takes}, and `{x.args[0]}` is {dtype}: convert it with .to(...)", x)
    return TileType(bool_ if function.result == "bool" else dtype, shape)


def _moved_pointer(x: ir.Apply, found: list[TileType], shape: tuple[int, ...]) -> TileType:
    pointers = [t for t in found if t.pointer]
    offsets = [t for t in found if not t.pointer]
    forward = x.fn == "add" or (x.fn == "sub" and found[0].pointer)
    if not forward or len(pointers) != 1 or not offsets[0].dtype.is_integer:
        raise Refused(f"`{x}`: to a pointer integers can be added, and nothing else be done", x)
    return TileType(pointers[0].dtype, shape, pointer=True)


def _cast(types: Types, x: ir.Cast) -> TileType:
    return TileType(x.dtype, types.number(x.x).shape)


def _bitcast(types: Types, x: ir.Bitcast) -> TileType:
    found = types.number(x.x)
    if found.dtype.bits != x.dtype.bits or bool_ in (found.dtype, x.dtype):
        raise Refused(f"`{x.x}` is {found}: its bits cannot be read as {x.dtype}", x)
    return TileType(x.dtype, found.shape)


def _full(types: Types, x: ir.Full) -> TileType:
    if types.takes(x.value, x.dtype, "the value"):
        raise Refused(f"tl.full takes one number, and `{x.value}` has shape {list(types.of(x.value).shape)}", x)
    return TileType(x.dtype, _static_shape(x.shape, x))


def _expand(types: Types, x: ir.ExpandDims) -> TileType:
    found = types.of(x.x)
    rank = len(found.shape) + len(x.axes)
    if sorted(set(x.axes)) != list(x.axes) or not all(0 <= axis < rank for axis in x.axes):
        raise Refused(f"new axes {list(x.axes)} are not places among {rank} axes, in order", x)
    rest = iter(found.shape)
    return TileType(found.dtype, tuple([1 if n in x.axes else next(rest) for n in range(rank)]), found.pointer)


def _broadcast_to(types: Types, x: ir.BroadcastTo) -> TileType:
    found = types.of(x.x)
    if not spreads(found.shape, _static_shape(x.shape, x)):
        raise Refused(f"`{x.x}` of shape {list(found.shape)} does not broadcast to {list(x.shape)}", x)
    return TileType(found.dtype, x.shape, found.pointer)


def _reshape(types: Types, x: ir.Reshape) -> TileType:
    found = types.of(x.x)
    if math.prod(found.shape) != math.prod(_static_shape(x.shape, x)):
        raise Refused(f"`{x.x}` of shape {list(found.shape)} cannot be reshaped to {list(x.shape)}", x)
    return TileType(found.dtype, x.shape, found.pointer)


def _trans(types: Types, x: ir.Trans) -> TileType:
    found = types.of(x.x)
    if sorted(x.permutation) != list(range(len(found.shape))):
        raise Refused(f"{list(x.permutation)} is no order of the {len(found.shape)} axes of `{x.x}`", x)
    return TileType(found.dtype, tuple([found.shape[n] for n in x.permutation]), found.pointer)


def _reduce(types: Types, x: ir.Reduce) -> TileType:
    found = _reducible(types, x)
    shape = found.shape[: x.axis] + found.shape[x.axis + 1 :]
    return TileType(int32 if x.fn.startswith("arg") else found.dtype, shape)


def _scan(types: Types, x: ir.Scan) -> TileType:
    found = _reducible(types, x)
    if not REDUCERS[x.fn].scan:
        raise Refused(f"{x.fn} cannot run along an axis", x)
    return found


def _reducible(types: Types, x: ir.Reduce | ir.Scan) -> TileType:
    if x.fn not in REDUCERS:
        raise Refused(f"{x.fn} cannot run over an axis: {', '.join(REDUCERS)} can", x)
    found = types.number(x.x)
    _axis(x.axis, len(found.shape), x)
    function = FUNCTIONS.get(x.fn)
    if _KINDS.get(found.dtype, "n") not in ("bif" if function is None else function.domain):
        raise Refused(f"`{x}`: {REDUCERS[x.fn].printed} does not take {found.dtype}; convert it with .to(...)", x)
    return found


def dot_dtype(dtype: DType) -> DType:
    """Return the accumulator dtype of a dot."""
    return float64 if dtype is float64 else float32 if dtype.is_float else int32


def _dot(types: Types, x: ir.Dot) -> TileType:
    left, right = types.number(x.x), types.number(x.y)
    if left.dtype is not right.dtype:
        raise Refused(f"`{x.x}` is {left} and `{x.y}` is {right}: convert one of them with .to(...)", x)
    if left.dtype is bool_ or (left.dtype.is_integer and left.dtype.bits > 32):
        raise Refused(f"tl.dot does not take {left.dtype}: multiply and tl.sum", x)
    if len(left.shape) != 2 or len(right.shape) != 2 or left.shape[1] != right.shape[0]:
        raise Refused(f"tl.dot takes [m, k] and [k, n], and not {list(left.shape)} and {list(right.shape)}", x)
    if x.precision not in PRECISIONS:
        raise Refused(f"the precision of a tl.dot is one of {', '.join(PRECISIONS)}, and not {x.precision!r}", x)
    result = TileType(dot_dtype(left.dtype), (left.shape[0], right.shape[1]))
    if x.accumulator is not None and types.of(x.accumulator) != result:
        raise Refused(f"the accumulator `{x.accumulator}` is {types.of(x.accumulator)}, and not {result}", x)
    return result


def _gather(types: Types, x: ir.GatherAlongAxis) -> TileType:
    found, index = types.number(x.x), types.number(x.index)
    _axis(x.axis, len(found.shape), x)
    if not index.dtype.is_integer:
        raise Refused(f"the index `{x.index}` is {index}, and not integers", x.index)
    fits = len(index.shape) == len(found.shape) and all(
        m == n for axis, (m, n) in enumerate(zip(index.shape, found.shape, strict=False)) if axis != x.axis
    )
    if not fits:
        raise Refused(
            f"an index of shape {list(index.shape)} does not fit {list(found.shape)}: only axis {x.axis} may differ",
            x,
        )
    return TileType(found.dtype, index.shape)


_RULES: dict[type, Callable[[Types, Any], TileType]] = {
    ir.Name: _name,
    ir.Literal: lambda types, x: TileType(literal_dtype(x)),
    ir.ProgramId: _program,
    ir.NumPrograms: _program,
    ir.Arange: _arange,
    ir.Load: _load,
    ir.Apply: _apply,
    ir.Cast: _cast,
    ir.Bitcast: _bitcast,
    ir.Full: _full,
    ir.ExpandDims: _expand,
    ir.BroadcastTo: _broadcast_to,
    ir.Reshape: _reshape,
    ir.Trans: _trans,
    ir.Reduce: _reduce,
    ir.Scan: _scan,
    ir.Dot: _dot,
    ir.GatherAlongAxis: _gather,
}
