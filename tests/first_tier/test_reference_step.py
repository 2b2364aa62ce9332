"""Small opaque ops run on numpy arrays: nothing is compiled for them, and they compute what their kernels do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.first_tier.test_group_step import steps_of
from tilegrad import config, nn
from tilegrad.first_tier import reference_step

GRU, ATTENTION, TABLE = nn.GRU(4, 5), nn.MultiheadAttention(8, 2, batch_first=True), nn.Embedding(9, 4)


def numbers(*shape: int) -> tg.Tensor:
    return tg.from_numpy(np.sin(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape))


def gradient(layer: Any, *given: tg.Tensor) -> tg.Tensor:
    """The sum of all gradients of a layer."""
    layer.zero_grad()
    out = layer(*given)
    (out[0] if isinstance(out, tuple) else out).pow(2).sum().backward()
    return sum([p.grad.sum() for p in layer.parameters()], tg.zeros(()))


def sum_of_gradient(work: Callable[[tg.Tensor], tg.Tensor], *shape: int) -> tg.Tensor:
    x = numbers(*shape).requires_grad_()
    work(x).pow(2).sum().backward()
    assert x.grad is not None
    return x.grad


PROGRAMS: dict[str, Callable[[], tg.Tensor]] = {
    "sorted": lambda: numbers(6, 7).T.sort(-1, descending=True).values,
    "places": lambda: numbers(5, 9)[:, ::2].argsort(0),
    "largest": lambda: numbers(4, 30).topk(3).values,
    "scattered": lambda: tg.zeros(4, 6).scatter_add(1, tg.tensor([[0, 5, 0]] * 4), numbers(4, 3)),
    "written": lambda: tg.zeros(7, 3).index_put((tg.tensor([1, 4, 1]),), numbers(3, 3).flip(0)),
    "chosen": lambda: numbers(8, 5)[numbers(8, 5) > 0.2],
    "recurrence": lambda: GRU(numbers(6, 2, 4))[0].detach(),
    "gradient of a recurrence": lambda: gradient(GRU, numbers(6, 2, 4)),
    "attention": lambda: ATTENTION(*[numbers(2, 5, 8)] * 3)[0].detach(),
    "gradient of attention": lambda: gradient(ATTENTION, *[numbers(2, 5, 8)] * 3),
    "gradient of an embedding": lambda: gradient(TABLE, tg.tensor([[3, 1, 3], [0, 8, 8]])),
    "rows": lambda: TABLE.weight.detach()[tg.tensor([[1, -1, 8], [0, 3, 3]])],
    "apart": lambda: numbers(4, 5, 6)[tg.tensor([1, -2, 0]), :, tg.tensor([5, 0, -6])],
    "along": lambda: numbers(4, 5).T.gather(1, tg.tensor([[0, 3], [1, 2]])),
    "positions": lambda: numbers(20, 3).T[:, tg.arange(17)],
    "padded": lambda: nn.functional.pad(numbers(5, 7).T, (1, 2, 0, 3), value=2.5),
    "cropped": lambda: nn.functional.pad(numbers(5, 7), (-1, 2, 3, -2)),
    "backwards": lambda: sum_of_gradient(lambda x: x.flip(0)[::3, 1::2] * 2, 9, 8),
    "padded after a reshape": lambda: nn.functional.pad(numbers(5, 7).T.reshape(-1), (0, 9)),
    "outside": lambda: numbers(30, 2)[numbers(20).long() * 2 + 40 - 40],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_kernels(name: str) -> None:
    with config.changed(tier="interpreted"):
        got = PROGRAMS[name]().numpy()
    with config.changed(tier="compiled"):
        want = PROGRAMS[name]().numpy()
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_compiled(name: str) -> None:
    steps = steps_of(PROGRAMS[name]()) if name not in ("chosen", "rows", "outside") else "(numpy)"
    assert "a program of its own" not in steps


def test_large_ops_and_short_floats_have_kernels() -> None:
    x = tg.zeros(reference_step.MAX_REFERENCE_BYTES // 8, dtype=tg.int32).realize()
    assert "a program of its own" in steps_of(x.argsort())
    assert "(numpy)" in steps_of(x[:100].argsort())
    base, index = tg.zeros(50, dtype=tg.bfloat16).realize(), tg.arange(20).realize()
    assert "a program of its own" in steps_of(base.index_add(0, index, tg.ones(20, dtype=tg.bfloat16)))


def test_steps_hold_no_memory() -> None:
    import gc
    import weakref

    x = numbers(40, 9) * 2
    with config.changed(tier="interpreted"):
        x.realize()
        buffer = weakref.ref(x._value.buffer)
        x.argsort(1).numpy()
        del x
        gc.collect()
    assert buffer() is None


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), (0,)])
def test_no_elements(shape: tuple[int, ...]) -> None:
    """Views of nothing, reversed ones, too, are operands."""
    x = tg.zeros(shape).realize()
    reverse, count = x.flip(0), x.shape[-1]
    results = [
        lambda: reverse.argsort(-1),
        lambda: reverse.sort(-1)[0],
        lambda: x.clone().masked_scatter_(x == 0, reverse),
        lambda: x.index_add(0, tg.arange(shape[0]), reverse),
        lambda: tg.nn.functional.pad(reverse, (1, 2)),
        lambda: reverse[..., tg.arange(count)],
        lambda: reverse.scatter(-1, tg.zeros(shape, dtype=tg.int64), 1.0),
    ]
    for make in results:
        found = [None, None]
        for n, tier in enumerate(("interpreted", "compiled")):
            with config.changed(tier=tier):
                found[n] = make().numpy()
        np.testing.assert_array_equal(*found)
