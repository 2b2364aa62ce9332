"""Attention layers and transformers: values, gradients and training are those of PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import ArgumentError, ShapeError

torch = pytest.importorskip("torch")
nn = tg.nn


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def same(x: Any, y: Any, tolerance: float = 1e-4) -> None:
    np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=tolerance, atol=tolerance)


def pair(name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
    """The same layer here and in PyTorch, with the same weights."""
    ours, theirs = getattr(nn, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
    ours.load_state_dict({k: tg.tensor(v.detach().numpy()) for k, v in theirs.state_dict().items()})
    assert list(ours.state_dict()) == list(theirs.state_dict())
    return ours, theirs


def compare(ours: Any, theirs: Any, arrays: list[Any], **options: Any) -> None:
    """Values, and the gradients of inputs and weights."""
    found = []
    for library, layer in ((tg, ours), (torch, theirs)):
        inputs = [library.tensor(a, requires_grad=True) for a in arrays]
        given = {k: library.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
        made = layer(*inputs, **given)
        outputs = [y for y in made if y is not None] if isinstance(made, tuple) else [made]
        sum((y * library.tensor(random(*y.shape, seed=7))).sum() for y in outputs).backward()
        found.append([*outputs, *[t.grad for t in (*inputs, *layer.parameters())]])
    for x, y in zip(*found, strict=True):
        same(x, y)


QUERIES, KEYS, BATCH, WIDTH = 11, 9, 2, 8


def sequences(batch_first: bool, widths: tuple[int, int, int] = (WIDTH, WIDTH, WIDTH)) -> list[Any]:
    lengths = (QUERIES, KEYS, KEYS)
    shapes = [(BATCH, n, w) if batch_first else (n, BATCH, w) for n, w in zip(lengths, widths, strict=True)]
    return [random(*shape, seed=n) for n, shape in enumerate(shapes)]


PADDING = np.array([[False] * 7 + [True] * 2, [False] * 9])
OPTIONS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"batch_first": True}, {"need_weights": False}),
    ({}, {"average_attn_weights": False, "attn_mask": random(QUERIES, KEYS)}),
    ({"add_bias_kv": True, "add_zero_attn": True}, {"key_padding_mask": PADDING, "need_weights": False}),
    ({"bias": False}, {"key_padding_mask": PADDING, "attn_mask": random(BATCH * 2, QUERIES, KEYS) > 1}),
]


@pytest.mark.parametrize(("made", "called"), OPTIONS, ids=str)
def test_multihead_attention(made: dict[str, Any], called: dict[str, Any]) -> None:
    compare(*pair("MultiheadAttention", WIDTH, 2, **made), sequences("batch_first" in made), **called)


def test_multihead_attention_of_other_widths() -> None:
    compare(*pair("MultiheadAttention", WIDTH, 4, kdim=5, vdim=6), sequences(False, (WIDTH, 5, 6)))


class Self(tg.nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any, **options: Any) -> Any:
        return self.layer(x, x, x, **options)


class TorchSelf(torch.nn.Module):  # type: ignore[name-defined]
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any, **options: Any) -> Any:
        return self.layer(x, x, x, **options)


def test_self_attention_with_a_triangle() -> None:
    ours, theirs = pair("MultiheadAttention", WIDTH, 2)
    mask = np.triu(np.ones((QUERIES, QUERIES), bool), 1)
    x = sequences(False)[:1]
    compare(Self(ours), TorchSelf(theirs), x, attn_mask=mask, is_causal=True, need_weights=False)
    compare(Self(ours), TorchSelf(theirs), [random(QUERIES, WIDTH)], attn_mask=mask)


def test_weights_cost_nothing_unless_read() -> None:
    layer = nn.MultiheadAttention(WIDTH, 2)
    x = tg.tensor(random(16, 2, WIDTH))
    with_weights = tg.explain(lambda x: layer(x, x, x)[0], x)
    without = tg.explain(lambda x: layer(x, x, x, need_weights=False)[0], x)
    assert len(with_weights.kernels) == len(without.kernels)


@pytest.mark.parametrize("options", [{}, {"norm_first": True, "batch_first": True, "activation": "gelu"}], ids=str)
def test_encoder_layer(options: dict[str, Any]) -> None:
    ours, theirs = pair("TransformerEncoderLayer", WIDTH, 2, 16, 0.0, **options)
    compare(ours, theirs, sequences("batch_first" in options)[:1])


def test_decoder_layer() -> None:
    ours, theirs = pair("TransformerDecoderLayer", WIDTH, 2, 16, 0.0)
    mask = np.triu(np.full((QUERIES, QUERIES), -np.inf, np.float32), 1)
    compare(ours, theirs, sequences(False)[:2], tgt_mask=mask, tgt_is_causal=True)


def test_transformer() -> None:
    ours, theirs = pair("Transformer", WIDTH, 2, 1, 2, 16, 0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(KEYS).numpy()
    compare(ours, theirs, sequences(True)[:2], tgt_mask=mask, src_key_padding_mask=np.zeros((BATCH, QUERIES), bool))


def test_training() -> None:
    """Four steps of AdamW on a small language model give the same losses."""
    ours, theirs = pair("TransformerEncoderLayer", WIDTH, 2, 16, 0.0, batch_first=True)
    (x,) = sequences(True)[:1]
    mask = nn.Transformer.generate_square_subsequent_mask(QUERIES).numpy()
    wanted = random(*x.shape, seed=5)
    optimizers = tg.optim.Adam(ours.parameters(), 0.01), torch.optim.Adam(theirs.parameters(), 0.01)

    @tg.jit
    def step(x: Any, mask: Any, wanted: Any) -> Any:
        optimizers[0].zero_grad()
        loss = (ours(x, mask, is_causal=True) - wanted).square().mean()
        loss.backward()
        optimizers[0].step()
        return loss

    for _ in range(4):
        mine = step(*map(tg.tensor, (x, mask, wanted)))
        optimizers[1].zero_grad()
        loss = (theirs(torch.tensor(x), torch.tensor(mask), is_causal=True) - torch.tensor(wanted)).square().mean()
        loss.backward()
        optimizers[1].step()
        same(mine, loss)


def test_dropout_only_in_training() -> None:
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.5)
    x = tg.tensor(random(9, 2, WIDTH))
    tg.manual_seed(0)
    assert np.abs((layer(x) - layer(x)).detach().numpy()).max() > 0.01
    layer.eval()
    same(layer(x), layer(x))
    attention = nn.MultiheadAttention(WIDTH, 2, dropout=0.5)
    y, weights = attention(x, x, x)
    assert (weights.detach().numpy() == 0).any()
    assert y.shape == x.shape


def test_bad_input() -> None:
    layer, x = nn.MultiheadAttention(WIDTH, 2), tg.ones(5, 2, WIDTH)
    with pytest.raises(ArgumentError, match="cannot share"):
        nn.MultiheadAttention(7, 2)
    with pytest.raises(ArgumentError, match="give the mask too"):
        layer(x, x, x, is_causal=True)
    with pytest.raises(ShapeError, match="last axes must be 8, 8 and 8"):
        layer(x, tg.ones(5, 2, 4), x)
    with pytest.raises(ShapeError, match="attn_mask has the shape"):
        layer(x, x, x, attn_mask=tg.ones(4, 4))
    with pytest.raises(ShapeError, match="key_padding_mask has the shape"):
        layer(x, x, x, key_padding_mask=tg.ones(3, 5).bool())
    with pytest.raises(ArgumentError, match="'relu', 'gelu'"):
        nn.TransformerEncoderLayer(WIDTH, 2, activation="tanh")
    with pytest.raises(ShapeError, match="same batch"):
        nn.Transformer(WIDTH, 2, 1, 1, 8)(x, tg.ones(5, 3, WIDTH))
