"""Define embedding tables as modules."""

from __future__ import annotations

from typing import Any, Self

from ..autograd.modes import no_grad
from ..errors import ArgumentError, ShapeError
from ..functions.creation import empty
from ..tensor import Tensor
from . import functional, init
from .functional import embeddings
from .module import Module
from .parameter import Parameter


class _Table(Module):
    """A trained table of vectors; row `padding_idx` starts at 0 and is not trained."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError(
                f"{type(self).__name__}: padding_idx={padding_idx} is no row of a table of {num_embeddings} rows"
            )
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx if padding_idx is None else padding_idx % num_embeddings
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            self.weight = Parameter(empty(num_embeddings, embedding_dim, device=device, dtype=dtype))
            self.reset_parameters()
        else:
            self.weight = Parameter(_weight)

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **settings: Any) -> Self:
        """Make a table from given rows, which are not trained unless `freeze=False`."""
        if embeddings.dim() != 2:
            raise ShapeError(f"from_pretrained: needs a table, but the shape is {tuple(embeddings.shape)}")
        rows, width = embeddings.shape
        made = cls(rows, width, _weight=embeddings, **settings)
        made.weight.requires_grad_(not freeze)
        return made

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def _shown(self) -> list[str]:
        shown = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.max_norm is not None:
            shown.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            shown.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq:
            shown.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        return shown


class Embedding(_Table):
    """Look up rows of a table by index."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        super().__init__(num_embeddings, embedding_dim, *settings, _weight, device, dtype)
        if _freeze:
            self.weight.requires_grad_(False)

    def forward(self, input: Tensor) -> Tensor:
        settings = (self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse)
        return functional.embedding(input, self.weight, *settings)

    def extra_repr(self) -> str:
        first, *others = self._shown()
        padding = [] if self.padding_idx is None else [f"padding_idx={self.padding_idx}"]
        sparse = ["sparse=True"] if self.sparse else []
        return ", ".join([first, *padding, *others, *sparse])


class EmbeddingBag(_Table):
    """Compute the sum, mean or maximum of the rows of each bag of indices."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
        super().__init__(num_embeddings, embedding_dim, *settings, _weight, device, dtype)
        embeddings.check_mode(mode)
        self.mode = mode
        self.include_last_offset = include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return functional.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        padding = [] if self.padding_idx is None else [f"padding_idx={self.padding_idx}"]
        return ", ".join([*self._shown(), f"mode={self.mode!r}", *padding])
