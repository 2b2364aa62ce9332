"""Findings of PyTorch's own samples: calls that it accepts, with their results, and calls that it refuses."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest

import tilegrad as tg
from tilegrad.errors import TilegradError

WRONG = """
addr(ones(2, 2).int(), ones(2).int(), ones(2).int(), beta=True)
addr(ones(2, 2).int(), ones(2).int(), ones(2).int(), alpha=0.5)
addr(ones(2, 2), ones(2), ones(2), alpha=True)
bucketize(ones(3), ones(2, 2))
linalg.vecdot(ones(4), ones(1))
softmax(tensor(1.0), 1)
swapdims(tensor(1), 1, 0)
tensor(1).transpose(0, -2)
clamp_max(2, 3)
clamp_min(2, tensor([1, 2]))
cov(ones(5), fweights=ones(5))
gradient(ones(3, 3), dim=(1, 1))
gradient(ones(3, 3), dim=3)
gradient(ones(3, 3), dim=(1, -1))
ones(3, 2).index_add(0, tensor([0, 2]), ones(2, 3))
ones(3, 2).index_add_(1, tensor([0]), ones(2, 1))
kthvalue(ones(3), 4)
linalg.cross(ones(5, 3), ones(2, 5, 3))
multinomial(ones(3), 0)
multinomial(ones(1, 2, 3), 2)
native_layer_norm(ones(2, 3), (), None, None, 1e-5)
nn.functional.avg_pool2d(ones(2, 0, 4, 4), 2)
nn.functional.lp_pool1d(ones(0, 4), 2.0, 2)
nn.functional.max_pool1d(ones(0, 4), 2)
nn.functional.max_pool2d(ones(2, 0, 4, 4), 2)
nn.functional.max_pool3d(ones(0, 1, 2, 2), 1)
nn.functional.embedding_bag(tensor([[0, 1]]), tensor([[1, 2], [3, 4]]))
nn.functional.hardtanh(tensor([1], dtype=uint8), -1.5, 2.0)
nn.functional.linear_cross_entropy(ones(3), ones(2, 4, 3), tensor([0, 1, 0, 1]))
nn.functional.multilabel_margin_loss(ones(0), ones(0).long())
nn.functional.one_hot(tensor([1, 0], dtype=int32), 2)
nn.functional.one_hot(tensor([1, 0], dtype=uint8), 2)
nn.functional.prelu(ones(2, 8, 3), ones(2, 4))
nonzero(ones(3), as_tuple=True, out=(empty(0).long(),))
rot90(ones(3, 3), dims=(1, 1))
rot90(ones(3, 3), 1, (1, -1))
nn.functional.multi_head_attention_forward(*[ones(3, 1, 2)] * 3, 2, 1, ones(6, 2), ones(6), None, None, False, 0.0, ones(2, 2), ones(2), attn_mask=ones(3, 3).int())
""".strip().splitlines()  # noqa: E501


RIGHT = """
histogram(tensor([1.0, 3.0, 2.0]), 2, range=(2.0, 2.0)).bin_edges | [1.5, 2.0, 2.5] float32 (1,)
histogram(empty(0), 2).bin_edges | [0.0, 0.5, 1.0] float32 (1,)
histogram(tensor([2.0]), 2).bin_edges | [1.5, 2.0, 2.5] float32 (1,)
kthvalue(tensor(True), 1).values | True bool ()
atan2(tensor([1, 4], dtype=uint8), tensor(-4)) > 2 | [True, True] bool (1,)
tensor([1, 4], dtype=uint8) / tensor(-4, dtype=int32) | [-0.25, -1.0] float32 (1,)
copysign(tensor([1, 4], dtype=uint8), tensor(-4)) | [-1.0, -4.0] float32 (1,)
float_power(tensor([1, 2], dtype=uint8), tensor(-2)) | [1.0, 0.25] float64 (1,)
xlogy(tensor(-4), tensor([1, 1], dtype=uint8)) | [-0.0, -0.0] float32 (1,)
cov(tensor([1.0])) | nan float32 ()
cov(tensor([[1.0, 2.0], [3.0, 5.0]]), correction=3) | [[inf, inf], [inf, inf]] float32 (2, 1)
logspace(1.5, 2.5, 1, dtype=int64) | [31] int64 (1,)
linalg.matrix_power(ones(2, 2, requires_grad=True), 0).requires_grad | True
nextafter(ones(1, requires_grad=True), ones(1)).requires_grad | True
nn.functional.fold(tensor([[[1, 0], [1, 0]]], dtype=bool), (1, 3), (1, 2)) | [[[[True, True, False]]]] bool (3, 3, 3, 1)
nn.functional.hardtanh(tensor([0, 3], dtype=uint8), -0.5, 2.5) | [0, 2] uint8 (1,)
nn.functional.local_response_norm(ones(0, 1, 2).long(), 1) | [] int64 (2, 2, 1)
nn.functional.max_unpool2d(ones(1, 2, 2, 3).to(memory_format=channels_last), zeros(1, 2, 2, 3).long(), 2).stride() | (48, 1, 12, 2)
nn.functional.multi_margin_loss(tensor(2.0), tensor(0)) | 0.0 float32 ()
nn.functional.softmin(ones(0, 3).long(), -1) | [] int64 (3, 1)
softmax(ones(2, 0).bool(), -1) | [[], []] bool (1, 1)
log_softmax(ones(2, 0).int(), -1) | [[], []] int32 (1, 1)
quantile(arange(6.0).reshape(2, 3), tensor([0.0, 1.0]), 0) | [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]] float32 (1, 2)
quantile(tensor([[nan, 1.0], [2.0, 3.0]]), tensor([0.0, 1.0]), 1) | [[nan, 2.0], [nan, 3.0]] float32 (1, 2)
unique(tensor([[[1, 0, 1]]]).expand(2, 2, 3), dim=-1) | [[[0, 1], [0, 1]], [[0, 1], [0, 1]]] int64 (2, 1, 4)
unique_consecutive(ones(2, 3, 2), dim=1) | [[[1.0, 1.0]], [[1.0, 1.0]]] float32 (2, 4, 1)
""".strip().splitlines()  # noqa: E501


class Names(dict[str, Any]):
    """The functions of a library by name."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def __missing__(self, name: str) -> Any:
        return getattr(self.library, name) if hasattr(self.library, name) else {"nan": math.nan}[name]


