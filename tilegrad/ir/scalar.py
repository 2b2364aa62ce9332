"""Define the scalar language: how one element of a tensor is computed.

    expr ::= Const(value, dtype)                  a number
           | Index(name, extent)                  the position along an axis, 0 <= index < extent
           | Symbol(name)                         a size that is known only when the program runs
           | Read(source, position, dtype)        an element of a tensor in memory
           | Apply(fn, args, dtype)               a function of `functions.FUNCTIONS`
           | Reduce(fn, index, body, dtype)       fn over all values of an index
           | Scan(fn, index, body, at, dtype)     fn over the values of an index up to `at`

Positions are int64. There is one object per structure (`Interned`), so a shared part is computed once: sharing needs no
node of its own, and the printer shows it as `let`. Build expressions with the functions of this module and operators,
not with constructors: int64 and bool expressions are kept in a normal form (`position.py`).
"""

from __future__ import annotations

import math
from binascii import crc32
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any, ClassVar, NamedTuple, TypeAlias

from .dtype import DType, bool_, int64
from .functions import FUNCTIONS, REDUCERS, convert, identity
from .node import Interned, cache_fact
from .size import Dim, Size

Expr: TypeAlias = "Scalar"


class Scalar(Interned):
    """An expression. Operators build expressions: `x * 2 + y`."""

    dtype: ClassVar[DType]

    def __add__(self, other: Expr | float) -> Expr:
        return apply("add", self, literal(other, self.dtype))

    def __radd__(self, other: float) -> Expr:
        return apply("add", literal(other, self.dtype), self)

    def __sub__(self, other: Expr | float) -> Expr:
        return apply("sub", self, literal(other, self.dtype))

    def __rsub__(self, other: float) -> Expr:
        return apply("sub", literal(other, self.dtype), self)

    def __mul__(self, other: Expr | float) -> Expr:
        return apply("mul", self, literal(other, self.dtype))

    def __rmul__(self, other: float) -> Expr:
        return apply("mul", literal(other, self.dtype), self)

    def __truediv__(self, other: Expr | float) -> Expr:
        return apply("div", self, literal(other, self.dtype))

    def __rtruediv__(self, other: float) -> Expr:
        return apply("div", literal(other, self.dtype), self)

    def __floordiv__(self, other: Expr | float) -> Expr:
        return apply("floordiv", self, literal(other, self.dtype))

    def __mod__(self, other: Expr | float) -> Expr:
        return apply("mod", self, literal(other, self.dtype))

    def __neg__(self) -> Expr:
        return apply("neg", self)

    def __and__(self, other: Expr) -> Expr:
        return apply("bitand", self, other)

    def __or__(self, other: Expr) -> Expr:
        return apply("bitor", self, other)

    def __lt__(self, other: Expr | float) -> Expr:
        return apply("lt", self, literal(other, self.dtype))

    def __le__(self, other: Expr | float) -> Expr:
        return apply("le", self, literal(other, self.dtype))

    def __gt__(self, other: Expr | float) -> Expr:
        return apply("gt", self, literal(other, self.dtype))

    def __ge__(self, other: Expr | float) -> Expr:
        return apply("ge", self, literal(other, self.dtype))

    def __str__(self) -> str:
        return show(self)


class Const(Scalar):
    value: float | int | bool
    dtype: DType  # type: ignore[misc]

    @classmethod
    def intern_key(cls, *args: Any) -> tuple[Any, ...]:
        value, dtype = args
        return (cls, value.hex() if isinstance(value, float) else value, dtype)


class Index(Scalar):
    name: str
    extent: Dim
    dtype: ClassVar[DType] = int64


class Symbol(Scalar):
    name: str
    dtype: ClassVar[DType] = int64


class Read(Scalar):
    source: Any
    """The source of the read: a graph value, or a name."""
    position: tuple[Expr, ...]
    dtype: DType  # type: ignore[misc]


class Apply(Scalar):
    fn: str
    args: tuple[Expr, ...]
    dtype: DType  # type: ignore[misc]


class Reduce(Scalar):
    fn: str
    index: Index
    body: Expr
    dtype: DType  # type: ignore[misc]


class Scan(Scalar):
    fn: str
    index: Index
    body: Expr
    at: Expr
    dtype: DType  # type: ignore[misc]


Position: TypeAlias = tuple[Expr, ...]

