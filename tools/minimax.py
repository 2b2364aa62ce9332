"""Derives the coefficients of the CPU's vector mathematics and writes `tilegrad/backend/cpu/maths/coefficients.py`.

`python tools/minimax.py` prints each fit with its greatest weighted error; `--write` writes the module. It needs
mpmath (the functions are evaluated to 90 digits), which neither tilegrad nor its tests need.

Each fit is a Remez exchange on a grid dense at the ends of the interval. Coefficients are rounded to the type in which
they will be used one after the other, lowest power first, and the remaining ones fitted again around what was rounded:
the error printed is that of the rounded polynomial, evaluated exactly.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from mpmath import mp, mpf  # type: ignore[import-untyped]

mp.dps = 90
Real = Any


class Fit(NamedTuple):
    """q(v) ~ f(x), where v = variable(x), so that weight(x) * |q - f| is least on [low, high]."""

    name: str
    meaning: str
    f: Callable[[Real], Real]
    low: Real
    high: Real
    degree: int
    bits: int = 24
    variable: Callable[[Real], Real] = lambda x: x
    weight: Callable[[Real], Real] = lambda x: mpf(1)


def rounded(value: Real, bits: int) -> Real:
    """The nearest number with that many significant bits, ties to even (no denormals)."""
    if value == 0:
        return mpf(0)
    mantissa, exponent = mp.frexp(value)
    return mp.ldexp(mp.nint(mp.ldexp(mantissa, bits)), exponent - bits)


def remez(values: list[Real], points: list[Real], weights: list[Real], powers: list[int]) -> list[Real]:
    """Coefficients of the given powers whose greatest weighted error on the points is least."""
    count = len(powers) + 1
    rows = [[v**p for p in powers] for v in points]
    chosen = [round((len(points) - 1) * (1 - mp.cos(mp.pi * k / (count - 1))) / 2) for k in range(count)]
    chosen = [max(k, int(i)) for k, i in enumerate(chosen)]
    for _ in range(30):
        system = mp.matrix(count, count)
        right = mp.matrix(count, 1)
        for row, i in enumerate(chosen):
            for column in range(count - 1):
                system[row, column] = rows[i][column]
            system[row, count - 1] = (-1) ** row / weights[i]
            right[row] = values[i]
        solution = mp.lu_solve(system, right)
        coefficients, level = [solution[k] for k in range(count - 1)], abs(solution[count - 1])
        errors = [w * (f - mp.fdot(row, coefficients)) for w, f, row in zip(weights, values, rows, strict=True)]
        renewed = _extrema(errors, count)
        greatest = max(abs(e) for e in errors)
        if renewed is None or renewed == chosen or greatest < level * mpf("1.001"):
            break
        chosen = renewed
    return coefficients


def _extrema(errors: list[Real], count: int) -> list[int] | None:
    """The points where the error is greatest between its changes of sign: `count` of them in a row."""
    runs: list[int] = []
    for i, error in enumerate(errors):
        if error == 0:
            continue
        if runs and (errors[runs[-1]] > 0) == (error > 0):
            if abs(error) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        if (len(runs) - count) % 2:
            runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
        else:
            least = min(range(len(runs) - 1), key=lambda k: max(abs(errors[runs[k]]), abs(errors[runs[k + 1]])))
            del runs[least : least + 2]
    return runs if len(runs) == count else None


def fit(wanted: Fit) -> tuple[list[Real], Real]:
    """The rounded coefficients, lowest power first, and the greatest weighted error."""
    low, high, size = mpf(wanted.low), mpf(wanted.high), 40 * (wanted.degree + 2)
    grid = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (k + mpf("0.5")) / size) for k in range(size)]
    points = [wanted.variable(x) for x in grid]
    weights = [wanted.weight(x) for x in grid]
    values = [wanted.f(x) for x in grid]
    coefficients: list[Real] = []
    for power in range(wanted.degree + 1):
        rest = remez(values, points, weights, list(range(power, wanted.degree + 1)))
        kept = rounded(rest[0], wanted.bits)
        coefficients.append(kept)
        values = [f - kept * v**power for f, v in zip(values, points, strict=True)]
    return coefficients, max(w * abs(f) for w, f in zip(weights, values, strict=True))


LN2 = mp.log(2)
EIGHTH = mp.pi / 4 * mpf("1.005")
EXPONENTIAL = LN2 / 2 * mpf("1.001")


def exponential(bits: int, degree: int) -> Fit:
    def f(r: Real) -> Real:
        return (mp.expm1(r) - r) / r**2

    return Fit(
        "exp", "e^r = 1 + r + r² q(r)", f, -EXPONENTIAL, EXPONENTIAL, degree, bits, weight=lambda r: r**2 / mp.exp(r)
    )


def logarithm(bits: int, degree: int) -> Fit:
    def f(x: Real) -> Real:
        return (mp.log1p(x) - x + x * x / 2) / x**3

    low, high = mp.sqrt(mpf("0.5")) - 1, mp.sqrt(2) - 1
    meaning = "log(1 + f) = f - f²/2 + f³ q(f)"
    return Fit("log", meaning, f, low, high, degree, bits, weight=lambda x: abs(x**3 / mp.log1p(x)))


def sine(bits: int, degree: int) -> Fit:
    def f(x: Real) -> Real:
        return (mp.sin(x) - x) / x**3

    meaning = "sin(r) = r + r³ q(r²)"
    return Fit("sin", meaning, f, 0, EIGHTH, degree, bits, lambda x: x * x, lambda x: x**3 / mp.sin(x))


def cosine(bits: int, degree: int) -> Fit:
    def f(x: Real) -> Real:
        return (mp.cos(x) - 1 + x * x / 2) / x**4

    meaning = "cos(r) = 1 - r²/2 + r⁴ q(r²)"
    return Fit("cos", meaning, f, 0, EIGHTH, degree, bits, lambda x: x * x, lambda x: x**4 / mp.cos(x))


def hyperbolic_tangent(bits: int, degree: int) -> Fit:
    def f(x: Real) -> Real:
        return (mp.tanh(x) - x) / x**3

    meaning = "tanh(x) = x + x³ q(x²), x <= 0.55"
    return Fit("tanh", meaning, f, 0, 0.55, degree, bits, lambda x: x * x, lambda x: x**3 / mp.tanh(x))


SINGLE = (
    exponential(24, 4),
    Fit("exp2", "2^r = 1 + r q(r)", lambda r: (2**r - 1) / r, -0.5, 0.5, 5, 24, weight=lambda r: abs(r) / 2**r),
    logarithm(24, 7),
    hyperbolic_tangent(24, 4),
    sine(24, 2),
    cosine(24, 2),
    Fit(
        "erf", "erf(x) = x + x q(x²), |x| <= 1", lambda x: mp.erf(x) / x - 1, 0, 1, 6, 24, lambda x: x * x,
        lambda x: x / mp.erf(x),
    ),
    Fit(
        "erfc", "erfc(x) = 2^-q(x), 1 <= x <= 3.93", lambda x: -mp.log(mp.erfc(x), 2), 1, 3.93, 6, 24,
        weight=lambda x: mp.erfc(x),
    ),
)  # fmt: skip
DOUBLE = (
    exponential(53, 10),
    hyperbolic_tangent(53, 11),
    sine(53, 6),
    cosine(53, 5),
)


def parts(value: Real, *sizes: int) -> list[float]:
    """A number as a sum of floats of so many bits each, all but the last cut off rather than rounded."""
    found: list[float] = []
    for bits in sizes[:-1]:
        mantissa, exponent = mp.frexp(value)
        found.append(float(mp.ldexp(mp.floor(mp.ldexp(mantissa, bits)), exponent - bits)))
        value -= mpf(found[-1])
    return [*found, float(rounded(value, sizes[-1]))]


CONSTANTS: dict[str, dict[str, list[float]]] = {
    "single": {
        "log2(e)": parts(1 / LN2, 24),
        "ln(2)": parts(LN2, 24, 24),
        "2/pi": parts(2 / mp.pi, 24),
        "pi/2": parts(mp.pi / 2, 24, 24, 24),
    },
    "double": {
        "log2(e)": parts(1 / LN2, 53),
        "ln(2)": parts(LN2, 53, 53),
    },
}

HEAD = '''"""Coefficients, derived by `tools/minimax.py --write`: do not edit.

