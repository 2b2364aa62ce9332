"""Write the bundled digits as the four files of MNIST: `python -m tilegrad.torch.digits FOLDER`.

Scripts that read MNIST can so be tried without downloading anything: 1,437 images to train with and 360 to test,
enlarged from 8 x 8 to 28 x 28.
"""

from __future__ import annotations

import gzip
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np

from ..data.digits import Digits


def write(folder: str | Path, count: int | None = None, held_out: int | None = None) -> Path:
    """Write the files that `torchvision.datasets.MNIST(folder)` reads; `count` and `held_out` limit the images."""
    place = Path(folder) / "MNIST" / "raw"
    place.mkdir(parents=True, exist_ok=True)
    for part, train, wanted in (("train", True, count), ("t10k", False, held_out)):
        digits = Digits(train=train)
        images, labels = np.asarray(digits.images)[:wanted], np.asarray(digits.labels)[:wanted]
        _write(place / f"{part}-images-idx3-ubyte.gz", enlarged(images.reshape(-1, 8, 8)))
        _write(place / f"{part}-labels-idx1-ubyte.gz", labels.astype(np.uint8))
    return place


def enlarged(images: Any) -> Any:
    """Enlarge each pixel to three by three, with a border, as bytes.

    >>> enlarged(np.eye(8)[None]).shape
    (1, 28, 28)
    """
    large = images.repeat(3, 1).repeat(3, 2) / max(float(images.max()), 1e-9)
    return np.pad((255 * large).astype(np.uint8), ((0, 0), (2, 2), (2, 2)))


def _write(path: Path, array: Any) -> None:
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes(), mtime=0))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tilegrad.torch.digits FOLDER")
    print(f"the digits of tilegrad are in {write(sys.argv[1])}")