NormalForm: TypeAlias = Callable[[str, tuple[Expr, ...]], "Expr | None"]
NORMAL_FORMS: dict[DType, NormalForm] = {}
"""Normalisers by the type of the first argument; each returns the normal form or None (see `position.py`)."""

TRUE, FALSE = Const(True, bool_), Const(False, bool_)


def const(value: float, dtype: DType) -> Const:
    """Build a constant; integers wrap around, as in memory."""
    if dtype is bool_:
        return Const(bool(value), dtype)
    if dtype.kind == "float":
        return Const(float(value), dtype)
    wrapped = int(value) & ((1 << dtype.bits) - 1)
    return Const(wrapped - (1 << dtype.bits) if dtype.kind == "int" and wrapped >> (dtype.bits - 1) else wrapped, dtype)


def literal(x: Expr | float, dtype: DType) -> Expr:
    """Convert a Python number to an expression of a type; return an expression unchanged."""
    return x if isinstance(x, Scalar) else const(x, dtype)


def size(extent: Dim) -> Expr:
    """Convert a size to an expression."""
    if not isinstance(extent, Size):
        return const(extent, int64)
    total: Expr = const(0, int64)
    for names, coefficient in extent.terms.items():
        term: Expr = const(coefficient, int64)
        for name in names:
            term = term * Symbol(name)
        total = total + term
    return total


def apply(fn: str, *args: Expr) -> Expr:
    """Apply a function of the table, in normal form if its type has one."""
    normal = NORMAL_FORMS.get(args[0].dtype)
    if normal is not None:
        normalised = normal(fn, args)
        if normalised is not None:
            return normalised
    function = FUNCTIONS[fn]
    dtype = bool_ if function.result == "bool" else args[-1].dtype
    return Apply(fn, args, dtype)


def cast(x: Expr, dtype: DType) -> Expr:
    """Convert to another type; constants are folded."""
    if x.dtype is dtype:
        return x
    if isinstance(x, Const) and not (isinstance(x.value, float) and not math.isfinite(x.value) and not dtype.is_float):
        return const(convert(const_array(x), dtype).item(), dtype)
    return Apply("cast", (x,), dtype)


def const_array(x: Const) -> Any:
    """Wrap a number in a zero-dimensional array, for numpy's conversions."""
    import numpy as np

    return np.array(x.value, x.dtype.numpy)


def bitcast(x: Expr, dtype: DType) -> Expr:
    """Reinterpret the bits as another type of the same width."""
    return x if x.dtype is dtype else Apply("bitcast", (x,), dtype)


def where(condition: Expr, x: Expr, y: Expr) -> Expr:
    """Select x where the condition holds, else y. The other operand is not read."""
    if condition is TRUE or x is y:
        return x
    return y if condition is FALSE else Apply("where", (condition, x, y), x.dtype)


def reduce(fn: str, index: Index, body: Expr) -> Expr:
    """Reduce with fn over all values of an index.

    >>> k = Index("k", 8)
    >>> print(reduce("add", k, k * 2))
    sum((k * 2) for k in 0:8)
    """
    if index.extent == 0:
        return const(identity(fn, body.dtype), int64 if fn.startswith("arg") else body.dtype)
    if index.extent == 1:
        return const(0, int64) if fn.startswith("arg") else substitute(body, {index: const(0, int64)})
    return Reduce(fn, index, body, int64 if fn.startswith("arg") else body.dtype)


def scan(fn: str, index: Index, body: Expr, at: Expr) -> Expr:
    """Scan with fn over the values of an index from 0 up to and including `at`."""
    if index.extent == 1:
        return const(0, int64) if fn.startswith("arg") else substitute(body, {index: const(0, int64)})
    return Scan(fn, index, body, at, int64 if fn.startswith("arg") else body.dtype)


def parts(e: Expr) -> tuple[Expr, ...]:
    """List the operands of an expression."""
    found: tuple[Expr, ...] | None = e.__dict__.get("_parts")
    if found is None:
        found = ()
        match e:
            case Read(_, below) | Apply(_, below):
                found = below
            case Reduce(_, index, body):
                found = (index, body)
            case Scan(_, index, body, at):
                found = (index, body, at)
        cache_fact(e, "_parts", found)
    return found


