"""Examples of the gamma function's relatives, the inverse error function, and neighbouring numbers."""

from __future__ import annotations

import numpy as np

from tests.ops.registry import PAIRS, elementwise, example, floats, ints
from tilegrad.ops import divisor, special

FAR = np.array([-7.3, -0.4, 1e-3, 0.2, 1.0, 1.5, 2.0, 7.0, 9.99, 10.0, 30.5, 170.2, 1e5])

elementwise(special.Lgamma, special.lgamma, "lgamma", floats(2, 3, low=0.3, high=4.0))
example(special.Lgamma, special.lgamma, FAR, torch="lgamma", gradient="torch")
elementwise(special.Digamma, special.digamma, "digamma", floats(2, 3, low=0.3, high=4.0))
example(special.Digamma, special.digamma, FAR, torch="digamma", gradient="torch")
for n in (1, 2, 3):
    example(
        special.Polygamma,
        lambda x, n=n: special.polygamma(n, x),
        floats(2, 3, low=0.4, high=12.0),
        torch=lambda t, x, n=n: t.polygamma(n, x),
        tolerance=1e-8,
    )
example(special.Polygamma, lambda x: special.polygamma(1, x), FAR, torch=lambda t, x: t.polygamma(1, x), gradient=False)
for n, name in enumerate(("i0", "i1")):
    for numbers in (
        floats(2, 3, low=-9.0, high=9.0),
        np.array([-700.5, -15.1, -14.9, 0.0, 1e-9, 14.99, 15.0, 40.0]),
    ):
        example(
            special.BesselI,
            lambda x, n=n: special.BesselI(x, n),
            numbers,
            torch=lambda t, x, name=name: getattr(t.special, name)(x),
            gradient=numbers.size == 6,
            tolerance=1e-12,
        )
elementwise(special.Erfinv, special.erfinv, "erfinv", floats(2, 3, low=-0.9, high=0.9))
example(
    special.Erfinv,
    special.erfinv,
    np.array([1 - 1e-12, -1 + 1e-9, 1e-9, 0.49, 0.5, 0.51, 0.99, 1.0, -1.0, 1.1, 0.0]),
    torch="erfinv",
    gradient=False,
)
example(special.Nextafter, special.nextafter, *PAIRS, torch="nextafter", gradient=False)
for dtype in (np.float32, np.float64):
    example(
        special.Nextafter,
        special.nextafter,
        floats(3, 4).astype(dtype),
        floats(4, seed=1).astype(dtype),
        torch="nextafter",
        gradient=False,
    )

for kind in (np.int64, np.int32, np.uint8):
    low = 0 if kind is np.uint8 else -60
    example(
        divisor.Gcd,
        divisor.gcd,
        ints(3, 1, low=low, high=60, dtype=kind),
        ints(5, low=low, high=60, dtype=kind),
        torch="gcd",
    )
