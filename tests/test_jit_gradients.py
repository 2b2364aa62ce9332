"""Gradients through jitted functions, of first and second order, when sizes vary: as without jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tilegrad import Tensor

Function = Callable[[Tensor], Tensor]


class Square(tg.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * upstream


@tg.op("tests::doubled_sine(x: F[n]) -> F[n]")
def doubled_sine(x: Tensor) -> Tensor:
    return x.sin() * 2


def hooked(x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * 3)
    return y.sin()


def inner(x: Tensor) -> Tensor:
    z = x.detach().requires_grad_()
    (gradient,) = tg.autograd.grad((z**3).sum(), z)
    return gradient * x


def updated(x: Tensor) -> Tensor:
    y = x * 2
    y[0] = y[1] * 3
    y.mul_(x.sin())
    return y


def stepped(x: Tensor) -> Tensor:
    """Writes to a leaf where nothing is recorded: derivatives of all orders are those at its new elements."""
    total = x.sum()
    with tg.no_grad():
        x.add_(1.0)
        x[0].mul_(2)
    return x.sin() * x * total


def filled(x: Tensor) -> Tensor:
    """Writes to what was made of numbers."""
    y = tg.full_like(x, 2)
    y[...] *= x
    z = tg.zeros_like(x)
    z.view(-1).add_(x)
    return y * z.mul_(y)


def stepped_view(x: Tensor) -> Tensor:
    with tg.no_grad():
        x.T.sub_(0.5)
    return x.sum(1, keepdim=True) * x


def normalised(x: Tensor) -> Tensor:
    y = x.clamp(-1, 1)
    y[0, 0] = x.sum()
    return F.layer_norm(y, y.shape[-1:])


WEIGHT = tg.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]], requires_grad=True)
LINES: dict[str, Function] = {
    "exp": lambda x: x.exp() * x,
    "sum": lambda x: x.sum() * x,
    "cat": lambda x: tg.cat([x, x * 2]),
    "index": lambda x: x[[0, -1]] * x.sum(),
    "windows": lambda x: x.unfold(0, 2, 1) * 3.0,
    "order": lambda x: x[x.argsort(0)] * x,
    "function": lambda x: Square.apply(x).sin(),
    "operator": lambda x: doubled_sine(x) * x,
    "hook": hooked,
    "inner": inner,
    "updated": updated,
    "stepped": stepped,
    "filled": filled,
}
MATRICES: dict[str, Function] = {
    "mean": lambda x: x.mean(0, keepdim=True),
    "products": lambda x: x @ x.T,
    "weight": lambda x: (x @ WEIGHT).softmax(0),
    "checkpoint": lambda x: tg.checkpoint(lambda t: (t.sin() * t).exp(), x),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None] * 2, x[None]),
    "pool": lambda x: F.max_pool1d(x.T[None], 2, 1) ** 2,
    "mapped": lambda x: tg.vmap(lambda row: (row * row).cumsum(0).sin())(x),
    "reshape": lambda x: x.reshape(x.shape[0] * 3).sigmoid(),
    "normalised": normalised,
    "stepped view": stepped_view,
}
CASES = [*((name, fn, ()) for name, fn in LINES.items()), *((name, fn, (3,)) for name, fn in MATRICES.items())]


def seen(fn: Function, x: Tensor) -> list[Any]:
    """A result with its gradients of first and second order."""
    x = x.clone().requires_grad_()
    y = fn(x)
    (first,) = tg.autograd.grad((y * y).sum() * 0.5 + y.sum(), x, create_graph=True)
    (second,) = tg.autograd.grad((first * first).sum() * 0.5 + first.sum(), x)
    return [y.tolist(), first.tolist(), second.tolist()]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("name", "fn", "rest"), CASES, ids=[name for name, *_ in CASES])
def test_gradients_are_those_of_the_size_of_the_call(name: str, fn: Function, rest: tuple[int, ...]) -> None:
    jitted = tg.jit(fn)
    for n in (3, 2, 4, 2):
        count = n * (rest[0] if rest else 1)
        x = ((tg.arange(count).float() + 1.3) * 0.77).sin().reshape(n, *rest)
        for got, expected in zip(seen(jitted, x), seen(fn, x), strict=True):
            assert tg.allclose(tg.tensor(got), tg.tensor(expected), rtol=1e-4, atol=1e-4), (n, got, expected)
    assert len(jitted.programs) <= 2, "one for the first size, one for all"


def test_gradients_of_every_call_through_a_function_of_users() -> None:
    jitted = tg.jit(lambda x: Square.apply(x) * 2)
    for n in (3, 3, 2, 2):
        x = tg.ones(n, requires_grad=True)
        jitted(x).sum().backward()
        assert x.grad is not None
        assert x.grad.tolist() == [4.0] * n
