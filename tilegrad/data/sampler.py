"""Samplers: in which order the samples of a data set are visited, and in which batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Sized
from itertools import islice
from typing import TYPE_CHECKING

from ..errors import ArgumentError

if TYPE_CHECKING:
    from ..random import Generator


class Sampler(ABC):
    """Gives sample numbers in some order."""

    @abstractmethod
    def __iter__(self) -> Iterator[int]: ...

    @abstractmethod
    def __len__(self) -> int: ...


class SequentialSampler(Sampler):
    """The samples in their order.

    >>> list(SequentialSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """The samples in a new random order for each epoch; the order is that of `tg.randperm`."""

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source = data_source
        self.replacement = replacement
        self.num_samples = len(data_source) if num_samples is None else num_samples
        self.generator = generator
        if self.num_samples > len(data_source) and not replacement:
            raise ArgumentError(
                f"RandomSampler: {num_samples} samples of {len(data_source)} can only be drawn with replacement=True"
            )

    def __iter__(self) -> Iterator[int]:
        from ..random import randint, randperm

        total = len(self.data_source)
        if self.replacement:
            return iter(randint(0, total, (self.num_samples,), generator=self.generator).tolist())
        return iter(randperm(total, generator=self.generator).tolist()[: self.num_samples])

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Some samples, given by number, in a new random order for each epoch."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        from ..random import randperm

        return (self.indices[i] for i in randperm(len(self.indices), generator=self.generator).tolist())

    def __len__(self) -> int:
        return len(self.indices)


class BatchSampler:
    """Batches of the numbers that a sampler gives.

    >>> list(BatchSampler(SequentialSampler("abcde"), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Sampler, batch_size: int, drop_last: bool) -> None:
        if not isinstance(batch_size, int) or batch_size < 1:
            raise ArgumentError(f"batch_size is {batch_size!r}: it must be a whole number of at least 1")
        self.sampler = sampler
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        numbers = iter(self.sampler)
        while batch := list(islice(numbers, self.batch_size)):
            if len(batch) == self.batch_size or not self.drop_last:
                yield batch

    def __len__(self) -> int:
        whole, left = divmod(len(self.sampler), self.batch_size)
        return whole + (left > 0 and not self.drop_last)
