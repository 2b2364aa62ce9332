"""Normalise index arithmetic, so that equal positions are the same object.

A position is kept as a sum of products with integer coefficients. Division and remainder are simplified using the
ranges of indices, so that data movement (reshape, slice, flip, ...) composes to plain strides where possible:

>>> from .scalar import Index
>>> i, j = Index("i", 4), Index("j", 8)
>>> flat = i * 8 + j
>>> print(flat // 8, flat % 8, flat // 16, (flat // 8) * 8 + flat % 8, flat < 32)
i j (i // 2) ((i * 8) + j) True
"""

from __future__ import annotations

import math
from typing import TypeAlias

from .dtype import bool_, int64
from .node import cache_fact, set_fact_once
from .scalar import FALSE, NORMAL_FORMS, TRUE, Apply, Const, Expr, Index, Symbol, apply, const, size, spelling, where
from .size import Dim, Size, _terms

Product: TypeAlias = "tuple[Expr, ...]"
Sum: TypeAlias = "dict[Product, int]"
Bounds: TypeAlias = "tuple[Dim | None, Dim | None]"


def normal(fn: str, args: tuple[Expr, ...]) -> Expr | None:
    """Return the normal form of an int64 application, or None if it is already normal."""
    x = args[0]
    match fn:
        case "add":
            return _sum(_with(linear(x), args[1]))
        case "sub":
            return _sum(_with(linear(x), args[1], -1))
        case "neg":
            return _sum({product: -c for product, c in linear(x).items()})
        case "mul":
            return _sum(_multiplied(linear(x), linear(args[1])))
        case "floordiv" | "mod":
            return _divided(fn, x, args[1])
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
            return _compared(fn, x, args[1])
        case "maximum" | "minimum":
            return _extreme(fn, x, args[1])
        case "inside":
            return x if apply("ge", x, const(0, int64)) is TRUE and apply("lt", x, args[1]) is TRUE else None
    return None


def logical(fn: str, args: tuple[Expr, ...]) -> Expr | None:
    """Return the normal form of a bool application, or None."""
    if fn == "invert" and args[0] in (TRUE, FALSE):
        return FALSE if args[0] is TRUE else TRUE
    if fn not in ("bitand", "bitor"):
        return None
    neutral, absorbing = (TRUE, FALSE) if fn == "bitand" else (FALSE, TRUE)
    x, y = args
    if x is absorbing or y is absorbing:
        return absorbing
    if x is neutral or x is y:
        return y
    return x if y is neutral else None


def linear(e: Expr) -> Sum:
    """Decompose an int64 expression into a sum: {factors: coefficient}."""
    known: Sum | None = e.__dict__.get("_linear")
    if known is None:
        match e:
            case Const(value):
                known = {(): int(value)} if value else {}
            case Apply("add", (x, y)) if e.dtype is int64:
                known = dict(linear(x))
                for product, c in linear(y).items():
                    known[product] = known.get(product, 0) + c
            case Apply("mul", (x, y)) if e.dtype is int64:
                known = _multiplied(linear(x), linear(y))
            case _:
                known = {(e,): 1}
        cache_fact(e, "_linear", known)
    return known


def _multiplied(x: Sum, y: Sum) -> Sum:
    result: Sum = {}
    for p, c in x.items():
        for q, d in y.items():
            product = tuple(sorted(p + q, key=str)) if p and q else p + q
            result[product] = result.get(product, 0) + c * d
    return result


def _sum(total: Sum) -> Expr:
    """Build the expression of a sum: large coefficients first, the constant last."""
    total = _recombined({p: c for p, c in total.items() if c})
    if not total:
        return const(0, int64)
    ordered = sorted(total.items(), key=lambda item: (item[0] == (), -abs(item[1]), [spelling(f) for f in item[0]]))
    result: Expr | None = None
    for product, c in ordered:
        term: Expr | None = None
        for factor in product:
            term = factor if term is None else Apply("mul", (term, factor), int64)
        if term is None:
            term = const(c, int64)
        elif c != 1:
            term = Apply("mul", (term, const(c, int64)), int64)
        result = term if result is None else Apply("add", (result, term), int64)
    assert result is not None
    set_fact_once(result, "_linear", total)
    return result


