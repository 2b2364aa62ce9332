"""Elementwise ops that Python computes have the bits of both tiers: examples of all ops, dtypes, special numbers."""

import itertools
import random
import struct
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.ops.registry import all_examples
from tilegrad import config
from tilegrad.ir.graph import Value
from tilegrad.lazy import python_functions
from tilegrad.lazy.elements import few_elements
from tilegrad.lazy.evaluation import compute
from tilegrad.lazy.handle import handle_on
from tilegrad.lazy.python_functions import MAX_EXACT_INTEGER, python_function
from tilegrad.ops.base import Elementwise

FLOATS = [
    0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -7.3, 0.1, 1 / 3, 1e10, 8388609.0, 1e-45, -3e-39, 3.4e38,
    -3.4e38, 2.0**53, float("inf"), -float("inf"), float("nan"),
]  # fmt: skip
INTEGERS = [0, 1, -1, 2, 3, -3, 7, -8, 100, 127, -128, 255, 1 << 15, (1 << 31) - 1, -(1 << 31), MAX_EXACT_INTEGER + 1]
DTYPES = ("float32", "float64", "int64", "int32", "int8", "uint8", "bool")
MAX_COMBINATIONS = 800


def operands(dtype: tg.DType, count: int) -> list[np.ndarray[Any, Any]]:
    """Combinations of special numbers, one column per operand."""
    if dtype is tg.bool:
        numbers: list[Any] = [False, True]
    elif dtype.is_float:
        numbers = FLOATS
    else:
        numbers = [n for n in INTEGERS if dtype.min <= n <= dtype.max]
    rows = list(itertools.product(numbers, repeat=count))
    if len(rows) > MAX_COMBINATIONS:
        rows = random.Random(0).sample(rows, MAX_COMBINATIONS)
    with np.errstate(over="ignore"):
        return [np.array(column, dtype.numpy) for column in zip(*rows, strict=True)]


def cases(dtype: tg.DType) -> dict[str, tuple[Elementwise, list[np.ndarray[Any, Any]]]]:
    """The elementwise ops that take elements of a dtype, on special numbers."""
    found: dict[str, tuple[Elementwise, list[np.ndarray[Any, Any]]]] = {}
    for e in all_examples():
        columns = operands(dtype, len(e.arrays)) if 0 < len(e.arrays) <= 3 else []
        truths = operands(tg.bool, 1)[0]
        columns = [np.resize(truths, c.shape) if a.dtype == bool else c for a, c in zip(e.arrays, columns)]
        values = [tg.tensor(c).value for c in columns]
        try:
            made = e.build(*values)
        except Exception:
            continue
        if isinstance(made, Elementwise) and all(x in values for x in made.inputs):
            found[e.name] = made, [columns[values.index(x)] for x in made.inputs]
    return found


def in_python(value: Elementwise, columns: list[np.ndarray[Any, Any]]) -> tuple[list[int], list[Any]]:
    """Return what Python computes, and for which rows it does."""
    function, kind = python_function(value), few_elements(value.type.dtype, (1,), "cpu")
    rows, results = [], []
    for n, row in enumerate(zip(*[c.tolist() for c in columns], strict=True)):
        if function is not None and kind is not None:
            try:
                results += kind.unpack(kind.pack(*function(*[[x] for x in row])))
                rows.append(n)
            except (ArithmeticError, ValueError, struct.error):
                pass  # it is recorded
    return rows, results


def bits_of(array: np.ndarray[Any, Any], tier: str) -> np.ndarray[Any, Any]:
    """The bits of numbers, with one NaN; `relu` of the compiled tier keeps the sign of a zero."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), np.array(np.nan, array.dtype), array)
        array = np.where(array == 0, np.array(0, array.dtype), array) if tier == "compiled" else array
    return array.view(f"u{array.itemsize}")


@pytest.mark.parametrize("tier", ["interpreted", "compiled"])
@pytest.mark.parametrize("name", DTYPES)
def test_results_have_the_bits_of_kernels(name: str, tier: str) -> None:
    dtype = getattr(tg, name)
    found = {op: c for op, c in cases(dtype).items() if python_function(c[0]) is not None}
    assert len(found) >= (8 if dtype is tg.bool else 12), sorted(found)
    values: list[Value] = [value for value, _ in found.values()]
    wrong = []
    with config.changed(tier=tier), np.errstate(all="ignore"):
        for value in values if tier == "interpreted" else ():
            compute(handle_on(value))
        tg.compute(*map(handle_on, values))
        for op, (value, columns) in found.items():
            kernel = handle_on(value).numpy()
            rows, results = in_python(value, columns)
            ours = np.array(results, kernel.dtype)
            bits = [bits_of(ours, tier), bits_of(kernel[rows], tier)]
            differing = np.flatnonzero(bits[0] != bits[1])
            wrong += [(op, [c[rows[n]] for c in columns], ours[n], kernel[rows[n]]) for n in differing[:3]]
    assert not wrong, "\n".join(map(str, wrong))


@pytest.mark.parametrize("reduce", ["sum", "amax", "argmax", "any", "amin", "all"])
def test_many_elements_are_not_reduced_by_python(reduce: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One result of many elements is recorded at once: nothing is listed for each of them."""
    monkeypatch.setattr(python_functions, "_groups", lambda shape, axes: pytest.fail(f"lists elements of {shape}"))
    for shape in ((1 << 40,), (257,), (2, 1 << 30)):
        x = tg.zeros(1, dtype=tg.bool if reduce in ("any", "all") else tg.int32).expand(shape)
        assert getattr(x, reduce)().shape == ()
