"""Transforms in transforms, drawn at random, up to third derivatives: with jit as without, and as in JAX.

A composition begins with a small function and wraps it again and again. It is written once, for a `Library`: ours, ours
with `jit` and `checkpoint` that do nothing, and JAX.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilegrad as tg

Function = Callable[[Any], Any]
POINT = [0.3, -0.6, 0.9]
DIRECTION = [0.5, -1.0, 0.25]
COUNT = 320


def ours(**others: Any) -> Any:
    def loop(fn: Function, x: Any) -> Any:
        going = lambda c: c[1] < 2  # noqa: E731
        return tg.while_loop(going, lambda c: (fn(c[0]), c[1] + 1), (x, tg.tensor(0)), max_steps=3)[0]

    names = "jit grad value_and_grad vjp jvp vmap jacfwd jacrev hessian checkpoint cond scan stack sin exp tanh where"
    found = {name: getattr(tg, name) for name in names.split()}
    return SimpleNamespace(**found | {"loop": loop, "array": lambda x: tg.tensor(x, dtype=tg.float64)} | others)


OURS = ours()
PLAIN = ours(jit=lambda fn: fn, checkpoint=lambda fn: fn)


def of_jax() -> Any:
    """JAX; its loops are Python's, since compiling each of them takes longer than everything else."""
    jax = pytest.importorskip("jax", reason="jax is not installed: the compositions are compared with it where it is")
    names = "grad value_and_grad vjp jvp vmap jacfwd jacrev hessian checkpoint".split()
    found = {name: getattr(jax, name) for name in names}
    found |= {name: getattr(jax.numpy, name) for name in "stack sin exp tanh where".split()}

    def scan(body: Any, carry: Any, xs: Any) -> Any:
        made = []
        for x in xs:
            carry, y = body(carry, x)
            made.append(y)
        return carry, jax.numpy.stack(made)

    found |= {"scan": scan, "loop": lambda fn, x: fn(fn(x)), "jit": lambda fn: fn}
    found["cond"] = lambda holds, one, other, x: jax.numpy.where(holds, one(x), other(x))
    return SimpleNamespace(**found, array=lambda x: jax.numpy.asarray(np.asarray(x)))


# --- what is wrapped: a vector becomes a vector ------------------------------------------------

factor, weights = 1.5, [0.2, -0.4, 0.7]

BASES: dict[str, Callable[[Any], Function]] = {
    "product": lambda to: lambda x: to.sin(x) * x * to.array(weights),
    "shared": lambda to: lambda x: to.exp(x * 0.5) / (1 + x * x) + x.sum(),
    "norm": lambda to: lambda x: to.tanh(x) * (x * x + 1).sum() * factor,
    "masked": lambda to: lambda x: to.where(x > 0, x * x * x, to.sin(x)),
    "turned": lambda to: lambda x: to.stack([x[1] * x[2], x[0] * x[0], to.exp(x[2]) * x[0]]),
    "matrix": lambda to: lambda x: (x.reshape(3, 1) * to.sin(x)).sum(0) @ (x.reshape(3, 1) * to.array(weights)),
}

# --- what wraps: (differentiations, from a vector to a vector) ---------------------------------


def total(fn: Function) -> Function:
    return lambda x: fn(x).sum()


def folded(to: Any, found: Any) -> Any:
    """Derivatives as a vector that depends on each of them."""
    rows = found.reshape(-1, 3)
    return (to.sin(to.array(np.arange(1.0, rows.shape[0] + 1)).reshape(-1, 1)) * rows).sum(0)


def with_pull(to: Any, fn: Function) -> Function:
    def pulled(x: Any) -> Any:
        y, pull = to.vjp(fn, x)
        return pull(to.array(DIRECTION))[0] + 0.1 * y

    return pulled


def with_value(to: Any, fn: Function) -> Function:
    def both(x: Any) -> Any:
        value, slope = to.value_and_grad(total(fn))(x)
        return slope * 0.5 + value * 0.1

    return both


