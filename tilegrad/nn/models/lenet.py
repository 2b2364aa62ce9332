"""Define LeNet, with the widths of MXNet's tutorial."""

from __future__ import annotations

from ...tensor import Tensor
from .. import functional as F
from ..conv import Conv2d
from ..layers import Linear
from ..module import Module
from ..pool import MaxPool2d

__all__ = ["LeNet"]


class LeNet(Module):
    """Two convolutions of 5 by 5 (20 and 50 filters), each pooled, and two linear layers, for images of 28 by 28.

    >>> sum(p.numel() for p in LeNet().parameters())
    440812
    """

    def __init__(self, classes: int = 10, channels: int = 1) -> None:
        super().__init__()
        self.conv1 = Conv2d(channels, 20, 5)
        self.conv2 = Conv2d(20, 50, 5)
        self.pool = MaxPool2d(2)
        self.fc1 = Linear(50 * 4 * 4, 512)
        self.fc2 = Linear(512, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = self.pool(F.relu(self.conv1(images)))
        x = self.pool(F.relu(self.conv2(x)))
        scores: Tensor = self.fc2(F.relu(self.fc1(x.flatten(1))))
        return scores
