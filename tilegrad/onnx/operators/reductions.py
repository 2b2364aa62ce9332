"""Operators that reduce axes, scan along one, or look for extremes."""

from __future__ import annotations

from typing import Any

from ... import functional as tg
from ...ir.dtype import uint8
from ...tensor import Tensor
from ..rules import Function
from ..values import Ints, Number
from .arithmetic import bounds


def reducing(reduce: Any, empty: Any = None) -> Function:
    """Return the rule of a reduction; without axes it reduces all of them, unless that is switched off."""

    def rule(x: Tensor, axes: Ints | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Tensor:
        if not axes:
            if noop_with_empty_axes:
                return reduce(x, (), bool(keepdims))  # type: ignore[no-any-return]
            axes = list(range(x.dim()))
        return reduce(x, tuple(axis % x.dim() for axis in axes), bool(keepdims))  # type: ignore[no-any-return]

    return rule


def _sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return tg.sum(x, axes, keep, dtype=x.dtype) if axes else x


def _mean(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return tg.mean(x, axes, keep) if axes else x


def _prod(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = tg.prod(x, axis, keep, dtype=x.dtype)
    return x


def _extreme(largest: bool) -> Any:
    def reduce(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
        if not axes:
            return x
        if x.dtype.kind == "bool":
            return _extreme(largest)(x.to(uint8), axes, keep).bool()  # type: ignore[no-any-return]
        if any(x.shape[axis] == 0 for axis in axes):
            shape = [1 if n in axes else size for n, size in enumerate(x.shape) if keep or n not in axes]
            low, high = bounds(x.dtype)
            start = (float("-inf") if largest else float("inf")) if x.is_floating_point() else low if largest else high
            return x.new_full(shape, start)
        return tg.amax(x, axes, keep) if largest else tg.amin(x, axes, keep)

    return reduce


def _l1(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return _sum(tg.abs(x), axes, keep)


def _sum_square(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return _sum(x * x, axes, keep)


def _l2(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return tg.sqrt(_sum_square(x, axes, keep))


def _log_sum(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return tg.log(_sum(x, axes, keep))


def _log_sum_exp(x: Tensor, axes: tuple[int, ...], keep: bool) -> Tensor:
    return tg.logsumexp(x, axes, keep) if axes else x


def extreme_place(search: Any) -> Function:
    def rule(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
        if not select_last_index:
            return search(x, axis, bool(keepdims))  # type: ignore[no-any-return]
        return x.shape[axis] - 1 - search(x.flip(axis), axis, bool(keepdims))  # type: ignore[no-any-return]

    return rule


def scanning(scan: Any, start: float) -> Function:
    """Return the rule of a running sum or product."""

    def rule(x: Tensor, axis: Number, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
        place = int(axis) % x.dim()
        x = x.flip(place) if reverse else x
        made = scan(x, place, dtype=x.dtype)
        if exclusive:
            first = tg.full_like(tg.narrow(made, place, 0, 1), start)
            made = tg.cat([first, tg.narrow(made, place, 0, int(x.shape[place]) - 1)], place)
        return made.flip(place) if reverse else made  # type: ignore[no-any-return]

    return rule


def top_k(x: Tensor, k: Number, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, ...]:
    """Return the k extremes of an axis, with their places; the first of equal ones wins."""
    values, places = tg.sort(x, axis, bool(largest), stable=True)
    return tg.narrow(values, axis, 0, int(k)), tg.narrow(places, axis, 0, int(k))


RULES: dict[str, Function] = {
    "ArgMax": extreme_place(tg.argmax),
    "ArgMin": extreme_place(tg.argmin),
    "CumProd": scanning(tg.cumprod, 1),
    "CumSum": scanning(tg.cumsum, 0),
    "ReduceL1": reducing(_l1),
    "ReduceL2": reducing(_l2),
    "ReduceLogSum": reducing(_log_sum),
    "ReduceLogSumExp": reducing(_log_sum_exp),
    "ReduceMax": reducing(_extreme(True)),
    "ReduceMean": reducing(_mean),
    "ReduceMin": reducing(_extreme(False)),
    "ReduceProd": reducing(_prod),
    "ReduceSum": reducing(_sum),
    "ReduceSumSquare": reducing(_sum_square),
    "TopK": top_k,
}
