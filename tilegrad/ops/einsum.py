"""Einsum of any number of operands, as a sequence of contractions of two."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import ArgumentError, ShapeError
from ..ir.dtype import bool_, int64
from ..ir.graph import Value
from ..ir.precision import Precision
from ..ir.size import Dim, Size, known
from .arithmetic import mul
from .bits import bitwise_and
from .broadcasting import reduce_sum, reshape, shown
from .cast import cast
from .contraction import contract
from .movement import permute
from .windows import diagonal

TYPICAL_SIZE = 64
"""Assumed value of symbolic sizes when contraction orders are compared."""

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(equation: str, *operands: Value, precision: Precision = "highest") -> Value:
    """Multiply operands and sum over the letters that the result lacks.

    A letter that occurs twice in an operand means its diagonal; `...` stands for further axes, which broadcast. Without
    `->` the result has the letters that occur once, in alphabetical order.
    """
    terms, out = _parse(equation, operands)
    named = [_take_diagonals(x, term) for x, term in zip(operands, terms, strict=True)]
    _check_extents(equation, named)
    while len(named) > 1:
        i, j = _cheapest_pair(named, out)
        (x, of_x), (y, of_y) = named[i], named[j]
        rest = [pair for n, pair in enumerate(named) if n not in (i, j)]
        needed = out + "".join(letters for _, letters in rest)
        left = "".join(dict.fromkeys(a for a in of_x + of_y if a in needed))
        if not rest:
            left = out if set(left) == set(out) else left
        named = [*rest, (_contract_pair(x, of_x, y, of_y, left, precision), left)]
    x, of_x = named[0]
    dropped = [n for n, a in enumerate(of_x) if a not in out]
    x, of_x = (_sum(x, dropped), "".join(a for a in of_x if a in out)) if dropped else (x, of_x)
    return permute(x, [of_x.index(a) for a in out])


def _contract_pair(x: Value, of_x: str, y: Value, of_y: str, out: str, precision: Precision) -> Value:
    """Contract two operands; without a sum, multiply with broadcasting.

    Integers summed against an axis of extent 1 are summed first, in int64.
    """
    if not x.dtype.is_float:
        broadcast = [a for a in of_x if a in of_y and a not in out and x.shape[of_x.index(a)] != y.shape[of_y.index(a)]]
        if broadcast:
            x, of_x = _sum_letters(x, of_x, broadcast)
            y, of_y = _sum_letters(y, of_y, broadcast)
    if any(a in of_y and a not in out for a in of_x):
        return contract(x, y, f"{of_x},{of_y}->{out}", precision)
    x, y = _align(x, of_x, out), _align(y, of_y, out)
    return bitwise_and(x, y) if x.dtype is y.dtype is bool_ else mul(x, y)


def _sum(x: Value, axes: Sequence[int]) -> Value:
    """Sum along axes; bools and integers in int64."""
    return reduce_sum(x if x.dtype.is_float else cast(x, int64), axes)


def _sum_letters(x: Value, of_x: str, letters: Sequence[str]) -> tuple[Value, str]:
    """Sum an operand over some letters, and return those left."""
    return _sum(x, [of_x.index(a) for a in letters]), "".join(a for a in of_x if a not in letters)


def _align(x: Value, of_x: str, out: str) -> Value:
    """Permute and insert axes of x so that they align with `out`."""
    dropped = [n for n, a in enumerate(of_x) if a not in out]
    if dropped:
        x, of_x = _sum(x, dropped), "".join(a for a in of_x if a in out)
    x = permute(x, [of_x.index(a) for a in out if a in of_x])
    extents = iter(x.shape)
    return reshape(x, [next(extents) if a in of_x else 1 for a in out])


def _check_letters(equation: str, parts: Sequence[str]) -> None:
    for part in parts:
        plain = part.replace("...", "", 1)
        if plain and not (plain.isascii() and plain.isalpha()):
            raise ArgumentError(f"einsum: {part!r} in {equation!r}: only letters and one ... are allowed")


def _parse(equation: str, operands: Sequence[Value]) -> tuple[list[str], str]:
    """Parse the letters of each operand and of the result, with `...` expanded."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ArgumentError(f"einsum: {equation!r} has {len(terms)} operands, but {len(operands)} were given")
    _check_letters(equation, [*terms, right])
    unused = [a for a in reversed(LETTERS) if a not in text]
    counts = [x.type.rank - len(t.replace("...", "")) for x, t in zip(operands, terms, strict=True)]
    for x, term, count in zip(operands, terms, counts, strict=True):
        if count < 0 or (count and "..." not in term):
            raise ShapeError(
                f"einsum: {term!r} in {equation!r} does not name the {x.type.rank} axes of {shown(x.shape)}"
            )
    dots = "".join(unused[: max([c for c, t in zip(counts, terms, strict=True) if "..." in t], default=0)])
    whole = [t.replace("...", dots[len(dots) - c :]) for t, c in zip(terms, counts, strict=True)]
    if arrow:
        out = right.replace("...", dots)
    else:
        out = dots + "".join(sorted(a for a in set(left) & set(LETTERS) if left.count(a) == 1))
    if len(set(out)) != len(out) or not set(out) <= set("".join(whole)):
        raise ArgumentError(f"einsum: each letter of the result of {equation!r} stands there once, and in an operand")
    return whole, out


def _take_diagonals(x: Value, term: str) -> tuple[Value, str]:
    """Replace repeated letters of an operand by diagonals."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            i = term.index(letter)
            j = term.index(letter, i + 1)
            if x.shape[i] != x.shape[j]:
                raise ShapeError(f"einsum: axes {i} and {j} of {shown(x.shape)} are both {letter!r}, but differ")
            x = diagonal(x, 0, i, j)
            term = term[:i] + term[i + 1 : j] + term[j + 1 :] + letter
    return x, term


def _check_extents(equation: str, named: Sequence[tuple[Value, str]]) -> None:
    known_extents: dict[str, Dim] = {}
    for x, term in named:
        for letter, extent in zip(term, x.shape, strict=True):
            before = known_extents.setdefault(letter, extent)
            if before != extent and 1 not in (before, extent):
                raise ShapeError(
                    f"einsum: {letter!r} in {equation!r} is {before} in one operand and {extent} in another"
                )
            if before == 1:
                known_extents[letter] = extent


def _cheapest_pair(named: Sequence[tuple[Value, str]], out: str) -> tuple[int, int]:
    """Choose the two operands whose contraction takes the fewest multiplications."""
    if len(named) == 2:
        return 0, 1
    sizes: dict[str, int] = {}
    for x, term in named:
        for letter, extent in zip(term, x.shape, strict=True):
            guessed = known(extent, dict.fromkeys(extent.names(), TYPICAL_SIZE)) if isinstance(extent, Size) else extent
            sizes[letter] = max(sizes.get(letter, 1), guessed)

    def work(pair: tuple[int, int]) -> tuple[int, int]:
        i, j = pair
        letters = set(named[i][1]) | set(named[j][1])
        needed = set(out).union(*(term for n, (_, term) in enumerate(named) if n not in pair))
        made = math.prod(sizes[a] for a in letters & needed)
        return math.prod(sizes[a] for a in letters), made

    return min(((i, j) for j in range(len(named)) for i in range(j)), key=work)
