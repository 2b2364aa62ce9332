"""Split sums of half precision are rounded once, like sums that are not split."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg
from tests.target_models import GPU, scheduled_for
from tilegrad.runtime.target_model import TargetModel


@pytest.mark.parametrize("target", [TargetModel(), GPU], ids=["few", "many"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((8, 16, 112, 112), (0, 2, 3)), ((100_000, 16), (0,)), ((1 << 19,), (0,)), ((8, 65_537), (1,))],
)
def test_parts_are_not_rounded(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, target: TargetModel) -> None:
    """Sums of multiples of a quarter are exact in float32."""
    numbers = np.round(np.random.default_rng(0).standard_normal(shape) * 4) / 4
    short = getattr(tg, dtype)
    with scheduled_for(target):
        x = tg.tensor(numbers).to(short)
        total, mean = tg.jit(lambda x: (x.sum(axes), x.mean(axes)))(x)
        right = tg.tensor(numbers.sum(axes)).to(short).double().numpy()
        np.testing.assert_array_equal(total.double().numpy(), right)
        np.testing.assert_allclose(mean.double().numpy(), numbers.mean(axes), 2**-8, 1e-6)
