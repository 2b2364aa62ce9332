"""The digits data set: 1,797 handwritten digits of 8x8 pixels, inside the package.

They are the test set of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (UCI
Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49), licensed CC BY 4.0. The pixels,
whole numbers from 0 to 16, and their order are the original ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from .dataset import ArrayDataset

FILE = Path(__file__).with_name("digits.npz")
TEST_EVERY = 5
"""One image in so many is in the test set: 360 of 1,797, from all writers."""


class Digits(ArrayDataset):
    """Images as float32 from 0 to 1 in the shape (1, 8, 8), labels as int64.

    >>> len(Digits(train=True)), len(Digits(train=False))
    (1437, 360)
    """

    classes = tuple("0123456789")

    def __init__(self, train: bool = True, flat: bool = False) -> None:
        images, labels = _read()
        held_out = np.arange(len(labels)) % TEST_EVERY == 0
        chosen = held_out != train
        shape = (-1, 64) if flat else (-1, 1, 8, 8)
        pixels = images[chosen].astype(np.float32) / np.float32(16)
        super().__init__(pixels.reshape(shape), labels[chosen].astype(np.int64))

    @property
    def images(self) -> Any:
        return self.arrays[0]

    @property
    def labels(self) -> Any:
        return self.arrays[1]


def _read() -> tuple[Any, Any]:
    with np.load(FILE) as stored:
        return stored["images"], stored["labels"]
