"""Implement `torchvision.datasets`: MNIST, and data sets in its format, from local files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..data.dataset import ArrayDataset
from ..data.idx import DOWNLOAD, read_idx
from ..data.transforms import Compose, Lambda, Transform
from ..errors import DataError, MissingFileError
from .doors import missing

CUT = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"


class MNIST(ArrayDataset):
    """Images of digits as byte arrays (28, 28), with labels; `transform` converts them to tensors.

    `root/MNIST/raw` has the four files, gzipped or not (or `root` itself).
    """

    source = DOWNLOAD
    classes: Sequence[str] = (
        "0 - zero", "1 - one", "2 - two", "3 - three", "4 - four", "5 - five", "6 - six", "7 - seven", "8 - eight",
        "9 - nine",
    )  # fmt: skip

    def __init__(
        self,
        root: str | Path,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        self.root, self.train = Path(root), train
        part = "train" if train else "t10k"
        images, labels = (read_idx(self._file(f"{part}-{kind}-ubyte")) for kind in ("images-idx3", "labels-idx1"))
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise DataError(f"{root}: images of shape {images.shape} and labels of shape {labels.shape} are no pairs")
        super().__init__(images, labels.astype(np.int64), transform=transform)
        self.target_transform = target_transform

    def _file(self, name: str) -> Path:
        kind = type(self).__name__
        for folder in (self.root / kind / "raw", self.root):
            for path in (folder / name, folder / f"{name}.gz"):
                if path.exists():
                    return path
        raise MissingFileError(
            f"there is no {name}.gz in {self.root / kind / 'raw'}, and tilegrad downloads nothing. The command that "
            f"gets the four files of {kind}:\n  {self.source} {self.root / kind / 'raw'}"
        )

    @property
    def data(self) -> Any:
        """Return all images, as an array of bytes."""
        return self.arrays[0]

    @property
    def targets(self) -> Any:
        """Return all labels."""
        return self.arrays[1]

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        image, label = self.arrays[0][index], int(self.arrays[1][index])
        return (
            self.transform(image) if self.transform else image,
            self.target_transform(label) if self.target_transform else label,
        )

    def rows(self, indices: Sequence[int]) -> tuple[Any, ...] | None:
        """Return a batch by one call, if the transforms are tilegrad's, which take batches."""
        if self.target_transform is not None or not _takes_batches(self.transform):
            return None
        chosen = np.asarray(indices, np.int64)
        images = self.arrays[0][chosen]
        return (self.transform(images[..., None]) if self.transform else images), self.arrays[1][chosen]


class FashionMNIST(MNIST):
    """Images of clothes in the format of MNIST."""

    source = DOWNLOAD.replace(CUT, FASHION)
    classes = (
        "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
    )  # fmt: skip


def _takes_batches(transform: Any) -> bool:
    match transform:
        case None:
            return True
        case Compose():
            return all(_takes_batches(inner) for inner in transform.transforms)
        case Lambda():
            return False
    return isinstance(transform, Transform)


def __getattr__(name: str) -> Any:
    raise missing("torchvision.datasets", name, ["MNIST", "FashionMNIST"])
