"""Operations on memory that foreign code may write to (arrays of numpy, DLPack) compute with what it held when they
were called, as in PyTorch; the tensor and its views see what it holds now.

Generated: owners x readers x changes x looks. The reference is numpy, run at once.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import config
from tilegrad.lazy import foreign_memory
from tilegrad.lazy.evaluation import live_bytes

Array = np.ndarray[Any, Any]
ROWS, COLUMNS = 6, 4
TWICE: Callable[[tg.Tensor], tg.Tensor] = tg.jit(lambda x: x * 2)


def numbers() -> Array:
    return np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)


@pytest.fixture(params=["compiled", "interpreted", "large"])
def tier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both tiers; and all memory as if it were large, so that smaller results are computed at once."""
    monkeypatch.setattr(foreign_memory, "MIN_COMPUTED_BYTES", 0 if request.param == "large" else 1 << 20)
    with config.changed(tier="compiled" if request.param == "compiled" else "interpreted"):
        yield


class Writable:
    """An array that DLPack has given, as a library sees it that writes to it."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def exported() -> tuple[tg.Tensor, Array]:
    x = tg.tensor(numbers())
    return x, np.asarray(Writable(np.from_dlpack(x)))


def imported() -> tuple[tg.Tensor, Array]:
    array = numbers()
    return tg.from_dlpack(array), array


def of_numpy() -> tuple[tg.Tensor, Array]:
    array = numbers()
    return tg.from_numpy(array), array


def not_copied() -> tuple[tg.Tensor, Array]:
    array = numbers()
    return tg.asarray(array, copy=False), array


def transposed() -> tuple[tg.Tensor, Array]:
    array = np.ascontiguousarray(numbers().T)
    return tg.from_numpy(array.T), array.T


def detached() -> tuple[tg.Tensor, Array]:
    array = numbers()
    return tg.from_numpy(array).requires_grad_().detach(), array


def wrapped() -> tuple[tg.Tensor, Array]:
    array = numbers()
    return tg.Tensor(tg.from_numpy(array)), array


OWNERS = (of_numpy, imported, not_copied, exported, transposed, detached, wrapped)
CASES = [
    pytest.param(tier, owner, id=f"{tier}-{owner.__name__}")
    for tier, owners in {"interpreted": OWNERS, "large": OWNERS[-4:], "compiled": (of_numpy, exported)}.items()
    for owner in owners
]

READERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "pointwise": (lambda x: x * 2 + 1, lambda x: x * 2 + 1),
    "twice": (lambda x: x * x, lambda x: x * x),
    "sum": (lambda x: x.sum(), lambda x: x.sum()),
    "maxima": (lambda x: x.max(0).indices + x.max(0).values, lambda x: x.argmax(0) + x.max(0)),
    "product": (lambda x: x.T @ x, lambda x: x.T @ x),
    "rows": (lambda x: x[tg.tensor([1, 3])], lambda x: x[[1, 3]]),
    "view": (lambda x: x[1:3] + 0, lambda x: x[1:3] + 0),
    "column": (lambda x: x[:, 2] - 1, lambda x: x[:, 2] - 1),
    "view of a view": (lambda x: x.T[1:][:, 2] * 3, lambda x: x.T[1:][:, 2] * 3),
    "reshaped": (lambda x: x.reshape(-1)[5:9].exp(), lambda x: np.exp(x.reshape(-1)[5:9])),
    "clone": (lambda x: x.clone(), lambda x: x.copy()),
    "joined": (lambda x: tg.cat([x, x[:1]]), lambda x: np.concatenate([x, x[:1]])),
    "written": (lambda x: tg.zeros(ROWS, COLUMNS).add_(x), lambda x: x + 0),
    "assigned": (lambda x: assigned(x), lambda x: x + 0),
    "dtype": (lambda x: x.double(), lambda x: x.astype(np.float64)),
    "mapped": (lambda x: tg.vmap(lambda row: row.sum())(x), lambda x: x.sum(1)),
    "jitted": (lambda x: TWICE(x), lambda x: x * 2),
}


def assigned(x: tg.Tensor) -> tg.Tensor:
    made = tg.zeros(ROWS, COLUMNS)
    made[:] = x
    return made


def all_of(array: Array) -> None:
    array[...] = -1


def one_of(array: Array) -> None:
    array[2, 2] = 99


def by_thread(array: Array) -> None:
    thread = threading.Thread(target=all_of, args=(array,))
    thread.start()
    thread.join()


def nothing(array: Array) -> None:
    """Leave it as it is."""


CHANGES = (all_of, one_of, by_thread, nothing)
LOOKS: dict[str, Callable[[Any], Array]] = {
    "directly": lambda y: y.numpy(),
    "through a later operation": lambda y: (y * 1).numpy(),
    "again": lambda y: (y.sum().item(), y.numpy())[1],
}


@pytest.mark.usefixtures("tier")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(("tier", "owner"), CASES, indirect=["tier"])
def test_operations_read_what_memory_holds_when_they_are_called(owner: Callable[[], Any], reader: str) -> None:
    ours, reference = READERS[reader]
    for (n, change), (look, seen) in itertools.product(enumerate(CHANGES), LOOKS.items()):
        x, array = owner()
        found = [ours(x)]
        expected = [reference(array.copy())]
        for later in (change, one_of, CHANGES[n - 1]):
            later(array)
            found.append(ours(x))
            expected.append(reference(array.copy()))
        for y, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(seen(y), wanted, rtol=1e-5, err_msg=f"{change.__name__}, {look}")
        np.testing.assert_array_equal(x.numpy(), array, err_msg="the tensor stays on the memory")


@pytest.mark.usefixtures("tier")
@pytest.mark.parametrize("look", ["tolist", "numpy", "sum"])
@pytest.mark.parametrize(("tier", "owner"), CASES, indirect=["tier"])
def test_views_see_later_writes(owner: Callable[[], Any], look: str) -> None:
    x, array = owner()
    views = {"row": (x[1], array[1]), "part": (x[1:5, ::2], array[1:5, ::2]), "transposed": (x.T, array.T)}
    for change in (nothing, one_of, all_of):
        change(array)
        for name, (view, expected) in views.items():
            found = view.sum().item() if look == "sum" else getattr(view, look)()
            np.testing.assert_allclose(found, expected.sum() if look == "sum" else expected, err_msg=name)


@pytest.mark.usefixtures("tier")
def test_gradients_are_those_of_the_elements_that_were_read() -> None:
    array, weight = numbers(), tg.full((COLUMNS,), 2.0, requires_grad=True)
    x = tg.from_numpy(array)
    loss = ((x * weight) ** 2).sum()
    array[...] = 100
    (loss + (x * weight).sum()).backward()
    assert weight.grad is not None
    expected = (2 * 2 * numbers() ** 2).sum(0) + 100 * ROWS
    np.testing.assert_allclose(weight.grad.numpy(), expected)


@pytest.mark.usefixtures("tier")
def test_leaves_on_memory_of_numpy() -> None:
    array = numbers()
    leaf = tg.nn.Parameter(tg.from_numpy(array))
    first = (leaf**2).sum()
    part = leaf[1:3].sum() * 10
    array[...] = 3
    second = (leaf**2).sum()
    (direct,) = tg.autograd.grad(second, [leaf])
    (first + part).backward()
    expected = 2 * numbers()
    expected[1:3] += 10
    np.testing.assert_array_equal(leaf.grad.numpy(), expected)  # type: ignore[union-attr]
    np.testing.assert_array_equal(direct.numpy(), np.full((ROWS, COLUMNS), 6))
    np.testing.assert_array_equal(leaf.detach().numpy(), array)


def test_a_value_saved_for_gradients_and_written_to_is_an_error() -> None:
    x, weight = tg.from_numpy(numbers()), tg.ones(COLUMNS, requires_grad=True)
    loss = (x * weight).sum()
    x += 1
    with pytest.raises(tg.errors.InPlaceError, match="add_"):
        loss.backward()


@pytest.mark.usefixtures("tier")
def test_training_on_one_buffer_that_is_filled_anew() -> None:
    def trained(share: Callable[[Array], tg.Tensor]) -> list[float]:
        model = tg.nn.Linear(COLUMNS, 1)
        with tg.no_grad():
            model.weight.fill_(0.1)
            model.bias.zero_()
        step = tg.optim.SGD(model.parameters(), lr=0.001)
        batch, losses = np.zeros((ROWS, COLUMNS), np.float32), []
        for n in range(5):
            batch[...] = numbers() / (n + 1)
            step.zero_grad()
            loss = (model(share(batch)) - 1).square().mean()
            loss.backward()
            step.step()
            losses.append(loss)
        return [loss.item() for loss in losses]

    np.testing.assert_allclose(trained(tg.from_numpy), trained(tg.tensor), rtol=1e-5)


def test_indices_are_checked_against_what_is_read() -> None:
    table, places = tg.arange(10.0), np.array([1, 2])
    index = tg.from_numpy(places)
    first = table[index]
    places[0] = 10
    with pytest.raises(IndexError):
        table[index].sum().item()
    assert first.tolist() == [1, 2]


def test_recorded_work_keeps_what_an_export_shares_later() -> None:
    x = tg.tensor(numbers())
    early = x * 2
    array = np.asarray(Writable(np.from_dlpack(x)))
    late = x * 2
    array[...] = 5
    np.testing.assert_array_equal(early.numpy(), 2 * numbers())
    np.testing.assert_array_equal(late.numpy(), 2 * numbers())
    np.testing.assert_array_equal(x.numpy(), array)


def test_snapshots_are_shared_and_bounded() -> None:
    array = np.ones((1 << 10, 1 << 10), np.float32)
    x = tg.from_numpy(array)
    before = live_bytes()
    held = [x * 2, x + 1, (x * 3).tanh()]
    assert live_bytes() - before == array.nbytes, "one snapshot while the bytes are the same"
    array[0] = 2
    held.append(x * 2)
    assert live_bytes() - before == 2 * array.nbytes
    del held
    assert live_bytes() == before
    few = x[tg.tensor([1, 2])], x.sum(), x.max(1)
    assert live_bytes() - before < array.nbytes // 4, "what is smaller than a snapshot is computed"
    del few
    views = [x[n : n + 2] * 2 for n in range(8)]
    assert live_bytes() - before <= 32 * array[0].nbytes, "of a view its part is copied"
    del views


def test_batches_of_a_loader_are_not_copied() -> None:
    samples = tg.data.TensorDataset(tg.tensor(numbers()))
    (batch,) = next(iter(tg.data.DataLoader(samples, batch_size=ROWS)))
    before = live_bytes()
    found = batch * 2
    assert live_bytes() == before
    np.testing.assert_array_equal(found.numpy(), 2 * numbers())
    arrays = list(numbers())
    row = next(iter(tg.data.DataLoader(arrays, batch_size=None)))
    twice = row * 2
    arrays[0][...] = 7
    np.testing.assert_array_equal(twice.numpy(), 2 * numbers()[0])


@pytest.mark.parametrize("most", [0, foreign_memory.MAX_BYTES_COPIED_TO_COMPARE])
def test_a_change_of_any_byte_is_seen(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_memory, "MAX_BYTES_COPIED_TO_COMPARE", most)
    array = np.zeros(300, np.int32)
    x, bits = tg.from_numpy(array), array.view(np.uint8)
    held = [x + 0]
    for n in (0, 1, 600, bits.size - 1):
        snapshot = x._snapshot
        held.append(x + 0)
        assert snapshot is not None
        assert x._snapshot is snapshot, "unchanged memory is read from one copy"
        bits[n] += 1
        held.append(x + 0)
    assert [int(np.count_nonzero(y.numpy().view(np.uint8))) for y in held] == [0, 0, 1, 1, 2, 2, 3, 3, 4]
