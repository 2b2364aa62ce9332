"""Define AlexNet for images of one channel."""

from __future__ import annotations

from ...tensor import Tensor
from ..activation import ReLU
from ..container import Sequential
from ..conv import Conv2d
from ..dropout import Dropout
from ..layers import Linear
from ..module import Module
from ..pool import MaxPool2d

__all__ = ["AlexNet"]


class AlexNet(Module):
    """AlexNet as in *Dive into Deep Learning*: images of 224 by 224 with one channel, no padding at first.

    The convolutions give 54, 26, 12, 12 and 12 by 12 positions; what is flattened has 256 * 5 * 5 numbers.

    >>> sum(p.numel() for p in AlexNet().parameters())
    46764746
    """

    def __init__(self, classes: int = 10, channels: int = 1, dropout: float = 0.5) -> None:
        super().__init__()
        self.conv = Sequential(
            Conv2d(channels, 96, 11, 4),
            ReLU(),
            MaxPool2d(3, 2),
            Conv2d(96, 256, 5, 1, 2),
            ReLU(),
            MaxPool2d(3, 2),
            Conv2d(256, 384, 3, 1, 1),
            ReLU(),
            Conv2d(384, 384, 3, 1, 1),
            ReLU(),
            Conv2d(384, 256, 3, 1, 1),
            ReLU(),
            MaxPool2d(3, 2),
        )
        self.fc = Sequential(
            Linear(256 * 5 * 5, 4096),
            ReLU(),
            Dropout(dropout),
            Linear(4096, 4096),
            ReLU(),
            Dropout(dropout),
            Linear(4096, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.fc(self.conv(images).flatten(1))
        return scores
