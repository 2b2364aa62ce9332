"""Leaves that are parts of other tensors share memory with them: ways to make one x ways to write to it, plainly and
under `jit`, against views of numpy's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import GradientError, InPlaceError

Cut = Callable[[Any], Any]

CUTS: dict[str, Cut] = {
    "front": lambda x: x[:2],
    "rows": lambda x: x[1:3],
    "column": lambda x: x[:, 1],
    "every second": lambda x: x[::2, 1:],
    "transposed": lambda x: x.T,
    "flat": lambda x: x.reshape(-1),
    "part of flat": lambda x: x.reshape(-1)[3:7],
    "square": lambda x: x[:2, :2].T,
    "one row": lambda x: x[2],
    "all": lambda x: x,
}
MAKES: dict[str, Callable[[Any], Any]] = {
    "detach": lambda v: v.detach().requires_grad_(),
    "parameter": lambda v: tg.nn.Parameter(v),
    "in place": lambda v: v.requires_grad_() if v._moves else v.detach().requires_grad_(),
    "data": lambda v: v.data.requires_grad_(),
    "assigned": lambda v: _assigned(tg.nn.Parameter(tg.zeros(v.shape, dtype=v.dtype)), v),
    "assigned elsewhere": lambda v: _assigned(tg.nn.Parameter(tg.zeros(7, dtype=v.dtype)), v),
}


def _assigned(p: Any, v: Any) -> Any:
    p.data = v
    return p


class Write(NamedTuple):
    """Something that writes to the whole `x` or to the leaf `w`, and the same for arrays."""

    tensor: Callable[[Any, Any], Any]
    array: Callable[[np.ndarray, np.ndarray], Any]


def _times(a: np.ndarray, k: float) -> None:
    a *= k


def _filled(a: np.ndarray, k: Any) -> None:
    a[...] = k


WRITES = {
    "whole": Write(lambda x, w: x.add_(1), lambda a, v: np.add(a, 1, out=a)),
    "leaf": Write(lambda x, w: w.mul_(3), lambda a, v: _times(v, 3)),
    "data of leaf": Write(lambda x, w: w.data.mul_(3), lambda a, v: _times(v, 3)),
    "item of leaf": Write(lambda x, w: w.__setitem__(0, 9), lambda a, v: v.__setitem__(0, 9)),
    "view of leaf": Write(lambda x, w: w[1:].sub_(2), lambda a, v: np.subtract(v[1:], 2, out=v[1:])),
    "item of whole": Write(lambda x, w: x.__setitem__(1, 7), lambda a, v: a.__setitem__(1, 7)),
    "data of whole": Write(lambda x, w: x.data.neg_(), lambda a, v: np.negative(a, out=a)),
    "copy": Write(lambda x, w: w.copy_(w.detach() * 2 + 1), lambda a, v: _filled(v, v * 2 + 1)),
    "both": Write(lambda x, w: (x.mul_(2), w.add_(5)), lambda a, v: (_times(a, 2), np.add(v, 5, out=v))),
    "zero": Write(lambda x, w: w.zero_(), lambda a, v: _filled(v, 0)),
}


def _made(cut: str, make: str) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    array = np.arange(12.0).reshape(4, 3) - 5
    x = tg.tensor(array)
    return x, MAKES[make](CUTS[cut](x)), array, CUTS[cut](array)


def _same(x: Any, w: Any, array: np.ndarray, part: np.ndarray) -> None:
    np.testing.assert_array_equal(w.detach().numpy(), part)
    np.testing.assert_array_equal(x.numpy(), array)


@pytest.mark.parametrize("jitted", [False, True], ids=["plainly", "jit"])
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("cut", CUTS)
def test_writes_are_seen_by_all(cut: str, make: str, jitted: bool) -> None:
    for write in WRITES.values():
        x, w, array, part = _made(cut, make)
        assert w.is_leaf
        assert w.requires_grad
        assert not x.requires_grad

        def change(x: Any = x, w: Any = w, write: Write = write) -> None:
            with tg.no_grad():
                write.tensor(x, w)

        call = tg.jit(change) if jitted else change
        for _ in range(2):
            call()
            write.array(array, part)
            _same(x, w, array, part)
            assert w.is_leaf
            assert w.requires_grad


@pytest.mark.parametrize("jitted", [False, True], ids=["plainly", "jit"])
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("cut", CUTS)
def test_steps_of_an_optimizer(cut: str, make: str, jitted: bool) -> None:
    """Gradients arrive and accumulate, and each step changes the whole."""
    x, w, array, part = _made(cut, make)
    optimizer = tg.optim.SGD([w], lr=0.25, momentum=0.5)

    def step() -> None:
        optimizer.zero_grad()
        (w * w * w).sum().backward()
        (w[:1] * 2).sum().backward()
        optimizer.step()

    call, speed = tg.jit(step) if jitted else step, np.zeros_like(part)
    for n in range(3):
        call()
        gradient = 3 * part**2
        gradient[:1] += 2
        np.testing.assert_allclose(w.grad.numpy(), gradient, 1e-12)
        speed = gradient + (0.5 * speed if n else 0)
        part -= 0.25 * speed
        np.testing.assert_allclose(w.detach().numpy(), part, 1e-12)
        np.testing.assert_allclose(x.numpy(), array, 1e-12)
        if n == 1:
            with tg.no_grad():
                x.fill_(0.5)
            array[...] = 0.5


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("cut", CUTS)
def test_what_is_refused(cut: str, make: str) -> None:
    """Leaves are not written to where gradients are recorded; what was saved of one must not have changed since."""
    for write in (lambda w: w.add_(1), lambda w: w[:1].mul_(2), lambda w: w.__setitem__(0, 1)):
        with pytest.raises(InPlaceError, match="changed in place"):
            write(_made(cut, make)[1])
    for write in (lambda x, w: x.add_(1), lambda x, w: w.detach().mul_(2), lambda x, w: w.mul_(2)):
        x, w, _, _ = _made(cut, make)
        result = (w * w).sum() + w.detach().sum()
        with tg.no_grad():
            write(x, w)
        with pytest.raises(InPlaceError, match="mul"):
            result.backward()


@pytest.mark.parametrize("make", MAKES)
def test_switched_off_and_on(make: str) -> None:
    x, w, array, part = _made("rows", make)
    call = tg.jit(lambda: (w.detach() * 2 + x[1:3], w.requires_grad))
    for wanted in (True, False, True):
        w.requires_grad_(wanted)
        found, tracked = call()
        np.testing.assert_array_equal(found.numpy(), part * 3)
        assert tracked is w.requires_grad is wanted
        with tg.no_grad():
            w.add_(1)
        part += 1
        _same(x, w, array, part)


def test_hooks_stay() -> None:
    x, w, _, part = _made("rows", "detach")
    seen = []
    w.register_hook(lambda g: seen.append(g.sum().item()))
    for _ in range(2):
        with tg.no_grad():
            x.add_(1)
        part += 1
        (w * w).sum().backward()
        assert seen.pop() == 2 * part.sum()


def test_results_of_jit_have_gradients() -> None:
    x, w, _, part = _made("column", "parameter")
    loss = tg.jit(lambda: (w * w).sum())
    for n in range(3):
        w.grad = None
        loss().backward()
        np.testing.assert_array_equal(w.grad.numpy(), 2 * part)
        with tg.no_grad():
            x.add_(n)
        part += n


def test_an_assignment_to_data_leaves_the_old_memory() -> None:
    """Other holders keep the old memory: a backup of weights, a view, another parameter."""
    p = tg.nn.Parameter(tg.zeros(3))
    backup, view = p.data, p.detach()[1:]
    p.data = average = p.data + 5
    assert backup.tolist() == [0, 0, 0]
    assert view.tolist() == [0, 0]
    average.mul_(2)
    assert p.tolist() == [10, 10, 10]
    p.data = backup
    with tg.no_grad():
        p.add_(1)
    assert backup.tolist() == [1, 1, 1]
    assert average.tolist() == [10, 10, 10]
    with pytest.raises(GradientError, match="convert them"):
        p.data = tg.arange(3)


def test_a_jitted_step_follows_parameters_to_other_memory() -> None:
    """The program stays, where what shared memory still does."""
    model = tg.nn.Linear(2, 1)
    optimizer = tg.optim.SGD(model.parameters(), lr=0.5)

    @tg.jit
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        return loss

    flat = tg.zeros(4)
    x = tg.ones(1, 2)
    step(x)
    step(x)
    programs = len(step.programs)
    model.weight.data, model.bias.data = tg.ones(1, 2), tg.ones(1)
    assert [step(x).item(), step(x).item()] == [3, 1.5]
    assert len(step.programs) == programs
    model.weight.data, model.bias.data = flat[1:3].reshape(1, 2), flat[3:]
    assert [step(x).item(), step(x).item()] == [0, -1.5]
    assert flat.tolist() == [0, -1, -1, -1]


def test_an_assignment_to_data_within_jit() -> None:
    p, made = tg.nn.Parameter(tg.ones(2)), []

    @tg.jit
    def halve() -> Any:
        p.data = half = p.data * 0.5
        half.add_(1)
        return half

    for wanted in (1.5, 1.75, 1.875):
        made.append(halve())
        assert p.tolist() == made[-1].tolist() == [wanted] * 2
    other = tg.zeros(2)

    @tg.jit
    def point() -> None:
        p.data = other

    point()
    other.add_(3)
    assert p.tolist() == [3, 3]


def test_data_that_is_changed_in_place_has_a_program() -> None:
    p, lines = tg.nn.Parameter(tg.zeros(3)), [0.0]

    @tg.jit
    def step(x: tg.Tensor) -> tg.Tensor:
        loss = ((p - x) ** 2).sum()
        (slope,) = tg.autograd.grad(loss, p)
        p.data -= 0.25 * slope
        return loss

    for _ in range(4):
        step(tg.ones(3))
        lines.append((lines[-1] + 1) / 2)
        assert p.tolist() == [lines[-1]] * 3
    assert [program.unjitted_reason for program in step.programs] == [""]


def test_views_made_within_no_grad() -> None:
    """Views made under `no_grad` never require gradients and cannot be written to elsewhere."""
    p = tg.nn.Parameter(tg.zeros(3))
    with tg.no_grad():
        part = p[:2]
        p.add_(1)
    assert not part.requires_grad
    assert part.tolist() == [1, 1]
    with pytest.raises(InPlaceError, match="made within no_grad"):
        part.add_(1)
    with tg.no_grad():
        part.add_(1)
    assert p.tolist() == [2, 2, 1]
    with pytest.raises(GradientError, match="in place"):
        p[:2].detach_()
