"""Define ResNet-18."""

from __future__ import annotations

from ...errors import ArgumentError
from ...tensor import Tensor
from .. import functional as F
from .. import init
from ..container import Sequential
from ..conv import Conv2d
from ..layers import Identity, Linear
from ..module import Module
from ..norm import BatchNorm2d
from ..pool import MaxPool2d

__all__ = ["ResNet18"]


class ResidualBlock(Module):
    """Two convolutions of 3 by 3 with a residual connection."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = BatchNorm2d(outputs)
        self.conv2 = Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = BatchNorm2d(outputs)
        if stride != 1 or inputs != outputs:
            self.downsample = Sequential(Conv2d(inputs, outputs, 1, stride, bias=False), BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        made = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        made = made + (self.downsample(x) if hasattr(self, "downsample") else x)
        return F.relu(made)


class ResNet18(Module):
    """ResNet-18 with torchvision's names of weights, so that those load.

    `stem="small"` is for images of some 32 by 32, as those of MNIST: its first convolution keeps their size, and
    nothing is pooled before the blocks.

    >>> sum(p.numel() for p in ResNet18(1000, 3).parameters())
    11689512
    """

    def __init__(self, classes: int = 10, channels: int = 1, stem: str = "large") -> None:
        super().__init__()
        if stem not in ("large", "small"):
            raise ArgumentError(f"ResNet18: stem={stem!r}: it is 'large' (224 by 224) or 'small' (32 by 32)")
        large = stem == "large"
        self.conv1 = Conv2d(channels, 64, 7, 2, 3, bias=False) if large else Conv2d(channels, 64, 3, 1, 1, bias=False)
        self.bn1 = BatchNorm2d(64)
        self.maxpool = MaxPool2d(3, 2, 1) if large else Identity()
        self.layer1 = Sequential(ResidualBlock(64, 64), ResidualBlock(64, 64))
        self.layer2 = Sequential(ResidualBlock(64, 128, 2), ResidualBlock(128, 128))
        self.layer3 = Sequential(ResidualBlock(128, 256, 2), ResidualBlock(256, 256))
        self.layer4 = Sequential(ResidualBlock(256, 512, 2), ResidualBlock(512, 512))
        self.fc = Linear(512, classes)
        for module in self.modules():
            if isinstance(module, Conv2d):
                init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        scores: Tensor = self.fc(x.mean((2, 3)))
        return scores
