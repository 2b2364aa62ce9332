"""Define samplers: the order in which samples are visited, and their batches."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence, Sized
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError

if TYPE_CHECKING:
    from ..random import Generator


class Sampler(ABC):
    """The base of samplers. Subclasses need a `__len__` only if the length is asked for."""

    def __class_getitem__(cls, kind: Any) -> type[Sampler]:
        """Allow `Sampler[int]`, as PyTorch's samplers do."""
        return cls

    @abstractmethod
    def __iter__(self) -> Iterator[int]: ...

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} has no __len__: define it, so that its length is known")


class SequentialSampler(Sampler):
    """Visit the samples in order.

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
    """Visit the samples in a new random order in each epoch; the order is that of `tg.randperm`."""

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
        if num_samples is not None and (type(num_samples) is not int or num_samples < 1):
            raise ArgumentError(f"RandomSampler: num_samples={num_samples!r}: give a whole number of at least 1")
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
    """Visit the given samples in a new random order in each epoch."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices = indices
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        from ..random import randperm

        return (self.indices[i] for i in randperm(len(self.indices), generator=self.generator).tolist())

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Draw samples with probabilities proportional to weights."""

    def __init__(
        self,
        weights: Sequence[float],
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        from ..functions.creation import as_tensor
        from ..ir.dtype import float64

        self.weights = as_tensor(weights).to(float64)
        if not isinstance(num_samples, int) or num_samples < 1:
            raise ArgumentError(f"WeightedRandomSampler: num_samples is {num_samples!r}: it must be at least 1")
        if self.weights.dim() != 1 or not bool((self.weights >= 0).all()) or not bool((self.weights > 0).any()):
            raise ArgumentError("WeightedRandomSampler: weights are one row of numbers of at least 0, not all 0")
        positive = int((self.weights > 0).sum().item())
        if not replacement and num_samples > positive:
            raise ArgumentError(
                f"WeightedRandomSampler: {num_samples} samples cannot be drawn from {positive} with a weight above 0 "
                "without replacement"
            )
        self.num_samples = num_samples
        self.replacement = replacement
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        from ..random import multinomial

        drawn = multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class DistributedSampler(Sampler):
    """Visit the share of one of several processes; together they visit all samples.

    Which they are follows from `seed` and `set_epoch`, not from the process. Parts are made equal by visiting some
    samples twice, or with `drop_last` by leaving some out.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        count = int(os.environ.get("WORLD_SIZE", "1")) if num_replicas is None else num_replicas
        own = int(os.environ.get("RANK", "0")) if rank is None else rank
        if not 0 <= own < count:
            raise ArgumentError(f"DistributedSampler: rank {own} is not one of num_replicas={count} (0 to {count - 1})")
        self.dataset = dataset
        self.num_replicas = count
        self.rank = own
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = 0
        total = len(dataset)
        self.num_samples = total // count if drop_last else math.ceil(total / count)
        self.total_size = self.num_samples * count

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the order of the next iteration."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        from ..random import Generator, randperm

        total = len(self.dataset)
        order = list(range(total))
        if self.shuffle:
            order = randperm(total, generator=Generator().manual_seed(self.seed + self.epoch)).tolist()
        repeats = -(-self.total_size // max(total, 1))
        return iter((order * repeats)[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler:
    """Group the numbers of a sampler into batches.

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
