"""Generate example arguments from a signature, in many shapes and dtypes, reproducibly across processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..foreign.patterns import AxisGroup, ComputedExtent, ScalarPattern, TensorPattern, evaluate_extent, extent_names
from ..functions.creation import tensor
from ..ir.dtype import DTYPES, DType, bool_, float16, float32, float64, int32, int64
from ..ir.size import known
from ..lazy.handle import Handle

if TYPE_CHECKING:
    from .signature import Declaration


class ReproducibleTensor(NamedTuple):
    """A reproducible tensor: `example(dtype, shape, seed, strided)`, or a user's own (`array`)."""

    dtype: DType
    shape: tuple[int, ...]
    seed: int = 0
    strided: bool = False
    array: Any = None

    def made(self) -> Any:
        if self.array is not None:
            return tensor(self.array, dtype=self.dtype)
        return example(self.dtype, self.shape, self.seed, self.strided)

    @property
    def text(self) -> str:
        if self.array is not None:
            if self.array.size > 1 and (self.array == self.array.flat[0]).all():
                return f"tg.full({self.array.shape}, {self.array.flat[0].item()}, dtype=tg.{self.dtype.name})"
            return f"tg.tensor({self.array.tolist()}, dtype=tg.{self.dtype.name})"
        strided = ", strided=True" if self.strided else ""
        return f'tg.custom.example("{self.dtype.name}", {self.shape}, seed={self.seed}{strided})'

    def __str__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}" + (" of a view" if self.strided else "")


Argument = Any
"""A `ReproducibleTensor`, a tuple of them, a number, or None."""


def example(dtype: str | DType, shape: Sequence[int], seed: int = 0, strided: bool = False) -> Any:
    """Return a reproducible random tensor: floats from -2 to 2, integers from 0 to 9. With `strided` it is a
    non-contiguous view.

    >>> example("int64", (2, 3), seed=1)
    tensor([[9, 6, 8],
            [1, 4, 5]])
    """
    kind = next(d for d in DTYPES if d is dtype or d.name == dtype)
    random = np.random.default_rng([seed, *shape])
    wide = tuple(shape) if not strided else (*reversed(shape), 2)
    whole = random.integers(0, 2 if kind is bool_ else 10, wide) if not kind.is_float else random.uniform(-2, 2, wide)
    made = tensor(whole.astype(np.float64 if kind.is_float else np.int64)).to(kind)
    if strided:
        made = made[..., 0].permute(*reversed(range(len(shape)))) if shape else made[0]
    return made


class ExampleSizes(NamedTuple):
    """Sizes for the names of a signature: `extent` numbers the names, `group` is the shape of *s."""

    name: str
    extents: tuple[int, ...]
    group: tuple[int, ...]


SIZES = (
    ExampleSizes("odd", (5, 7, 3, 9), (3,)),
    ExampleSizes("one", (1,), (1,)),
    ExampleSizes("no axes", (4, 6, 2), ()),
    ExampleSizes("two axes", (33, 17, 19), (2, 5)),
    ExampleSizes("empty", (4, 3), (0,)),
    ExampleSizes("an extent of 0", (0, 5), (2,)),
    ExampleSizes("longer", (130, 70), (9,)),
)
FLOATS = (float32, float64, float16)
WHOLE = (int64, int32)


SCALAR_ROUNDS = 3
"""Number of rounds of scalar arguments; the first uses the defaults."""


def arguments(
    declaration: Declaration, sizes: ExampleSizes, dtype: int = 0, strided: bool = False, numbers: int = 0
) -> list[Argument]:
    """Generate arguments for an operator; `dtype` indexes the dtypes of a variable, `numbers` the round of scalars,
    whose values differ between rounds and from each other.
    """
    extents = _extents(declaration, sizes, numbers)
    seeds = count(1)
    made: list[Argument] = []
    for p in declaration.parameters:
        kind = declaration.kinds[p.name]
        if isinstance(p.type, ScalarPattern):
            made.append(_number(p.type.dtype, p.default, extents.get(p.name), numbers, len(made)))
            continue
        copies = 3 if kind == "many" else 1
        tensors = [_given(p.type, extents, sizes, dtype, next(seeds), strided) for _ in range(copies)]
        made.append(tuple(tensors) if kind == "many" else tensors[0])
    return made


