"""Workers of the loader: threads and processes, in order, with their errors, and gone when they should be."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.data import (
    ArrayDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    WeightedRandomSampler,
    get_worker_info,
)
from tilegrad.errors import ArgumentError, DataError

KINDS = [None, "fork", "spawn"]


class Numbers(Dataset[Any]):
    """Samples with nested parts, as a data set gives them that computes in Python."""

    def __len__(self) -> int:
        return 11

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full((2, 3), index, np.float32), "pair": (index, index / 2), "name": f"n{index}"}


class Faulty(Numbers):
    def __init__(self, how: str) -> None:
        self.how = how

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index == 5:
            match self.how:
                case "error":
                    raise KeyError("sample five is broken")
                case "strange error":
                    raise Strange("a", "b")
                case "death":
                    os.kill(os.getpid(), signal.SIGKILL)
                case "slow":
                    time.sleep(30)
        return super().__getitem__(index)


class Strange(Exception):
    """An exception that cannot be pickled: it takes two arguments and reports one."""

    def __init__(self, x: str, y: str) -> None:
        super().__init__(x)


class Who(Dataset[Any]):
    """Says which worker made a sample, and what it draws."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> list[int]:
        info = get_worker_info()
        assert info is not None
        drawn = [random.getrandbits(30), int(np.random.randint(1 << 30)), tg.randint(1 << 30, (1,)).item()]
        return [index, info.id, info.num_workers, os.getpid(), *drawn]


