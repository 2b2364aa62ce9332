"""Collate samples to batches: first of arrays, which workers can send, then of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError
from ..functions.creation import from_array, from_numpy, tensor
from ..functions.declared import publish
from ..functions.joining import stack
from ..tensor import Tensor


def as_tensors(sample: Any, share: Callable[[Any], Any]) -> Any:
    """Convert arrays, by a function, and numbers to tensors, within any nesting."""
    match sample:
        case np.ndarray():
            if sample.dtype.kind in "OUSMm":
                return sample
            return share(np.ascontiguousarray(sample)) if sample.ndim else tensor(sample)
        case np.generic() | bool() | int() | float():
            return tensor(sample)
        case Mapping():
            return {key: as_tensors(value, share) for key, value in sample.items()}
        case tuple() if hasattr(sample, "_fields"):
            return type(sample)(*[as_tensors(value, share) for value in sample])
        case tuple() | list():
            return type(sample)(as_tensors(value, share) for value in sample)
        case _:
            return sample


def batch_of(made: Any) -> Any:
    """Convert the arrays of a batch to tensors on their memory, which nobody else holds."""
    return as_tensors(made, lambda array: from_array(array, "cpu", share=True))


def default_convert(data: Any) -> Any:
    """Convert the arrays of a sample to tensors, within any nesting; tuples become lists.

    >>> default_convert({"x": np.array([1, 2]), "n": (3, "a")})
    {'x': tensor([1, 2]), 'n': [3, 'a']}
    """
    match data:
        case np.ndarray() | np.generic():
            return as_tensors(data, from_numpy)
        case Mapping():
            return {key: default_convert(value) for key, value in data.items()}
        case tuple() if hasattr(data, "_fields"):
            return type(data)(*map(default_convert, data))
        case tuple() | list():
            return [default_convert(value) for value in data]
        case _:
            return data


def pinned(batch: Any) -> Any:
    """Copy the tensors of a batch to pinned memory, within any nesting."""
    match batch:
        case Tensor():
            return batch.pin_memory()
        case Mapping():
            return {key: pinned(value) for key, value in batch.items()}
        case tuple() if hasattr(batch, "_fields"):
            return type(batch)(*map(pinned, batch))
        case tuple() | list():
            return type(batch)(pinned(value) for value in batch)
        case _:
            return batch


def default_collate(samples: Sequence[Any]) -> Any:
    """Collate samples to one batch: numbers, arrays and tensors are stacked, within any nesting.

    >>> batch = default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
    >>> batch["x"].tolist(), batch["name"]
    ([1, 2], ['a', 'b'])
    """
    return batch_of(joined(samples))


def joined(samples: Sequence[Any]) -> Any:
    """Collate samples to arrays; tensors stay tensors."""
    first = samples[0]
    _require_one_kind(samples)
    match first:
        case Tensor():
            _require_one_shape([tuple(s.shape) for s in samples])
            return stack(list(samples))
        case np.ndarray() | np.generic():
            _require_one_shape([s.shape for s in samples])
            return np.stack(samples)
        case bool() | int() | float():
            return _numbers(samples)
        case Mapping():
            return {key: joined([s[key] for s in samples]) for key in first}
        case tuple() | list():
            if len({len(s) for s in samples}) > 1:
                lengths = sorted({len(s) for s in samples})
                raise ArgumentError(f"the samples of a batch have {lengths} parts: give a collate_fn that joins them")
            columns = [joined(column) for column in zip(*samples, strict=True)]
            return type(first)(*columns) if hasattr(first, "_fields") else columns
        case _:
            return list(samples)


def _require_one_kind(samples: Sequence[Any]) -> None:
    kinds = (Tensor, (np.ndarray, np.generic), (bool, int, float), Mapping, (tuple, list))
    kind = next((k for k in kinds if isinstance(samples[0], k)), object)
    other = next((s for s in samples if not isinstance(s, kind)), samples[0])
    if other is not samples[0]:
        raise ArgumentError(
            f"the samples of a batch are of two kinds, {type(samples[0]).__name__} and {type(other).__name__}: give "
            "them one kind, or give a collate_fn that joins them"
        )
    if kind is Mapping and any(set(s) != set(samples[0]) for s in samples):
        keys = sorted({str(key) for s in samples for key in set(s) ^ set(samples[0])})
        raise ArgumentError(
            f"not all samples of a batch have the keys {', '.join(keys)}: give a collate_fn that joins them"
        )


def _require_one_shape(shapes: Sequence[tuple[int, ...]]) -> None:
    if len(set(shapes)) > 1:
        raise ShapeError(
            f"the samples of a batch have the shapes {', '.join(map(str, sorted(set(shapes))))}: give them one shape, "
            "or give a collate_fn that joins them"
        )


def _numbers(samples: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Convert Python numbers to an array in the dtype that a tensor of them has."""
    if max(map(abs, samples)) >= 1 << 63 and all(isinstance(x, int) for x in samples):
        raise ArgumentError(f"the samples of a batch have integers of more than 64 bits, as {max(samples, key=abs)}")
    made = tensor(list(samples))
    return made.numpy()


publish(globals(), internal=("as_tensors", "batch_of", "pinned", "joined"))
