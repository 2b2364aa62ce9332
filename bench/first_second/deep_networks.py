"""Deep networks for images of 32 x 32, trained for one or two steps; `torch` is PyTorch or tilegrad."""

from __future__ import annotations

from typing import Any

from .networks import _images, _train
from .session import Session


def densenet121(torch: Any, session: Session) -> None:
    nn, growth = torch.nn, 32

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm1, self.conv1 = nn.BatchNorm2d(width), nn.Conv2d(width, 4 * growth, 1, bias=False)
            self.norm2 = nn.BatchNorm2d(4 * growth)
            self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

        def forward(self, x: Any) -> Any:
            y = self.conv1(self.norm1(x).relu())
            return torch.cat([x, self.conv2(self.norm2(y).relu())], 1)

    layers: list[Any] = [nn.Conv2d(3, 64, 3, padding=1, bias=False)]
    width = 64
    for n, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            layers.append(Layer(width))
            width += growth
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        if n < 3:
            layers += [nn.Conv2d(width, width // 2, 1, bias=False), nn.AvgPool2d(2)]
            width //= 2
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))
    optimizer = torch.optim.SGD(session.weights(model).parameters(), lr=1e-2, momentum=0.9)
    _train(torch, session, model, _images(session, 16), optimizer)


def resnet18(torch: Any, session: Session) -> None:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, i: int, o: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.conv2, self.norm2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.side = nn.Sequential()
            if stride != 1:
                self.side = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

        def forward(self, x: Any) -> Any:
            y = self.norm2(self.conv2(self.norm1(self.conv1(x)).relu()))
            return (y + self.side(x)).relu()

    layers: list[Any] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    for i, o in ((64, 64), (64, 128), (128, 256), (256, 512)):
        layers += [Block(i, o, 1 if i == o else 2), Block(o, o, 1)]
    model = session.weights(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    _train(torch, session, model, _images(session, 16), optimizer, 1)


INCEPTIONS = (
    (192, 64, 96, 128, 16, 32, 32),
    (256, 128, 128, 192, 32, 96, 64),
    (480, 192, 96, 208, 16, 48, 64),
    (512, 160, 112, 224, 24, 64, 64),
    (512, 128, 128, 256, 24, 64, 64),
    (512, 112, 144, 288, 32, 64, 64),
    (528, 256, 160, 320, 32, 128, 128),
    (832, 256, 160, 320, 32, 128, 128),
    (832, 384, 192, 384, 48, 128, 128),
)
"""Channels of the modules of GoogLeNet."""


def googlenet(torch: Any, session: Session) -> None:
    nn = torch.nn

    def conv(i: int, o: int, kernel: int) -> Any:
        made = nn.Conv2d(i, o, kernel, padding=kernel // 2, bias=False)
        return nn.Sequential(made, nn.BatchNorm2d(o), nn.ReLU())

    class Inception(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, i: int, a: int, b1: int, b: int, c1: int, c: int, d: int) -> None:
            super().__init__()
            self.a, self.b = conv(i, a, 1), nn.Sequential(conv(i, b1, 1), conv(b1, b, 3))
            self.c = nn.Sequential(conv(i, c1, 1), conv(c1, c, 3), conv(c, c, 3))
            self.d = nn.Sequential(nn.MaxPool2d(3, 1, 1), conv(i, d, 1))

        def forward(self, x: Any) -> Any:
            return torch.cat([self.a(x), self.b(x), self.c(x), self.d(x)], 1)

    layers: list[Any] = [conv(3, 192, 3)]
    for n, widths in enumerate(INCEPTIONS):
        if n in (2, 7):
            layers.append(nn.MaxPool2d(3, 2, 1))
        layers.append(Inception(*widths))
    model = session.weights(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    _train(torch, session, model, _images(session, 16), optimizer, 1)
