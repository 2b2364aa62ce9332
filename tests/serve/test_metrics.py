import numpy as np
import pytest

from tilegrad.serve.metrics import SECONDS, BucketCounts


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.9, 0.99, 1.0])
def test_quantiles_are_in_the_bucket_of_the_exact_ones(seed: int, fraction: float) -> None:
    values = np.random.default_rng(seed).lognormal(-5, 1.5, 500)
    distribution = BucketCounts(SECONDS)
    for x in values:
        distribution.add(float(x))
    exact = float(np.quantile(values, fraction, method="inverted_cdf"))
    found = distribution.quantile(fraction)
    bounds = [0.0, *SECONDS]
    n = int(np.searchsorted(bounds, exact)) - 1
    assert bounds[n] <= found <= bounds[n + 1]
    assert distribution.count == len(values)
    assert distribution.sum == pytest.approx(values.sum())


def test_without_values_there_is_no_quantile() -> None:
    assert BucketCounts(SECONDS).quantile(0.5) is None


def test_values_beyond_the_last_bound() -> None:
    distribution = BucketCounts((1.0, 2.0))
    distribution.add(5.0)
    assert distribution.quantile(0.5) == 2.0
