"""Ownership of memory: random programs copy, view, detach and keep tensors while jitted functions, kernels and in-place
operations write to them, against a model in numpy. Every handle is checked at every point.
"""

from __future__ import annotations

import copy
import gc
import io
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl

SHAPES = ((4,), (2, 3), (1,), (3, 2))


@tg.kernel
def doubled(x, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    tl.store(x + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@tg.kernel
def halved_into(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) / 2, mask=i < n)


class Handle(NamedTuple):
    """A tensor, and the part of an array that it must show."""

    tensor: Any
    array: Any


class Program:
    """A random program: what it did is in `log`, to be read when it fails."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.log: list[str] = []
        self.handles: list[Handle] = []
        self.frozen: list[tuple[Callable[[], Any], Any]] = []
        """Results that must not change, and how to read them."""
        self.jitted: list[Callable[[], None]] = []
        self.shown: dict[int, Any] = {}
        """The array of each tensor that jitted functions write to."""
        for _ in range(2):
            self.make()
        for _ in range(2):
            self.jit()

    def pick(self) -> Handle:
        place = self.draw.randrange(len(self.handles))
        self.log[-1:] = [f"{self.log[-1]} {place}"] if self.log else []
        return self.handles[place]

    def keep(self, tensor: Any, array: Any) -> None:
        self.log.append(f"  {len(self.handles)}: a tensor of shape {list(array.shape)}")
        self.handles.append(Handle(tensor, array))
        self.shown[id(tensor)] = array

    # --- what happens ---------------------------------------------------------------------------

    def make(self) -> None:
        shape = self.draw.choice(SHAPES)
        array = np.array([float(self.draw.randrange(-4, 5)) for _ in range(int(np.prod(shape)))]).reshape(shape)
        kind = self.draw.randrange(4)
        if kind == 0:
            self.keep(tg.nn.Parameter(tg.tensor(array)), array)
        elif kind == 1:
            self.keep(tg.zeros(*shape, dtype=tg.float64), np.zeros(shape))
        else:
            self.keep(tg.tensor(array), array)

    def jit(self) -> None:
        """A jitted function that updates a tensor, and perhaps gives copies of it."""
        h, kind, k = self.pick(), self.draw.randrange(5), float(self.draw.randrange(1, 4))
        x = h.tensor

        def run() -> Any:
            with tg.no_grad():
                x.add_(k)
                return None if kind < 2 else (x.clone(), x.detach() + 0) if kind < 4 else x.detach().neg().neg()

        step = tg.jit(run)

        def call() -> None:
            results, array = step(), self.shown[id(x)]
            array[...] += k
            for y in results if isinstance(results, tuple) else [] if results is None else [results]:
                self.keep(y, array.copy())

        self.jitted.append(call)

    def reading_jit(self) -> None:
        """A jitted function that gives what it only reads."""
        x = self.pick().tensor
        read = tg.jit(lambda: (x.detach().clone(), x.detach().reshape(-1) * 1))

        def call() -> None:
            (first, second), array = read(), self.shown[id(x)]
            self.keep(first, array.copy())
            self.keep(second, array.copy().reshape(-1))

        self.jitted.append(call)
        call()

    def call(self) -> None:
        for _ in range(self.draw.randrange(1, 5)):
            self.draw.choice(self.jitted)()

    def call_with_argument(self) -> None:
        x, array = self.pick()
        with tg.no_grad():
            if x.requires_grad:
                x = x.detach()
            tg.jit(lambda y: y.mul_(-1))(x)
        array[...] *= -1

    def clone(self) -> None:
        x, array = self.pick()
        self.keep(x.clone(), array.copy())

    def deepcopy(self) -> None:
        x, array = self.pick()
        if x.is_leaf:
            self.keep(copy.deepcopy({"x": x})["x"], array.copy())

    def saved(self) -> None:
        x, array = self.pick()
        file = io.BytesIO()
        tg.save({"x": x.detach()}, file)
        file.seek(0)
        self.keep(tg.load(file)["x"], array.copy())

    def detach(self) -> None:
        x, array = self.pick()
        self.keep(x.detach() if self.draw.random() < 0.5 else x.data, array)

    def view(self) -> None:
        x, array = self.pick()
        if array.ndim == 0 or array.shape[0] < 2:
            return
        kind = self.draw.randrange(3)
        if kind == 0:
            self.keep(x.detach()[1:], array[1:])
        elif kind == 1:
            self.keep(x.detach().T if array.ndim == 2 else x.detach()[::2], array.T if array.ndim == 2 else array[::2])
        else:
            self.keep(x.detach()[0], array[0, ...])

    def leaf(self) -> None:
        """A leaf that shares memory with a tensor: all of it, or a part."""
        x, array = self.pick()
        if not array.ndim:
            return
        part, kind = self.draw.choice([lambda a: a, lambda a: a[..., :2], lambda a: a.T, lambda a: a[-1:]]), self.draw
        made, shown = part(x.detach()), part(array)
        if kind.random() < 0.4:
            made = made.requires_grad_()
        elif kind.random() < 0.5:
            made = tg.nn.Parameter(made)
        else:
            made, source = tg.nn.Parameter(tg.zeros(3, dtype=tg.float64)), made
            made.data = source
        self.keep(made, shown)

    def move(self) -> None:
        """A tensor moves to the memory of another; who shared the old one with it keeps that."""
        place = self.draw.randrange(len(self.handles))
        x = self.handles[place].tensor
        y, array = self.pick()
        if self.draw.random() < 0.5:
            y, array = y.detach() * 2, array * 2
        x.data = y
        self.handles[place] = Handle(x, array)
        self.shown[id(x)] = array

    def recorded(self) -> None:
        """Something that is computed later."""
        x, array = self.pick()
        self.keep(x.detach() * 2 + 1, array * 2 + 1)

    def write(self) -> None:
        x, array = self.pick()
        k, kind = float(self.draw.randrange(1, 4)), self.draw.randrange(4)
        with tg.no_grad():
            if kind == 0:
                x.add_(k)
                array[...] += k
            elif kind == 1 and array.ndim:
                x[:1] = k
                array[:1] = k
            elif kind == 2:
                x.data.mul_(-1)
                array[...] *= -1
            else:
                y, other = self.pick()
                if other.shape == array.shape:
                    x.copy_(y)
                    array[...] = other.copy()

    def kernel(self) -> None:
        x, array = self.pick()
        with tg.no_grad():
            if self.draw.random() < 0.5 and array.flags.c_contiguous and array.size:
                doubled[(1,)](x, array.size, BLOCK=8)
                array[...] *= 2
                return
            made = self.draw.choice([tg.empty, tg.zeros])(*(x.shape or (1,)), dtype=tg.float64)
            halved_into[(1,)](x.detach().contiguous(), made, array.size, BLOCK=8)
            self.keep(made, (array / 2).reshape(array.shape or (1,)))

    def freeze(self) -> None:
        x, array = self.pick()
        frozen, kind = array.copy(), self.draw.randrange(3)
        if kind == 0:
            taken = x.detach().numpy()
        elif kind == 1:
            taken = np.asarray(x.detach())
        else:
            taken = np.from_dlpack(x.detach()) if x.is_contiguous() else x.detach().numpy()
        self.frozen.append((lambda: taken, frozen))

    def swap(self) -> None:
        """Two tensors that were kept, read together and updated through each other."""
        x, array = self.pick()
        y = x.detach().clone()
        with tg.no_grad():
            x.copy_(y * 3)
        self.keep(y, array.copy())
        array[...] *= 3

    def drop(self) -> None:
        if len(self.handles) > 3:
            del self.handles[self.draw.randrange(len(self.handles))]

    def look(self) -> None:
        self.check(self.pick())

    # --- run ------------------------------------------------------------------------------------

    def check(self, h: Handle) -> None:
        found = np.asarray(h.tensor.detach().tolist())
        np.testing.assert_array_equal(found, h.array, err_msg="\n".join(self.log))

    def run(self, steps: int) -> None:
        actions = [self.call] * 6 + [self.look] * 3 + [self.write, self.kernel, self.freeze, self.clone] * 2
        actions += [self.detach, self.view, self.deepcopy, self.recorded, self.drop, self.saved, self.swap]
        actions += [self.leaf, self.leaf, self.move, self.reading_jit, self.call_with_argument, self.make]
        for _ in range(steps):
            action = self.draw.choice(actions)
            self.log.append(action.__name__)
            action()
        for h in self.handles:
            self.check(h)
        for look, expected in self.frozen:
            np.testing.assert_array_equal(look(), expected, err_msg="\n".join(self.log))


@pytest.mark.parametrize("part", range(6))
def test_programs(part: int) -> None:
    for seed in range(part * 40, part * 40 + 40):
        Program(seed).run(25)


def test_programs_in_threads() -> None:
    wrong: list[BaseException] = []

    def work(seeds: range) -> None:
        try:
            for seed in seeds:
                Program(seed).run(20)
        except BaseException as problem:
            wrong.append(problem)

    threads = [threading.Thread(target=work, args=(range(1000 + 10 * n, 1010 + 10 * n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def test_copies_do_not_follow_updates() -> None:
    p = tg.zeros(3).realize()
    bump = tg.jit(lambda: p.add_(1))
    bump()
    q, r = p.clone(), p.detach().numpy()
    str(q)
    best = copy.deepcopy({"p": p})
    bump()
    bump()
    assert q.tolist() == best["p"].tolist() == r.tolist() == [1, 1, 1]
    assert p.tolist() == [3, 3, 3]


def test_an_average_beside_a_jitted_step() -> None:
    model = tg.nn.Linear(2, 1, bias=False)
    averaged = tg.optim.swa_utils.AveragedModel(model)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.25)

    @tg.jit
    def step(x: Any) -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    weights = []
    for _ in range(4):
        step(tg.ones(1, 2))
        averaged.update_parameters(model)
        weights.append(model.weight.detach().numpy().copy())
    np.testing.assert_allclose(averaged.module.weight.detach().numpy(), np.mean(weights, 0), rtol=1e-6)


def test_a_number_that_is_a_result_stays() -> None:
    optimizer = tg.optim.SGD([tg.nn.Parameter(tg.ones(1))], lr=0.5)
    rate = tg.jit(lambda: tg.jitted.function.host_scalar(lambda: optimizer.param_groups[0]["lr"]) + 0)  # type: ignore[attr-defined]
    found = []
    for n in range(5):
        optimizer.param_groups[0]["lr"] = float(n)
        found.append(rate())
    assert [x.item() for x in found] == [0, 1, 2, 3, 4]


def test_memory_is_written_in_place_and_not_copied_in_the_steady_state() -> None:
    model = tg.nn.Sequential(tg.nn.Linear(8, 8), tg.nn.ReLU(), tg.nn.Linear(8, 1))
    optimizer = tg.optim.Adam(model.parameters(), lr=0.1)

    @tg.jit
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = tg.ones(4, 8)
    for _ in range(3):
        step(x)
    places = [p.data_ptr() for p in model.parameters()]
    gc.collect()  # what other tests left
    live = tg.live_bytes()
    for n in range(6):
        step(x)
        if n % 2:
            str(model(x).sum().item())  # whoever looks at parameters and lets go of them costs no copy
    assert [p.data_ptr() for p in model.parameters()] == places
    gc.collect()
    assert tg.live_bytes() == live


def test_kernels_write_in_place() -> None:
    made = tg.zeros(8, dtype=tg.float64)
    for n in range(4):
        halved_into[(1,)](tg.full((8,), float(n), dtype=tg.float64), made, 8, BLOCK=8)
        if n == 0:
            place = made.data_ptr()
        assert made.data_ptr() == place
    fresh = tg.tensor([1.0, 2.0], dtype=tg.float64)
    result = (fresh + 1).realize()
    place = result.data_ptr()
    doubled[(1,)](result, 2, BLOCK=8)
    assert result.data_ptr() == place, "what nobody else has needs no copy"


def test_no_reference_counts_of_the_interpreter_decide() -> None:
    package = Path(tg.__file__).parent
    assert [p for p in package.rglob("*.py") if "getrefcount" in p.read_text(encoding="utf-8")] == []
