"""Operations that have nothing to do: a sum of one element, a roll by 0, a dropout of nothing. Their results are memory
of their own where PyTorch copies, and share that of the operand where PyTorch gives a view or the tensor itself.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import tilegrad as tg

OWN = """x.sum(0, keepdim=True)|x.sum(-1, keepdim=True)|x.mean(0, keepdim=True)|x.amax(0, keepdim=True)|x.cumsum(0)
x.prod(0, keepdim=True)|x.logsumexp(0, keepdim=True)|x.max(0, keepdim=True).values|x.min(0, keepdim=True)[0]
x.median(0, keepdim=True).values|x.cummax(0).values|x.sort(0).values|x.topk(1, 0).values|x.kthvalue(1, 0, True).values
x.flip(0)|x.flip([])|T.flipud(x)|x.roll(1, 0)|x.roll(0, 0)|x.roll(2)|x.rot90(0)|x.rot90(2)|x.cumprod(0)
x.logcumsumexp(0)|T.diff(x, n=0)|F.pad(x, (0, 0))|T.constant_pad_nd(x, (0, 0), 0)|T.cat([x])|T.cat([x, x[:0]])
F.pad(x[None], (0, 0), mode='reflect')[0]|F.pad(x[None], (0, 0), mode='replicate')[0]|T.stack([x])[0]|T.hstack([x])
T.vstack([x])|T.dstack([x])|T.block_diag(x)|x.clone()|x.to(x.dtype, copy=True)|x.repeat(1, 1)|x.tile((1,))
T.tile(x, (1, 1))|x.repeat_interleave(1, 0)|x[[0]]|x[x == x]|x.index_select(0, T.tensor([0]))|x.masked_select(x == x)
x.gather(0, T.tensor([[0]]))|x.tril(5)|x.triu()|x * 1|x + 0|x ** 1|x.clamp(min=-100)|T.where(x == x, x, x)
x.masked_fill(x != x, 0)|T.maximum(x, x)|x.relu()|F.relu(x)|F.hardtanh(x, -100, 100)|T.einsum('ij->j', x)[None]
F.avg_pool1d(x, 1)|F.max_pool1d(x, 1)|F.pixel_shuffle(x[None, None], 1)[0, 0]|F.pixel_unshuffle(x[None, None], 1)[0, 0]
F.channel_shuffle(x[None, None], 1)[0, 0]|F.interpolate(x[None], scale_factor=1)[0]|F.mse_loss(x, x * 0)|x.nan_to_num()
x.index_add(0, T.zeros(0, dtype=T.int64), x[:0])|x.select_scatter(x[0], 0, 0)|x.trunc()|x.round()|x.floor()|x.abs()"""
SHARED = """x.contiguous()|x.to(x.dtype)|x.type(x.dtype)|x.to(x.device)|x.cpu()|x.to(x)|x.view(x.dtype)
F.dropout(x, 0.0)|F.dropout(x, 0.5, training=False)|T.nn.Dropout(0.5).eval()(x)|T.nn.Identity()(x)|x.expand(-1, -1)
x.expand_as(x)|x.broadcast_to(x.shape)|T.broadcast_tensors(x, x)[0]|x.view(1, 1)|x.view_as(x)|x.reshape(1, 1)
x.flatten()|x.ravel()|x.squeeze(0)|x.unsqueeze(0)|x.T|x.mT|x.t()|x.permute(0, 1)|x.transpose(0, 0)|x.movedim(0, 0)
T.atleast_1d(x)|T.atleast_3d(x)|x.narrow(0, 0, 1)|x[:]|x[...]|x.diagonal()|x[0]|x.chunk(1)[0]|x.unbind()[0]
T.tensor_split(x, 1)[0]|x.detach()|x.data|T.as_tensor(x)|T.nn.Flatten(0)(x)|T.positive(x)|+x|T.nn.Sequential()(x)"""
EXPRESSIONS = [(e, own) for text, own in ((OWN, True), (SHARED, False)) for e in text.replace("\n", "|").split("|")]


def owns(T: Any, expression: str, dtype: str) -> bool:
    """Whether a write to the result leaves the operand as it was."""
    x = T.full((1, 1), 2, dtype=getattr(T, dtype))
    eval(expression, {"T": T, "F": T.nn.functional, "x": x}).add_(1)
    return bool(x.tolist() == [[2]])


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_memory_of_results(dtype: str) -> None:
    for expression, own in EXPRESSIONS:
        if dtype == "float32" or not any(
            name in expression for name in ("mean", "logsumexp", "logcum", "F.", "interp")
        ):
            assert owns(tg, expression, dtype) == own, expression


def test_the_lists_are_those_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    warnings.simplefilter("ignore")
    for expression, own in EXPRESSIONS:
        assert owns(torch, expression, "float32") == own, expression


@pytest.mark.parametrize("expression", [e for e, own in EXPRESSIONS if own and "mse_loss" not in e])
def test_a_write_to_the_result_is_none_to_what_a_gradient_needs(expression: str) -> None:
    x = tg.full((1, 1), 2.0, requires_grad=True)
    space = {"T": tg, "F": tg.nn.functional, "x": x * 1.5}
    square = space["x"] ** 2
    eval(expression, space).add_(1)
    square.backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[9.0]]


@pytest.mark.parametrize(
    "expression", ["x.sum()", "x.flip([])", "x.roll([], [])", "x.mean()", "x.repeat(())", "x.max()"]
)
def test_the_result_of_a_leaf_is_no_leaf(expression: str) -> None:
    x = tg.tensor(1.0, requires_grad=True)
    y = eval(expression)
    assert not y.is_leaf
    y *= 3
    y.backward()
    assert x.grad is not None
    assert (x.item(), x.grad.item()) == (1.0, 3.0)