class Facts(NamedTuple):
    """Cached properties of an expression that follow from its operands."""

    reads: tuple[Read, ...]
    """All reads in the expression, each once, inner ones first."""
    indices: frozenset[Index]
    """All indices in the expression, including those of reductions."""
    loops: bool
    """Whether it has reductions or scans."""
    symbols: bool
    checked: bool
    """Whether it has indices that are bounds-checked."""
    choices: int  # `where` inside each other

    @property
    def data(self) -> bool:
        """Whether it depends on data, not on positions only."""
        return self.loops or len(self.reads) > 0


def facts(e: Expr) -> Facts:
    """Derive the properties of an expression, once and without recursion."""
    found: Facts | None = e.__dict__.get("_facts")
    if found is not None:
        return found
    stack = [e]
    while stack:
        e = stack[-1]
        missing = [p for p in parts(e) if "_facts" not in p.__dict__]
        if missing:
            stack += missing
        else:
            found = _facts_from(e, [p.__dict__["_facts"] for p in parts(e)])
            cache_fact(e, "_facts", found)
            stack.pop()
    assert found is not None
    return found


def _facts_from(e: Expr, below: list[Facts]) -> Facts:
    reads, indices = tuple[Read, ...](), frozenset[Index]()
    loops, symbols = isinstance(e, Reduce | Scan), isinstance(e, Symbol)
    checked = e.__class__ is Apply and e.fn == "inside"
    deep = own = int(e.__class__ is Apply and e.fn == "where")
    for f in below:
        deep = f.choices + own if f.choices + own > deep else deep
        if f.reads and f.reads is not reads:
            reads = tuple(dict.fromkeys(reads + f.reads)) if reads else f.reads
        indices = indices if f.indices <= indices else f.indices | indices
        loops, symbols, checked = loops | f.loops, symbols | f.symbols, checked | f.checked
    if isinstance(e, Read):
        reads = (*reads, e)
    elif isinstance(e, Index):
        indices = frozenset((e,))
    return Facts(reads, indices, loops, symbols, checked, deep)


def free(e: Expr) -> frozenset[Index]:
    """List the free indices of an expression: indices bound by its reductions and scans are excluded.

    >>> i, k = Index("i", 4), Index("k", 8)
    >>> [str(index) for index in free(reduce("add", k, i * 2 + k))]
    ['i']
    """
    if not facts(e).loops:
        return facts(e).indices
    found: frozenset[Index] | None = e.__dict__.get("_free")
    if found is None:
        for inner in loops_in(e):
            if "_free" not in inner.__dict__:
                cache_fact(inner, "_free", _free_from(inner))
        found = e.__dict__["_free"]
    assert found is not None
    return found


def _free_from(e: Expr) -> frozenset[Index]:
    match e:
        case Reduce(_, index, body):
            return free(body) - {index}
        case Scan(_, index, body, at):
            return free(body) - {index} | free(at)
    return frozenset[Index]().union(*map(free, parts(e)))


def loops_in(e: Expr) -> list[Expr]:
    """List the reductions and scans in an expression and everything that contains one; each once, operands first."""
    found: dict[Expr, None] = {}
    stack = [e] if facts(e).loops else []
    while stack:
        e = stack[-1]
        missing = [p for p in parts(e) if p not in found and facts(p).loops]
        if missing:
            stack += missing
        else:
            found[stack.pop()] = None
    return list(found)


def walk(*roots: Expr) -> list[Expr]:
    """List every expression below the roots once, operands first."""
    order: dict[Expr, None] = {}
    stack = list(reversed(roots))
    while stack:
        e = stack[-1]
        if e not in order and (missing := [p for p in parts(e) if p not in order]):
            stack += reversed(missing)
        else:
            order[stack.pop()] = None
    return list(order)


def rebuild(roots: tuple[Expr, ...], change: Callable[[Expr], Expr | None]) -> tuple[Expr, ...]:
    """Rewrite the roots bottom-up with `change`, which returns a replacement or None.

    `change` sees an expression whose operands have been rewritten. An expression that has simplified to one of its
    operands (a selection between two that have become equal) is not rewritten again.
    """
    new: dict[Expr, Expr] = {}
    for e in walk(*roots):
        made = remade(e, new)
        found = change(made)
        if found is None or (made is not e and any(made is new[p] for p in parts(e))):
            found = made
        new[e] = found
    return tuple([new[e] for e in roots])


