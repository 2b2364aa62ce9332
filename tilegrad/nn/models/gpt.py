"""Define GPT: a transformer that predicts the next token from the previous ones."""

from __future__ import annotations

from math import sqrt
from typing import Any

from ...autograd.modes import no_grad
from ...errors import ArgumentError, ShapeError
from ...functions.arithmetic import where
from ...functions.creation import arange, tensor
from ...functions.joining import cat
from ...random import multinomial
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..dropout import Dropout
from ..embedding import Embedding
from ..layers import Linear
from ..lists import ModuleList
from ..module import Module
from ..norm import LayerNorm

__all__ = ["GPT"]


class CausalSelfAttention(Module):
    """Causal multi-head self-attention."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.c_attn = Linear(width, 3 * width)
        self.c_proj = Linear(width, width)

    def forward(self, x: Tensor, cache: Any = None) -> Tensor:
        batch, length, width = x.shape
        parts = self.c_attn(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = (parts[:, :, n].transpose(1, 2) for n in range(3))
        if cache is None:
            rate = self.dropout if self.training else 0.0
            seen = F.scaled_dot_product_attention(query, key, value, dropout_p=rate, is_causal=True)
        else:
            seen = cache.attend(query, key, value)
        return F.dropout(self.c_proj(seen.transpose(1, 2).reshape(batch, length, width)), self.dropout, self.training)


class TransformerBlock(Module):
    """Attention, then a feed-forward network, each normalised before and with a residual connection."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.ln_1 = LayerNorm(width)
        self.attn = CausalSelfAttention(width, heads, dropout)
        self.ln_2 = LayerNorm(width)
        self.c_fc = Linear(width, 4 * width)
        self.c_proj = Linear(4 * width, width)
        self.dropout = dropout

    def forward(self, x: Tensor, cache: Any = None) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache)
        made: Tensor = self.c_proj(F.gelu(self.c_fc(self.ln_2(x))))
        return x + F.dropout(made, self.dropout, self.training)


class GPT(Module):
    """A causal language model; input and output embeddings share their weights.

    >>> import tilegrad as tg
    >>> model = GPT(65, context=16, width=8, layers=1, heads=2)
    >>> model(tg.zeros(3, 16, dtype=tg.int64)).shape
    (3, 16, 65)
    """

    def __init__(
        self,
        vocabulary: int = 256,
        context: int = 128,
        width: int = 128,
        layers: int = 4,
        heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if width % heads:
            raise ArgumentError(f"GPT: {heads} heads do not divide a width of {width}")
        self.context = context
        self.wte = Embedding(vocabulary, width)
        self.wpe = Embedding(context, width)
        self.drop = Dropout(dropout)
        self.h = ModuleList([TransformerBlock(width, heads, dropout) for _ in range(layers)])
        self.ln_f = LayerNorm(width)
        self._begin(layers)

    def _begin(self, layers: int) -> None:
        """Initialise as GPT-2: projections into the residual stream are scaled down by the depth."""
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                init.zeros_(parameter)
            elif parameter.dim() == 2:
                init.normal_(parameter, std=0.02 / (sqrt(2 * layers) if name.endswith("c_proj.weight") else 1))

    def forward(self, tokens: Tensor, cache: Any = None) -> Tensor:
        """Return scores of the token after each one; with a cache (tg.generation), of those that it asks for."""
        if tokens.dim() != 2:
            raise ShapeError(f"GPT takes tokens of the shape (batch, length), not {tuple(tokens.shape)}")
        length = tokens.shape[1]
        if isinstance(length, int) and length > self.context:
            raise ShapeError(f"GPT: {length} tokens, but the context is {self.context}: give the last {self.context}")
        positions = arange(length, device=tokens.device) if cache is None else cache.positions
        x = self.drop(self.wte(tokens) + self.wpe(positions))
        for block in self.h:
            x = block(x, cache)
        if cache is not None:
            x = cache.last(x)
        return F.linear(self.ln_f(x), self.wte.weight)

    def generate(self, tokens: Tensor, count: int, temperature: float = 1.0) -> Tensor:
        """Append sampled tokens to the tokens (batch, length), one at a time."""
        made = [tokens]
        with no_grad():
            window, filled = self._window(tokens)
            for _ in range(count):
                # places and lengths are tensors: the graph is the same for each token, and compiled once
                scores = self(window).index_select(1, tensor([filled - 1], device=tokens.device))[:, 0]
                drawn = multinomial(F.softmax(scores / temperature, -1), 1)
                if filled < self.context:
                    window = where(arange(self.context, device=tokens.device) == tensor(filled), drawn, window)
                    filled += 1
                else:
                    window = cat([window[:, 1:], drawn], 1)
                window.realize()
                made.append(window[:, filled - 1 : filled])
        return cat(made, 1)

    def _window(self, tokens: Tensor) -> tuple[Tensor, int]:
        """Return the last tokens, padded to the context length, and their number."""
        seen = tokens[:, -self.context :]
        length = int(seen.shape[1])
        if not length:
            raise ShapeError("GPT.generate goes on from at least one token; the shape is " + str(tuple(tokens.shape)))
        return F.pad(seen, (0, self.context - length)).realize(), length