def _recombined(total: Sum) -> Sum:
    """Merge `(x // c) * c + x % c` into `x`."""
    for product, k in total.items():
        for n, factor in enumerate(product):
            if not (isinstance(factor, Apply) and factor.fn == "mod"):
                continue
            x, c = factor.args
            rest = product[:n] + product[n + 1 :]
            for other, coefficient in total.items():
                if other == product:
                    continue
                whole = _complement(other, coefficient, rest, k, x, c)
                if whole is None:
                    continue
                left = {p: v for p, v in total.items() if p not in (product, other)}
                for p, v in _multiplied({rest: k}, linear(whole)).items():
                    left[p] = left.get(p, 0) + v
                return _recombined({p: v for p, v in left.items() if v})
    return total


def _complement(other: Product, coefficient: int, rest: Product, k: int, x: Expr, c: Expr) -> Expr | None:
    """Return the sum of `k * rest * (x % c)` and another product if they merge, else None."""
    scale = _multiplied({rest: k}, linear(c))
    if len(scale) != 1:
        return None
    ((factors, amount),) = scale.items()
    if amount != coefficient:
        return None
    remaining = list(other)
    for f in factors:
        if f not in remaining:
            return None
        remaining.remove(f)
    if len(remaining) != 1:
        return None
    high = remaining[0]
    quotient = x // c
    if high is quotient:
        return x
    if isinstance(high, Apply) and high.fn == "mod" and high.args[0] is quotient:
        return x % (c * high.args[1])
    return None


def bounds(e: Expr) -> Bounds:
    """Return the lower and upper bound of an int64 expression, each None if unknown."""
    known: Bounds | None = e.__dict__.get("_bounds")
    if known is None:
        known = _bounds(e)
        cache_fact(e, "_bounds", known)
    return known


