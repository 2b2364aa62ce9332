"""Implement `torch.utils.data`: data sets and the loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .. import data
from .doors import missing


class Batches:
    """An iterator over the batches of an epoch, with the method `next` of old scripts."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self.batches = batches

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        return next(self.batches)

    next = __next__


class DataLoader(data.DataLoader):
    """Iterate over the batches of a data set.

    >>> iter(DataLoader([1, 2, 3, 4], batch_size=2)).next()
    tensor([1, 2])
    """

    def __iter__(self) -> Iterator[Any]:
        return Batches(super().__iter__())


def __getattr__(name: str) -> Any:
    try:
        return getattr(data, name)
    except AttributeError:
        raise missing("torch.utils.data", name, data.__all__) from None
