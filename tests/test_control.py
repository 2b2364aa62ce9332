"""`cond`, `while_loop`, `scan` where they meet other transforms, nothing at all, and tensors from outside."""

from __future__ import annotations

import pytest

import tilegrad as tg
from tilegrad.errors import TraceError


def chosen(x: tg.Tensor) -> tg.Tensor:
    return tg.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.exp(), x)


def halved(x: tg.Tensor) -> tg.Tensor:
    return tg.while_loop(lambda v: v.abs().sum() > 1, lambda v: v / 2, x, max_steps=5)


@pytest.mark.parametrize("fn", [chosen, halved])
def test_under_vmap(fn) -> None:
    x = tg.tensor([[1.0, 2.0], [-1.0, 0.5], [-3.0, 7.0]])
    wanted = tg.stack([fn(row) for row in x])
    slopes = tg.stack([tg.grad(lambda v: fn(v).sum())(row) for row in x])
    assert tg.allclose(tg.vmap(fn)(x), wanted)
    assert tg.allclose(tg.jit(tg.vmap(fn))(x), wanted)
    assert tg.allclose(tg.vmap(tg.grad(lambda v: fn(v).sum()))(x), slopes)


def test_branches_change_nothing_outside() -> None:
    count = tg.zeros(())

    def one(x: tg.Tensor) -> tg.Tensor:
        count.add_(1)
        return x

    with pytest.raises(TraceError, match="cond: .*in place.*return"):
        tg.jit(lambda x: tg.cond(x.sum() < 0, one, lambda x: x, x))(tg.ones(2))
    assert count.item() == 0

    def with_own(x: tg.Tensor) -> tg.Tensor:
        y = x.clone()
        y[0] = 5
        return y.add_(1)

    def made_before(x: tg.Tensor) -> tg.Tensor:
        y = x * 2
        return tg.cond(x.sum() < 0, y.add_, lambda x: x, x)

    assert tg.jit(lambda x: tg.cond(x.sum() > 0, with_own, lambda x: x, x))(tg.ones(2)).tolist() == [6, 2]
    with pytest.raises(TraceError, match="cond"):
        tg.jit(made_before)(tg.ones(2))


def test_scan_of_nothing() -> None:
    carry, (ys, zs) = tg.scan(lambda c, x: (c + x.sum(), (c, x.long())), tg.tensor(1.0), tg.zeros(0, 3))
    assert carry.item() == 1
    assert (ys.shape, zs.shape, zs.dtype) == ((0,), (0, 3), tg.int64)


def test_scan_backwards() -> None:
    carry, ys = tg.scan(lambda c, x: (2 * c + x, c), tg.tensor(0.0), tg.tensor([1.0, 2.0, 3.0]), reverse=True)
    assert (carry.item(), ys.tolist()) == (17, [8, 3, 0])


def test_gradients_of_what_is_not_taken_stay_away() -> None:
    """The slope of log at 0 is infinite, and would be multiplied by 0."""

    def steps(x: tg.Tensor) -> tg.Tensor:
        return tg.while_loop(lambda v: (v > 0.5).reshape(1), lambda v: (v - 0.5).sqrt(), x, max_steps=3)

    def branches(x: tg.Tensor) -> tg.Tensor:
        return tg.cond(x > 0, lambda v: v.log(), lambda v: v * 2, x)

    for fn, number in ((branches, 0.0), (branches, 2.0), (steps, 0.5), (steps, 0.75)):
        x = tg.tensor(number)
        wanted = tg.grad(fn)(x).item()
        assert tg.jit(tg.grad(fn))(x).item() == pytest.approx(wanted)
        assert tg.vmap(tg.grad(fn))(x.reshape(1)).item() == pytest.approx(wanted)
