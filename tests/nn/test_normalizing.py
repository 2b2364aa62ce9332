"""Normalisations that return their statistics agree with those that do not."""

import numpy as np

import tilegrad as tg
import tilegrad.nn.functional as F

EPS = 1e-5


def test_native_layer_norm() -> None:
    x, weight, bias = tg.randn(4, 6), tg.randn(6), tg.randn(6)
    found, mean, reciprocal = tg.native_layer_norm(x, (6,), weight, bias, EPS)
    np.testing.assert_allclose(found.numpy(), F.layer_norm(x, (6,), weight, bias, EPS).numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mean.numpy(), x.numpy().mean(-1, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(reciprocal.numpy(), (x.numpy().var(-1, keepdims=True) + EPS) ** -0.5, rtol=1e-5)


def test_native_group_norm() -> None:
    x, weight, bias = tg.randn(2, 4, 5), tg.randn(4), tg.randn(4)
    found, mean, _ = tg.native_group_norm(x, weight, bias, 2, 4, 5, 2, EPS)
    np.testing.assert_allclose(found.numpy(), F.group_norm(x, 2, weight, bias, EPS).numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mean.numpy(), x.numpy().reshape(2, 2, -1).mean(-1), rtol=1e-5, atol=1e-6)
