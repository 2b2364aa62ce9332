"""Examples of reductions, statistics and scans."""

from __future__ import annotations

import numpy as np

from tests.ops.registry import NONE, SMALL, bools, example, floats, inf, ints, nan
from tilegrad.ops import reduction, scan, statistics

# --- reductions --------------------------------------------------------------------------------------

TIES = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0], [0.0, -1.0, 5.0]])
HOLES = np.array([[nan, 1.0, nan], [inf, inf, -inf], [-inf, -inf, -inf], [1.0, 2.0, 3.0]])
for op, build, name in ((reduction.Max, reduction.amax, "amax"), (reduction.Min, reduction.amin, "amin")):
    for axes, keep in (((0, 2), False), ((1,), True), ((0, 1, 2), False)):
        example(
            op,
            lambda x, b=build, a=axes, k=keep: b(x, a, k),
            SMALL,
            torch=lambda t, x, n=name, a=axes, k=keep: getattr(t, n)(x, a, k),
        )
    example(op, lambda x, b=build: b(x, 1), TIES, torch=lambda t, x, n=name: getattr(t, n)(x, 1), gradient="torch")
    example(op, lambda x, b=build: b(x, 1), HOLES, torch=lambda t, x, n=name: getattr(t, n)(x, 1), gradient="torch")
    example(op, lambda x, b=build: b(x, 0), ints(4, 3), torch=lambda t, x, n=name: getattr(t, n)(x, 0))
for op, along, whole, name in (
    (reduction.Max, reduction.max_along, reduction.reduce_max, "max"),
    (reduction.Min, reduction.min_along, reduction.reduce_min, "min"),
):
    for data, gradient in ((SMALL, True), (TIES, "torch"), (HOLES, "torch")):
        example(op, lambda x, b=along: b(x, 1), data, torch=lambda t, x, n=name: getattr(t, n)(x, 1), gradient=gradient)
        example(op, whole, data, torch=name, gradient=gradient)
for op, build, name in ((reduction.Argmax, reduction.argmax, "argmax"), (reduction.Argmin, reduction.argmin, "argmin")):
    example(op, lambda x, b=build: b(x, 1, True), SMALL, torch=lambda t, x, n=name: getattr(t, n)(x, 1, True))
    example(op, build, SMALL, torch=name)
    example(op, lambda x, b=build: b(x, 1), HOLES, torch=lambda t, x, n=name: getattr(t, n)(x, 1))
    example(op, lambda x, b=build: b(x, 0), bools(4, 3), numpy=lambda x, n=name: getattr(np, n)(x, 0))
for axis in (0, 2):
    example(reduction.Prod, lambda x, a=axis: reduction.reduce_prod(x, a), SMALL, torch=lambda t, x, a=axis: x.prod(a))
example(reduction.Prod, reduction.reduce_prod, floats(2, 3), torch="prod")
example(
    reduction.Prod,
    lambda x: reduction.reduce_prod(x, (0, 2), True),
    SMALL,
    numpy=lambda x: x.prod((0, 2), keepdims=True),
)
ZEROS = np.array([[2.0, 0.0, 3.0], [0.0, 5.0, 0.0], [1.0, 2.0, 4.0]])
example(reduction.Prod, lambda x: reduction.reduce_prod(x, 1), ZEROS, torch=lambda t, x: x.prod(1))
example(reduction.Prod, lambda x: reduction.reduce_prod(x, 0), NONE, numpy=lambda x: x.prod(0), gradient=False)
for op, build, name in ((reduction.Any, reduction.reduce_any, "any"), (reduction.All, reduction.reduce_all, "all")):
    example(op, lambda x, b=build: b(x, 1), bools(4, 3), torch=lambda t, x, n=name: getattr(t, n)(x, 1))
    example(op, build, ints(3, 2, low=0, high=2), torch=lambda t, x, n=name: getattr(t, n)(x))
    example(op, lambda x, b=build: b(x, 0, True), NONE, torch=lambda t, x, n=name: getattr(t, n)(x, 0, True))
