"""Define the network of PyTorch's MNIST example."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional as F
from ..conv import Conv2d
from ..dropout import Dropout
from ..layers import Linear
from ..module import Module
from ..pool import MaxPool2d

__all__ = ["CNN"]


class CNN(Module):
    """Two convolutions of 3 by 3 (32 and 64 filters), one pooling, and two linear layers, for images of 28 by 28.

    It ends in scores, to be given to cross_entropy (the original in log_softmax, to be given to nll_loss: the same).

    >>> sum(p.numel() for p in CNN().parameters())
    1199882
    """

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        super().__init__()
        self.conv1 = Conv2d(channels, 32, 3)
        self.conv2 = Conv2d(32, 64, 3)
        self.pool = MaxPool2d(2)
        self.dropout1 = Dropout(0.25)
        self.dropout2 = Dropout(0.5)
        self.fc1 = Linear(64 * 12 * 12, 128)
        self.fc2 = Linear(128, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.relu(self.conv1(images))
        x = self.pool(F.relu(self.conv2(x)))
        x = F.relu(self.fc1(self.dropout1(x).flatten(1)))
        scores: Tensor = self.fc2(self.dropout2(x))
        return scores
