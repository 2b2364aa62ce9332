"""Data sets made of others, and samples that are converted: against PyTorch's own."""

from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.recorded import pytorch
from tilegrad.data import ChainDataset, DataLoader, Dataset, IterableDataset, StackDataset, default_convert
from tilegrad.errors import ArgumentError, ShapeError

torch = pytorch()


class Count(IterableDataset[int]):
    def __init__(self, end: int) -> None:
        self.end = end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.end))

    def __len__(self) -> int:
        return self.end


def test_chain() -> None:
    chain = Count(3) + Count(2)
    assert isinstance(chain, ChainDataset)
    assert len(chain) == 5
    assert [x.tolist() for x in DataLoader(chain, batch_size=2)] == [[0, 1], [2, 0], [1]]
    with pytest.raises(ArgumentError, match="data set 1 is a list"):
        ChainDataset([Count(1), [1]])  # type: ignore[list-item]


def test_stack() -> None:
    x, y = [1.0, 2.0, 3.0], [4, 5, 6]
    theirs = torch.utils.data.StackDataset(x=x, y=y)
    ours = StackDataset(x=x, y=y)
    assert len(ours) == len(theirs)
    assert ours[1] == theirs[1]
    assert StackDataset(x, y)[2] == (3.0, 6)
    batch = next(iter(DataLoader(ours, batch_size=2)))
    assert batch["x"].tolist() == [1.0, 2.0]
    assert batch["y"].tolist() == [4, 5]
    with pytest.raises(ShapeError, match=r"\[1, 2\]"):
        StackDataset([1], [1, 2])
    with pytest.raises(ArgumentError, match="all with names or all without"):
        StackDataset([1], y=[1])


def test_samples_at_once() -> None:
    class Rows(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            raise AssertionError("one by one")

        def __getitems__(self, indices: list[int]) -> list[int]:
            return [10 * i for i in indices]

    assert [x.tolist() for x in DataLoader(Rows(), batch_size=2)] == [[0, 10], [20, 30]]


def test_default_convert() -> None:
    torch = pytest.importorskip("torch")
    pair = namedtuple("pair", "a b")
    sample = {"x": np.array([1.5]), "n": 3, "s": "a", "t": (np.float32(2), [np.array([1])]), "p": pair(np.ones(1), 2)}

    def plain(x: Any) -> Any:
        match x:
            case dict():
                return {k: plain(v) for k, v in x.items()}
            case tuple() | list():
                return type(x)(*map(plain, x)) if hasattr(x, "_fields") else type(x)(map(plain, x))
            case _:
                return x.tolist() if hasattr(x, "tolist") else x

    assert plain(default_convert(sample)) == plain(torch.utils.data.default_convert(sample))
