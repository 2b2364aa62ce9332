"""Define data sets: collections with a length that return a sample for an index."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ..errors import ArgumentError, IndexRangeError, ShapeError
from ..functions.declared import publish
from ..functions.promotion import kind_of

if TYPE_CHECKING:
    from ..random import Generator

Sample = TypeVar("Sample")


class Dataset(ABC, Generic[Sample]):
    """The base of indexed data sets. Subclasses define `__getitem__` and `__len__`."""

    @abstractmethod
    def __getitem__(self, index: int) -> Sample: ...

    @abstractmethod
    def __len__(self) -> int: ...

    def __add__(self, other: Dataset[Sample]) -> ConcatDataset[Sample]:
        return ConcatDataset([self, other])


class IterableDataset(ABC, Generic[Sample]):
    """The base of data sets that are streams. Subclasses define `__iter__`.

    Each worker of a DataLoader iterates for itself: `get_worker_info()` says which samples are its own to give.
    """

    @abstractmethod
    def __iter__(self) -> Iterator[Sample]: ...

    def __add__(self, other: IterableDataset[Sample]) -> ChainDataset[Sample]:
        return ChainDataset([self, other])


class ArrayDataset(Dataset[tuple[Any, ...]]):
    """Rows of numpy arrays (or tensors); a batch is indexed from each array at once.

    >>> pairs = ArrayDataset(np.arange(6).reshape(3, 2), np.array([7, 8, 9]))
    >>> len(pairs), pairs[1][0]
    (3, array([2, 3]))
    """

    def __init__(self, *arrays: Any, transform: Callable[[Any], Any] | None = None) -> None:
        if not arrays:
            raise ArgumentError("a data set needs at least one array")
        if transform is not None and not callable(transform):
            raise ArgumentError(f"ArrayDataset: transform is called with each row; {kind_of(transform)} cannot be")
        self.arrays = tuple(np.asarray(x) for x in arrays)
        self.transform = transform
        lengths = [x.shape[0] if x.ndim else -1 for x in self.arrays]
        if len(set(lengths)) != 1 or lengths[0] < 0:
            shapes = ", ".join(str(tuple(x.shape)) for x in self.arrays)
            raise ShapeError(f"the arrays of a data set need the same number of rows, but their shapes are {shapes}")

    def __len__(self) -> int:
        return int(self.arrays[0].shape[0])

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        first, *others = (x[index] for x in self.arrays)
        return (self.transform(first) if self.transform else first, *others)

    def rows(self, indices: Sequence[int]) -> tuple[np.ndarray, ...] | None:
        """Return the rows with these indices, of each array; None where samples are transformed one by one."""
        if self.transform is not None:
            return None
        chosen = np.asarray(indices, dtype=np.int64)
        for index in chosen[(chosen >= len(self)) | (chosen < -len(self))]:
            raise IndexRangeError(
                f"there is no sample {index} in a data set of {len(self)} (0 to {len(self) - 1}): does the sampler "
                "belong "
                "to another data set?"
            )
        return tuple(x[chosen] for x in self.arrays)


class TensorDataset(ArrayDataset):
    """Rows of tensors."""

    def __init__(self, *tensors: Any) -> None:
        super().__init__(*(x.detach() if hasattr(x, "detach") else x for x in tensors))
        self.tensors = tensors

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        return tuple(x[index] for x in self.tensors)


class Subset(Dataset[Sample]):
    """A subset of a data set, given by indices."""

    def __init__(self, dataset: Dataset[Sample], indices: Sequence[int]) -> None:
        self.dataset = dataset
        self.indices = list(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Sample:
        if not -len(self) <= index < len(self):
            raise IndexRangeError(f"there is no sample {index} in a data set of {len(self)}")
        return self.dataset[self.indices[index]]

    def rows(self, indices: Sequence[int]) -> tuple[np.ndarray, ...] | None:
        inner = getattr(self.dataset, "rows", None)
        return inner([self.indices[i] for i in indices]) if inner is not None else None


class ConcatDataset(Dataset[Sample]):
    """A concatenation of data sets."""

    def __init__(self, datasets: Sequence[Dataset[Sample]]) -> None:
        if not datasets:
            raise ArgumentError("ConcatDataset needs at least one data set")
        self.datasets = list(datasets)
        self.ends = list(accumulate(len(d) for d in self.datasets))

    def __len__(self) -> int:
        return self.ends[-1]

    def __getitem__(self, index: int) -> Sample:
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexRangeError(f"there is no sample {index} in a data set of {len(self)}")
        which = next(n for n, end in enumerate(self.ends) if number < end)
        return self.datasets[which][number - self.ends[which] + len(self.datasets[which])]


class ChainDataset(IterableDataset[Sample]):
    """A concatenation of iterable data sets.

    >>> class Count(IterableDataset[int]):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> list(ChainDataset([Count(), Count()]))
    [0, 1, 2, 0, 1, 2]
    """

    def __init__(self, datasets: Iterable[IterableDataset[Sample]]) -> None:
        self.datasets = list(datasets)
        for n, dataset in enumerate(self.datasets):
            if not isinstance(dataset, IterableDataset):
                raise ArgumentError(
                    f"ChainDataset takes streams (IterableDataset), but data set {n} is a {type(dataset).__name__}: "
                    "ConcatDataset joins data sets with a length"
                )

    def __iter__(self) -> Iterator[Sample]:
        for dataset in self.datasets:
            yield from dataset

    def __len__(self) -> int:
        lengths: list[int] = [len(dataset) for dataset in self.datasets]  # type: ignore[arg-type]
        return sum(lengths)


class StackDataset(Dataset[Any]):
    """Data sets of one length, zipped: samples are tuples, or dicts where the data sets have names.

    >>> StackDataset([1, 2], ["a", "b"])[1], StackDataset(x=[1, 2], y=["a", "b"])[0]
    ((2, 'b'), {'x': 1, 'y': 'a'})
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            raise ArgumentError("StackDataset: give data sets, all with names or all without")
        for given in (*args, *kwargs.values()):
            if not hasattr(given, "__len__") or isinstance(given, type):
                raise ArgumentError(f"StackDataset: {kind_of(given)} is no data set: it has no length")
        self.datasets = args or kwargs
        lengths = [len(dataset) for dataset in (args or kwargs.values())]
        if len(set(lengths)) > 1:
            raise ShapeError(f"StackDataset: data sets of one length stand side by side, but these have {lengths}")
        self._length = lengths[0]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if isinstance(self.datasets, dict):
            return {name: dataset[index] for name, dataset in self.datasets.items()}
        return tuple([dataset[index] for dataset in self.datasets])


def random_split(
    dataset: Dataset[Sample], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[Sample]]:
    """Split a data set at random into parts of these lengths, or these fractions."""
    from ..random import randperm

    counts = _counts(len(dataset), lengths)
    order = randperm(len(dataset), generator=generator).tolist()
    ends = list(accumulate(counts))
    return [Subset(dataset, order[end - count : end]) for count, end in zip(counts, ends, strict=True)]


def _counts(total: int, lengths: Sequence[int | float]) -> list[int]:
    """Convert lengths or fractions to numbers of samples; the remainder is distributed round-robin.

    >>> _counts(10, [0.75, 0.25]), _counts(10, [4, 6])
    ([8, 2], [4, 6])
    """
    if any(isinstance(x, float) for x in lengths) and abs(sum(lengths) - 1) < 1e-6:
        counts = [int(total * x) for x in lengths]
        for n in range(total - sum(counts)):
            counts[n % len(counts)] += 1
    else:
        counts = [int(x) for x in lengths]
    if sum(counts) != total or min(counts, default=0) < 0:
        raise ArgumentError(
            f"random_split: the lengths {list(lengths)} do not add up to the {total} samples of the data set: "
            "give counts that do, or fractions whose sum is 1"
        )
    return counts


publish(globals())
