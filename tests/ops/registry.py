"""The registry of examples of ops: `example` adds one, `all_examples` returns them all.

Each example is tested for the type of the op, its meaning, its gradients to second order, and equal values on every
backend.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tilegrad.ir.dtype import from_numpy_dtype
from tilegrad.ir.graph import Graph, Input, TensorType, Value


class Example(NamedTuple):
    name: str
    op: type[Value] | None
    """The op that this is an example of; None for one that is a composition of others."""
    build: Callable[..., Any]
    """Makes the value (or a tuple of values) from one value per array."""
    arrays: tuple[np.ndarray, ...]
    numpy: Callable[..., Any] | None
    """The same with numpy arrays."""
    torch: str | Callable[..., Any] | None
    """The same with PyTorch: the name of a function in torch, or a function of torch and the tensors."""
    gradient: bool | str
    """Whether its gradients are checked, by finite differences and against PyTorch; "torch": only the latter."""
    tolerance: float

    def graph(self) -> Graph:
        inputs = tuple(given(array, f"x{n}") for n, array in enumerate(self.arrays))
        made = self.build(*inputs)
        return Graph(inputs, made if isinstance(made, tuple) else (made,))


_examples: list[Example] = []


def example(
    op: type[Value] | None,
    build: Callable[..., Any],
    *arrays: Any,
    numpy: Callable[..., Any] | None = None,
    torch: str | Callable[..., Any] | None = None,
    gradient: bool | str = True,
    tolerance: float = 1e-9,
    name: str = "",
) -> None:
    """Adds an example; gradients are checked only if all floating-point arrays are float64."""
    given_arrays = tuple(np.asarray(array) for array in arrays)
    called = name or (op.__name__ if op is not None else build.__name__)
    same = sum(known.name.split("#")[0] == called for known in _examples)
    called = f"{called}#{same + 1}" if same else called
    _examples.append(Example(called, op, build, given_arrays, numpy, torch, gradient, tolerance))


def all_examples() -> list[Example]:
    """Every example of every module `examples*.py` in this folder."""
    for path in sorted(Path(__file__).parent.glob("examples*.py")):
        importlib.import_module(f"tests.ops.{path.stem}")
    return list(_examples)


SIDE = 3
OF_ONE_SHAPE = (
    "Recurrence",
    "Attention",
    "Tiled",
    "Declared",
    "ExternalCall",
    "PackedConvolve",
    "PackedRows",
    "Materialised",
    "TransformedTiles",
    "Irregular",
)
OF_ONE_SHAPE += (
    "SearchSorted",
    "RepairedTiles",
    "SegmentStarts",
    "SegmentSums",
    "Compact",
    "WindowScatter",
    "WindowArgmax",
)
"""Ops that functions and passes make, from operands whose shapes and order they have settled; and a user's."""


def families() -> list[Example]:
    """The examples that can be with all extents equal, and of those with several operands with one for all of them: an
    axis that is taken for another, or an operand for another, then makes no error but a wrong result.
    """
    found: dict[str, Example] = {}
    for e in all_examples():
        arrays = tuple([_square(a) for a in e.arrays])
        if sum(a.ndim for a in arrays) < 2 or any(
            type(v).__name__.startswith(OF_ONE_SHAPE) for v in e.graph().values()
        ):
            continue
        square = e._replace(name=f"{e.name} of equal extents", arrays=arrays)
        if any(a.shape != b.shape for a, b in zip(arrays, e.arrays)) and _can_be(square):
            found[square.name] = square
        if len(arrays) > 1 and len({(a.shape, a.dtype) for a in arrays}) == 1:
            same = square._replace(name=f"{e.name} of one operand", arrays=arrays[:1])
            count, build, torch = len(arrays), e.build, e.torch
            same = same._replace(
                build=lambda x, b=build, n=count: b(*[x] * n),
                torch=None if torch is None else lambda t, x, f=torch, n=count: called(t, f, [x] * n),
                numpy=None,
            )
            if _can_be(same):
                found[same.name] = same
    return list(found.values())


def called(torch: Any, function: str | Callable[..., Any], tensors: list[Any]) -> Any:
    """The function of an example in PyTorch."""
    return getattr(torch, function)(*tensors) if isinstance(function, str) else function(torch, *tensors)


def _square(array: np.ndarray) -> np.ndarray:
    """An array with elements of another, with the same extent along all axes that have more than one element."""
    made = np.resize(array, tuple([SIDE if n > 1 else n for n in array.shape]))
    return made % SIDE if made.dtype == np.int64 and (made >= SIDE).any() else made


def _can_be(e: Example) -> bool:
    """Whether an example with other shapes is one: its op takes them."""
    try:
        e.graph()
    except Exception:
        return False
    return True


def given(array: np.ndarray, name: str = "") -> Input:
    """A placeholder for an array, for which gradients are taken if its elements are floating-point."""
    dtype = from_numpy_dtype(array.dtype)
    assert dtype is not None
    made = Input(TensorType(dtype, array.shape), name)
    made.__dict__["tracked"] = dtype.is_float
    return made


def floats(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape)


def ints(*shape: int, low: int = -9, high: int = 10, dtype: Any = np.int64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(low, high, shape).astype(dtype)


def bools(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).integers(0, 2, shape).astype(np.bool_)


nan, inf = float("nan"), float("inf")
SPECIAL = np.array([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e300])
PAIRS = tuple(a.ravel() for a in np.meshgrid(SPECIAL, SPECIAL))
SMALL = floats(2, 3, 4)
NONE = np.zeros((0, 3))


def elementwise(op: Any, build: Any, torch: Any, *arrays: np.ndarray, special: bool = True) -> None:
    """An example on ordinary numbers, and (values only) on special ones."""
    example(op, build, *arrays, torch=torch)
    if special:
        given_arrays = (SPECIAL,) if len(arrays) == 1 else PAIRS
        example(op, build, *given_arrays, torch=torch, gradient=False)


def functional(name: str, *arguments: Any, **named: Any) -> Any:
    """A function of torch.nn.functional."""
    return lambda t, x, *more: getattr(t.nn.functional, name)(x, *more, *arguments, **named)
