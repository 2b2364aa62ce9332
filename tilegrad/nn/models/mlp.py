"""Define networks without convolutions: logistic regression and the multilayer perceptron."""

from __future__ import annotations

from itertools import pairwise

from ...errors import ArgumentError
from ..activation import ReLU
from ..container import Sequential
from ..layers import Flatten, Linear
from ..module import Module

__all__ = ["MLP", "LogisticRegression"]


class LogisticRegression(Sequential):
    """One linear layer; with cross_entropy as the loss it is logistic regression.

    >>> sum(p.numel() for p in LogisticRegression().parameters())
    7850
    """

    def __init__(self, inputs: int = 784, classes: int = 10) -> None:
        super().__init__(Flatten(), Linear(inputs, classes))


class MLP(Sequential):
    """Linear layers with ReLU between them; the widths run from the input's to the number of classes.

    >>> sum(p.numel() for p in MLP(784, 1024, 1024, 10).parameters())
    1863690
    """

    def __init__(self, *widths: int) -> None:
        widths = widths or (784, 128, 64, 10)
        if len(widths) < 2:
            raise ArgumentError(f"MLP: {len(widths)} width: give those of the input and of the output, at least")
        layers: list[Module] = [Flatten()]
        for inputs, outputs in pairwise(widths):
            layers += [Linear(inputs, outputs), ReLU()]
        super().__init__(*layers[:-1])
