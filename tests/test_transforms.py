"""Transforms of functions, in any order of nesting, against JAX where it is there and against formulas."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad.errors import ArgumentError, GradientError, ShapeError

X = tg.tensor([1.0, 2.0, 3.0])


def close(x: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(x), np.asarray(expected), 1e-5, 1e-6)


def cube(x: tg.Tensor) -> tg.Tensor:
    return (x**3).sum()


class Weights(NamedTuple):
    w: tg.Tensor
    b: list[tg.Tensor]


def test_grad() -> None:
    g = tg.grad(cube)(X)
    close(g, [3, 12, 27])
    assert not g.requires_grad
    gx, gy = tg.grad(lambda x, y: (x * y).sum(), argnums=(0, -1))(X, X + 1)
    close(gx, [2, 3, 4])
    close(gy, [1, 2, 3])
    g, extra = tg.grad(lambda x: (cube(x), {"twice": x * 2}), has_aux=True)(X)
    close(extra["twice"], [2, 4, 6])
    assert not extra["twice"].requires_grad
    value, g = tg.value_and_grad(cube)(X)
    assert value.item() == 36
    assert not value.requires_grad


def test_containers() -> None:
    p = {"layer": Weights(tg.ones(3), [tg.zeros(3), tg.ones(3)]), "none": None}

    def loss(p: Any, x: tg.Tensor) -> tg.Tensor:
        return (p["layer"].w * x + p["layer"].b[0] * 2).sum()

    g = tg.grad(loss)(p, X)
    close(g["layer"].w, [1, 2, 3])
    close(g["layer"].b[0], [2, 2, 2])
    close(g["layer"].b[1], [0, 0, 0])
    assert g["none"] is None
    assert isinstance(g["layer"], Weights)


@checklist(157)
def test_nesting() -> None:
    close(tg.grad(lambda x: tg.grad(cube)(x).sum())(X), [6, 12, 18])
    third = tg.grad(tg.grad(tg.grad(lambda x: x**4)))
    assert third(tg.tensor(2.0)).item() == 48
    assert not third(tg.tensor(2.0)).requires_grad
    close(tg.hessian(cube)(X), np.diag([6, 12, 18]))
    close(tg.jacobian(lambda x: x.outer(x).sum(0))(X), [[7, 1, 1], [2, 8, 2], [3, 3, 9]])
    close(tg.jvp(tg.grad(cube), (X,), (tg.ones(3),))[1], [6, 12, 18])
    close(tg.grad(lambda x: tg.jvp(cube, (x,), (X,))[1])(X), 6 * np.array([1, 4, 9]))
    close(tg.vmap(tg.grad(cube))(tg.stack([X, X + 1])), [[3, 12, 27], [12, 27, 48]])
    close(tg.grad(lambda x: tg.vmap(cube)(x).sum())(tg.stack([X, X])), [[3, 12, 27]] * 2)
    close(tg.vmap(tg.vmap(lambda x, y: x * y, (None, 0)), (0, None))(X, X), np.outer([1, 2, 3], [1, 2, 3]))
    close(tg.jvp(lambda x: tg.jvp(cube, (x,), (X,))[1], (X,), (X,))[1], 6 * 36)


def test_no_confusion_of_levels() -> None:
    def outer(x: tg.Tensor) -> tg.Tensor:
        return x * tg.grad(lambda y: x + y)(tg.tensor(1.0))

    assert tg.grad(outer)(tg.tensor(3.0)).item() == 1


def test_with_leaves_outside() -> None:
    w = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    g = tg.grad(lambda x: (x * w).sum() * x.sum())(X)
    assert g.requires_grad
    g.sum().backward()
    close(w.grad, [9, 12, 15])


def test_vjp_and_jvp() -> None:
    y, pull = tg.vjp(lambda x, y: (x * y, x.sum()), X, X + 1)
    gx, gy = pull((tg.ones(3), tg.tensor(10.0)))
    close(gx, [12, 13, 14])
    close(gy, [1, 2, 3])
    close(y[0], [2, 6, 12])
    y, dy = tg.jvp(lambda x: {"s": x.sin()}, (X,), (tg.ones(3),))
    close(dy["s"], np.cos([1, 2, 3]))
    v, u = tg.tensor([0.3, -1.0, 2.0]), tg.tensor([1.0, 0.5, -2.0])

    def fn(x: tg.Tensor) -> tg.Tensor:
        return x.softmax(0) * x.sum()

    left = (tg.jvp(fn, (X,), (v,))[1] * u).sum()
    right = (tg.vjp(fn, X)[1](u)[0] * v).sum()
    close(left, right)


def test_vmap_dimensions() -> None:
    a = tg.arange(24.0).reshape(2, 3, 4)
    close(tg.vmap(lambda r: r.sum(0), in_dims=1, out_dims=1)(a), a.sum(0).T)
    close(tg.vmap(lambda p, s: p["w"] * s, in_dims=({"w": 0}, None))({"w": X}, tg.tensor(2.0)), [2, 4, 6])
    x, y = tg.vmap(lambda r: (r.max(), r + 1), out_dims=(0, 1))(a[0])
    close(x, [3, 7, 11])
    close(y, (a[0] + 1).T)
    close(tg.vmap(lambda r: tg.ones(2))(X), np.ones((3, 2)))
    close(tg.vmap(lambda m, v: m @ v)(a, tg.ones(2, 4)), a.sum(-1))
    close(tg.vmap(lambda r, i: r[i])(a[0], tg.tensor([0, 3, 1])), [0, 7, 9])
    close(tg.vmap(lambda r: r.sort(descending=True).values)(a[0]), a[0].flip(1))


def test_vmap_of_function() -> None:
    class Cube(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            (x,) = ctx.saved_tensors
            return upstream * 3 * x * x

    a = tg.arange(6.0).reshape(2, 3)
    close(tg.vmap(tg.grad(lambda r: Cube.apply(r).sum()))(a), 3 * a * a)


@checklist(155)
def test_checkpoint() -> None:
    w = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
    calls = []

    def block(x: tg.Tensor) -> tg.Tensor:
        calls.append(1)
        return (x * w).sin().exp()

    block(block(X)).sum().backward()
    expected, w.grad = w.grad, None
    y = tg.checkpoint(block, tg.checkpoint(block)(X))
    y.sum().backward()
    close(w.grad, expected)
    first, second = (tg.grad(lambda x, f=f: f(x).sum())(X) for f in (tg.checkpoint(block), block))
    close(first.detach(), second.detach())


def test_wrong_use() -> None:
    wrong: list[tuple[Any, type[Exception], str]] = [
        (lambda: tg.grad(lambda x: x * 2)(X), GradientError, r"shape \(3,\)"),
        (lambda: tg.grad(cube)(tg.arange(3)), GradientError, "int64"),
        (lambda: tg.grad(cube, argnums=1)(X), ArgumentError, "argnums"),
        (lambda: tg.grad(lambda x: 3)(X), GradientError, "must return a tensor"),
        (lambda: tg.grad(cube)(3.0), ArgumentError, "must be a tensor"),
        (lambda: tg.vmap(cube, in_dims=None)(X), ArgumentError, "in_dims"),
        (lambda: tg.vmap(lambda x, y: x)(X, tg.ones(2)), ShapeError, "different sizes"),
        (lambda: tg.vmap(lambda x: 3)(X), ArgumentError, "must return tensors"),
        (lambda: tg.vmap(cube)(tg.tensor(1.0)), ShapeError, "without dimensions"),
        (lambda: tg.jvp(cube, (X,), (tg.ones(2),)), ShapeError, "tangent"),
        (lambda: tg.jvp(cube, X, X), ArgumentError, "tuples"),
        (lambda: tg.vjp(cube, X)[1]((X, X)), ArgumentError, "form"),
    ]
    for use, error, message in wrong:
        with pytest.raises(error, match=message):
            use()


def test_vmap_in_place_while_traced() -> None:
    """A mapped function may change tensors that it makes, even under a trace."""

    def grown(x: tg.Tensor) -> tg.Tensor:
        total = tg.zeros(3)
        total += x
        total[0] = 7.0
        return total * 2

    x = tg.arange(6).reshape(2, 3).float()
    assert tg.jit(tg.vmap(grown))(x).tolist() == tg.vmap(grown)(x).tolist() == [[14.0, 2.0, 4.0], [14.0, 8.0, 10.0]]
    common = tg.zeros(3)
    with pytest.raises(tg.errors.TilegradError, match="in common"):
        tg.jit(tg.vmap(lambda x: common.add_(x)))(x)
