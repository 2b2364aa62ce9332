"""Define a language model of LSTM layers."""

from __future__ import annotations

from ...errors import ArgumentError
from ...tensor import Tensor
from ..dropout import Dropout
from ..embedding import Embedding
from ..layers import Linear
from ..module import Module
from ..recurrent import LSTM

__all__ = ["LSTMLanguageModel"]

State = tuple[Tensor, Tensor]


class LSTMLanguageModel(Module):
    """An LSTM that predicts the next token at every position.

    Names of weights are those of PyTorch's example of a word language model; with `tied` the table at the end is the
    one at the beginning.

    >>> import tilegrad as tg
    >>> model = LSTMLanguageModel(50, width=8, layers=1)
    >>> scores, state = model(tg.zeros(2, 5, dtype=tg.int64))
    >>> scores.shape, state[0].shape
    ((2, 5, 50), (1, 2, 8))
    """

    def __init__(
        self, vocabulary: int, width: int = 256, layers: int = 2, dropout: float = 0.0, tied: bool = False
    ) -> None:
        super().__init__()
        self.drop = Dropout(dropout)
        self.encoder = Embedding(vocabulary, width)
        self.rnn = LSTM(width, width, layers, batch_first=True, dropout=dropout if layers > 1 else 0.0)
        self.decoder = Linear(width, vocabulary)
        if tied:
            self.decoder.weight = self.encoder.weight

    def forward(self, tokens: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        if tokens.dim() != 2:
            raise ArgumentError(
                f"LSTMLanguageModel takes tokens of the shape (batch, length), not {tuple(tokens.shape)}"
            )
        hidden, state = self.rnn(self.drop(self.encoder(tokens)), state)
        return self.decoder(self.drop(hidden)), state
