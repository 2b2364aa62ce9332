"""Find nests of reductions."""

from __future__ import annotations

from ..ir.scalar import Expr, Reduce, Scan, facts, parts


def nest(e: Expr) -> list[Reduce]:
    """Return the directly nested reductions around a body, under scalar functions.

    >>> from ..ir.dtype import float32
    >>> from ..ir.graph import Input, TensorType
    >>> from ..ir.scalar import Apply, Index, Read
    >>> x, k, l = Input(TensorType(float32, (3, 4)), "x"), Index("k", 3), Index("l", 4)
    >>> inner = Reduce("add", l, Read(x, (k, l), float32), float32)
    >>> of_sums, of_functions = (Reduce("add", k, e, float32) for e in (inner, Apply("exp", (inner,), float32)))
    >>> len(nest(of_sums)), len(nest(of_functions))
    (2, 1)
    """
    chain: list[Reduce] = []
    while True:
        match e:
            case Reduce(_, _, body):
                chain.append(e)
                e = body
            case _:
                inner = [p for p in parts(e) if facts(p).loops] if chain else _outermost(e)
                if len(inner) != 1 or (chain and not _is_cast(e)):
                    return chain
                e = inner[0]


def _outermost(e: Expr) -> list[Expr]:
    """Find the outermost reductions and scans of an expression."""
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        for part in parts(stack.pop()):
            if isinstance(part, Reduce | Scan):
                found[part] = None
            elif part not in seen and facts(part).loops:
                seen.add(part)
                stack.append(part)
    return list(found)


def _is_cast(e: Expr) -> bool:
    return getattr(e, "fn", "") == "cast"
