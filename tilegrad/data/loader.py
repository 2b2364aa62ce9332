"""Define `DataLoader`: batches of a data set, prepared in the background during computation."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, DataError, check_callable
from ..functions.creation import from_numpy
from ..random import initial_seed
from ..runtime import events
from .collate import as_tensors, batch_of, joined, pinned
from .dataset import Dataset, IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from .worker import WorkerPool, WorkerTask

if TYPE_CHECKING:
    from ..random import Generator


class Waiting:
    """An iterator over batches that reports the waiting time of each batch to profiles."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        start = events.now()
        batch = next(self.batches)
        if events.listeners:
            events.emit("load", "DataLoader", "cpu", start, events.now())
        return batch

    def close(self) -> None:
        """Stop the workers, as for a generator."""
        getattr(self.batches, "close", tuple)()


class DataLoader:
    """Iterate over the batches of a data set, as PyTorch's class does.

    `num_workers` workers make batches ahead (`prefetch_factor` each); with 0 a batch is made when it is asked for. They
    are threads: what they do besides Python (reading, decoding, numpy) runs beside the training step, and nothing is
    pickled. With `multiprocessing_context="fork"` (or "spawn", "forkserver") they are processes, for data sets that
    compute in Python. The order of the batches depends on the seed alone.
    """

    def __init__(
        self,
        dataset: Dataset[Any] | IterableDataset[Any],
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        sampler: Sampler | Iterable[int] | None = None,
        batch_sampler: Iterable[list[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        self.iterable = isinstance(dataset, IterableDataset)
        _check_dataset(dataset, self.iterable and (shuffle or sampler is not None or batch_sampler is not None))
        if sampler is not None and shuffle:
            raise ArgumentError("DataLoader: give either a sampler or shuffle=True, not both")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ArgumentError("DataLoader: batch_sampler decides batch_size, shuffle, sampler and drop_last itself")
        ahead = 2 if prefetch_factor is None else prefetch_factor
        _check_workers(num_workers, ahead, timeout, persistent_workers)
        _check_choices(collate_fn, sampler, batch_sampler)
        self.dataset = dataset
        self.batch_size = batch_size if batch_sampler is None else None
        self.drop_last = drop_last
        self.num_workers = num_workers
        self.prefetch_factor = ahead
        self.collate_fn = collate_fn
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.persistent_workers = persistent_workers
        self.pin_memory = pin_memory
        self.generator = generator
        if self.iterable:
            if batch_size is not None:
                BatchSampler((), batch_size, drop_last)  # type: ignore[arg-type]  # checks the size
            self.sampler = self.batch_sampler = None
        else:
            self._choose_samplers(sampler, batch_sampler, batch_size, bool(shuffle))
        self.epochs = 0
        self._pool: WorkerPool | None = None

    def _choose_samplers(self, sampler: Any, batch_sampler: Any, batch_size: int | None, shuffle: bool) -> None:
        if sampler is None:
            data: Any = self.dataset
            sampler = RandomSampler(data, generator=self.generator) if shuffle else SequentialSampler(data)
        self.sampler = sampler
        if batch_sampler is None and batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, self.drop_last)
        self.batch_sampler = batch_sampler

    def _order(self) -> Any:
        """Return the iterator over sample numbers, one by one or in batches."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def __len__(self) -> int:
        if not self.iterable:
            return len(self._order())
        count = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return count
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[Any]:
        if self.iterable:
            wanted: Iterator[Any] = repeat(None)
        else:
            wanted = iter(self._order())
        self.epochs += 1
        batches = self._ahead(wanted) if self.num_workers else self._here(wanted)
        return Waiting(map(pinned, batches) if self.pin_memory else batches)

    def _maker(self) -> BatchMaker:
        return BatchMaker(
            self.dataset, self.collate_fn, self.batch_size, self.iterable, self.batch_sampler, self.drop_last
        )

    def _here(self, wanted: Iterator[Any]) -> Iterator[Any]:
        make = self._maker()()
        for item in wanted:
            try:
                made = make(item)
            except StopIteration:
                return
            yield self._converted(made)

    def _ahead(self, wanted: Iterator[Any]) -> Iterator[Any]:
        seed = initial_seed() if self.generator is None else self.generator.initial_seed()
        pool = self._idle_pool()
        finished = False
        try:
            # drawn from nothing: with workers the same order comes as without
            for made in pool.batches(wanted, (seed + self.epochs * 1_000_003) % 2**63):
                yield self._converted(made)
            finished = True
        finally:
            if pool is not self._pool or not finished:
                pool.close()
            pool.taken.release()

    def _converted(self, made: Any) -> Any:
        """Convert arrays to tensors, unless the user's function has made the batch."""
        if self.collate_fn is not None:
            return made
        is_batch = self.batch_size is not None or self.batch_sampler is not None
        return batch_of(made) if is_batch else as_tensors(made, from_numpy)  # a sample is the data set's own

    def _idle_pool(self) -> WorkerPool:
        """Return workers for a loop; a nested loop over the same loader, or one in another thread, gets workers of its
        own.
        """
        kept = self._pool
        return kept if kept is not None and kept.take() else self._new_pool()

    def _new_pool(self) -> WorkerPool:
        context = self.multiprocessing_context
        if isinstance(context, str):
            import multiprocessing

            if context not in multiprocessing.get_all_start_methods():
                known = ", ".join(map(repr, multiprocessing.get_all_start_methods()))
                raise ArgumentError(f"DataLoader: multiprocessing_context={context!r}: it is None (threads), {known}")
            context = multiprocessing.get_context(context)
        job = WorkerTask(self.dataset, self._maker(), self.worker_init_fn, self.num_workers)
        pool = WorkerPool(job, context, self.prefetch_factor, self.timeout)
        pool.take()
        if self.persistent_workers:
            self._pool = pool
            weakref.finalize(self, pool.close)
        return pool


class BatchMaker:
    """A function that makes batches (or single samples), here or in a worker; a call begins an epoch."""

    def __init__(
        self,
        dataset: Any,
        collate: Callable[[Any], Any] | None,
        size: int | None,
        iterable: bool,
        batches: Any,
        drop_last: bool,
    ) -> None:
        self.dataset = dataset
        self.collate = collate
        self.size = size
        self.iterable = iterable
        self.single = size is None if iterable else batches is None
        self.drop_last = drop_last

    def __call__(self) -> Callable[[Any], Any]:
        if not self.iterable:
            return partial(_lasting, self.sample if self.single else self.batch)
        samples = iter(self.dataset)
        return lambda _: self.collated(next(samples)) if self.single else self.next_batch(samples)

    def collated(self, sample: Any) -> Any:
        return sample if self.collate is None else self.collate(sample)

    def sample(self, index: int) -> Any:
        return self.collated(self.dataset[index])

    def batch(self, indices: list[int]) -> Any:
        if self.collate is not None:
            return self.collate(self.samples(indices))
        rows = getattr(self.dataset, "rows", None)
        columns = rows(indices) if rows is not None else None
        return joined(self.samples(indices)) if columns is None else list(columns)

    def samples(self, indices: list[int]) -> list[Any]:
        """Return samples, by one call if the data set has `__getitems__`."""
        at_once = getattr(self.dataset, "__getitems__", None)
        return list(at_once(indices)) if at_once is not None else [self.dataset[i] for i in indices]

    def next_batch(self, samples: Iterator[Any]) -> Any:
        batch = list(islice(samples, self.size))
        if not batch or (self.drop_last and len(batch) != self.size):
            raise StopIteration
        return joined(batch) if self.collate is None else self.collate(batch)


def _lasting(make: Callable[[Any], Any], item: Any) -> Any:
    """Return the batch; a StopIteration from a data set with a length becomes an error, as it would end the loop."""
    try:
        return make(item)
    except StopIteration as stop:
        raise DataError(
            f"DataLoader: making {item!s:.60} of the data set raised StopIteration, though it has a length: was next() "
            "called once too often in it?"
        ) from stop


def _check_choices(collate_fn: Any, sampler: Any, batch_sampler: Any) -> None:
    if collate_fn is not None:
        check_callable(collate_fn, "DataLoader: collate_fn")
    for name, given in {"sampler": sampler, "batch_sampler": batch_sampler}.items():
        if given is not None and not isinstance(given, Iterable):
            raise ArgumentError(f"DataLoader: {name} gives numbers of samples one by one; {given!r} cannot be iterated")


def _check_workers(count: int, ahead: int, timeout: float, persistent: bool) -> None:
    numbers = hasattr(count, "__index__") and hasattr(ahead, "__index__") and hasattr(timeout, "__float__")
    if not numbers or count < 0 or ahead < 1 or timeout < 0:
        given = f"num_workers={count!r}, prefetch_factor={ahead!r}, timeout={timeout!r}"
        raise ArgumentError(
            f"DataLoader: {given}: the first is a whole number of at least 0, the second of at least 1, the last "
            "seconds"
        )
    if persistent and not count:
        raise ArgumentError("DataLoader: persistent_workers=True needs num_workers of at least 1")


def _check_dataset(dataset: Any, ordered: Any) -> None:
    if isinstance(dataset, IterableDataset):
        if ordered:
            raise ArgumentError("DataLoader: an IterableDataset has an order of its own: no shuffle, no sampler")
    elif not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        raise ArgumentError(
            f"DataLoader: a data set has __len__ and __getitem__; a {type(dataset).__name__} has not. Make one of "
            "arrays with TensorDataset(x, y), or derive from Dataset or IterableDataset"
        )
