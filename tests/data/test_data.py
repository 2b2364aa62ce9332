"""Data sets, samplers and the loader."""

import gzip
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.data import (
    MNIST,
    ArrayDataset,
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    Digits,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    random_split,
    read_idx,
)
from tilegrad.errors import ArgumentError, DataError, ShapeError


def rows(batches: Any) -> list[int]:
    return [int(n) for batch in batches for n in batch.numpy().ravel()]


class Squares(Dataset[dict[str, Any]]):
    """Samples that have to be collated one by one."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full(2, index, np.float32), "pair": (index, float(index * index)), "name": f"n{index}"}


def test_digits() -> None:
    train, test = Digits(), Digits(train=False)
    assert (len(train), len(test)) == (1437, 360)
    assert train.images.shape == (1437, 1, 8, 8)
    assert Digits(flat=True).images.shape == (1437, 64)
    assert train.images.dtype == np.float32
    assert (train.images.min(), train.images.max()) == (0, 1)
    counts = np.bincount(train.labels) + np.bincount(test.labels)
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_come_in_order(workers: int, drop_last: bool) -> None:
    data = ArrayDataset(np.arange(10), np.arange(10) * 2)
    loader = DataLoader(data, batch_size=4, num_workers=workers, drop_last=drop_last)
    batches = list(loader)
    assert len(batches) == len(loader) == (2 if drop_last else 3)
    assert rows(x for x, _ in batches) == list(range(8 if drop_last else 10))
    assert rows(y for _, y in batches) == [2 * n for n in range(8 if drop_last else 10)]


def test_shuffling_is_seeded_and_new_each_epoch() -> None:
    loader = DataLoader(ArrayDataset(np.arange(50)), batch_size=8, shuffle=True)
    tg.manual_seed(1)
    first, second = (rows(x for (x,) in loader) for _ in range(2))
    tg.manual_seed(1)
    again = rows(x for (x,) in loader)
    assert sorted(first) == list(range(50))
    assert first != second
    assert first == again
    generator = tg.Generator().manual_seed(5)
    own = DataLoader(ArrayDataset(np.arange(50)), batch_size=8, shuffle=True, generator=generator)
    assert sorted(rows(x for (x,) in own)) == list(range(50))


@pytest.mark.parametrize("workers", [0, 2])
def test_nested_samples(workers: int) -> None:
    first, *_, last = DataLoader(Squares(), batch_size=3, num_workers=workers)
    np.testing.assert_array_equal(first["x"].numpy(), [[0, 0], [1, 1], [2, 2]])
    np.testing.assert_array_equal(first["pair"][1].numpy(), [0, 1, 4])
    assert first["name"] == ["n0", "n1", "n2"]
    assert last["x"].shape == (1, 2)


def test_own_collate_own_batches_single_samples() -> None:
    data = ArrayDataset(np.arange(6))
    assert list(DataLoader(data, batch_size=3, collate_fn=len)) == [3, 3]
    assert rows(x for (x,) in DataLoader(data, batch_sampler=[[5, 0], [1]])) == [5, 0, 1]
    assert [x.item() for (x,) in DataLoader(data, batch_size=None)] == list(range(6))


def test_tensor_dataset() -> None:
    data = TensorDataset(tg.arange(6).reshape(3, 2), tg.tensor([1.0, 2.0, 3.0]))
    x, y = next(iter(DataLoader(data, batch_size=2)))
    np.testing.assert_array_equal(x.numpy(), [[0, 1], [2, 3]])
    np.testing.assert_array_equal(y.numpy(), [1, 2])
    np.testing.assert_array_equal(data[2][0].numpy(), [4, 5])


def test_transform() -> None:
    data = ArrayDataset(np.arange(4.0), np.arange(4), transform=lambda x: x * 10)
    x, y = next(iter(DataLoader(data, batch_size=4)))
    assert x.tolist() == [0, 10, 20, 30]
    assert y.tolist() == [0, 1, 2, 3]


def test_workers_run_ahead_and_stop() -> None:
    class Slow(Dataset[int]):
        def __len__(self) -> int:
            return 1000

        def __getitem__(self, index: int) -> int:
            seen.append(index)
            return index

    seen: list[int] = []
    batches = iter(DataLoader(Slow(), batch_size=1, num_workers=1, prefetch_factor=4))
    next(batches)
    deadline = time.monotonic() + 5
    while len(seen) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert 4 <= len(seen) <= 6, "some batches are made ahead, not all"
    batches.close()  # type: ignore[attr-defined]
    while any(t.name.startswith("tilegrad-data") for t in threading.enumerate()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(t.name.startswith("tilegrad-data") for t in threading.enumerate())


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_in_a_sample_reaches_the_loop(workers: int) -> None:
    class Bad(Squares):
        def __getitem__(self, index: int) -> dict[str, Any]:
            raise KeyError(f"sample {index}")

    with pytest.raises(KeyError, match="sample 0"):
        list(DataLoader(Bad(), num_workers=workers))


def test_who_leaves_in_a_thread_leaves() -> None:
    class Leaving(Squares):
        def __getitem__(self, index: int) -> dict[str, Any]:
            sys.exit(3)

    with pytest.raises(SystemExit, match="3"):  # and the loop does not wait for a thread that has ended
        list(DataLoader(Leaving(), num_workers=2, timeout=20))


def test_a_sampler_of_ones_own() -> None:
    class Odd(Sampler[int]):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[int]:
            return iter([1, 3, 5])

    loader = DataLoader(range(6), 2, sampler=Odd())  # type: ignore[arg-type]
    assert [x.tolist() for x in loader] == [[1, 3], [5]]
    with pytest.raises(TypeError, match="Odd has no __len__"):
        len(loader)


def test_a_loop_within_a_loop() -> None:
    loader = DataLoader(range(6), 3, num_workers=1, persistent_workers=True, timeout=20)  # type: ignore[arg-type]
    for _ in range(2):
        assert [(x.tolist()[0], y.tolist()[0]) for x in loader for y in loader] == [(0, 0), (0, 3), (3, 0), (3, 3)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_set_with_a_length_does_not_end_early(workers: int) -> None:
    class Short(Squares):
        def __getitem__(self, index: int) -> dict[str, Any]:
            return next(iter([]))  # type: ignore[no-any-return]

    with pytest.raises(DataError, match="raised StopIteration"):
        list(DataLoader(Short(), num_workers=workers))


def test_samplers() -> None:
    assert list(SequentialSampler("abc")) == [0, 1, 2]
    assert sorted(RandomSampler(range(9))) == list(range(9))
    drawn = list(RandomSampler(range(3), replacement=True, num_samples=20))
    assert len(drawn) == 20
    assert set(drawn) <= {0, 1, 2}
    assert sorted(SubsetRandomSampler([4, 7, 9])) == [4, 7, 9]
    assert len(BatchSampler(SequentialSampler("abcde"), 2, drop_last=True)) == 2


def test_parts_of_data_sets() -> None:
    data = ArrayDataset(np.arange(10))
    parts = random_split(data, [0.7, 0.3], tg.Generator().manual_seed(0))
    assert [len(p) for p in parts] == [7, 3]
    assert sorted(int(p[i][0]) for p in parts for i in range(len(p))) == list(range(10))
    assert rows(x for (x,) in DataLoader(Subset(data, [3, 5, 7]), batch_size=2)) == [3, 5, 7]
    both = ConcatDataset([data, Subset(data, [1])])
    assert len(both) == len(data + Subset(data, [1])) == 11
    assert int(both[10][0]) == int(both[-1][0]) == 1


IMAGES = struct.pack(">HBBIII", 0, 8, 3, 2, 3, 3) + bytes(range(18))
LABELS = struct.pack(">HBBI", 0, 8, 1, 2) + b"\x07\x02"


def test_idx(tmp_path: Path) -> None:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(IMAGES)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(LABELS))
    data = MNIST(tmp_path)
    assert data.images.shape == (2, 1, 3, 3)
    assert data.labels.tolist() == [7, 2]
    assert data.images[1, 0, 2, 2] == np.float32(17 / 255)
    (tmp_path / "wide").write_bytes(struct.pack(">HBBI", 0, 13, 1, 2) + struct.pack(">ff", 1.5, -2))
    assert read_idx(tmp_path / "wide").tolist() == [1.5, -2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no file"),
        (b"", "not an IDX file: it starts with nothing"),
        (b"PNG..", "not an IDX file"),
        (IMAGES[:10], "ends within its header"),
        (IMAGES[:-1], r"says the shape \(2, 3, 3\), which takes 34 bytes; it has 33"),
        (gzip.compress(IMAGES)[:-9], "download it again"),
        (b"\x1f\x8bgarbage", "download it again"),
    ],
    ids=["missing", "empty", "foreign", "header", "short", "cut", "garbage"],
)
def test_damaged_idx(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "x"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_idx(path)


def test_mnist_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no train-images-idx3-ubyte.gz in"):
        MNIST(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(IMAGES)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">HBBI", 0, 8, 1, 1) + b"\x07")
    with pytest.raises(DataError, match="are no pairs"):
        MNIST(tmp_path, train=False)


def test_mnist(shared_data: Path) -> None:
    data = MNIST(shared_data / "mnist", train=False)
    assert len(data) == 10_000
    assert np.bincount(data.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ArrayDataset(), ArgumentError, "at least one array"),
        (lambda: ArrayDataset(np.ones(3), np.ones((4, 2))), ShapeError, r"\(3,\), \(4, 2\)"),
        (lambda: DataLoader(Squares(), shuffle=True, sampler=[0]), ArgumentError, "not both"),
        (lambda: DataLoader(Squares(), batch_size=0), ArgumentError, "batch_size is 0"),
        (lambda: DataLoader(Squares(), num_workers=-1), ArgumentError, "num_workers=-1"),
        (lambda: DataLoader(Squares(), batch_size=2, batch_sampler=[[1]]), ArgumentError, "decides batch_size"),
        (lambda: random_split(Squares(), [3, 3]), ArgumentError, "do not add up to the 7"),
        (lambda: RandomSampler("ab", num_samples=3), ArgumentError, "replacement=True"),
    ],
)
def test_what_makes_no_sense(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