example(
    None, lambda x: reduction.count_nonzero(x, 1), ints(3, 4, low=0, high=2), torch=lambda t, x: t.count_nonzero(x, 1)
)
for axes, keep in (((0, 2), False), ((1,), True), (None, False)):
    for name in ("mean", "var", "std"):
        build = getattr(statistics, name)
        example(
            None,
            lambda x, b=build, a=axes, k=keep: b(x, a, keepdim=k),
            SMALL,
            torch=lambda t, x, n=name, a=axes, k=keep: getattr(t, n)(x, dim=a, keepdim=k),
            name=name,
        )
    example(
        None,
        lambda x, a=axes, k=keep: statistics.logsumexp(x, a, k),
        SMALL,
        torch=lambda t, x, a=axes, k=keep: t.logsumexp(x, (0, 1, 2) if a is None else a, k),
        name="logsumexp",
    )
example(
    None, lambda x: statistics.var(x, 1, correction=0), SMALL, torch=lambda t, x: t.var(x, 1, correction=0), name="var"
)
example(
    None,
    lambda x: statistics.var(x, 1),
    floats(3, 1),
    torch=lambda t, x: t.var(x, 1),
    gradient=False,
    name="var of one",
)
example(None, lambda x: statistics.mean(x, 0), NONE, torch=lambda t, x: x.mean(0), gradient=False, name="mean of none")
example(
    None,
    lambda x: statistics.std(x, 1),
    np.ones((2, 3)),
    torch=lambda t, x: x.std(1),
    gradient="torch",
    name="std of equals",
)
example(
    None,
    lambda x: statistics.logsumexp(x, 1),
    HOLES,
    torch=lambda t, x: t.logsumexp(x, 1),
    gradient="torch",
    name="logsumexp",
)
example(
    None,
    lambda x: statistics.logsumexp(x, 0),
    NONE,
    torch=lambda t, x: t.logsumexp(x, 0),
    gradient=False,
    name="logsumexp",
)
example(None, statistics.var_mean, SMALL, torch="var_mean")
example(None, statistics.std_mean, SMALL, torch="std_mean")
for p in (2.0, 1.0, 3.0, 0.0, 0.5, inf, -inf):
    example(
        None,
        lambda x, p=p: statistics.norm(x, p, 1),
        SMALL,
        torch=lambda t, x, p=p: t.linalg.vector_norm(x, p, 1),
        name=f"norm {p}",
        gradient=p != 0,
    )
example(
    None,
    lambda x: statistics.norm(x, 2.0, 1),
    np.zeros((2, 3)),
    torch=lambda t, x: x.norm(2, 1),
    gradient="torch",
    name="norm of zeros",
)

# --- scans -------------------------------------------------------------------------------------------

for op, name in ((scan.Cumsum, "cumsum"), (scan.Cumprod, "cumprod")):
    for axis in (0, -1):
        build = getattr(scan, name)
        example(op, lambda x, b=build, a=axis: b(x, a), SMALL, torch=lambda t, x, n=name, a=axis: getattr(t, n)(x, a))
    example(op, lambda x, b=build: b(x, 1), ints(2, 3), torch=lambda t, x, n=name: getattr(t, n)(x, 1))
    example(op, lambda x, b=build: b(x, 0), NONE, torch=lambda t, x, n=name: getattr(t, n)(x, 0))
example(scan.Cumprod, lambda x: scan.cumprod(x, 1), ZEROS, torch=lambda t, x: t.cumprod(x, 1))
for value, place, name in ((scan.Cummax, scan.CumArgmax, "cummax"), (scan.Cummin, scan.CumArgmin, "cummin")):
    for op, data, gradient in (
        (value, SMALL, True),
        (place, TIES, "torch"),
        (value, HOLES, "torch"),
        (value, bools(3, 4), False),
    ):
        example(
            op,
            lambda x, b=getattr(scan, name): b(x, 1),
            data,
            torch=lambda t, x, n=name: getattr(t, n)(x, 1),
            gradient=gradient,
        )
example(
    None,
    lambda x: scan.logcumsumexp(x, 1),
    SMALL * 100,
    torch=lambda t, x: t.logcumsumexp(x, 1),
    name="logcumsumexp",
    gradient="torch",
)
example(None, lambda x: scan.logcumsumexp(x, 0), SMALL, torch=lambda t, x: t.logcumsumexp(x, 0), name="logcumsumexp")
example(
    None,
    lambda x: scan.logcumsumexp(x, 1),
    HOLES,
    torch=lambda t, x: t.logcumsumexp(x, 1),
    gradient=False,
    name="logcumsumexp",
)
