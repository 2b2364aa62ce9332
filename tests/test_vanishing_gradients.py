"""Results that no longer depend on their operands still require gradients, which are zero: as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import tilegrad as tg

WRITES = """
y.zero_()
y.fill_(3.0)
y.fill_(T.tensor(3.0))
y.copy_(T.ones(3, 2))
y.copy_(T.arange(6).reshape(3, 2))
y.copy_(x.detach())
y.copy_(T.ones(2))
y[...] = 0
y[:] = 0
y[:, :] = T.ones(2)
y[T.ones(3, 2, dtype=T.bool)] = 0
y[T.tensor([0, 1, 2])] = 1
y.masked_fill_(T.ones(3, 2, dtype=T.bool), 0)
y.masked_scatter_(T.ones(3, 2, dtype=T.bool), T.ones(6))
y.normal_()
y.uniform_()
y.bernoulli_()
y.random_(3)
y.exponential_()
y.floor_()
y.sign_()
y.round_()
y.view(-1).zero_()
y.t().fill_(2)
y.t()[0].zero_(); y[:, 1] = 3
y.index_fill_(0, T.tensor([0, 1, 2]), 1.0)
y.index_copy_(0, T.tensor([0, 1, 2]), T.ones(3, 2))
y.scatter_(0, T.tensor([[0, 0], [1, 1], [2, 2]]), 1.0)
y.put_(T.arange(6), T.ones(6))
y.triu_(5)
y.clamp_(7, 8)
y = T.slice_scatter(y, T.ones(3, 2))
y = T.zeros_like(y) + 0 * y
y = T.where(T.ones(3, 2, dtype=T.bool), T.ones(3, 2), y)
y = y.new_zeros(3).requires_grad_() * 0 + y.sum() * 0
""".strip().splitlines()


@pytest.mark.parametrize("way", ["plainly", "jit", "partly"])
@pytest.mark.parametrize("text", WRITES)
def test_zeros_arrive(text: str, way: str) -> None:
    x = tg.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]], requires_grad=True)

    def written() -> Any:
        names = {"T": tg, "x": x, "y": x.clone()}
        exec(text, names)
        return names["y"]

    def run() -> None:
        y = written()
        assert y.requires_grad
        assert not y.is_leaf
        ((y * 2).sum() + (0.0 if way == "plainly" else x[:1].sum())).backward()

    run = tg.jit(run) if way == "jit" else run
    for _ in range(2):
        x.grad = None
        run()
        assert x.grad.tolist() == [[0.0 if way == "plainly" else 1.0] * 2, [0, 0], [0, 0]]  # type: ignore[attr-defined]


def test_the_second_derivative() -> None:
    x = tg.ones(2, requires_grad=True)
    y = x**3
    y.zero_()
    (first,) = tg.autograd.grad((y + x**3).sum(), [x], create_graph=True)
    (second,) = tg.autograd.grad(first.sum(), [x])
    assert (first.tolist(), second.tolist()) == ([3, 3], [6, 6])
    assert tg.jacfwd(lambda x: x.clone().fill_(2) + x)(tg.ones(2)).tolist() == [[1, 0], [0, 1]]
    assert tg.vmap(tg.grad(lambda x: x.clone().zero_().sum()))(tg.ones(2, 3)).tolist() == [[0] * 3] * 2


def test_what_was_detached_does_not() -> None:
    """History is unchanged where nothing is recorded, and through `.data`."""
    x = tg.ones(2, requires_grad=True)
    y = x * 3
    with tg.no_grad():
        y.zero_()
    y.data.fill_(2)
    y.sum().backward()
    assert (y.tolist(), x.grad.tolist()) == ([2, 2], [3, 3])
    plain = tg.ones(2)
    plain.zero_()
    assert not plain.requires_grad
