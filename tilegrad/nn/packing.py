"""Pad and pack sequences of different lengths."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import ArgumentError, ShapeError
from ..functions.creation import arange, full, tensor
from ..functions.joining import cat, stack
from ..functions.promotion import kind_of
from ..ir.dtype import int64
from ..ops.broadcasting import shown
from ..tensor import Tensor

__all__ = [
    "PackedSequence",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]


class PackedSequence(NamedTuple):
    """The first elements of all sequences, then the second ones, and so on; longer sequences come first."""

    data: Tensor
    batch_sizes: Tensor
    """Number of sequences that have a first element, a second, ..."""
    sorted_indices: Tensor | None = None
    """Positions of the sequences before they were sorted by length."""
    unsorted_indices: Tensor | None = None
    """Positions of the original sequences among the sorted ones."""

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """Convert the elements to another device or dtype."""
        return self._replace(data=self.data.to(*args, **kwargs))

    def lengths(self) -> list[int]:
        """Return the lengths, in descending order."""
        sizes = self.batch_sizes.tolist()
        return [sum(size > n for size in sizes) for n in range(sizes[0])]


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Stack sequences (length, ...) in a tensor, padded to the longest.

    >>> import tilegrad as tg
    >>> pad_sequence([tg.tensor([1, 2, 3]), tg.tensor([4])], batch_first=True)
    tensor([[1, 2, 3],
            [4, 0, 0]])
    """
    given = list(sequences)
    if not given or any(x.dim() < 1 or x.shape[1:] != given[0].shape[1:] for x in given):
        raise ShapeError(
            f"pad_sequence: {', '.join(shown(x.shape) for x in given) or 'nothing'}: there must be sequences, which "
            "differ in their first axis only"
        )
    if padding_side not in ("left", "right"):
        raise ArgumentError(f"pad_sequence: padding_side is 'left' or 'right', not {padding_side!r}")
    longest = max(x.shape[0] for x in given)
    padded = []
    for x in given:
        rest = full((longest - x.shape[0], *x.shape[1:]), padding_value, dtype=x.dtype, device=x.device)
        padded.append(cat([x, rest] if padding_side == "right" else [rest, x]) if rest.shape[0] else x)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """Return the sequences of a padded tensor."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [rows[n, :length] for n, length in enumerate(_listed(lengths))]


def _listed(lengths: Any) -> list[int]:
    return [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack a padded tensor (length, batch, ...) without its padding."""
    x = input.transpose(0, 1) if batch_first else input
    counts = _listed(lengths)
    if len(counts) != x.shape[1] or min(counts) < 1 or max(counts) > x.shape[0]:
        raise ArgumentError(
            f"pack_padded_sequence: lengths {counts} for an input of the shape {shown(input.shape)}: give one "
            f"from 1 to {x.shape[0]} for each of {x.shape[1]} sequences"
        )
    order = sorted(range(len(counts)), key=lambda n: -counts[n])
    if enforce_sorted and any(a < b for a, b in itertools.pairwise(counts)):
        raise ArgumentError(
            f"pack_padded_sequence: lengths {counts} are not in falling order; give enforce_sorted=False, which sorts"
        )
    falling = [counts[n] for n in order]
    sizes = [sum(count > t for count in falling) for t in range(falling[0])]
    places = [t * len(order) + order[n] for t, size in enumerate(sizes) for n in range(size)]
    data = x.reshape(-1, *x.shape[2:]).index_select(0, _integers(places, x))
    if enforce_sorted:
        return PackedSequence(data, tensor(sizes, dtype=int64))
    back = sorted(range(len(order)), key=order.__getitem__)
    return PackedSequence(data, tensor(sizes, dtype=int64), _integers(order, x), _integers(back, x))


def _integers(numbers: Sequence[int], like: Tensor) -> Tensor:
    return tensor(list(numbers), dtype=int64, device=like.device)


def padded(packed: PackedSequence, padding_value: float = 0.0) -> Tensor:
    """Return the sequences padded, longest first: (length, batch, ...)."""
    sizes = packed.batch_sizes.tolist()
    starts = [sum(sizes[:t]) for t in range(len(sizes))]
    places = [starts[t] + n if n < size else 0 for t, size in enumerate(sizes) for n in range(sizes[0])]
    x = packed.data.index_select(0, _integers(places, packed.data))
    x = x.reshape(len(sizes), sizes[0], *packed.data.shape[1:])
    exists = present(packed.lengths(), len(sizes), packed.data)
    return x.where(exists.reshape(*exists.shape, *[1] * (x.dim() - 2)), padding_value)


def present(lengths: Sequence[int], steps: int, like: Tensor) -> Tensor:
    """Return the mask (steps, batch) of the steps that sequences have."""
    return arange(steps, device=like.device).unsqueeze(1) < _integers(lengths, like)


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return the padded tensor of packed sequences, and their lengths."""
    if not isinstance(sequence, PackedSequence):
        raise ArgumentError(
            f"pad_packed_sequence takes what pack_padded_sequence or pack_sequence gave, not {kind_of(sequence)}"
        )
    x, lengths = padded(sequence, padding_value), tensor(sequence.lengths(), dtype=int64)
    if sequence.unsorted_indices is not None:
        back = sequence.unsorted_indices
        x, lengths = x.index_select(1, back), lengths.index_select(0, back.cpu())
    if total_length is not None:
        if total_length < x.shape[0]:
            raise ArgumentError(f"pad_packed_sequence: total_length={total_length} is less than the {x.shape[0]} steps")
        rest = full((total_length - x.shape[0], *x.shape[1:]), padding_value, dtype=x.dtype, device=x.device)
        x = cat([x, rest])
    return (x.transpose(0, 1) if batch_first else x), lengths


def repacked(x: Tensor, packed: PackedSequence) -> PackedSequence:
    """Pack a padded tensor, longest first, like other packed sequences."""
    sizes = packed.batch_sizes.tolist()
    places = [t * sizes[0] + n for t, size in enumerate(sizes) for n in range(size)]
    return packed._replace(data=x.reshape(-1, *x.shape[2:]).index_select(0, _integers(places, x)))


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack sequences (length, ...)."""
    return pack_padded_sequence(pad_sequence(sequences), [x.shape[0] for x in sequences], False, enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """Return the sequences of a packed sequence."""
    x, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(x, lengths, batch_first=True)


def reverse_within_lengths(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """Reverse each sequence of (length, batch, width) within its length; padding stays."""
    steps = arange(x.shape[0], device=x.device).unsqueeze(1)
    ends = _integers(lengths, x)
    places = (ends - 1 - steps).where(steps < ends, steps)
    return x.gather(0, places.unsqueeze(-1).expand(x.shape))


def last_steps(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """Return the last step of each sequence of (length, batch, width)."""
    places = _integers([n - 1 for n in lengths], x).reshape(1, -1, 1)
    return x.gather(0, places.expand(1, *x.shape[1:])).squeeze(0)
