"""Tile expressions with their names resolved: a graph in which an equal expression is the same node.

Statements become nodes; nothing is computed yet. What a name means is looked up when it is met, so a node is valid
wherever it is used later, as long as the memory that it loads from does not change in between: each load knows how many
stores there were before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....ir import tile as ir
from ....ir.dtype import DType, bool_, int32
from ....ir.tile_types import Types, literal_dtype
from ..emit import Value
from ..linear import Linear


class TileNode:
    """One expression: its kind, its operands, and what else it says."""

    __slots__ = ("args", "cost", "data", "dtype", "kind", "number", "own", "pointer", "shape")

    def __init__(
        self, kind: str, args: tuple[TileNode, ...], data: Any, dtype: DType, shape: tuple[int, ...], pointer: str = ""
    ) -> None:
        self.kind, self.args, self.data = kind, args, data
        self.dtype, self.shape = dtype, shape
        self.pointer = pointer
        """The parameter whose memory it points to, if it is a pointer."""
        self.number = 0
        """In which order the nodes of a kernel were made."""
        self.own = _own_cost(self)
        self.cost = self.own + max([0.0] if is_root(self) else [a.cost for a in args], default=0.0)
        """What an element costs to compute once more, about, in instructions."""

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(map(repr, self.args))})"


ROOTS = frozenset({"reduce", "scan", "dot", "slot"})
_DEAR = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sigmoid sin cos tan asin acos atan atan2 sinh cosh tanh "
    "asinh acosh atanh erf erfc pow".split()
)
_MEDIUM = frozenset("div floordiv mod truncdiv fmod sqrt rsqrt mulhi".split())


def is_root(node: TileNode) -> bool:
    """Whether it is computed by a loop nest of its own and read from where that put it."""
    return node.kind in ROOTS


def _own_cost(node: TileNode) -> float:
    if node.kind == "apply":
        if node.data in _DEAR:
            return 15
        if node.data in _MEDIUM:
            return 5 if node.dtype.is_float else 2
        return 1 if node.dtype.is_float else 0.5
    if node.kind == "load":
        return 2
    return 1 if node.kind in ("cast", "scan", "dot") else 0


class Nodes:
    """Makes nodes, each once."""

    def __init__(self, types: Types) -> None:
        self.types = types
        self.known: dict[tuple[Any, ...], TileNode] = {}
        self.names: dict[str, TileNode] = {}
        """What the names stand for here."""
        self.stores: dict[str, int] = {}
        """How many stores there were to the parameters that are stored to at all."""

    def make(
        self,
        kind: str,
        args: tuple[TileNode, ...] = (),
        data: Any = None,
        *,
        dtype: DType,
        shape: tuple[int, ...] = (),
        pointer: str = "",
    ) -> TileNode:
        key = (kind, data, dtype, shape, *map(id, args))
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = TileNode(kind, args, data, dtype, shape, pointer)
            found.number = len(self.known)
        return found

    def scalar(self, value: Value | Linear, dtype: DType) -> TileNode:
        """A number that is in a register."""
        return self.make("scalar", (), value, dtype=dtype)

    def of(self, x: ir.Tile, dtype: DType | None = None) -> TileNode:
        """The node of an expression; a literal takes the type that is asked for."""
        match x:
            case ir.Literal(value):
                return self._literal(value, dtype or literal_dtype(x))
            case ir.Name(name):
                return self.names[name]
            case ir.ProgramId(axis) | ir.NumPrograms(axis):
                return self.names[f"{type(x).__name__} {axis}"]
            case ir.Load():
                return self._load(x)
            case ir.Apply():
                return self._apply(x)
            case ir.Arange(start, stop):
                return self.make("arange", (), start, dtype=int32, shape=(stop - start,))
        return self._shaped(x)

    def _literal(self, value: float | int | bool, dtype: DType) -> TileNode:
        return self.make("literal", (), (type(value).__name__, repr(value), value), dtype=dtype)

    def _shaped(self, x: ir.Tile) -> TileNode:
        found = self.types.of(x)
        dtype, shape = found.dtype, found.shape
        match x:
            case ir.Cast(y, target):
                return self.cast(self.of(y), target)
            case ir.Bitcast(y, target):
                return self.make("bitcast", (self.of(y),), None, dtype=target, shape=shape)
            case ir.Full(_, value, _):
                return self.broadcast(self.of(value, dtype), shape)
            case ir.BroadcastTo(y, _):
                return self.broadcast(self.of(y), shape)
            case ir.Dot(y, z, accumulator):
                return self._dot(self.of(y), self.of(z), self.of(accumulator) if accumulator else None, dtype, shape)
            case ir.Expand(y, axes):
                kind, data = "expand", axes
            case ir.Reshape(y, _):
                kind, data = "reshape", shape
            case ir.Trans(y, permutation):
                kind, data = "trans", permutation
            case ir.Reduce(fn, y, axis):
                kind, data = "reduce", (fn, axis)
            case ir.Scan(fn, y, axis):
                kind, data = "scan", (fn, axis)
            case _:
                raise NotImplementedError(type(x).__name__)
        inner = self.of(y)
        return self.make(kind, (inner,), data, dtype=dtype, shape=shape, pointer=inner.pointer)

    def _dot(
        self, x: TileNode, y: TileNode, accumulator: TileNode | None, dtype: DType, shape: tuple[int, ...]
    ) -> TileNode:
        """A product with a single row or column is a reduction: nothing of it is used twice."""
        (m, k), n = x.shape, y.shape[1]
        if m > 1 and n > 1:
            args = (x, y) if accumulator is None else (x, y, accumulator)
            return self.make("dot", args, None, dtype=dtype, shape=shape)
        x, y = self.cast(x, dtype), self.cast(y, dtype)
        if n == 1:
            y = self.make("trans", (y,), (1, 0), dtype=dtype, shape=(1, k))
        else:
            x = self.make("trans", (x,), (1, 0), dtype=dtype, shape=(k, 1))
        spread = (m, k) if n == 1 else (k, n)
        products = self.make("apply", (x, y), "mul", dtype=dtype, shape=spread)
        axis = 1 if n == 1 else 0
        total = self.make("reduce", (products,), ("add", axis), dtype=dtype, shape=(m,) if n == 1 else (n,))
        made = self.make("expand", (total,), (axis,), dtype=dtype, shape=shape)
        if accumulator is None:
            return made
        return self.make("apply", (accumulator, made), "add", dtype=dtype, shape=shape)

    def cast(self, x: TileNode, dtype: DType) -> TileNode:
        return x if x.dtype is dtype else self.make("cast", (x,), None, dtype=dtype, shape=x.shape)

    def broadcast(self, x: TileNode, shape: tuple[int, ...]) -> TileNode:
        if x.shape == shape:
            return x
        return self.make("broadcast", (x,), shape, dtype=x.dtype, shape=shape, pointer=x.pointer)

    def _apply(self, x: ir.Apply) -> TileNode:
        found = self.types.of(x)
        meeting = self.types.arguments(x)
        if found.pointer:
            left, right = (self.of(a, meeting) for a in x.args)
            if not left.pointer:
                left, right = right, left
            kind = "back" if x.fn == "sub" else "forward"
            return self.make(kind, (left, right), None, dtype=found.dtype, shape=found.shape, pointer=left.pointer)
        wanted = (bool_, meeting, meeting) if x.fn == "where" else (meeting,) * len(x.args)
        args = tuple([self.cast(self.of(a, d), d) for a, d in zip(x.args, wanted, strict=True)])
        return self.make("apply", args, x.fn, dtype=found.dtype, shape=found.shape)

    def _load(self, x: ir.Load) -> TileNode:
        pointer = self.of(x.pointer)
        args = [pointer]
        if x.mask is not None:
            args.append(self.of(x.mask, bool_))
        if x.other is not None:
            args.append(self.of(x.other, pointer.dtype))
        stores = self.stores.get(pointer.pointer, -1)
        return self.make("load", tuple(args), (pointer.pointer, stores), dtype=pointer.dtype, shape=pointer.shape)


def reachable(node: TileNode, results: Mapping[TileNode, Any]) -> Iterator[TileNode]:
    """The nodes that computing a node goes through, itself first; it stops at what has been computed."""
    seen = {node}
    stack = [node]
    while stack:
        here = stack.pop()
        yield here
        if here in results:
            continue
        for a in here.args:
            if a not in seen:
                seen.add(a)
                stack.append(a)
