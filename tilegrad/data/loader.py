"""DataLoader: batches of a data set, made in the background while the last one is computed with."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, ShapeError
from .dataset import Dataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler

if TYPE_CHECKING:
    from ..random import Generator


class DataLoader:
    """Iterates over batches, as PyTorch's does.

    `num_workers` threads make batches ahead (`prefetch_factor` each); with 0 a batch is made when it
    is asked for. They are threads, not processes: what they do besides Python (reading, decoding,
    numpy) runs beside the training step, and nothing needs to be pickled.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Sampler | Iterable[int] | None = None,
        batch_sampler: Iterable[list[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        *,
        generator: Generator | None = None,
        prefetch_factor: int = 2,
    ) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise ArgumentError(
                f"DataLoader: a data set has __len__ and __getitem__; a {type(dataset).__name__} has not. Make one of "
                "arrays with TensorDataset(x, y), or derive from Dataset"
            )
        if sampler is not None and shuffle:
            raise ArgumentError("DataLoader: give either a sampler or shuffle=True, not both")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ArgumentError("DataLoader: batch_sampler decides batch_size, shuffle, sampler and drop_last itself")
        if num_workers < 0 or prefetch_factor < 1:
            given = f"num_workers={num_workers}, prefetch_factor={prefetch_factor}"
            raise ArgumentError(f"DataLoader: {given}: the first must be at least 0, the second at least 1")
        self.dataset = dataset
        self.batch_size = batch_size if batch_sampler is None else None
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.collate_fn = collate_fn
        if sampler is None:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        self.sampler = sampler
        if batch_sampler is None and batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)  # type: ignore[arg-type]
        self.batch_sampler = batch_sampler

    def __len__(self) -> int:
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        if self.batch_sampler is None:
            wanted: Iterator[Any] = iter(self.sampler)
            make: Callable[[Any], Any] = self._sample
        else:
            wanted = iter(self.batch_sampler)
            make = self._batch
        if not self.num_workers:
            return map(make, wanted)
        return self._ahead(make, wanted)

    def _sample(self, index: int) -> Any:
        sample = self.dataset[index]
        return self.collate_fn(sample) if self.collate_fn is not None else as_tensors(sample)

    def _batch(self, indices: list[int]) -> Any:
        if self.collate_fn is not None:
            return self.collate_fn([self.dataset[i] for i in indices])
        rows = getattr(self.dataset, "rows", None)
        columns = rows(indices) if rows is not None else None
        if columns is not None:
            return [as_tensors(column) for column in columns]
        return default_collate([self.dataset[i] for i in indices])

    def _ahead(self, make: Callable[[Any], Any], wanted: Iterator[Any]) -> Iterator[Any]:
        """What `make` gives for all that is wanted, in order, made by threads some batches ahead."""
        from concurrent.futures import Future, ThreadPoolExecutor

        pool = ThreadPoolExecutor(self.num_workers, thread_name_prefix="tilegrad-data")
        coming: deque[Future[Any]] = deque()
        try:
            for item in wanted:
                coming.append(pool.submit(make, item))
                if len(coming) > self.num_workers * self.prefetch_factor:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            # a loop that is left early must not wait for batches that nobody will see
            pool.shutdown(wait=False, cancel_futures=True)


def as_tensors(sample: Any) -> Any:
    """Arrays and numbers as tensors, in whatever they are nested."""
    from ..creation import from_numpy, tensor

    match sample:
        case np.ndarray():
            return from_numpy(np.ascontiguousarray(sample)) if sample.ndim else tensor(sample)
        case np.generic() | bool() | int() | float():
            return tensor(sample)
        case Mapping():
            return {key: as_tensors(value) for key, value in sample.items()}
        case tuple() | list():
            return type(sample)(as_tensors(value) for value in sample)
        case _:
            return sample


def default_collate(samples: Sequence[Any]) -> Any:
    """One batch of samples: numbers, arrays and tensors are stacked, in whatever they are nested."""
    from ..creation import tensor
    from ..joining import stack
    from ..tensor import Tensor

    first = samples[0]
    match first:
        case Tensor():
            return stack(list(samples))
        case np.ndarray() | np.generic():
            shapes = sorted({s.shape for s in samples})
            if len(shapes) > 1:
                raise ShapeError(
                    f"the samples of a batch have the shapes {', '.join(map(str, shapes))}: give them one shape, or "
                    "give "
                    "a collate_fn that joins them"
                )
            return as_tensors(np.stack(samples))
        case bool() | int() | float():
            return tensor(list(samples))
        case Mapping():
            return {key: default_collate([s[key] for s in samples]) for key in first}
        case tuple() | list():
            if len({len(s) for s in samples}) > 1:
                lengths = sorted({len(s) for s in samples})
                raise ArgumentError(f"the samples of a batch have {lengths} parts: give a collate_fn that joins them")
            return [default_collate(column) for column in zip(*samples, strict=True)]
        case _:
            return list(samples)