Lowest power first; `error` is the greatest weighted error of the rounded polynomial, evaluated exactly.
"""

# fmt: off
'''


def module() -> str:
    text = f'{HEAD}\nTWO_OVER_PI = 0x{int(mp.floor(mp.ldexp(2 / mp.pi, 256))):X}\n"""2/pi * 2^256"""\n'
    for precision, fits in (("single", SINGLE), ("double", DOUBLE)):
        text += f"\n{precision.upper()}: dict[str, tuple[float, ...]] = {{\n"
        for name, numbers in CONSTANTS[precision].items():
            text += f'    "{name}": ({", ".join(map(repr, numbers))},),\n'
        for wanted in fits:
            coefficients, error = fit(wanted)
            summary = f"{wanted.meaning}; error {mp.nstr(error, 2)} = 2^{mp.nstr(mp.log(error, 2), 4)}"
            print(f"{precision} {wanted.name}: {summary}", file=sys.stderr)
            text += f'    # {summary}\n    "{wanted.name}": (\n'
            text += "".join(f"        {float(c)!r},\n" for c in coefficients) + "    ),\n"
        text += "}\n"
    return text


if __name__ == "__main__":
    generated = module()
    if "--write" in sys.argv:
        root = Path(__file__).resolve().parents[1]
        (root / "tilegrad/backend/cpu/maths/coefficients.py").write_text(generated)
    else:
        print(generated)