def remade(e: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """Rebuild an expression from rewritten operands."""
    match e:
        case Read(source, position, dtype):
            moved = tuple([new[p] for p in position])
            return e if moved == position else Read(source, moved, dtype)
        case Apply("cast", (x,), dtype):
            return cast(new[x], dtype)
        case Apply("bitcast", (x,), dtype):
            return bitcast(new[x], dtype)
        case Apply("where", (c, x, y)):
            return where(new[c], new[x], new[y])
        case Apply(fn, args):
            changed = tuple([new[a] for a in args])
            return e if changed == args else apply(fn, *changed)
        case Reduce(fn, index, body):
            return reduce(fn, new[index], new[body])  # type: ignore[arg-type]
        case Scan(fn, index, body, at):
            return scan(fn, new[index], new[body], new[at])  # type: ignore[arg-type]
        case _:
            return e


def substitute(e: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """Substitute indices by other expressions, all at once."""
    return substituted((e,), values)[0]


def substituted(roots: Iterable[Expr], values: Mapping[Expr, Expr]) -> list[Expr]:
    """Substitute in several expressions; shared parts are visited once."""
    new: dict[Expr, Expr] = dict(values)
    roots = list(roots)
    stack = list(roots)
    while stack:
        e = stack[-1]
        if e in new:
            stack.pop()
            continue
        if facts(e).indices.isdisjoint(values):
            new[e] = e
            continue
        missing = [p for p in parts(e) if p not in new]
        if missing:
            stack += missing
        else:
            if isinstance(e, Reduce | Scan):
                _refuse_capture(e, new)
            new[e] = remade(e, new)
    return [new[e] for e in roots]


def _refuse_capture(e: Reduce | Scan, new: Mapping[Expr, Expr]) -> None:
    """Reject a substitution of an expression that holds the index of a loop into that loop: it would be captured."""
    bound = new[e.index]
    assert isinstance(bound, Index), f"the index {e.index.name} of a loop cannot be {bound}"
    for index in facts(e.body).indices:
        if index is not e.index and bound in facts(new.get(index, index)).indices and index in free(e):
            raise AssertionError(f"{index.name} becomes {new.get(index, index)} in a loop that goes over {bound.name}")


_numbers = count(1)


def fresh_index(extent: Dim) -> Index:
    """Make an index with a unique name; lowering gives it its final name."""
    return Index(f"_{next(_numbers)}", extent)


LONG = 200
"""Length from which an expression's sort key is not its printed form, in letters."""


def spelling(e: Expr) -> str:
    """Return the sort key of an expression: its printed form, bounded in length however much it shares."""
    found: str | None = e.__dict__.get("_spelling")
    if found is None:
        below = [spelling(p) for p in parts(e)]
        if sum(map(len, below)) < LONG and not any("#" in text for text in below):
            found = show(e)
        else:
            kind = e.fn if isinstance(e, Apply | Reduce | Scan) else type(e).__name__
            text = f"{kind}({', '.join(below)})"
            found = f"{text[:LONG]}#{crc32(text.encode())}"
        cache_fact(e, "_spelling", found)
    return found


def show(e: Expr, names: Mapping[Expr, str] = {}) -> str:
    """Print an expression; named parts are printed as their names."""
    if e in names:
        return names[e]
    of = partial(show, names=names)
    match e:
        case Const(value, dtype):
            return _show_constant(value, dtype)
        case Index(name) | Symbol(name):
            return name
        case Read(source, position):
            return f"{source}[{', '.join(map(of, position))}]"
        case Apply("cast" | "bitcast" as fn, (x,), dtype):
            return f"{dtype}({of(x)})" if fn == "cast" else f"bitcast({of(x)}, {dtype})"
        case Apply(fn, args):
            return FUNCTIONS[fn].show([of(x) for x in args])
        case Reduce(fn, index, body):
            return f"{REDUCERS[fn].printed}({of(body)} for {of(index)} in 0:{index.extent})"
        case Scan(fn, index, body, at):
            return f"{REDUCERS[fn].printed}({of(body)} for {of(index)} in 0:{of(at)} + 1)"
    raise NotImplementedError(type(e).__name__)


def _show_constant(value: bool | int | float, dtype: DType) -> str:
    if dtype is bool_ or dtype is int64:
        return str(value)
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else repr(value)
