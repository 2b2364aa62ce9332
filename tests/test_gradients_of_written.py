"""Gradients for tensors whose elements were replaced after they had been used: of all that was computed from them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tilegrad as tg


def assign_data(x: tg.Tensor) -> None:
    x.data = x.data * 2


def without_record(x: tg.Tensor) -> None:
    with tg.no_grad():
        x.mul_(2)


def part_of_data(x: tg.Tensor) -> None:
    x.data[0] = 5.0


WRITES: tuple[Callable[[tg.Tensor], object], ...] = (
    assign_data,
    without_record,
    part_of_data,
    lambda x: x.data.mul_(2),
    lambda x: x.detach().relu_(),
    lambda x: x.data.copy_(tg.ones(3)),
    lambda x: None,
)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize("create_graph", [False, True])
def test_leaves(write: Callable[[tg.Tensor], object], times: int, looked: bool, create_graph: bool) -> None:
    x = tg.tensor([1.0, -2.0, 3.0], requires_grad=True)
    loss = (x * 3).sum()
    for _ in range(times):
        write(x)
        if looked:
            x.tolist()
        loss = loss + (x * 0.5).sum() + x.mean()
    want = [3 + times * (0.5 + 1 / 3)] * 3
    (found,) = tg.autograd.grad(loss, x, retain_graph=True, create_graph=create_graph)
    assert found.tolist() == pytest.approx(want)
    loss.backward(inputs=[x])
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx(want)


@pytest.mark.parametrize("write", WRITES[1:])
@pytest.mark.parametrize("times", [1, 2])
def test_computed(write: Callable[[tg.Tensor], object], times: int) -> None:
    """A write that is not recorded is none for gradients: that of the tensor is of all its uses, and flows on."""
    x = tg.tensor([1.0, -2.0, 3.0], requires_grad=True)
    h = x * 2
    loss = (h * 3).sum()
    for _ in range(times):
        write(h)
        loss = loss + (h * 0.5).sum()
    found = tg.autograd.grad(loss, [h, x])
    assert found[0].tolist() == [3 + times * 0.5] * 3
    assert found[1].tolist() == [6 + times] * 3


def test_recorded_writes_begin_anew() -> None:
    """A gradient that is asked for after a recorded write is that of the written value."""
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    h = x * 2
    loss = h.sum()
    h.mul_(2)
    loss = loss + (h * 3).sum()
    found = tg.autograd.grad(loss, [h, x])
    assert [g.tolist() for g in found] == [[3.0, 3.0], [14.0, 14.0]]


def test_second_order() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    y = (x * 3).sum()
    x.data.mul_(2)
    (first,) = tg.autograd.grad(y + (x**3).sum(), x, create_graph=True)
    (second,) = tg.autograd.grad(first.sum(), x)
    assert first.tolist() == [3 + 12.0, 3 + 48.0]
    assert second.tolist() == [12.0, 24.0]


def squared(x: tg.Tensor) -> tg.Tensor:
    v = x * 3
    v *= v.clone()
    return v


def part_by_sum(x: tg.Tensor) -> tg.Tensor:
    v = x.repeat(2, 1)
    v.flatten()[::3].mul_(v.sum())
    return v


def part_by_sine(x: tg.Tensor) -> tg.Tensor:
    v = x - x.mean()
    v[1:].sin_()
    return v


def quotient(x: tg.Tensor) -> tg.Tensor:
    v = x / x**2
    v += 0.5
    return v


def copied(x: tg.Tensor) -> tg.Tensor:
    v = x * 2
    v.copy_(x)
    v[:-1] *= 2
    return v


def assigned(x: tg.Tensor) -> tg.Tensor:
    v = x * 2
    v[...] = x
    v[:-1] *= 2
    return v


def leaf_written(x: tg.Tensor) -> tg.Tensor:
    v = x.tanh()
    with tg.no_grad():
        x.add_(0.5)
    w = x * 2
    w[..., 0] *= v.mean()
    return w


def leaf_written_between(x: tg.Tensor) -> tg.Tensor:
    v = x.clone()
    v += 1
    with tg.no_grad():
        x[None].add_(0.5)
    v.mul_(v.clone())
    return v


@pytest.mark.parametrize(
    "function, first, second",
    [
        (leaf_written, [65.7648697, 60.9627609, 59.173172], [3386.34717, 2940.73877, 3109.05567]),
        (leaf_written_between, [232.0, 348.0, 464.0], [161472.0, 242208.0, 322944.0]),
        (squared, [4536.0, 9072.0, 13608.0], [123451776.0, 246903552.0, 370355328.0]),
        (part_by_sum, [1904.0, 408.0, 408.0], [9034752.0, 2432768.0, 2432768.0]),
        (part_by_sine, [-0.0485836267, -0.0485836267, 0.097167238], [-0.0446605831, -0.0446605831, 0.0893211886]),
        (quotient, [-6.666666984, -1.6666667, -0.740740776], [-206.440307, -12.7211933, -3.91632366]),
        (copied, [36.0, 36.0, 18.0], [1296.0, 1296.0, 648.0]),
        (assigned, [36.0, 36.0, 18.0], [1296.0, 1296.0, 648.0]),
    ],
)
def test_in_place_to_second_order(
    function: Callable[[tg.Tensor], tg.Tensor], first: list[float], second: list[float]
) -> None:
    """A gradient reads what an operation in place has replaced; its own gradient may. The numbers are PyTorch's."""
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = function(x).sum()
    (g,) = tg.autograd.grad(y * y, x, create_graph=True)
    (h,) = tg.autograd.grad((g * g).sum(), x)
    assert g.tolist() == pytest.approx(first, rel=1e-5)
    assert h.tolist() == pytest.approx(second, rel=1e-5)


def test_changes_after_the_first_gradient_are_refused() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    h = x * 2
    (g,) = tg.autograd.grad((h**3).sum(), x, create_graph=True)
    with tg.no_grad():
        x.add_(1)
    h.add_(1)
    with pytest.raises(tg.errors.InPlaceError):
        tg.autograd.grad(g.sum(), x)


@pytest.mark.parametrize(
    "copy",
    [
        lambda v: tg.stack([v, v], -1),
        lambda v: tg.repeat_interleave(v, 2, 0),
        lambda v: v.repeat(2),
        lambda v: v.reshape(1, 3).roll(1, 1),
        lambda v: v.flip(0),
        lambda v: tg.cat([v[:1], v[:1]]),
        lambda v: v.clone().reshape(3, 1),
    ],
)
def test_copies_are_no_views(copy: Callable[[tg.Tensor], tg.Tensor]) -> None:
    """Writes to a tensor do not change a copy of it, whatever operation made the copy."""
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    v = x * x
    y = copy(v)
    loss = (y * y).sum()
    v.clamp_(-1, 1)
    (found,) = tg.autograd.grad(loss, x)
    z = copy(x * x)
    (want,) = tg.autograd.grad((z * z).sum(), x)
    assert found.tolist() == want.tolist()


@pytest.mark.parametrize("cut", [lambda v: v[:2], lambda v: v.reshape(3, 1), lambda v: v.detach(), lambda v: v[None].T])
def test_views_are_seen_to_change(cut: Callable[[tg.Tensor], tg.Tensor]) -> None:
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    v = x * x
    y = cut(v)
    loss = (y * x.sum()).sum()
    v.clamp_(-1, 1)
    with pytest.raises(tg.errors.InPlaceError):
        tg.autograd.grad(loss, x)
