"""Products whose tiles do not fit: they overlap, and what is left of k has a turn of its own."""

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.schedule import matmul_tiles


@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (257, 3, 65), (300, 513, 70), (259, 1021, 131), (5, 700, 1000)])
def test_product(m: int, k: int, n: int) -> None:
    rng = np.random.default_rng(m)
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    run = tg.jit(lambda x, y: (x @ y).relu() + 1)
    wanted = np.maximum(x.astype(np.float64) @ y, 0) + 1
    np.testing.assert_allclose(run(tg.tensor(x), tg.tensor(y)).numpy(), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m, k, n", [(1, 5, 2), (2, 8, 3), (9, 17, 4), (13, 31, 8), (40, 9, 17), (70, 300, 41)])
def test_operands_that_lie_across(m: int, k: int, n: int, dtype: type) -> None:
    rng = np.random.default_rng(n)
    x, y = (rng.standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
    across_x, across_y = tg.tensor(x.T.copy()), tg.tensor(y.T.copy())
    found = tg.jit(lambda x, y, a, b: (x @ b.T, a.T @ y, a.T @ b.T, (a.T * 2) @ (b.T + 1)))(
        tg.tensor(x), tg.tensor(y), across_x, across_y
    )
    wanted = x.astype(np.float64) @ y
    for z in found[:3]:
        np.testing.assert_allclose(z.numpy(), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[3].numpy(), 2 * x.astype(np.float64) @ (y + 1), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "m, k, n, much, said",
    [(301, 40, 131, matmul_tiles.MIN_CPU_STREAM_BYTES, "tl.minimum"), (70, 9, 5003, 0, "cdiv(70, 32)")],
    ids=["overlapping", "long rows"],
)
def test_what_is_updated_in_place_is_updated_once(
    m: int, k: int, n: int, much: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers tiles that overlap and long rows, because updates of weights must not be repeated."""
    monkeypatch.setattr(matmul_tiles, "MIN_CPU_STREAM_BYTES", much)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((m, k), (k, n)))
    weight = tg.ones(m, n)

    @tg.jit
    def step(x: tg.Tensor, y: tg.Tensor) -> None:
        weight.mul_(0.5).add_(x @ y)

    for turn in range(1, 4):
        step(tg.tensor(x), tg.tensor(y))
        wanted = 0.5**turn + (x @ y) * sum(0.5**n for n in range(turn))
        np.testing.assert_allclose(weight.numpy(), wanted, rtol=1e-4, atol=1e-4)
    assert said in str(tg.explain(step, tg.tensor(x), tg.tensor(y))["kernels"])
