"""Compare the result of a random thread order with that of lockstep."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..errors import KernelFault
from .races import differs_from
from .thread_ir import Routine

SUM_TOLERANCE = {4: 1e-4, 8: 1e-10}
"""Tolerance for float sums in different orders, relative to the largest element."""


def compare_orders(
    routine: Routine,
    first: dict[str, np.ndarray],
    then: dict[str, np.ndarray],
    stored: Iterable[str],
    n: int,
    seed: int,
) -> None:
    for name in sorted(stored):
        x, y = first[name], then[name]
        wrong = differs_from(x, y)
        if x.dtype.kind == "f":
            finite = np.abs(x[np.isfinite(x)])
            allowed = SUM_TOLERANCE[x.itemsize] * float(finite.max(initial=0.0))
            with np.errstate(invalid="ignore"):
                wrong &= ~(np.abs(x - y) <= allowed)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise KernelFault(
                f"kernel {routine.name}, {routine.place}: the result depends on the order of blocks and threads: "
                f"{name}[{i}] is "
                f"{x[i]} in lockstep and {y[i]} in random order {n} of seed {seed} ({int(wrong.sum())} of {len(x)} "
                f"elements "
                f"differ)\n{routine.place.marked()}"
            )
