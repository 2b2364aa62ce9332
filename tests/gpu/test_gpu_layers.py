"""Every layer on the GPU and on the CPU: equal outputs, gradients and buffers."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.nn.cases import ACTIVATIONS, IMAGES, LOSSES, NORMS, PADDINGS, PRODUCTS, RANDOM, Case
from tests.nn.given import given
from tilegrad import nn

CASES = [*ACTIVATIONS, *NORMS, *PADDINGS, *IMAGES, *PRODUCTS, *LOSSES, *RANDOM]


def outcome(case: Case, place: str) -> list[Any]:
    """Return the output and the gradients of inputs and parameters after a training step."""
    tg.manual_seed(7)
    layer = eval(case.made, {name: getattr(nn, name) for name in nn.__all__}).to(place)
    tg.manual_seed(8)
    arrays = [given(shape, n) for n, shape in enumerate(case.inputs)]
    inputs = [
        None if a is None else tg.tensor(a, device=place, requires_grad=n == 0 and a.dtype == np.float32)
        for n, a in enumerate(arrays)
    ]
    made = layer(*inputs)
    output = made[0] if isinstance(made, tuple) else made
    if output.requires_grad:
        weights = np.random.default_rng(9).standard_normal(tuple(output.shape)).astype(np.float32)
        (output * tg.tensor(weights, device=place)).sum().backward()
    found = [output, *(x.grad for x in [*inputs, *layer.parameters()] if x is not None), *layer.buffers()]
    return [None if x is None else x.detach().cpu().numpy() for x in found]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.made} {case.inputs}")
def test_layer(case: Case) -> None:
    for found, wanted in zip(outcome(case, "cuda"), outcome(case, "cpu"), strict=True):
        assert (found is None) == (wanted is None)
        if found is not None:
            np.testing.assert_allclose(found, wanted, rtol=3e-5, atol=3e-5)
