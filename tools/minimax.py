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
    powers = list(range(wanted.degree + 1))

    def error(coefficients: list[Real]) -> Real:
        fitted = [mp.polyval(coefficients[::-1], v) for v in points]
        return max(w * abs(f - p) for w, f, p in zip(weights, values, fitted, strict=True))

    at_once = [rounded(c, wanted.bits) for c in remez(values, points, weights, powers)]
    in_turn: list[Real] = []
    left = values
    for power in powers:
        kept = rounded(remez(left, points, weights, powers[power:])[0], wanted.bits)
        in_turn.append(kept)
        left = [f - kept * v**power for f, v in zip(left, points, strict=True)]
    # Powers above 0 all vanish at 0: on both sides of it, what is left cannot always be fitted well.
    best = min(at_once, in_turn, key=error)
    return best, error(best)


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


def hyperbolic_sine(bits: int, degree: int) -> Fit:
    def f(x: Real) -> Real:
        return (mp.sinh(x) - x) / x**3

    meaning = "sinh(x) = x + x³ q(x²), x <= 1"
    return Fit("sinh", meaning, f, 0, 1, degree, bits, lambda x: x * x, lambda x: x**3 / mp.sinh(x))


def arc_tangent(bits: int, degree: int) -> Fit:
    def f(x: Real) -> Real:
        return (mp.atan(x) - x) / x**3

    meaning = "atan(x) = x + x³ q(x²), x <= sqrt(2) - 1"
    high = (mp.sqrt(2) - 1) * mpf("1.0001")
    return Fit("atan", meaning, f, 0, high, degree, bits, lambda x: x * x, lambda x: x**3 / mp.atan(x))


def arc_sine(bits: int, degree: int) -> Fit:
    def f(x: Real) -> Real:
        return (mp.asin(x) - x) / x**3

    meaning = "asin(x) = x + x³ q(x²), x <= 1/2"
    return Fit("asin", meaning, f, 0, 0.5, degree, bits, lambda x: x * x, lambda x: x**3 / mp.asin(x))


def error_function(bits: int, degree: int, high: Real) -> Fit:
    def f(x: Real) -> Real:
        return mp.erf(x) / x - 1

    meaning = f"erf(x) = x + x q(x²), x <= {high}"
    return Fit("erf", meaning, f, 0, mpf(high), degree, bits, lambda x: x * x, lambda x: x / mp.erf(x))


def area_tangent(name: str, terms: int, degree: int) -> Fit:
    """2 atanh(s) less some terms of its series, from which logarithms are made: log(1 + f), s = f / (2 + f)."""

    def f(s: Real) -> Real:
        return (2 * mp.atanh(s) - sum(2 * s ** (2 * k + 1) / (2 * k + 1) for k in range(terms))) / s ** (2 * terms + 1)

    meaning = f"2 atanh(s) = its first {terms} terms + s^{2 * terms + 1} q(s²), s <= (sqrt(2) - 1)²"
    high = (mp.sqrt(2) - 1) ** 2 * mpf("1.0001")
    weight: Callable[[Real], Real] = lambda s: s ** (2 * terms + 1) / (2 * mp.atanh(s))  # noqa: E731
    return Fit(name, meaning, f, 0, high, degree, 53, lambda s: s * s, weight)


def complement(degree: int) -> Fit:
    """The complementary error function without its decay, on an axis that brings infinity near."""

    def f(x: Real) -> Real:
        return mp.erfc(x) * mp.exp(x * x) * (1 + 2 * x)

    meaning = "(1 + 2x) e^x² erfc(x) = q((x - 3) / (x + 3)), 0.75 <= x <= 27.3"
    return Fit("erfc", meaning, f, 0.75, 27.3, degree, 53, lambda x: (x - 3) / (x + 3), lambda x: 1 / f(x))


def exp2_fit(name: str, degree: int) -> Fit:
    def f(r: Real) -> Real:
        return (mpf(2) ** r - 1) / r

    return Fit(name, "2^r = 1 + r q(r)", f, -0.5, 0.5, degree, 24, weight=lambda r: abs(r) / mpf(2) ** r)


