"""Sums of products in pieces: these are the whole sum, however many columns it goes through."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.examples_windows import sliding
from tests.schedule.test_lowering import execute
from tests.schedule.test_target_model import SMALL
from tilegrad.backend.reference.graph import interpret
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType
from tilegrad.ops.arithmetic import mul
from tilegrad.ops.contraction import matmul
from tilegrad.ops.convolution import Convolve
from tilegrad.ops.exponential import exp
from tilegrad.ops.movement import permute
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.split_k import PartialSums
from tilegrad.transform.pipeline import optimise

COPIED = SMALL._replace(
    matmul=SMALL.matmul._replace(async_copy_bytes=16, min_split_depth=8, max_split_k=128, split_k_tiles=64)
)
"""Operands are copied there while products are computed, as on GPUs, and a sum of 16 is long."""


def split_k(graph: Graph) -> list[int]:
    """Computes a graph of whole numbers as such a device would, and compares; gives how many pieces its sums have."""
    made = graph
    made = optimise(made, COPIED)
    schedule = fuse(made, COPIED)
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, x.shape).astype(np.float32) for x in graph.inputs]
    for found, right in zip(execute(assemble(schedule), arrays), interpret(graph, arrays), strict=True):
        np.testing.assert_array_equal(found, right)
    return [v.count for g in schedule.groups for v in g.stored if isinstance(v, PartialSums)]


def test_pieces_lie_as_the_only_reader_goes_through_them() -> None:
    x, y = Input(TensorType(float32, (16, 512)), "x"), Input(TensorType(float32, (512, 32)), "y")
    made = matmul(x, y)
    turned = mul(permute(made, (1, 0)), 2.0)
    for outputs, axes in (
        ((made, turned), (1, 0)),
        ((made, mul(made, 2.0)), (0, 1)),
        ((made, turned, exp(made)), (0, 1)),
    ):
        schedule = fuse(Graph((x, y), outputs), COPIED)
        (pieces,) = [v for g in schedule.groups for v in g.stored if isinstance(v, PartialSums)]
        assert pieces.axes == axes
        split_k(Graph((x, y), outputs[:2]))


@pytest.mark.parametrize(("taps", "stride", "dilation"), [(3, 1, 1), (5, 1, 1), (4, 3, 2)])
def test_pieces_are_the_whole_sum(taps: int, stride: int, dilation: int) -> None:
    """576 terms, 3 rows of 192 of them, are no nine pieces of one row: 9 divides their product alone."""
    found = []
    for channels, outputs in ((64, 20), (104, 8), (192, 8)):
        axes = (sliding(3, taps, stride, taps // 2, dilation), sliding(9, taps, stride, taps // 2 + 2, dilation))
        x = Input(TensorType(float32, (1, 1, channels, 3, 9)), "x")
        w = Input(TensorType(float32, (1, outputs, channels, taps, taps)), "w")
        found += split_k(Graph((x, w), (Convolve(x, w, axes),)))
    assert max(found, default=1) > 4, "nothing was made in pieces"
