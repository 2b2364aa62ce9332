"""Sequences, which are Python's lists here, and optional values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import functional as tg
from ...tensor import Tensor
from ..messages import TypeProto
from ..problems import OnnxError
from ..rules import Function
from ..values import Number, as_tensor


def sequence_at(sequence: Any, position: Number) -> Any:
    return sequence[int(position)]


def sequence_construct(*inputs: Tensor) -> list[Tensor]:
    return list(inputs)


def sequence_empty(*, dtype: int = 1) -> list[Tensor]:
    return []


def sequence_erase(sequence: Any, position: Number | None = None) -> list[Any]:
    place = (-1 if position is None else int(position)) % len(sequence)
    return [*sequence[:place], *sequence[place + 1 :]]


def sequence_insert(sequence: Any, item: Tensor, position: Number | None = None) -> list[Any]:
    place = len(sequence) if position is None else int(position)
    place = place + len(sequence) if place < 0 else place
    return [*sequence[:place], item, *sequence[place:]]


def sequence_length(sequence: Any) -> np.ndarray:
    return np.array(len(sequence), np.int64)


def sequence_map(sequence: Any, *more: Any, body: Callable[..., list[Any]]) -> tuple[Any, ...]:
    """Run a graph for each element."""
    made = [
        body(item, *(other[n] if isinstance(other, list) else other for other in more))
        for n, item in enumerate(sequence)
    ]
    return tuple(list(column) for column in zip(*made, strict=True))


def concat_from_sequence(sequence: Any, *, axis: int, new_axis: int = 0) -> Tensor:
    tensors = [as_tensor(item) for item in sequence]
    return tg.stack(tensors, axis) if new_axis else tg.cat(tensors, axis)


def split_to_sequence(x: Tensor, sizes: Any = None, *, axis: int = 0, keepdims: int = 1) -> list[Tensor]:
    """Cut an axis into the elements of a sequence."""
    extent = int(x.shape[axis])
    if sizes is None:
        parts = list(tg.split(x, [1] * extent, axis))
        return parts if keepdims else [part.squeeze(axis) for part in parts]
    wanted = sizes.tolist()
    if not isinstance(wanted, list):
        wanted = [min(wanted, extent - n) for n in range(0, extent, wanted)]
    return list(tg.split(x, wanted, axis))


def optional(value: Any = None, *, type: TypeProto | None = None) -> Any:
    return value


def optional_get_element(value: Any) -> Any:
    if value is None:
        raise OnnxError("the optional value is not there")
    return value


def optional_has_element(value: Any = None) -> np.ndarray:
    return np.array(value is not None)


RULES: dict[str, Function] = {
    "ConcatFromSequence": concat_from_sequence,
    "Optional": optional,
    "OptionalGetElement": optional_get_element,
    "OptionalHasElement": optional_has_element,
    "SequenceAt": sequence_at,
    "SequenceConstruct": sequence_construct,
    "SequenceEmpty": sequence_empty,
    "SequenceErase": sequence_erase,
    "SequenceInsert": sequence_insert,
    "SequenceLength": sequence_length,
    "SequenceMap": sequence_map,
    "SplitToSequence": split_to_sequence,
}