@pytest.mark.parametrize("call", WRONG)
def test_the_call_is_refused(call: str) -> None:
    with pytest.raises((TilegradError, TypeError)):
        eval(call, {}, Names(tg))
    if "torch" in sys.modules:
        with pytest.raises((RuntimeError, TypeError, IndexError, ValueError, AssertionError)):
            eval(call, {}, Names(sys.modules["torch"]))


def shown(x: Any) -> str:
    """A tensor as a list, its type and its strides; anything else as it is written."""
    if not hasattr(x, "stride"):
        return str(x)
    return f"{x.tolist()} {repr(x.dtype).rpartition('.')[2]} {tuple(x.stride())}"


@pytest.mark.parametrize("line", RIGHT)
def test_the_call_gives_what_pytorch_gives(line: str) -> None:
    call, _, expected = line.partition(" | ")
    assert shown(eval(call, {}, Names(tg))) == expected
    if "torch" in sys.modules:
        assert shown(eval(call, {}, Names(sys.modules["torch"]))) == expected


def test_a_step_to_the_next_number_has_the_gradient_of_its_start() -> None:
    x, y = tg.tensor([1.0, 2.0], requires_grad=True), tg.tensor([1.0, 3.0], requires_grad=True)
    assert [g.tolist() for g in tg.autograd.grad(tg.nextafter(x, y).sum(), (x, y))] == [[0.0, 1.0], [0.0, 0.0]]


def test_normalising_puts_its_results_into_given_tensors() -> None:
    x, places = tg.tensor([[1.0], [3.0]]), tuple(tg.empty(0) for _ in range(3))
    tg.native_batch_norm(x, None, None, None, None, True, 0.1, 0.0, out=places)
    assert [p.tolist() for p in places] == [[[-1.0], [1.0]], [2.0], [1.0]]


def test_places_of_the_nearest_elements_have_a_gradient_of_zeros() -> None:
    x, grid = tg.arange(4.0).reshape(1, 1, 2, 2), tg.tensor([[[[-1.0, 1.0]]]], requires_grad=True)
    y = tg.nn.functional.grid_sample(x, grid, mode="nearest", align_corners=True)
    assert y.tolist() == [[[[2.0]]]]
    assert tg.autograd.grad(y.sum(), grid)[0].tolist() == [[[[0.0, 0.0]]]]


def test_what_is_infinite_or_0_has_a_finite_gradient() -> None:
    x, slope = tg.tensor([[math.inf, -1.0]]), tg.tensor([0.5, 0.5], requires_grad=True)
    assert tg.autograd.grad(tg.nn.functional.prelu(x, slope).sum(), slope)[0].tolist() == [0.0, -1.0]
    images = tg.tensor([[0.0, 2.0, -2.0]], requires_grad=True)
    pooled = tg.nn.functional.lp_pool1d(images, 2.0, 1)
    assert tg.autograd.grad(pooled.sum(), images)[0].tolist() == [[0.0, 1.0, -1.0]]


@pytest.mark.parametrize("padding", ["border", "reflection"])
def test_places_at_the_border_have_no_gradient(padding: str) -> None:
    x, grid = tg.arange(4.0).reshape(1, 1, 2, 2), tg.tensor([[[[-1.0, 0.0], [1.0, 0.5]]]], requires_grad=True)
    y = tg.nn.functional.grid_sample(x, grid, padding_mode=padding, align_corners=True)
    assert tg.autograd.grad(y.sum(), grid)[0].tolist() == [[[[0.0, 1.0], [0.0, 1.0]]]]
