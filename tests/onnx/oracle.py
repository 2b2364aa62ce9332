"""What the package `onnx` has to compare with: its cases as models and arrays, and arrays as our types hold them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tilegrad as tg
from tilegrad.onnx.tensors import ELEMENT_TYPES

HELD = {kind.name: kind.held for kind in ELEMENT_TYPES.values() if kind.held is not None and not kind.is_own}
"""Types that only ONNX has, and ours that hold their values."""
MEDIUM, EXACT = ("float16", "bfloat16"), "biu"


class Case(NamedTuple):
    """A model with inputs and expected outputs."""

    name: str
    model: bytes
    data: list[tuple[list[Any], list[Any]]]
    rtol: float = 1e-3
    atol: float = 1e-6


def given(value: Any) -> Any:
    """Return a value of the package as arrays that tensors are made of."""
    if isinstance(value, list):
        return [given(item) for item in value]
    if not isinstance(value, np.ndarray):
        return None if value is None else given(_array(value))
    held = HELD.get(value.dtype.name)
    return value if held is None else value.astype(np.float32 if held.is_float else held.numpy)


def _array(proto: Any) -> Any:
    from onnx import numpy_helper

    return numpy_helper.to_array(proto) if hasattr(proto, "dims") else np.asarray(proto)


def difference(found: Any, wanted: Any, case: Case, kinds_only: bool = False) -> str:
    """Say in which way a result is not the expected one: dtype, shape, or elements."""
    if isinstance(wanted, list):
        if not isinstance(found, list) or len(found) != len(wanted):
            return f"a sequence of {len(wanted)} is wanted"
        return next((text for x, y in zip(found, wanted) if (text := difference(x, y, case, kinds_only))), "")
    expected = given(wanted)
    if expected is None:
        return "" if found is None else "nothing is wanted"
    array = found.detach().numpy() if isinstance(found, tg.Tensor) else np.asarray(found)
    if array.dtype != expected.dtype or array.shape != expected.shape:
        return f"{array.dtype}{list(array.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if kinds_only:
        return ""
    if expected.dtype.kind in EXACT:
        return "" if np.array_equal(array, expected) else "other elements"
    rtol, atol = (1e-2, 1e-3) if expected.dtype.name in MEDIUM else (case.rtol, case.atol)
    wide = array.astype(np.float64), expected.astype(np.float64)
    return "" if np.allclose(*wide, rtol, atol, equal_nan=True) else f"off by {np.nanmax(abs(wide[0] - wide[1])):.2g}"


def run(case: Case, kinds_only: bool = False) -> str:
    """Load the model of a case and run it; return what is wrong."""
    model = tg.onnx.load(case.model)
    for inputs, outputs in case.data:
        found = model(*map(given, inputs))
        found = found if isinstance(found, tuple) else (found,)
        if len(found) != len(outputs):
            return f"{len(found)} outputs instead of {len(outputs)}"
        for x, y in zip(found, outputs):
            if text := difference(x, y, case, kinds_only):
                return text
    return ""


def outcome(case: Case, kinds_only: bool = False) -> str:
    """Run a case; return what is wrong, also if it is an error."""
    try:
        return run(case, kinds_only)
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