def by_argument(to: Any, fn: Function) -> Function:
    def of_both(x: Any) -> Any:
        a, b = to.jacrev(lambda p, q: fn(p["w"] * q), argnums=(0, 1))({"w": x}, x)
        return folded(to, a["w"]) + folded(to, b)

    return of_both


WRAPS: dict[str, tuple[int, Callable[[Any, Function], Function]]] = {
    "jit": (0, lambda to, fn: to.jit(fn)),
    "checkpoint": (0, lambda to, fn: to.checkpoint(fn)),
    "cond": (0, lambda to, fn: lambda x: to.cond(x.sum() > 0, fn, lambda y: y * 2, x)),
    "other cond": (0, lambda to, fn: lambda x: to.cond(x.sum() < 0, lambda y: y * 2, fn, x)),
    "scan": (0, lambda to, fn: lambda x: to.scan(lambda c, s: (to.tanh(fn(c)) * s, c), x, to.array([1.0, 0.5]))[0]),
    "rows": (0, lambda to, fn: lambda x: to.scan(lambda c, s: (c, fn(s)), x, to.stack([x, x * 2]))[1].sum(0)),
    "loop": (0, lambda to, fn: lambda x: to.loop(lambda y: to.tanh(fn(y)), x)),
    "vmap": (0, lambda to, fn: lambda x: to.vmap(fn)(to.stack([x, x * 0.5])).sum(0)),
    "vmap of columns": (0, lambda to, fn: lambda x: to.vmap(fn, 1, 1)(to.stack([x, x * 0.5]).T).sum(1)),
    "grad": (1, lambda to, fn: to.grad(total(fn))),
    "value_and_grad": (1, with_value),
    "vjp": (1, with_pull),
    "jvp": (1, lambda to, fn: lambda x: to.jvp(fn, (x,), (to.array(DIRECTION),))[1]),
    "jacrev": (1, lambda to, fn: lambda x: folded(to, to.jacrev(fn)(x))),
    "jacfwd": (1, lambda to, fn: lambda x: folded(to, to.jacfwd(fn)(x))),
    "argnums": (1, by_argument),
    "hessian": (2, lambda to, fn: lambda x: folded(to, to.hessian(total(fn))(x))),
    "vector hessian": (2, lambda to, fn: lambda x: folded(to, to.hessian(fn)(x))),
}


def drawn(n: int) -> tuple[str, list[str]]:
    """A base, and what it is wrapped in, from the inside: with jit somewhere, to third order at most."""
    rng = random.Random(n)
    names, left = [], 3
    for _ in range(rng.randint(2, 3)):
        possible = [name for name, (order, _) in WRAPS.items() if order <= left and name != "jit"]
        names.append(possible[n % len(possible)] if not names else rng.choice(possible))
        left -= WRAPS[names[-1]][0]
    for _ in range(rng.randint(1, 2)):
        names.insert(rng.randint(0, len(names)), "jit")
    return rng.choice(list(BASES)), names


def composed(to: Any, base: str, names: list[str]) -> Function:
    return reduce(lambda fn, name: WRAPS[name][1](to, fn), names, BASES[base](to))


PARTS = 8
RECORD = Path(__file__).with_name("compositions.json")
"""JAX's results for all compositions, for machines without JAX."""


def title(n: int) -> str:
    base, names = drawn(n)
    return f"{n}: {base}, {', '.join(names)}"


