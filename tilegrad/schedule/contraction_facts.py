"""Describe what the kernel of a group computes, if it is a contraction with a simple epilogue or sums its parts.

Libraries compute such kernels instead; the description follows from the scalar expressions of the group, before tiles
are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from ..ir.contraction import Contraction, ContractionAxis, ContractionOperand, IndexDigit, SumOfParts
from ..ir.dtype import bfloat16, float16, float32
from ..ir.graph import Value
from ..ir.position import linear
from ..ir.scalar import TRUE, Apply, Const, Expr, Index, Read, Reduce
from .flatten import FlatGroup
from .products import operands, precision_of

Strides: TypeAlias = dict[Index, int]


class NotDescribed(Exception):
    """Raised for a kernel that computes something else."""


def require(holds: object) -> None:
    if not holds:
        raise NotDescribed


def described(flat: FlatGroup, names: Mapping[Value, str]) -> Contraction | SumOfParts | None:
    """Return what a group computes from and into the parameters with these names, or None."""
    try:
        require(len(flat.stores) == 1)
        require(all(type(i.extent) is int for i in (*flat.rows, *flat.columns)))
        return _Description(flat, names).found()
    except NotDescribed:
        return None


class _Description:
    def __init__(self, flat: FlatGroup, names: Mapping[Value, str]) -> None:
        (self.store,) = flat.stores
        self.flat, self.dtype = flat, self.store.value.dtype
        order = {name: n for n, name in enumerate(dict.fromkeys(names.values()))}
        self.parameters = {value: order[name] for value, name in names.items()}
        """Numbers of the kernel's parameters; a result that overwrites an operand has its number."""

    def found(self) -> Contraction | SumOfParts:
        relu, added, total = self._epilogue()
        factors = operands(total, self.flat.rows, self.flat.columns)
        if factors is None:
            require(added is None and not relu)
            return self._partial_sums(total)
        x, y = map(self._read, factors)
        (at_x, first_x), (at_y, first_y) = self._strides(x), self._strides(y)
        summed = set(self.flat.columns)
        order = [*self.flat.rows, *self.flat.columns]
        axes = tuple([ContractionAxis(_extent(i), at_x.get(i, 0), at_y.get(i, 0), i in summed) for i in order])
        out, first = self._digits(order)
        bias, bias_axis = (-1, -1) if added is None else self._bias(added, order)
        read = {self.parameters[x.source], self.parameters[y.source], *([] if bias < 0 else [bias])}
        made = self.parameters[self.store.value]
        require(made not in read and len(set(self.parameters.values())) == len(read) + 1)
        left = ContractionOperand(self.parameters[x.source], x.dtype, first_x)
        right = ContractionOperand(self.parameters[y.source], y.dtype, first_y)
        precision = precision_of(total) if x.dtype is float32 else "highest"
        return Contraction(
            axes, left, right, ContractionOperand(made, self.dtype, first), out, bias, bias_axis, relu, precision
        )

    def _epilogue(self) -> tuple[bool, Expr | None, Reduce]:
        """Match `relu(sum + bias)`, both optional: whether there is a ReLU, the bias, and the sum."""
        value, relu, added = self._unrounded(self.store.expr), False, None
        match value:
            case Apply("maximum", (x, Const(zero))) | Apply("maximum", (Const(zero), x)) if zero == 0:
                value, relu = self._unrounded(x), True
        match value:
            case Apply("add", (x, y)):
                x, y = self._unrounded(x), self._unrounded(y)
                value, added = (x, y) if isinstance(x, Reduce) else (y, x)
        require(isinstance(value, Reduce) and value.fn == "add")
        assert isinstance(value, Reduce)
        return relu, added, value

    def _unrounded(self, e: Expr) -> Expr:
        """Strip conversions to float32 and to the dtype that is stored."""
        while isinstance(e, Apply) and e.fn == "cast" and e.dtype in (self.dtype, float32):
            e = e.args[0]
        return e

    def _read(self, e: Expr) -> Read:
        """Return the read that a factor is, perhaps widened to float32: any other conversion rounds or is wider."""
        widened = isinstance(e, Apply) and e.fn == "cast" and e.dtype is float32
        if isinstance(e, Apply) and widened:
            e = e.args[0]
        require(isinstance(e, Read) and e.source in self.parameters)
        require(not widened or e.dtype in (bfloat16, float16, float32))
        assert isinstance(e, Read)
        return e

    def _strides(self, read: Read) -> tuple[Strides, int]:
        """Return the stride of a read along each index, and its constant offset."""
        found: Strides = {}
        first = 0
        for factors, stride in linear(read.position[-1]).items():
            match factors:
                case ():
                    first = stride
                case (Index() as index,):
                    found[index] = stride
                case _:
                    raise NotDescribed
        require(len(read.position) == 1 and first >= 0 and min(found.values(), default=0) >= 0)
        return found, first

    def _digits(self, order: Sequence[Index]) -> tuple[tuple[IndexDigit, ...], int]:
        """Return the digits of the result's offset with their limits, and its constant part."""
        limits, found, first = _limits(self.flat.exists), [], 0
        for factors, stride in linear(self.store.offset).items():
            if factors == ():
                first = stride
                continue
            require(len(factors) == 1 and stride > 0)
            index, divisor, modulus = _digit(factors[0])
            require(index in self.flat.rows)
            limit = limits.pop((index, divisor, modulus), 0)
            found.append(IndexDigit(order.index(index), divisor, modulus, stride, limit))
        require(not limits and first >= 0)
        return tuple(found), first

    def _bias(self, e: Expr, order: Sequence[Index]) -> tuple[int, int]:
        """Return the parameter of a bias and the axis along which it is contiguous."""
        require(isinstance(e, Read) and e.dtype is self.dtype)
        read = self._read(e)
        strides, first = self._strides(read)
        require(first == 0 and list(strides.values()) == [1])
        (index,) = strides
        require(index in self.flat.rows)
        return self.parameters[read.source], order.index(index)

    def _partial_sums(self, total: Reduce) -> SumOfParts:
        """Match `out[i] = sum(x[part * elements + i] for part in 0:parts)`."""
        read = self._read(total.body)
        (strides, first), digits = self._strides(read), self._digits(self.flat.rows)
        require(read.dtype is float32 and len(self.flat.rows) == len(self.flat.columns) == 1 and first == 0)
        (row,), (column,) = self.flat.rows, self.flat.columns
        elements = _extent(row)
        require(digits == ((IndexDigit(0, 1, 0, 1),), 0) and strides == {row: 1, column: elements})
        require(set(self.parameters.values()) == {0, 1})
        return SumOfParts(_extent(column), elements, self.dtype)


def _extent(index: Index) -> int:
    assert isinstance(index.extent, int)
    return index.extent


def _digit(e: Expr) -> tuple[Index, int, int]:
    """Match `index // divisor % modulus`, either part optional."""
    modulus, divisor = 0, 1
    match e:
        case Apply("mod", (x, Const(int(by)))) if by > 0:
            e, modulus = x, by
    match e:
        case Apply("floordiv", (x, Const(int(by)))) if by > 0:
            e, divisor = x, by
    require(isinstance(e, Index))
    assert isinstance(e, Index)
    return e, divisor, modulus


def _limits(exists: Expr) -> dict[tuple[Index, int, int], int]:
    """Return the bounds of digits below which a result is stored."""
    match exists:
        case _ if exists is TRUE:
            return {}
        case Apply("bitand", (x, y)):
            return {**_limits(x), **_limits(y)}
        case Apply("lt", (x, Const(int(limit)))) if limit > 0:
            return {_digit(x): limit}
    raise NotDescribed
