"""Numbers that Python computes of numbers that vary: one program for all of them, and Python's errors."""

import math
from collections.abc import Callable
from typing import Any

import pytest

import tilegrad as tg

COMPUTED: dict[str, Callable[[float, float], float]] = {
    "quotient": lambda a, b: a / b,
    "half": lambda a, b: a / 2 + b / 4,
    "whole quotient": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "power": lambda a, b: b**-1 + a,
    "difference": lambda a, b: 1 / (a - b),
    "unused": lambda a, b: (a / b, a)[1],
    "negative": lambda a, b: 1 / -b,
    "absolute": lambda a, b: a / (abs(b) * 2 + 0.0),
    "corrected": lambda a, b: a / (1 - 0.9**b),
    "long": lambda a, b: sum([a / b] * 40) / 100,
}
DECIDES = {"root": lambda a, b: math.sqrt(b - 1), "logarithm": lambda a, b: math.log(b)}
PAIRS = [(3.0, 2.0), (3.0, 5.0), (3.0, 7.0), (3.0, 0.0), (3.0, 4.0), (4.0, 4.0), (3.0, 3.0), (0.0, 0.0), (5.0, 1.0)]


def given(fn: Callable[..., Any], *args: Any) -> Any:
    try:
        return fn(*args).item()
    except (ArithmeticError, ValueError) as error:
        return type(error).__name__


@pytest.mark.parametrize("whole", [False, True], ids=["floats", "integers"])
@pytest.mark.parametrize("outside", [False, True], ids=["arguments", "outside"])
@pytest.mark.parametrize("case", [*COMPUTED, *DECIDES])
def test_as_python_computes(case: str, outside: bool, whole: bool) -> None:
    of = (COMPUTED | DECIDES)[case]
    numbers = {"a": 1.0, "b": 2.0}
    by_argument = tg.jit(lambda x, a, b: x * of(a, b))
    by_name = tg.jit(lambda x: x * of(numbers["a"], numbers["b"]))
    for pair in PAIRS:
        a, b = map(int, pair) if whole else pair
        numbers.update(a=a, b=b)
        got = given(by_name, tg.ones(1)) if outside else given(by_argument, tg.ones(1), a, b)
        wanted = given(lambda x, a=a, b=b: x * of(a, b), tg.ones(1))
        assert got == (wanted if isinstance(wanted, str) else pytest.approx(wanted, rel=1e-6))
    if case in COMPUTED and not whole:
        assert len((by_name if outside else by_argument).programs) < 6
