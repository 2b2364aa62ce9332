"""Input gradients of convolutions by col2im equal the direct ones."""

from __future__ import annotations

import numpy as np
import pytest

from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import float64
from tilegrad.ir.graph import Graph, Input, TensorType
from tilegrad.ops.convolution import ConvolveBack, Windows
from tilegrad.ops.pooling import Col2im
from tilegrad.ops.sliding import Sliding
from tilegrad.transform.col2im_gradient import col2im_gradient

LINE = (Sliding(9, 6, 4),)
PADDED = (Sliding(6, 6, 3, 1, 1), Sliding(5, 4, 3, 1, 1, 2))


def way_back(axes: Windows, groups: int, outputs: int, channels: int) -> Graph:
    y = Input(TensorType(float64, (2, groups, outputs, *[a.count for a in axes])), "y")
    turned = Input(TensorType(float64, (groups, channels, outputs, *[a.taps for a in axes])), "turned")
    return Graph((y, turned), (ConvolveBack(y, turned, axes),))


@pytest.mark.parametrize("axes", [LINE, PADDED], ids=["line", "padded"])
@pytest.mark.parametrize("groups", [1, 2])
def test_it_means_the_same(axes: Windows, groups: int) -> None:
    graph = way_back(axes, groups, 16, 2)
    changed = col2im_gradient(graph)
    assert any(type(v) is Col2im for v in changed.values())
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([int(n) for n in x.shape]) for x in graph.inputs]  # type: ignore[call-overload]
    (expected,), (found,) = interpret(graph, arrays), interpret(changed, arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_many_channels_and_strides_are_left_alone() -> None:
    for graph in (way_back(LINE, 1, 16, 8), way_back((Sliding(9, 3, 4, 2),), 1, 64, 2)):
        assert col2im_gradient(graph) is graph
