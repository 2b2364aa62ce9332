"""Small language models for tests: the scores of their tokens differ clearly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tilegrad as tg
from tilegrad import nn
from tilegrad.nn import models

VOCABULARY, CONTEXT = 23, 40


def filled(model: Any, seed: int = 0, scale: float = 0.5) -> Any:
    """Fill a model with random weights, in evaluation mode."""
    rng = np.random.default_rng(seed)
    with tg.no_grad():
        for p in model.parameters():
            p.copy_(tg.tensor((scale * rng.standard_normal(tuple(p.shape))).astype(np.float32)))
    return model.eval()


def gpt(seed: int = 0) -> Any:
    return filled(models.GPT(VOCABULARY, CONTEXT, width=16, layers=2, heads=2), seed)


class GroupedQueries(nn.Module):
    """Heads of queries that share keys, positions by rotation, and a `forward` that scores all tokens."""

    context = CONTEXT

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 16)
        self.query, self.pair, self.out = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, VOCABULARY)

    def forward(self, tokens: Any, cache: Any = None) -> Any:
        batch, length = tokens.shape
        places = tg.arange(length) if cache is None else cache.positions
        x = self.embedding(tokens) + (places.float() * 0.3).sin().unsqueeze(-1)
        query = self.query(x).view(batch, length, 4, 4).transpose(1, 2)
        key, value = (y.reshape(batch, length, 1, 4).transpose(1, 2) for y in self.pair(x).chunk(2, -1))
        if cache is None:
            attend = nn.functional.scaled_dot_product_attention
            seen = attend(query, key, value, is_causal=True, scale=0.7, enable_gqa=True)
        else:
            seen = cache.attend(query, key, value, scale=0.7)
        return self.out(x + seen.transpose(1, 2).reshape(batch, length, 16))


class EncoderOnly(nn.Module):
    """Layers of `nn` under a triangular mask."""

    context = CONTEXT

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=True, norm_first=True)
        self.embedding, self.places = nn.Embedding(VOCABULARY, 16), nn.Embedding(CONTEXT, 16)
        self.layers = nn.TransformerEncoder(layer, 2, nn.LayerNorm(16))
        self.out = nn.Linear(16, VOCABULARY)

    def forward(self, tokens: Any, cache: Any = None) -> Any:
        length = tokens.shape[1]
        x = self.embedding(tokens) + self.places(tg.arange(length) if cache is None else cache.positions)
        if cache is not None:
            return self.out(cache.last(self.layers(x, cache=cache)))
        return self.out(self.layers(x, nn.Transformer.generate_square_subsequent_mask(length), is_causal=True))


MODELS: dict[str, Any] = {
    "gpt": gpt,
    "grouped": lambda: filled(GroupedQueries()),
    "encoder": lambda: filled(EncoderOnly()),
}


def logits(model: Any, tokens: Sequence[int]) -> Any:
    """Scores after the last token, computed without a cache."""
    with tg.no_grad():
        return model(tg.tensor([list(tokens)]))[0, -1].numpy()


def greedy(model: Any, prompt: Sequence[int], count: int) -> list[int]:
    """The most likely tokens, each from all before it."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits(model, tokens).argmax()))
    return tokens[len(prompt) :]


def begun_requests(generator: Any, monkeypatch: Any) -> list[Any]:
    """A list to which the answers are added that are begun in the background from now on."""
    found: list[Any] = []
    submit = generator.submit

    def recorded(*args: Any, **settings: Any) -> Any:
        found.append(submit(*args, **settings))
        return found[-1]

    monkeypatch.setattr(generator, "submit", recorded)
    return found