def _given(
    pattern: TensorPattern, extents: dict[str, int], sizes: ExampleSizes, dtype: int, seed: int, strided: bool
) -> ReproducibleTensor:
    shape: list[int] = []
    for axis in pattern.axes:
        if isinstance(axis, AxisGroup):
            shape += sizes.group
        else:
            shape.append(known(evaluate_extent(axis, extents), {}))
    return ReproducibleTensor(pattern_dtype(pattern.dtype, dtype), tuple(shape), seed, strided and len(shape) > 0)


def pattern_dtype(pattern: Any, number: int) -> DType:
    """Return the dtype for a pattern."""
    if isinstance(pattern, DType):
        return pattern
    choices = WHOLE if pattern.name.startswith("I") else FLOATS
    return choices[number % len(choices)]


def has_variable_dtype(declaration: Declaration) -> bool:
    """Whether any dtype is variable."""
    return any(
        isinstance(p.type, TensorPattern) and not isinstance(p.type.dtype, DType) for p in declaration.parameters
    )


def has_numbers(declaration: Declaration) -> bool:
    """Whether the operator takes scalars."""
    return any(isinstance(p.type, ScalarPattern) for p in declaration.parameters)


def _number(dtype: DType, default: Any, extent: int | None, numbers: int, place: int) -> Any:
    number = default if default is not None else extent if extent is not None else 1.5 if dtype.is_float else 2
    if dtype is bool_:
        return bool(number) ^ bool(numbers & 1)
    return number + numbers * (0.375 + 0.25 * place) if dtype.is_float else extent


def _extents(declaration: Declaration, sizes: ExampleSizes, numbers: int) -> dict[str, int]:
    """Assign a size to each extent; one that is also a scalar argument has its default in the first round."""
    found: dict[str, int] = {}
    for p in declaration.parameters:
        if isinstance(p.type, ScalarPattern):
            if not p.type.dtype.is_float:
                found[p.name] = (int(p.default) if p.default is not None else 2) + numbers
            continue
        for axis in p.type.axes:
            if isinstance(axis, str | ComputedExtent):
                for name in sorted(extent_names(axis)):
                    found.setdefault(name, sizes.extents[len(found) % len(sizes.extents)])
    return found


def instantiate(arguments: Sequence[Argument]) -> list[Any]:
    """Create the tensors and scalars of a call."""
    return [
        x.made() if isinstance(x, ReproducibleTensor) else tuple([y.made() for y in x]) if isinstance(x, tuple) else x
        for x in arguments
    ]


def _reproducible_tensor(x: Any) -> ReproducibleTensor:
    shape = tuple([known(n, {}) for n in x._value.shape])
    return ReproducibleTensor(x._value.dtype, shape, array=x.detach().cpu().numpy().copy())


def reproducible(arguments: Sequence[Any]) -> list[Argument]:
    """Convert a user's arguments to reproducible ones."""
    return [
        _reproducible_tensor(x)
        if isinstance(x, Handle)
        else tuple(reproducible(x))
        if isinstance(x, tuple | list)
        else x
        for x in arguments
    ]


def tensors(arguments: Sequence[Argument]) -> Iterator[ReproducibleTensor]:
    """Return the tensors among the arguments."""
    for x in arguments:
        if isinstance(x, ReproducibleTensor):
            yield x
        elif isinstance(x, tuple):
            yield from tensors(x)


def as_source(arguments: Sequence[Argument]) -> str:
    """Print arguments as source code for a script."""
    return ", ".join(
        x.text if isinstance(x, ReproducibleTensor) else f"({as_source(x)},)" if isinstance(x, tuple) and x else repr(x)
        for x in arguments
    )


def as_text(arguments: Sequence[Argument]) -> str:
    """Print arguments for a report."""
    return ", ".join(
        f"({as_text(x)})" if isinstance(x, tuple) and not isinstance(x, ReproducibleTensor) else str(x)
        for x in arguments
    )
