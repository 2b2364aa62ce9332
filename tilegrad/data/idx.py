"""IDX files, the format of MNIST: a magic number, the extents, then the elements, big-endian."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import error as ZlibError

import numpy as np

from ..errors import DataError
from .dataset import ArrayDataset

TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
"""The third byte of an IDX file says the element type."""


def read_idx(path: str | Path) -> Any:
    """The array in an IDX file, gzipped or not, after checking that the file is whole.

    >>> read_idx("nowhere")
    Traceback (most recent call last):
    tilegrad.errors.DataError: there is no file nowhere
    """
    path = Path(path)
    content = _content(path)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in TYPES:
        raise DataError(f"{path} is not an IDX file: it starts with {content[:4].hex(' ') or 'nothing'}")
    element, rank = np.dtype(TYPES[content[2]]), content[3]
    start = 4 + 4 * rank
    if len(content) < start:
        raise DataError(f"{path} ends within its header: it says {rank} axes and has {len(content)} bytes")
    shape = struct.unpack(f">{rank}I", content[4:start])
    expected = start + element.itemsize * int(np.prod(shape, dtype=np.int64))
    if len(content) != expected:
        raise DataError(f"{path} says the shape {shape}, which takes {expected:,} bytes; it has {len(content):,}")
    return np.frombuffer(content, element, offset=start).reshape(shape).astype(element.newbyteorder("="))


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, EOFError, ZlibError) as damage:
        raise DataError(f"{path} cannot be read: {damage}. If it was downloaded, download it again") from damage


DOWNLOAD = (
    'curl -fL --create-dirs -O "https://ossci-datasets.s3.amazonaws.com/mnist/'
    '{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz" --output-dir'
)
"""Nothing is downloaded by itself; the folder comes last."""


class MNIST(ArrayDataset):
    """MNIST (or a data set of its form) from a folder with its four IDX files, gzipped or not.

    Images are float32 from 0 to 1 in the shape (1, 28, 28), labels int64. Nothing is downloaded.
    """

    classes = tuple("0123456789")

    def __init__(self, root: str | Path, train: bool = True, transform: Callable[[Any], Any] | None = None) -> None:
        part = "train" if train else "t10k"
        images = read_idx(_find(Path(root), f"{part}-images-idx3-ubyte"))
        labels = read_idx(_find(Path(root), f"{part}-labels-idx1-ubyte"))
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise DataError(
                f"{root}: images of the shape {images.shape} and labels of the shape {labels.shape} are no pairs"
            )
        super().__init__(
            images[:, None].astype(np.float32) / np.float32(255), labels.astype(np.int64), transform=transform
        )

    @property
    def images(self) -> Any:
        return self.arrays[0]

    @property
    def labels(self) -> Any:
        return self.arrays[1]


def _find(root: Path, name: str) -> Path:
    for path in (
        root / f"{name}.gz",
        root / name,
        root / "MNIST" / "raw" / f"{name}.gz",
        root / "MNIST" / "raw" / name,
    ):
        if path.exists():
            return path
    raise DataError(f"no {name}.gz in {root}. The command that gets the four files of MNIST:\n  {DOWNLOAD} {root}")
