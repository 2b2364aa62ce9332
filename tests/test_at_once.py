"""Elements that are read, written and combined at once are those of recorded work, and PyTorch's."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import InPlaceError
from tilegrad.lazy import at_once, few_elements

torch: Any = pytest.importorskip("torch")
DTYPES = ("float32", "float64", "int64", "int32", "int16", "uint8", "bool", "float16", "bfloat16")
MANY = 8


@contextmanager
def recorded() -> Iterator[None]:
    """Record everything, as if no element could be accessed."""
    with (
        mock.patch.object(at_once, "element_access", return_value=None),
        mock.patch.object(few_elements, "kind_of", return_value=None),
    ):
        yield


class Run:
    """One random program, run by one library; `look` reads after each step."""

    def __init__(self, library: Any, seed: int, dtype: str, look: bool) -> None:
        self.t, self.random, self.look = library, random.Random(seed), look
        self.dtype = getattr(library, dtype)
        self.is_float, self.is_bool = dtype.startswith(("float", "bf")), dtype == "bool"
        self.seen: list[Any] = []
        self.tensors = [self.made((4, 5)), self.made((6,)), self.made((2, 3, 2)), self.made((3,))]
        self.views: list[Any] = []
        self.items: list[Any] = []
        self.kept: list[Any] = []

    def number(self) -> Any:
        n = self.random.randint(0, 9)
        return bool(n % 2) if self.is_bool else n / 4 if self.is_float else n

    def made(self, shape: tuple[int, ...]) -> Any:
        count = int(np.prod(shape))
        numbers = [self.number() for _ in range(count)]
        kind = self.random.randrange(3)
        if kind == 0:
            return self.t.full(shape, numbers[0], dtype=self.dtype)
        made = self.t.tensor(numbers, dtype=self.dtype).reshape(shape)
        return made if kind == 1 else made.clone()

    def key(self, shape: tuple[int, ...], items: bool = False) -> Any:
        found = []
        for extent in shape[: None if items else self.random.randint(1, len(shape))]:
            if items or self.random.random() < 0.6:
                found.append(self.random.randrange(-extent, extent))
            else:
                start = self.random.randrange(extent)
                found.append(slice(start, self.random.choice([None, start + 1, extent]), self.random.choice([None, 2])))
        return found[0] if len(found) == 1 and self.random.random() < 0.5 else tuple(found)

    def any(self) -> Any:
        return self.random.choice([x for x in self.tensors + self.views if x.ndim])

    def operand(self) -> Any:
        choice = self.random.randrange(3)
        if choice == 0 or not self.items:
            return self.number()
        return self.random.choice(self.items) if choice == 1 else self.item()

    def item(self) -> Any:
        whole = self.any()
        return whole[self.key(tuple(whole.shape), items=True)]

    def step(self) -> None:
        kinds = [self.look_up, self.look_up, self.view, self.fill, self.fill, self.copy, self.combine, self.combine]
        vectors = [self.combine_vectors, self.combine_vectors, self.change_vector, self.add_up]
        self.random.choice([*kinds, *vectors, self.divide, self.change, self.change_item, self.turn])()

    def look_up(self) -> None:
        self.items.append(self.item())

    def view(self) -> None:
        whole = self.any()
        self.views.append(whole[self.key(tuple(whole.shape))])

    def fill(self) -> None:
        whole = self.any()
        whole[self.key(tuple(whole.shape))] = self.operand()

    def copy(self) -> None:
        whole, other = self.any(), self.any()
        key = self.key(tuple(whole.shape))
        if tuple(whole[key].shape) == tuple(other.shape):
            whole[key] = other.clone()  # PyTorch refuses what overlaps
        elif whole[key].ndim:
            whole[key] = whole[key][:1].clone()

    def combine(self) -> None:
        x, y = self.item(), self.operand()
        if not self.is_bool:
            self.items.append(self.random.choice([x + y, x - y, y - x, x * y]))
        self.items.append(self.random.choice([x < y, x == y, x >= y]).to(self.dtype))

    def divide(self) -> None:
        x, y = self.item(), self.operand()
        if self.is_float:
            self.items.append(x / (y + 1))

    def change(self) -> None:
        x = self.random.choice(self.items) if self.items else self.item()
        if not self.is_bool:
            x += self.operand()

    def change_item(self) -> None:
        whole = self.any()
        if not self.is_bool:
            whole[self.key(tuple(whole.shape), items=True)] *= self.operand()

    def vectors(self) -> tuple[Any, Any]:
        """Return a tensor or view, and another of its shape, itself in another order, or a number."""
        x = self.any()
        others = [y for y in self.tensors + self.views if tuple(y.shape) == tuple(x.shape)]
        return x, self.random.choice([*others, x.flip(0), self.operand(), self.operand()])

    def combine_vectors(self) -> None:
        x, y = self.vectors()
        if self.is_bool:
            self.tensors.append(x == y)
            return
        made = self.random.choice(
            [x + y, x - y, y - x, x * y, -x, x.add(y), 2 - x, 1.5 * x if self.is_float else 3 * x]
        )
        self.tensors.append(made)
        self.views.append(self.random.choice([x < y, x == y, x >= y, x != 1, 2 > x]).to(self.dtype))
        if self.is_float:
            self.tensors.append(self.random.choice([x / 4, x / (y * y + 1), 1 / (x * x + 1)]))

    def change_vector(self) -> None:
        x, y = self.vectors()
        if not self.is_bool:
            x += y.clone() if hasattr(y, "clone") else y

    def add_up(self) -> None:
        self.items.append((self.any() > 1).sum().to(self.dtype))

    def turn(self) -> None:
        """Make other views, pending work that reads old elements, and copies."""
        x = self.random.choice(self.tensors)
        kind = self.random.randrange(6)
        if kind < 3:
            self.views.append([x.reshape(-1), x.permute(*reversed(range(x.ndim))), x.detach()][kind])
        elif kind < 5:
            self.tensors.append([x.clone(), x ^ x if self.is_bool else x + x][kind - 3])
        else:
            self.kept.append(x.clone())

    def run(self) -> list[Any]:
        for _ in range(30):
            self.step()
            if self.look:
                self.seen.append(self.item().item())
        tensors = self.tensors + self.views
        shown = [x.tolist() for x in tensors + self.items + self.kept]
        return [shown, self.seen, [x._version for x in tensors]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("look", [False, True])
def test_random_programs(dtype: str, look: bool) -> None:
    for seed in range(MANY):
        expected, got = Run(torch, seed, dtype, look).run(), Run(tg, seed, dtype, look).run()
        assert repr(got) == repr(expected), seed
    with recorded():
        assert repr(Run(tg, seed, dtype, look).run()) == repr(got)


def gradients(t: Any, seed: int) -> list[Any]:
    """Assign items of a leaf, of what is computed from it, and of plain tensors to one another, and differentiate."""
    chosen = random.Random(seed)
    p = t.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    plain = [t.tensor([5.0, 6.0, 7.0]), t.tensor([1.0, 2.0, 3.0, 4.0, 5.0])]
    made = [*plain, p * 2, p.detach()]
    for _ in range(8):
        x, y = chosen.choice(made), chosen.choice([*made, p])
        n, m = chosen.randrange(3), chosen.randrange(3)
        match chosen.randrange(4):
            case 0:
                x[n] = y[m] * chosen.choice([2.0, p[1]])
            case 1:
                x[n] += y[m]
            case 2:
                made.append(x * 1.5 + y[m])
            case 3:
                x[n : n + 1] = y[m]
    total = sum((x * x).sum() for x in made) + (p * p).sum()
    try:
        total.backward()
    except RuntimeError:
        return ["changed"]
    return [total.item(), p.grad.tolist(), [x.tolist() for x in made], [x.requires_grad for x in made]]


def test_gradients_of_items() -> None:
    for seed in range(MANY):
        expected, got = gradients(torch, seed), gradients(tg, seed)
        if expected != ["changed"]:  # PyTorch also refuses changes of what a gradient does not read
            assert got == expected, seed
        with recorded():
            assert gradients(tg, seed) == got, seed


def test_pending_work_and_arrays_keep_the_old_elements() -> None:
    x = tg.tensor([1.0, 2.0, 3.0])
    pending, array, item = x * 2, x.numpy(), x[0]
    x[0] = 7.0
    after = x * 2
    x[0] += 1
    assert (pending.tolist(), array.tolist()) == ([2, 4, 6], [1, 2, 3])
    assert (after.tolist(), x.tolist(), item.item()) == ([14, 4, 6], [8, 2, 3], 8)


def test_overlapping_parts_read_before_they_write() -> None:
    x, expected = tg.arange(8).float(), np.arange(8.0)
    tg.compute(x)
    x[1:7] = x[0:6]
    x[::2] = x[4:]
    expected[1:7] = expected[0:6].copy()
    expected[::2] = expected[4:].copy()
    assert x.tolist() == expected.tolist()


def test_memory_of_others_is_not_written_to() -> None:
    array = np.zeros(3, np.float32)
    x = tg.from_numpy(array)
    with recorded():
        y = tg.from_numpy(array.copy())
        y[1] = 2
    x[1] = 2
    assert (x.tolist(), array.tolist()) == (y.tolist(), [0, 0, 0])


def test_items_of_arrays_are_those_of_the_array() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    x, expected = tg.from_numpy(array), torch.from_numpy(array)
    items, views = (x[1, 2], expected[1, 2]), (x[0], expected[0])
    made = items[0] * 2, items[1] * 2
    array[1, 2], array[0, 1] = 50, 60
    for found, wanted in (items, views, made, (views[0] + 1, views[1] + 1), (items[0] * 2, items[1] * 2)):
        assert found.tolist() == wanted.tolist()
    x[0, 0] = 7.0  # from here on the tensor has memory of its own
    array[0, 1] = 70
    assert (x.tolist(), items[0].item(), views[0].tolist()) == ([[7, 60, 2], [3, 4, 50]], 50, [7, 60, 2])
    assert array.tolist() == [[0, 70, 2], [3, 4, 50]]


@pytest.mark.parametrize("shared", [False, True])
def test_nothing_is_compiled_for_items(shared: bool) -> None:
    t, a, b = tg.zeros(4, 4), tg.ones(4, 4), tg.full((4, 4), 2.0)
    if shared:
        t, a = tg.from_numpy(np.zeros((4, 4), np.float32)), tg.from_numpy(np.ones((4, 4), np.float32))
    with mock.patch("tilegrad.lazy.realize.realize") as ran:
        for i in range(4):
            for j in range(4):
                for k in range(4):
                    t[i, j] += a[i, k] * b[k, j]
        assert not ran.called
    assert t.tolist() == [[8.0] * 4] * 4


def test_wrong_items_raise_as_before() -> None:
    x = tg.zeros(3)
    with pytest.raises(IndexError):
        x[3]
    with pytest.raises(IndexError):
        x[-4] = 1
    with pytest.raises(InPlaceError):
        tg.zeros(1).expand(3)[0] = 1.0
    with pytest.raises(tg.errors.TilegradError):
        x[0:2] = tg.zeros(3)


def test_an_item_of_recorded_work_computes_all_of_it_once() -> None:
    x = tg.arange(6).reshape(2, 3) * 2
    first = x[1, 2]
    assert x.value.buffer is not None
    assert (first.item(), x[0, 1].item(), [y.item() for y in x[1]]) == (10, 2, [6, 8, 10])


def test_items_of_arguments_are_recorded() -> None:
    @tg.jit
    def f(x: tg.Tensor) -> tg.Tensor:
        x[1] = x[0] * 2
        return x[1] + x[2]

    for n in range(3):
        assert f(tg.tensor([1.0, 2.0, 3.0]) + n).item() == 5 + 3 * n
    assert tg.vmap(lambda x: x[0] * x[1])(tg.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist() == [2, 12]
