"""Define sizes of axes: an int, or a polynomial over symbols where a size varies from call to call.

size ::= int | Size          Size = sum of coefficient * name * name ...
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from threading import local
from typing import TypeAlias

Dim: TypeAlias = "int | Size"
Shape: TypeAlias = "tuple[Dim, ...]"
Monomial: TypeAlias = tuple[str, ...]


class Size:
    """A size that is known only when the program runs. Such sizes are at least 2.

    >>> n = Size.named("n")
    >>> print(n * 4 + 2, (n * 4) // 2, n == 4)
    4*n + 2 2*n False
    """

    __slots__ = ("terms",)
    terms: Mapping[Monomial, int]

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = {m: c for m, c in sorted(terms.items()) if c != 0}

    @staticmethod
    def named(name: str) -> Size:
        return Size({(name,): 1})

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Size) and self.terms == other.terms:
            return True
        found = getattr(_compared, "found", None)
        if found is not None and isinstance(other, int | Size) and may_be_equal(self, other):
            found[self.terms_of_all(), _key(other)] = self, other
        return False

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        if getattr(_compared, "found", None) is not None and _asked_by_user():
            raise TypeError(f"the size {self} varies from call to call: it is no key")
        return hash(self.terms_of_all())

    def terms_of_all(self) -> tuple[tuple[Monomial, int], ...]:
        """Return the terms as a canonical key: equal sizes have equal terms."""
        return tuple(self.terms.items())

    def __add__(self, other: Dim) -> Dim:
        return _normalised(_added(self.terms, _terms(other)))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __mul__(self, other: Dim) -> Dim:
        product: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in _terms(other).items():
                key = tuple(sorted(m + n))
                product[key] = product.get(key, 0) + c * d
        return _normalised(product)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        quotient = self.divided(other)
        if quotient is None:
            raise ValueError(f"{self} is not always divisible by {other}")
        return quotient

    def __mod__(self, other: Dim) -> Dim:
        _ = self // other
        return 0

    def divided(self, other: Dim) -> Dim | None:
        """Divide exactly by a number or a single product of symbols; None if there is a remainder."""
        divisor = _terms(other)
        if len(divisor) != 1:
            return 1 if self == other else None
        ((names, factor),) = divisor.items()
        quotient: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            rest = list(m)
            for name in names:
                if name not in rest:
                    return None
                rest.remove(name)
            if c % factor:
                return None
            quotient[tuple(rest)] = c // factor
        return _normalised(quotient)

    def value(self, known: Mapping[str, int]) -> int:
        return sum(c * math.prod(known[name] for name in m) for m, c in self.terms.items())

    def names(self) -> set[str]:
        return {name for m in self.terms for name in m}

    def __str__(self) -> str:
        shown = []
        for m, c in sorted(self.terms.items(), key=lambda item: (-len(item[0]), item[0])):
            factors = [] if c == 1 and m else [str(c)]
            shown.append("*".join([*factors, *m]))
        return " + ".join(shown)

    __repr__ = __str__


_compared = local()
"""Per thread: the comparisons recorded by `comparisons`, if active."""

Comparisons: TypeAlias = "dict[object, tuple[Size, Dim]]"


@contextmanager
def comparisons() -> Iterator[Comparisons]:
    """Record the sizes that compare unequal within the block, though they are equal for some values of their symbols.

    >>> n = Size.named("n")
    >>> with comparisons() as found:
    ...     _ = n == 4, n == 1, n * 2 == n + 3
    >>> [*found.values()]
    [(n, 4), (2*n, n + 3)]
    """
    before, found = getattr(_compared, "found", None), dict[object, tuple[Size, Dim]]()
    _compared.found = found
    try:
        yield found
    finally:
        _compared.found = before


def may_be_equal(x: Size, other: Dim) -> bool:
    """Whether two sizes are equal for some values of their symbols, judged by signs only: symbols are at least 2."""
    difference = _added(x.terms, {m: -c for m, c in _terms(other).items()})
    signs = {c > 0 for m, c in difference.items() if m and c}
    if len(signs) != 1:
        return True
    least = sum(c << len(m) for m, c in difference.items())
    return least <= 0 if signs == {True} else least >= 0


def _key(x: Dim) -> object:
    return x.terms_of_all() if isinstance(x, Size) else x


def _asked_by_user() -> bool:
    """Whether the hash of a size is requested by code outside this package, or of its entries in weak dictionaries."""
    caller = str(sys._getframe(2).f_globals.get("__name__", ""))
    return caller.partition(".")[0] not in (__name__.partition(".")[0], "weakref")


def _terms(x: Dim) -> Mapping[Monomial, int]:
    return x.terms if isinstance(x, Size) else {(): x}


def _added(x: Mapping[Monomial, int], y: Mapping[Monomial, int]) -> dict[Monomial, int]:
    return {m: x.get(m, 0) + y.get(m, 0) for m in {**x, **y}}


def _normalised(terms: Mapping[Monomial, int]) -> Dim:
    size = Size(terms)
    if not size.terms:
        return 0
    return size.terms[()] if list(size.terms) == [()] else size


def product(shape: Iterable[Dim]) -> Dim:
    """Return the number of elements of a shape."""
    result: Dim = 1
    for extent in shape:
        result = result * extent
    return result


def known(size: Dim, values: Mapping[str, int]) -> int:
    """Evaluate a size once its symbols have values."""
    return size.value(values) if isinstance(size, Size) else size


def is_static(shape: Iterable[Dim]) -> bool:
    """Whether all extents are ints."""
    return all(type(extent) is int for extent in shape)