@functools.cache
def recorded() -> dict[str, list[float]]:
    return json.loads(RECORD.read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize("part", range(PARTS))
def test_with_jit_as_without_and_as_in_jax(part: int) -> None:
    x = OURS.array(POINT)
    for n in range(part, COUNT, PARTS):
        found, plain = (composed(to, *drawn(n))(x).numpy() for to in (OURS, PLAIN))
        np.testing.assert_allclose(found, plain, 1e-8, 1e-10, err_msg=title(n))
        np.testing.assert_allclose(plain, recorded()[title(n)], 1e-8, 1e-10, err_msg=title(n))


def of_jax_itself(n: int) -> Any:
    to = of_jax()
    import jax

    with jax.enable_x64(True):
        return np.asarray(composed(to, *drawn(n))(to.array(POINT)))


@pytest.mark.parametrize("n", range(0, COUNT, 40))
def test_the_record_is_what_jax_gives(n: int) -> None:
    np.testing.assert_allclose(of_jax_itself(n), recorded()[title(n)], 1e-8, 1e-10)


def taped(fn: Function, order: int) -> Function:
    """Derivatives as users of `backward` take them: of what a jitted function gave."""

    def slope(x: Any) -> Any:
        x = x.clone().requires_grad_()
        y = fn(x)
        for _ in range(order):
            (y,) = tg.autograd.grad((y * OURS.array(DIRECTION)).sum(), x, create_graph=True)
        return y.detach().numpy()

    return slope


UNTIL = ("jit", "checkpoint", "cond", "scan", "rows", "loop", "vmap", "grad", "jvp")


@pytest.mark.parametrize("base", BASES)
def test_derivatives_of_what_a_jitted_function_gave(base: str) -> None:
    for n, name in enumerate(UNTIL):
        names, order = [[name, "jit"], ["jit", name]][n % 2], 3 - WRAPS[name][0]
        found, expected = (taped(composed(to, base, names), order)(OURS.array(POINT)) for to in (OURS, PLAIN))
        np.testing.assert_allclose(found, expected, 1e-8, 1e-10, err_msg=str(names))


def test_what_a_jitted_function_writes_and_draws() -> None:
    """The derivative of what was computed from a state is that of the state before the call."""
    count = tg.zeros(2)

    def moved(x: Any) -> Any:
        y = x * x * (count + 1)
        with tg.no_grad():
            count.add_(1)
            x.data.mul_(3)
        return y

    jitted, dropped = tg.jit(moved), tg.jit(lambda x: tg.nn.functional.dropout(x, 0.5))
    for n in range(3):
        x = tg.tensor([1.0, 2.0], requires_grad=True) * 1
        assert tg.autograd.grad(jitted(x).sum(), x)[0].tolist() == [2 * (n + 1), 4 * (n + 1)]
        x = tg.ones(50, requires_grad=True)
        y = dropped(x)
        assert tg.autograd.grad(y.sum(), x)[0].tolist() == y.tolist()


@pytest.mark.parametrize("transform", [tg.jacrev, tg.jacfwd])
def test_jacobians_of_containers(transform: Any) -> None:
    x, y = tg.tensor([1.0, 2.0]), tg.tensor([[1.0], [2.0], [3.0]])

    def fn(x: Any, options: Any) -> Any:
        return {"a": x * options["y"].sum(), "b": (options["y"] * x.sum()).sum(), "c": tg.zeros(0)}, x + 1

    for wrap in (lambda made: made, tg.jit):
        found, extra = wrap(transform(fn, (1, 0), has_aux=True))(x, {"y": y})
        by_options, by_x = found["a"]
        assert extra.tolist() == [2, 3]
        assert by_x.tolist() == [[6, 0], [0, 6]]
        assert by_options["y"].tolist() == [[[1], [1], [1]], [[2], [2], [2]]]
        assert found["b"][1].tolist() == [6, 6]
        assert found["b"][0]["y"].tolist() == [[3], [3], [3]]
        assert [z.shape for z in (found["c"][0]["y"], found["c"][1])] == [(0, 3, 1), (0, 2)]
    assert transform(lambda x: x.sum())(tg.zeros(0)).shape == (0,)
    with pytest.raises(tg.errors.TilegradError, match="argnums"):
        transform(lambda x: x, 1)(x)
    with pytest.raises(tg.errors.TilegradError, match="must return tensors"):
        transform(lambda x: 3)(x)
    with pytest.raises(tg.errors.TilegradError, match="int64"):
        transform(lambda x: x)(tg.arange(3))


if __name__ == "__main__":  # python -m tests.test_compositions: the record anew
    lines = [f"{json.dumps(title(n))}: {json.dumps(of_jax_itself(n).tolist())}" for n in range(COUNT)]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
