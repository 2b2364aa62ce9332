"""Every layer on another device than the CPU: nothing that it makes for itself is left behind. Nothing runs."""

import numpy as np
import pytest

import tilegrad as tg
from tests.nn.cases import ACTIVATIONS, IMAGES, LOSSES, NORMS, PADDINGS, PRODUCTS, RANDOM, Case
from tests.nn.given import given
from tilegrad import nn

CASES = [*ACTIVATIONS, *NORMS, *PADDINGS, *IMAGES, *PRODUCTS, *LOSSES, *RANDOM]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.made} {case.inputs}")
def test_layer(case: Case) -> None:
    layer = eval(case.made, {name: getattr(nn, name) for name in nn.__all__}).to("null")
    arrays = [given(shape, n) for n, shape in enumerate(case.inputs)]
    inputs = [
        None if a is None else tg.tensor(a, device="null", requires_grad=n == 0 and a.dtype == np.float32)
        for n, a in enumerate(arrays)
    ]
    made = layer(*inputs)
    output = made[0] if isinstance(made, tuple) else made
    assert output.device.name == "null"
    if output.requires_grad:
        output.sum().backward()
        assert all(
            x.grad.device.name == "null" for x in [*inputs, *layer.parameters()] if x is not None and x.grad is not None
        )
