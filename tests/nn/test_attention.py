"""Attention: against PyTorch, against its formula, by finite differences."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.errors import ArgumentError, DTypeError, ShapeError

torch = pytorch()
F = tg.nn.functional
attend = F.scaled_dot_product_attention


def random(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def same(x: Any, y: Any, tolerance: float = 2e-5) -> None:
    np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=tolerance, atol=tolerance)


def compare(arrays: list[Any], mask: Any = None, apart: float = 2e-5, **options: Any) -> None:
    """Values and gradients are those of PyTorch."""
    ours = [tg.tensor(a, requires_grad=True) for a in arrays]
    theirs = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = attend(*ours, attn_mask=None if mask is None else tg.tensor(mask), **options)
    z = torch.nn.functional.scaled_dot_product_attention(
        *theirs, attn_mask=None if mask is None else torch.tensor(mask), **options
    )
    same(y, z)
    weights = random(*z.shape, seed=9)
    (y * tg.tensor(weights)).sum().backward()
    (z * torch.tensor(weights)).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        same(a.grad, b.grad, apart)


def three(batch: tuple[int, ...], queries: int, keys: int, width: int, features: int, few: Any = None) -> list[Any]:
    shared = batch if few is None else (*batch[:-1], few)
    return [
        random(*batch, queries, width),
        random(*shared, keys, width, seed=1),
        random(*shared, keys, features, seed=2),
    ]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 5), (40, 70), (100, 64), (130, 131), (270, 300)])
def test_lengths(queries: int, keys: int, causal: bool) -> None:
    compare(three((2, 3), queries, keys, 8, 6), is_causal=causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("empty", range(5))
def test_extents_of_0(empty: int, causal: bool) -> None:
    """No heads, queries, keys, width or features."""
    heads, queries, keys, width, features = (0 if n == empty else extent for n, extent in enumerate((2, 3, 4, 5, 6)))
    compare(three((2, heads), queries, keys, width, features), is_causal=causal)


@pytest.mark.cpu_schedule
@pytest.mark.parametrize(("length", "side"), [(128, 32), (256, 32), (512, 64)])
def test_short_causal_tiles_are_smaller(length: int, side: int) -> None:
    """Smaller tiles waste fewer masked pairs in short sequences; long ones have few such pairs."""
    x = tg.zeros(1, 2, length, 32, device="cpu")
    for causal in (True, False):
        kernel = tg.explain(tg.jit(lambda x: attend(x, x, x, is_causal=causal)), x).kernels["attention"]  # noqa: B023
        assert re.search(rf"start(_\d+)? \+ tl.arange\(0, {side if causal else 64}\)", kernel)
        assert f"first + tl.arange(0, {side if causal else 64})" in kernel


@pytest.mark.parametrize("batch", [(), (3,), (2, 1, 3)], ids=str)
def test_leading_axes(batch: tuple[int, ...]) -> None:
    compare(three(batch, 20, 24, 4, 4), scale=0.7)


def test_keys_shared_by_heads() -> None:
    compare(three((2, 6), 33, 20, 8, 4, few=2), enable_gqa=True)
    compare(three((2, 6), 3, 20, 8, 4, few=2), enable_gqa=True)
    compare(three((2, 6), 33, 20, 8, 4, few=1))


MASKS = [(40, 50), (1, 50), (40, 1), (2, 1, 1, 50), (2, 3, 40, 50), (3, 1, 50), (2, 1, 40, 50)]


@pytest.mark.parametrize("shape", MASKS, ids=str)
@pytest.mark.parametrize("boolean", [True, False])
def test_masks(shape: tuple[int, ...], boolean: bool) -> None:
    mask: Any = random(*shape, seed=3)
    if boolean:
        mask = mask > -0.5
        mask[..., 0] = True
    compare(three((2, 3), 40, 50, 8, 8), mask)


@pytest.mark.parametrize("queries", [4, 40])
def test_a_query_that_meets_no_key_gives_zeros(queries: int) -> None:
    mask = np.ones((queries, 50), bool)
    mask[2] = False
    compare(three((2, 3), queries, 50, 8, 8), mask)
    compare(three((2, 3), queries, 50, 8, 8), np.where(mask, 0, -np.inf).astype(np.float32))


def test_a_mask_that_is_trained() -> None:
    mask = random(20, 24)
    ours, theirs = tg.tensor(mask, requires_grad=True), torch.tensor(mask, requires_grad=True)
    arrays = three((2, 3), 20, 24, 4, 4)
    attend(*map(tg.tensor, arrays), attn_mask=ours).square().sum().backward()
    z = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, arrays), attn_mask=theirs)
    z.square().sum().backward()
    same(ours.grad, theirs.grad)


@settings(max_examples=5, deadline=None)
@given(
    st.integers(8, 90), st.integers(1, 150), st.integers(1, 20), st.integers(1, 20), st.booleans(), st.integers(0, 2)
)
def test_any_shape(queries: int, keys: int, width: int, features: int, causal: bool, masked: int) -> None:
    mask = None
    if masked and not causal:
        mask = random(2, 1, queries, keys, seed=5)
        mask = mask if masked == 1 else mask > 0
    compare(three((2, 2), queries, keys, width, features), mask, is_causal=causal)


def test_huge_scores_do_not_overflow() -> None:
    q, k, v = three((1, 2), 20, 70, 8, 8)
    given = [np.round(q * 4) * 16, np.round(k * 4), v]  # the scores are whole numbers
    compare(given, scale=1.0, apart=1e-3)  # gradients are 0 but for the rounding of numbers of up to 1000


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16, tg.float64])
def test_element_types(dtype: Any) -> None:
    q, k, v = (tg.tensor(x).to(dtype).requires_grad_() for x in three((2, 2), 40, 70, 8, 8))
    y = attend(q, k, v, is_causal=True)
    assert y.dtype is dtype
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    z = attend(*wide, is_causal=True)
    tolerance = {tg.float16: 3e-3, tg.bfloat16: 2e-2, tg.float64: 1e-12}[dtype]
    same(y.double(), z, tolerance)
    y.sum().backward()
    z.sum().backward()
    for a, b in zip((q, k, v), wide, strict=True):
        assert a.grad.dtype is dtype
        same(a.grad.double(), b.grad, 4 * tolerance)


def test_dropout_drops_the_same_pairs_backward() -> None:
    """The result is linear in the values, so its gradient is the matrix of weights that it was made with."""
    q, k, _ = map(tg.tensor, three((2, 3), 40, 50, 8, 8))
    v = tg.tensor(np.broadcast_to(np.eye(50, dtype=np.float32), (2, 3, 50, 50)).copy(), requires_grad=True)
    tg.manual_seed(3)
    weights = attend(q, k, v, dropout_p=0.25)
    upstream = tg.tensor(random(2, 3, 40, 50, seed=4))
    (weights * upstream).sum().backward()
    found = weights.detach()
    same(v.grad, found.transpose(-1, -2) @ upstream)
    whole = (q @ k.transpose(-1, -2) / 8**0.5).softmax(-1)
    dropped = found.numpy() == 0
    assert 0.22 < dropped.mean() < 0.28
    np.testing.assert_allclose(found.numpy()[~dropped], (whole / 0.75).numpy()[~dropped], rtol=1e-4)
    tg.manual_seed(3)
    same(attend(q, k, v, dropout_p=0.25), found)


def test_dropout_is_that_of_the_formula() -> None:
    """Too few queries for the kernel: the same pairs are dropped."""
    q, k, v = map(tg.tensor, three((1, 1), 8, 30, 8, 8))
    tg.manual_seed(1)
    whole = attend(q, k, v, dropout_p=0.5)
    tg.manual_seed(1)
    same(attend(q[:, :, :4], k, v, dropout_p=0.5), whole[:, :, :4])


def test_gradients_to_second_order() -> None:
    shapes = [(1, 2, 9, 3), (1, 1, 11, 3), (1, 1, 11, 2)]
    ours, theirs = ([make(random(*s), requires_grad=True) for s in shapes] for make in (tg.tensor, torch.tensor))
    found, wanted = (
        [*library.autograd.grad(sum(g.square().sum() for g in first), tensors)]
        for library, tensors in ((tg, ours), (torch, theirs))
        for first in [_first_order(library, tensors)]
    )
    for x, y in zip(found, wanted, strict=True):
        same(x, y, 1e-4)


def _first_order(library: Any, tensors: Any) -> Any:
    function = library.nn.functional.scaled_dot_product_attention
    y = function(*tensors, is_causal=True, enable_gqa=True)
    return library.autograd.grad(y.square().sum(), tensors, create_graph=True)


def test_the_scores_are_never_stored() -> None:
    q, k, v = (tg.tensor(x, requires_grad=True) for x in three((1, 1), 256, 512, 8, 8))

    def step(q: Any, k: Any, v: Any) -> Any:
        return tg.autograd.grad(attend(q, k, v).sum(), (q, k, v))

    program = tg.explain(step, q, k, v).program
    assert max(buffer.type.count for buffer in program.buffers) < 256 * 512


def test_vmap() -> None:
    q, k, v = three((4, 2), 20, 24, 4, 4)
    wanted = attend(*map(tg.tensor, (q, k, v)))
    same(tg.vmap(attend)(*map(tg.tensor, (q, k, v))), wanted)
    one_key = tg.vmap(attend, in_dims=(0, None, None))(tg.tensor(q), tg.tensor(k[0]), tg.tensor(v[0]))
    same(one_key[0], wanted[0])

    def loss(q: Any) -> Any:
        return attend(q, tg.tensor(k[0]), tg.tensor(v[0])).square().sum()

    grads = tg.vmap(tg.grad(loss))(tg.tensor(q))
    same(grads[1], tg.grad(loss)(tg.tensor(q[1])))


def test_bad_input() -> None:
    x = tg.ones(2, 3, 10, 4)
    with pytest.raises(ShapeError, match="same width"):
        attend(x, tg.ones(2, 3, 10, 5), x)
    with pytest.raises(ShapeError, match="as many keys as values"):
        attend(x, x, tg.ones(2, 3, 11, 4))
    with pytest.raises(ShapeError, match="at least the axes"):
        attend(tg.ones(4), x, x)
    with pytest.raises(DTypeError, match="one floating-point type"):
        attend(x, x.double(), x)
    with pytest.raises(DTypeError, match="bool or floating-point"):
        attend(x, x, x, tg.ones(10, 10, dtype=tg.int64))
    with pytest.raises(ShapeError, match="does not fit scores"):
        attend(x, x, x, tg.ones(5, 2, 3, 10, 10))
    with pytest.raises(ArgumentError, match="exclude each other"):
        attend(x, x, x, tg.ones(10, 10), is_causal=True)
    with pytest.raises(ArgumentError, match="probability"):
        attend(x, x, x, dropout_p=1.5)
    with pytest.raises(ShapeError, match="cannot share"):
        attend(x, x[:, :2], x[:, :2], enable_gqa=True)
