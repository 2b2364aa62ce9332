"""Define Transformer layers, encoders and decoders."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from ..errors import ArgumentError, ShapeError
from ..functions.creation import full
from ..tensor import Tensor
from . import functional, init
from .attention import MultiheadAttention
from .dropout import Dropout
from .layers import Linear
from .lists import ModuleList
from .module import Module
from .norm import LayerNorm

Activation = str | Callable[[Tensor], Tensor]


def _activation(given: Activation) -> Callable[[Tensor], Tensor]:
    if callable(given):
        return given
    if given not in ("relu", "gelu"):
        raise ArgumentError(f"activation is {given!r}: it must be 'relu', 'gelu' or a function of tensors")
    return functional.relu if given == "relu" else functional.gelu


class _Layer(Module):
    """The base of encoder and decoder layers."""

    attentions: tuple[str, ...]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = functional.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        place = {"device": device, "dtype": dtype}
        for name in self.attentions:
            made = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **place)
            self.add_module(name, made)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **place)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **place)
        self.norm_first = norm_first
        numbers = range(1, len(self.attentions) + 2)
        for n in numbers:
            self.add_module(f"norm{n}", LayerNorm(d_model, layer_norm_eps, bias=bias, **place))
        for n in numbers:
            self.add_module(f"dropout{n}", Dropout(dropout))
        self.activation = _activation(activation)

    def _residual(self, n: int, x: Tensor, block: Callable[[Tensor], Tensor]) -> Tensor:
        """Add the output of a block to x, with the norm before the block or after the sum."""
        norm, dropout = getattr(self, f"norm{n}"), getattr(self, f"dropout{n}")
        if self.norm_first:
            return x + dropout(block(norm(x)))  # type: ignore[no-any-return]
        return norm(x + dropout(block(x)))  # type: ignore[no-any-return]

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))  # type: ignore[no-any-return]


class TransformerEncoderLayer(_Layer):
    """Apply self-attention and a feed-forward network, each with a residual connection."""

    attentions = ("self_attn",)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
        cache: Any = None,
    ) -> Tensor:
        """Return the result; with a cache (`tilegrad.generation`), that of new tokens, which attend to all before."""

        def attend(x: Tensor) -> Tensor:
            settings = {"is_causal": is_causal} if cache is None else {"is_causal": is_causal, "cache": cache}
            return self.self_attn(x, x, x, src_key_padding_mask, False, src_mask, **settings)[0]  # type: ignore[no-any-return]

        x = self._residual(1, src, attend)
        return self._residual(2, x, self._feed_forward)


class TransformerDecoderLayer(_Layer):
    """Apply self-attention, attention to the encoder's output, and a feed-forward network."""

    attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend(x: Tensor) -> Tensor:
            return self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask, is_causal=tgt_is_causal)[0]  # type: ignore[no-any-return]

        def look_up(x: Tensor) -> Tensor:
            found = self.multihead_attn(
                x, memory, memory, memory_key_padding_mask, False, memory_mask, is_causal=memory_is_causal
            )
            return found[0]  # type: ignore[no-any-return]

        x = self._residual(1, tgt, attend)
        x = self._residual(2, x, look_up)
        return self._residual(3, x, self._feed_forward)


class _Stack(Module):
    def __init__(self, layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([deepcopy(layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def _normed(self, x: Tensor) -> Tensor:
        return x if self.norm is None else self.norm(x)


class TransformerEncoder(_Stack):
    """Stack copies of an encoder layer."""

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__(encoder_layer, num_layers, norm)

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
        cache: Any = None,
    ) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, bool(is_causal), *(() if cache is None else (cache,)))
        return self._normed(src)


class TransformerDecoder(_Stack):
    """Stack copies of a decoder layer."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__(decoder_layer, num_layers, norm)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        padding = (tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, *padding, bool(tgt_is_causal), memory_is_causal)
        return self._normed(tgt)


class Transformer(Module):
    """Combine an encoder and a decoder that attends to its output (Vaswani et al., 2017).

    >>> import tilegrad as tg
    >>> network = tg.nn.Transformer(16, 2, 1, 1, 32, batch_first=True)
    >>> network(tg.ones(2, 9, 16), tg.ones(2, 5, 16)).shape
    (2, 5, 16)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = functional.relu,
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        own = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, device=device, dtype=dtype)

        self.encoder = custom_encoder or TransformerEncoder(
            TransformerEncoderLayer(*own, device, dtype), num_encoder_layers, norm()
        )
        self.decoder = custom_decoder or TransformerDecoder(
            TransformerDecoderLayer(*own, device, dtype), num_decoder_layers, norm()
        )
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batch = 0 if self.batch_first else 1
        fits = src.dim() == tgt.dim() and (src.dim() == 2 or src.shape[batch] == tgt.shape[batch])
        if not fits or src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError(
                f"Transformer: src {tuple(src.shape)} and tgt {tuple(tgt.shape)} need the same batch (axis {batch}), "
                f"and d_model={self.d_model} as their last axis"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)  # type: ignore[no-any-return]

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Return the causal mask: -inf for keys after the query, else 0.

        >>> Transformer.generate_square_subsequent_mask(2)
        tensor([[0., -inf],
                [0., 0.]])
        """
        return full((sz, sz), float("-inf"), device=device, dtype=dtype).triu(1)