class Stream(IterableDataset[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        return iter(range(first, self.count, step))


def marked(number: int) -> None:
    os.environ["TEST_OF_WORKERS"] = str(number)


class Marks(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return int(os.environ["TEST_OF_WORKERS"])


def plain(x: Any) -> Any:
    if isinstance(x, tg.Tensor):
        return x.tolist()
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return [plain(v) for v in x] if isinstance(x, (list, tuple)) else x


def children_end() -> None:
    deadline = time.monotonic() + 10
    while multiprocessing.active_children() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("kind", KINDS)
def test_workers_give_what_the_loop_itself_gives(kind: str | None) -> None:
    def batches(workers: int, **settings: Any) -> Any:
        tg.manual_seed(3)
        loader = DataLoader(Numbers(), 3, shuffle=True, num_workers=workers, **settings)
        return [plain(list(loader)) for _ in range(2)]

    wanted = batches(0)
    assert wanted[0] != wanted[1], "each epoch has an order of its own"
    assert batches(2, multiprocessing_context=kind) == wanted
    if kind != "spawn":
        assert batches(3, multiprocessing_context=kind, persistent_workers=True, prefetch_factor=1) == wanted
    children_end()


@pytest.mark.parametrize("kind", [None, "fork"])
def test_errors_carry_the_place_in_the_worker(kind: str | None) -> None:
    loader = DataLoader(Faulty("error"), 2, num_workers=2, multiprocessing_context=kind)
    with pytest.raises(KeyError, match="sample five is broken") as caught:
        list(loader)
    if kind is not None:
        (note,) = caught.value.__notes__
        assert "in worker 0 of the DataLoader, a process" in note
        assert 'raise KeyError("sample five is broken")' in note
    children_end()


def test_errors_that_cannot_be_sent() -> None:
    with pytest.raises(DataError, match=r"worker 0 failed(.|\n)*raise Strange"):
        list(DataLoader(Faulty("strange error"), 2, num_workers=2, multiprocessing_context="fork"))
    children_end()


def test_a_worker_that_dies_is_an_error() -> None:
    with pytest.raises(DataError, match=r"worker 1 \(process \d+\) was ended by signal SIGKILL.*fewer workers"):
        list(DataLoader(Faulty("death"), 5, num_workers=2, multiprocessing_context="fork"))
    children_end()


@pytest.mark.parametrize("kind", [None, "fork"])
def test_timeout(kind: str | None) -> None:
    with pytest.raises(DataError, match="no batch within timeout=0.3 seconds"):
        list(DataLoader(Faulty("slow"), 5, num_workers=2, multiprocessing_context=kind, timeout=0.3))
    children_end()


def test_each_worker_draws_numbers_of_its_own_the_same_in_every_run() -> None:
    def drawn() -> Any:
        tg.manual_seed(7)
        loader = DataLoader(Who(), None, num_workers=2, multiprocessing_context="fork")
        return [[plain(sample) for sample in loader] for _ in range(2)]

    first, again = drawn(), drawn()
    for epoch, same in zip(first, again, strict=True):
        assert [s[:3] for s in epoch] == [[n, n % 2, 2] for n in range(8)]
        assert len({s[3] for s in epoch} | {os.getpid()}) == 3
        assert [s[4:] for s in epoch] == [s[4:] for s in same]
        for column in range(4, 7):
            assert len({s[column] for s in epoch}) == 8
    assert first[0][0][4:] != first[1][0][4:], "another epoch draws other numbers"


@pytest.mark.parametrize("kind", [None, "fork"])
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams(kind: str | None, workers: int) -> None:
    loader = DataLoader(Stream(10), 2, num_workers=workers, multiprocessing_context=kind)
    for _ in range(2):
        assert sorted(n for batch in loader for n in batch.tolist()) == list(range(10))
    whole = DataLoader(Stream(10), 3, num_workers=workers, multiprocessing_context=kind, drop_last=True)
    assert all(len(batch) == 3 for batch in whole)
    singles = DataLoader(Stream(5), None, num_workers=workers, multiprocessing_context=kind)
    assert sorted(x.item() for x in singles) == list(range(5))
    children_end()


def test_init_function_and_persistent_workers() -> None:
    loader = DataLoader(
        Marks(), None, num_workers=2, multiprocessing_context="fork", worker_init_fn=marked, persistent_workers=True
    )
    for _ in range(2):
        assert [x.item() for x in loader] == [0, 1, 0, 1]
    assert len(multiprocessing.active_children()) == 2
    iterator = iter(loader)
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]  # left early: the next epoch starts with workers of its own
    assert [x.item() for x in loader] == [0, 1, 0, 1]
    del loader, iterator
    children_end()


def test_two_threads_that_begin_at_once_have_workers_of_their_own() -> None:
    loader = DataLoader(Numbers(), 4, num_workers=1, persistent_workers=True, timeout=5)
    wanted = plain(list(loader))
    begin = threading.Barrier(2)

    def slowly(frame: Any, event: str, _: Any) -> Any:
        """After each line that begins a loop the other thread has its turn."""
        if frame.f_code.co_name in ("_ahead", "_idle_pool", "take"):
            time.sleep(0.002)
            return slowly
        return None

    def loop(_: int) -> Any:
        begin.wait(60)
        sys.settrace(slowly)
        try:
            return plain(list(loader))
        finally:
            sys.settrace(None)

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(loop, range(2))) == [wanted, wanted]
    assert plain(list(loader)) == wanted
    children_end()


def test_large_batches_of_many_numbers() -> None:
    """The numbers of a batch, and what is made of it, exceed what a pipe holds: no side may wait for the other."""
    x = np.arange(200_000.0)
    loader = DataLoader(
        ArrayDataset(x), 50_000, shuffle=True, num_workers=2, multiprocessing_context="fork", timeout=60
    )
    assert sum(batch.sum().item() for (batch,) in loader) == x.sum()


SCRIPT = """
import sys, time
from tilegrad.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, index):
        time.sleep(0.05)
        return index
print("ready", flush=True)
for batch in DataLoader(Slow(), 2, num_workers=2, multiprocessing_context="fork"):
    print(batch.tolist(), flush=True)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_nothing_is_left_behind(how: signal.Signals) -> None:
    """Ctrl-C reaches all processes of a group; a killed one cannot end its workers, which notice."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.stdout.readline()
    if how is signal.SIGINT:
        os.killpg(process.pid, how)
    else:
        process.kill()
    _, said = process.communicate(timeout=20)
    if how is signal.SIGINT:
        assert said.count("Traceback") == 1, said
        assert "KeyboardInterrupt" in said
    deadline = time.monotonic() + 10
    while _group(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _group(process.pid)


def _group(number: int) -> list[str]:
    """The processes of a group that are alive."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[2]) == number and fields[0] != "Z":
            found.append(status.parent.name)
    return found


def test_weighted_samples() -> None:
    tg.manual_seed(0)
    drawn = list(WeightedRandomSampler([0, 1, 3], 4000))
    counts = np.bincount(drawn, minlength=3)
    assert counts[0] == 0
    assert 2700 < counts[2] < 3300
    assert sorted(WeightedRandomSampler([0.5, 0, 2.0], 2, replacement=False)) == [0, 2]


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("total", [7, 8, 2])
def test_distributed_samples(total: int, drop_last: bool) -> None:
    parts = [DistributedSampler(range(total), 3, rank, seed=4, drop_last=drop_last) for rank in range(3)]
    for epoch in range(2):
        for part in parts:
            part.set_epoch(epoch)
        seen = [list(part) for part in parts]
        assert {len(s) for s in seen} == {len(parts[0])}
        together = [n for s in seen for n in s]
        assert len(set(together)) == (len(together) if drop_last else total)
    plain_order = [list(DistributedSampler(range(7), 3, rank, shuffle=False)) for rank in range(3)]
    assert plain_order == [[0, 3, 6], [1, 4, 0], [2, 5, 1]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DataLoader(Stream(3), shuffle=True), "an order of its own"),
        (lambda: DataLoader(3), "has __len__ and __getitem__"),  # type: ignore[arg-type]
        (lambda: DataLoader(Numbers(), persistent_workers=True), "needs num_workers"),
        (
            lambda: list(DataLoader(Numbers(), num_workers=1, multiprocessing_context="magic")),
            "it is None \\(threads\\)",
        ),
        (lambda: DataLoader(Stream(3), batch_size=0), "batch_size is 0"),
        (lambda: DataLoader(Numbers(), num_workers="2"), r"num_workers is an integer, not '2'"),  # type: ignore[arg-type]
        (lambda: DataLoader(Numbers(), num_workers=1, timeout="1s"), "timeout is '1s' .*, not a number"),  # type: ignore[arg-type]
        (lambda: WeightedRandomSampler([1.0, -1.0], 3), "at least 0"),
        (lambda: WeightedRandomSampler([1.0, 0.0], 2, replacement=False), "from 1 with a weight above 0"),
        (lambda: DistributedSampler(range(3), 2, 2), "rank 2 is not one of"),
    ],
)
def test_what_makes_no_sense(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()


def test_a_data_set_that_cannot_be_sent() -> None:
    class Local(Numbers):
        pass

    with pytest.raises(DataError, match="at the top of a module"):
        list(DataLoader(Local(), num_workers=1, multiprocessing_context="spawn"))
