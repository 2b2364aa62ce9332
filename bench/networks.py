"""Networks that tilegrad and PyTorch write in the same words: `nn` is either library's.

The weights are drawn by the harness, so that both compute the same.
"""

import math
from typing import Any

import numpy as np

Inputs = dict[str, np.ndarray]
Size = tuple[int, ...]


def lenet(nn: Any) -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def alexnet(nn: Any) -> Any:
    """With one channel of input, as people train it on digits of 224 x 224."""
    return nn.Sequential(
        nn.Conv2d(1, 96, 11, stride=4, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(96, 256, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(256, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 384, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(384, 256, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Linear(6400, 4096),
        nn.ReLU(),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Linear(4096, 10),
    )


def wide(nn: Any) -> Any:
    return nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))


SHAPES: dict[str, tuple[int, ...]] = {"lenet": (1, 28, 28), "alexnet": (1, 224, 224), "wide": (784,)}
"""What one sample is."""


def batch(name: str, size: Size) -> Inputs:
    """Samples and labels."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((size[0], *SHAPES[name]), dtype=np.float32)
    return {"x": x, "labels": rng.integers(0, 10, size[0])}


def drawn(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    """Weights of these shapes."""
    rng = np.random.default_rng(1)
    return [
        (rng.standard_normal(shape) / math.sqrt(max(1, math.prod(shape[1:])))).astype(np.float32) for shape in shapes
    ]