def _bounds(e: Expr) -> Bounds:
    match e:
        case Const(number):
            return int(number), int(number)
        case Index(_, extent):
            return 0, extent - 1
        case Symbol(name):
            return Size.named(name), Size.named(name)
        case Apply("mod", (_, c)):
            return _bounds_of_remainder(bounds(c)[0])
        case Apply("floordiv", (x, Const(c))) if c > 0:
            low, high = (limit // int(c) if type(limit) is int else None for limit in bounds(x))
            return low, high
        case Apply("where", (_, x, y)):
            return _bounds_of_choice(bounds(x), bounds(y))
        case Apply("minimum" | "maximum" as fn, (x, y)):
            return _bounds_of_extreme(fn == "maximum", bounds(x), bounds(y))
        case Apply("inside", (_, extent, _)):
            return 0, _less_one(bounds(extent)[1])
        case Apply("add" | "mul") if e.dtype is int64:
            return _bounds_of_sum(linear(e))
    return None, None


def _bounds_of_remainder(divisor: Dim | None) -> Bounds:
    if divisor is None or not _surely_positive(divisor):
        return None, None
    return 0, divisor - 1


def _less_one(x: Dim | None) -> Dim | None:
    return None if x is None else x - 1


def _bounds_of_choice(x: Bounds, y: Bounds) -> Bounds:
    """Bound what is one of two values; symbolic bounds are not compared."""
    low = min(x[0], y[0]) if type(x[0]) is int and type(y[0]) is int else None
    high = max(x[1], y[1]) if type(x[1]) is int and type(y[1]) is int else None
    return low, high


def _bounds_of_extreme(greater: bool, x: Bounds, y: Bounds) -> Bounds:
    """Bound a minimum or maximum: one side follows from either operand, the other needs both."""
    if greater:
        return _bound_from_either(x[0], y[0], greater), _bound_from_both(x[1], y[1], greater)
    return _bound_from_both(x[0], y[0], greater), _bound_from_either(x[1], y[1], greater)


def _bound_from_either(x: Dim | None, y: Dim | None, greater: bool) -> Dim | None:
    """Return the tighter of two bounds that hold both."""
    if x is None or y is None:
        return y if x is None else x
    return x if (_least(x - y) >= 0) is greater else y


def _bound_from_both(x: Dim | None, y: Dim | None, greater: bool) -> Dim | None:
    """Return the looser of two bounds, or None if they cannot be compared."""
    if x is None or y is None:
        return None
    above, below = (x, y) if greater else (y, x)
    if _least(above - below) >= 0:
        return x
    return y if _least(below - above) >= 0 else None


def _bounds_of_sum(total: Sum) -> Bounds:
    low: Dim | None = 0
    high: Dim | None = 0
    for product, c in total.items():
        least, greatest = _bounds_of_product(product)
        if c < 0:
            least, greatest = greatest, least
        low = low + least * c if low is not None and least is not None else None
        high = high + greatest * c if high is not None and greatest is not None else None
    return low, high


def _bounds_of_product(product: Product) -> Bounds:
    """Bound a product; one of several factors is bounded only if all are non-negative."""
    if len(product) == 1:
        return bounds(product[0])
    low: Dim = 1
    high: Dim | None = 1
    for factor in product:
        a, b = bounds(factor)
        if a is None or not _surely_natural(a):
            return None, None
        low = low * a
        high = high * b if high is not None and b is not None else None
    return low, high


def _surely_natural(x: Dim) -> bool:
    """Whether a size is non-negative for all values of its symbols (each at least 2)."""
    return sum(min(c, 0) for c in _terms(x).values()) == 0 or _least(x) >= 0


def _least(x: Dim) -> float:
    """Return a lower bound of a size whose symbols are all at least 2."""
    low = 0.0
    for names, c in _terms(x).items():
        if c < 0 and names:
            return _least_of_difference(x)
        low += c * 2 ** len(names)
    return low


def _least_of_difference(x: Dim) -> float:
    """Bound a size such as `4*n - n - 3`; without more knowledge negative terms have no bound."""
    return -math.inf


def _surely_positive(x: Dim) -> bool:
    return _least(x) >= 1


def _divided(fn: str, x: Expr, divisor: Expr) -> Expr | None:
    """Simplify `x // divisor` or `x % divisor`: divisible terms move out, smaller terms vanish."""
    products = linear(divisor)
    if len(products) != 1:
        return None
    ((factors, amount),) = products.items()
    if amount <= 0:
        return None
    if products == {(): 1}:
        return x if fn == "floordiv" else const(0, int64)
    quotient, rest = _divisible(linear(x), factors, amount)
    if _is_below(rest, divisor):
        return _sum(quotient if fn == "floordiv" else rest)
    if factors:
        return _divided_rest(fn, quotient, rest, divisor)
    fine, coarse = _fine_and_coarse(rest, amount)
    if fine:
        whole = const(amount, int64)
        return _sum(_with(quotient, coarse // whole) if fn == "floordiv" else _with(fine, coarse % whole))
    common = math.gcd(amount, *rest.values())
    if common > 1:
        rest, divisor = {p: c // common for p, c in rest.items()}, const(amount // common, int64)
    return _divided_rest(fn, quotient, rest, divisor, common)


def _divisible(total: Sum, factors: Product, amount: int) -> tuple[Sum, Sum]:
    """Split a sum into the quotient of its divisible terms and the rest."""
    quotient: Sum = {}
    rest: Sum = {}
    for product, c in total.items():
        remaining = list(product)
        fits = all(f in remaining and remaining.remove(f) is None for f in factors)  # type: ignore[func-returns-value]
        if fits and c % amount == 0:
            quotient[tuple(remaining)] = c // amount
        elif not factors and product == ():
            quotient[()] = c // amount
            rest[()] = c % amount
        else:
            rest[product] = c
    return quotient, rest


def _is_below(rest: Sum, divisor: Expr) -> bool:
    """Whether a sum is its own remainder."""
    low, high = _bounds_of_sum(rest)
    if low is None or high is None or not _surely_natural(low):
        return False
    highest = bounds(divisor)[0]
    return highest is not None and _least(highest - 1 - high) >= 0


def _fine_and_coarse(rest: Sum, amount: int) -> tuple[Sum, Expr]:
    """Split off terms that stay below a step that divides the divisor and all other terms."""
    for step in sorted({math.gcd(c, amount) for c in rest.values()} - {1}, reverse=True):
        fine = {p: c for p, c in rest.items() if c % step}
        low, high = _bounds_of_sum(fine)
        if fine and type(low) is int and type(high) is int and low >= 0 and high < step:
            return fine, _sum({p: c for p, c in rest.items() if c % step == 0})
    return {}, _sum(rest)


def _divided_rest(fn: str, quotient: Sum, rest: Sum, divisor: Expr, common: int = 1) -> Expr:
    """Divide what is left after a common factor of the rest and the divisor has been cancelled."""
    left = _sum(rest)
    if fn == "floordiv":
        return _sum(_with(quotient, _quotient(left, divisor)))
    return _sum({p: c * common for p, c in linear(_remainder(left, divisor)).items()})


def _with(total: Sum, e: Expr, sign: int = 1) -> Sum:
    """Add an expression, or with the sign -1 subtract it."""
    total = dict(total)
    for product, c in linear(e).items():
        total[product] = total.get(product, 0) + sign * c
    return total


def _quotient(x: Expr, divisor: Expr) -> Expr:
    if isinstance(x, Const) and isinstance(divisor, Const):
        return const(int(x.value) // int(divisor.value), int64)
    if isinstance(divisor, Const) and divisor.value == 1:
        return x
    match x, divisor:
        case Apply("floordiv", (y, Const(c))), Const(d) if c > 0:
            return y // const(c * d, int64)
    return Apply("floordiv", (x, divisor), int64)


def _remainder(x: Expr, divisor: Expr) -> Expr:
    if isinstance(x, Const) and isinstance(divisor, Const):
        return const(int(x.value) % int(divisor.value), int64)
    if isinstance(divisor, Const) and divisor.value == 1:
        return const(0, int64)
    match x, divisor:
        case Apply("mod", (y, Const(c))), Const(d) if c % d == 0:
            return y % const(d, int64)
    return Apply("mod", (x, divisor), int64)


def _compared(fn: str, x: Expr, y: Expr) -> Expr | None:
    """Decide a comparison by the ranges of its operands."""
    low, high = _difference(x, y)
    always = {
        "lt": high is not None and _least(-1 - high) >= 0,
        "le": high is not None and _least(0 - high) >= 0,
        "gt": low is not None and _least(low - 1) >= 0,
        "ge": low is not None and _least(low) >= 0,
        "eq": low == 0 and high == 0,
        "ne": (high is not None and _least(-1 - high) >= 0) or (low is not None and _least(low - 1) >= 0),
    }
    opposite = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
    if always[fn]:
        return TRUE
    return FALSE if always[opposite[fn]] else None


def _difference(x: Expr, y: Expr) -> Bounds:
    """Bound x - y as a whole number, without the wrap-around of int64.

    >>> i = Index("i", 4)
    >>> print(i >= -(2**63), apply("maximum", i, const(-(2**63), int64)))
    True i
    """
    distance = linear(x).get((), 0) - linear(y).get((), 0)
    if -(1 << 63) <= distance < 1 << 63:
        return bounds(x - y)
    total = dict(linear(x))
    for product, c in linear(y).items():
        total[product] = total.get(product, 0) - c
    return _bounds_of_sum(total)


def _extreme(fn: str, x: Expr, y: Expr) -> Expr | None:
    if x is y:
        return x
    less = apply("le", x, y)
    if less in (TRUE, FALSE):
        return where(less, y, x) if fn == "maximum" else where(less, x, y)
    if apply("ge", x, y) is TRUE:
        return x if fn == "maximum" else y
    return None


def digits(e: Expr) -> tuple[tuple[Index, Expr], ...] | None:
    """Decompose a mixed-radix number into its indices with their steps, lowest first; None if it is not one.

    >>> b, r = Index("b", 64), Index("r", 32)
    >>> [(str(i), str(step)) for i, step in digits(b * 32 + r)]
    [('r', '1'), ('b', '32')]
    >>> digits(b * 16 + r), digits(b + 1), digits(const(0, int64))
    (None, None, ())
    """
    left = dict(linear(e))
    found: list[tuple[Index, Expr]] = []
    step = size(1)
    while left:
        term = next((t for t, factor in left.items() if _is_index_times(t, factor, step)), None)
        if term is None:
            return None
        del left[term]
        index = next(f for f in term if isinstance(f, Index))
        found.append((index, step))
        step = step * size(index.extent)
    return tuple(found)


def _is_index_times(term: Product, factor: int, step: Expr) -> bool:
    """Whether a product is one index times a step."""
    indices = [f for f in term if isinstance(f, Index)]
    product = size(factor)
    for f in term:
        product = product * f
    return len(indices) == 1 and product is indices[0] * step


def flat_position(position: tuple[Expr, ...], strides: tuple[Dim, ...]) -> Expr:
    """Return the offset of a position in memory."""
    offset: Expr = const(0, int64)
    for index, stride in zip(position, strides, strict=True):
        offset = offset + index * size(stride)
    return offset


def row_major(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the strides, in elements, of a tensor whose last axis is contiguous."""
    strides: list[Dim] = []
    stride: Dim = 1
    for extent in reversed(shape):
        strides.append(stride)
        stride = stride * extent
    return tuple(reversed(strides))


NORMAL_FORMS |= {int64: normal, bool_: logical}