def tail(degree: int) -> Fit:
    meaning = "erfc(x) = 2^q(x), 0.875 <= x <= 3.93"
    return Fit("erf tail", meaning, lambda x: mp.log(mp.erfc(x), 2), 0.875, 3.93, degree, weight=lambda x: mp.erfc(x))


def normal_tail(degree: int) -> Fit:
    """Weighted so that the error is one of the tail, not of what it is divided by."""

    def f(x: Real) -> Real:
        return mp.erfc(x * mp.sqrt(mpf("0.5"))) * mp.exp(x * x / 2)

    meaning = "erfc(x sqrt(1/2)) = e^(-x²/2) q(x / (x + 4)), x >= 0"
    return Fit("normal tail", meaning, f, 0, 5.6, degree, 24, lambda x: x / (x + 4), lambda x: mp.exp(-x * x / 2))


SINGLE = (
    exponential(24, 4),
    exp2_fit("exp2", 5),
    exp2_fit("exp2 short", 4),
    logarithm(24, 7),
    hyperbolic_tangent(24, 4),
    hyperbolic_sine(24, 3),
    sine(24, 2),
    cosine(24, 2),
    arc_tangent(24, 4),
    arc_sine(24, 4),
    error_function(24, 5, 0.875),
    tail(6),
    normal_tail(6),
)
DOUBLE = (
    exponential(53, 10),
    area_tangent("log", 1, 7),
    area_tangent("log precise", 2, 6),
    hyperbolic_tangent(53, 11),
    hyperbolic_sine(53, 7),
    sine(53, 6),
    cosine(53, 5),
    arc_tangent(53, 11),
    arc_sine(53, 13),
    error_function(53, 12, 1),
    complement(22),
)

MIXED = (
    exponential(53, 5),
    area_tangent("log", 1, 4),
    sine(53, 3),
    cosine(53, 3),
    arc_tangent(53, 5),
    error_function(53, 7, 1),
    complement(11),
)


def parts(value: Real, *sizes: int) -> list[float]:
    """A number as a sum of floats of so many bits each, all but the last cut off rather than rounded."""
    found: list[float] = []
    for bits in sizes[:-1]:
        mantissa, exponent = mp.frexp(value)
        found.append(float(mp.ldexp(mp.floor(mp.ldexp(mantissa, bits)), exponent - bits)))
        value -= mpf(found[-1])
    return [*found, float(rounded(value, sizes[-1]))]


def constants(bits: int, exponent_bits: int) -> dict[str, list[float]]:
    """Products of the exponent with the first part of ln(2) and log10(2) are exact."""
    short = bits - exponent_bits
    return {
        "ln(2)": parts(LN2, bits, bits),
        "ln(2) short": parts(LN2, short, bits),
        "log10(2) short": parts(LN2 / mp.log(10), short, bits),
        "log2(e)": parts(1 / LN2, bits, bits),
        "log10(e)": parts(1 / mp.log(10), bits, bits),
        "2/pi": parts(2 / mp.pi, bits),
        "pi/2": parts(mp.pi / 2, bits, bits, bits),
        "2/3": parts(mpf(2) / 3, bits, bits),
    }


CONSTANTS = {"single": constants(24, 8), "double": constants(53, 11), "mixed": constants(53, 11)}

HEAD = '''"""Coefficients, derived by `tools/minimax.py --write`: do not edit.

MIXED is for float32 computed in float64, with fewer terms. The lowest power stands first; `error` is the greatest
weighted error of the rounded polynomial, evaluated exactly.
"""

# fmt: off
# ruff: noqa: E501
'''


def module() -> str:
    with mp.workdps(400):
        two_over_pi = int(mp.floor(mp.ldexp(2 / mp.pi, 1280)))
    text = f'{HEAD}\nTWO_OVER_PI = int(\n    "{two_over_pi:X}",\n    16,\n)\n"""2/pi * 2^1280"""\n'
    for precision, fits in (("single", SINGLE), ("double", DOUBLE), ("mixed", MIXED)):
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
