"""Second-order gradients of layers, against PyTorch's."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import Names, pytorch
from tilegrad import nn

torch = pytorch()

LAYERS = [
    *(("BatchNorm1d(4)", (3, 4, 5)), ("InstanceNorm1d(4, affine=True)", (3, 4, 5)), ("GroupNorm(2, 4)", (3, 4, 5))),
    *(("LayerNorm(5)", (3, 4, 5)), ("RMSNorm(5)", (3, 4, 5)), ("LocalResponseNorm(3, 0.5)", (3, 4, 5))),
    *(("GELU()", (3, 4)), ("SiLU()", (3, 4)), ("Mish()", (3, 4)), ("Softplus()", (3, 4)), ("CELU(0.7)", (3, 4))),
    *(("Softmax(1)", (3, 4)), ("LogSigmoid()", (3, 4)), ("GLU()", (3, 4)), ("Tanhshrink()", (3, 4))),
    *(("ReflectionPad1d(2)", (2, 3, 5)), ("Upsample(7, mode='linear')", (2, 3, 5))),
]


def penalty(layer: Any, x: Any, make: Any, grad: Any) -> tuple[Any, list[Any]]:
    """The squared length of the gradient of a cubic function of the output, and the gradients of that."""
    y = layer(x)
    weights = make(np.random.default_rng(1).standard_normal(tuple(y.shape)).astype(np.float32))
    (first,) = grad((y * y * y * weights).sum(), [x], create_graph=True)
    total = (first * first).sum()
    total.backward()
    return total, [x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize(("made", "shape"), LAYERS, ids=str)
def test_gradient_of_a_gradient(made: str, shape: tuple[int, ...]) -> None:
    ours, theirs = eval(made, {n: getattr(nn, n) for n in nn.__all__}), eval(made, {}, Names(torch.nn))
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    total, gradients = penalty(ours, tg.tensor(array, requires_grad=True), tg.tensor, tg.autograd.grad)
    wanted, others = penalty(theirs, torch.tensor(array, requires_grad=True), torch.tensor, torch.autograd.grad)
    assert total.item() == pytest.approx(wanted.item(), rel=1e-3)
    for x, y in zip(gradients, others, strict=True):
        assert (x is None) == (y is None) or not np.any((x if y is None else y).numpy())
        if x is not None and y is not None:
            scale = max(1.0, float(np.abs(y.numpy()).max()))
            np.testing.assert_allclose(x.numpy() / scale, y.numpy() / scale, rtol=1e-3, atol=2e-4)


def test_gradients_divided_by_how_often_rows_are_used() -> None:
    """The gradient is linear in what arrives, with the factor 1 / uses: PyTorch forgets the factor in the second."""
    weight = tg.ones(4, 2, requires_grad=True)
    upstream = tg.ones(3, 2, requires_grad=True)
    rows = nn.functional.embedding(tg.tensor([1, 3, 1]), weight, scale_grad_by_freq=True)
    (first,) = tg.autograd.grad((rows * upstream).sum(), [weight], create_graph=True)
    np.testing.assert_array_equal(first.detach().numpy()[:, 0], [0, 1, 0, 1])
    (second,) = tg.autograd.grad(first.sum(), [upstream])
    np.testing.assert_array_equal(second.numpy()[:, 0], [0.5, 1, 0.5])
