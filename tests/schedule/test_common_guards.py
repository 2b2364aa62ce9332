"""Writes to overlapping parts of a tensor: each asks for what was there before, and reads only what is there."""

import numpy as np
import pytest

import tilegrad as tg

pytestmark = pytest.mark.usefixtures("compiled")


def written(seed: int, writes: int, given: np.ndarray) -> tuple[tg.Tensor, np.ndarray]:
    """Combine random parts of a tensor in memory with others, in place."""
    rng, x, expected = np.random.default_rng(seed), tg.tensor(given), given.copy()
    for _ in range(writes):
        at = tuple(sorted(rng.choice(extent + 1, 2, replace=False)) for extent in given.shape)
        part = tuple(slice(int(first), int(end)) for first, end in at)
        match rng.integers(4):
            case 0:
                x[part] += 1
                expected[part] += 1
            case 1:
                x[part].mul_(0.5)
                expected[part] *= np.float32(0.5)
            case 2:
                x[part] = x[part].flip(0) * 2
                expected[part] = expected[part][::-1] * 2
            case 3:
                x[part] = tg.where(x[part] > 0, x[part], 1 - x[part])
                expected[part] = np.where(expected[part] > 0, expected[part], 1 - expected[part])
    return x, expected


@pytest.mark.parametrize("seed", range(30))
def test_random_writes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = [(60,), (7, 9), (3, 4, 5)][seed % 3]
    x, expected = written(seed, int(rng.integers(1, 9)), rng.standard_normal(shape, dtype=np.float32))
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-5, atol=1e-6)


def lines(writes: int) -> int:
    """Lines of the kernels for a chain of writes that overlap by one element."""
    x = tg.tensor(np.arange(1000, dtype=np.float32))
    for i in range(writes):
        x[i : i + 2].add_(1)
    return str(tg.explain(x)).split("=== kernels ===")[1].split("=== ")[0].count("\n")


def test_a_chain_of_overlapping_writes_is_linear() -> None:
    assert lines(40) < 2.5 * lines(20)


@pytest.mark.parametrize("writes", [20, 60])
def test_a_long_chain_of_overlapping_writes(writes: int) -> None:
    given = np.arange(1000, dtype=np.float32)
    x = tg.tensor(given)
    for i in range(writes):
        x[i : i + 2].add_(1)
        given[i : i + 2] += 1
    np.testing.assert_array_equal(x.numpy(), given)
