"""Read IDX files, the format of MNIST: a magic number, the sizes, then the elements, big-endian."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import IO, Any
from zlib import error as ZlibError

import numpy as np

from ..errors import DataError
from .dataset import ArrayDataset

TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}
"""Element types by the third byte of an IDX file."""
MAX_AXES = 32
CHUNK = 1 << 20
"""Largest read, in bytes: a header may announce more than the file holds."""


def read_idx(path: str | Path) -> Any:
    """Read the array in an IDX file, gzipped or not, and check that the file is complete.

    >>> read_idx("nowhere")
    Traceback (most recent call last):
    tilegrad.errors.DataError: there is no file nowhere
    """
    path = Path(path)
    try:
        with open(path, "rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with gzip.GzipFile(fileobj=raw) if packed else raw as file:
                return _elements(path, file)
    except FileNotFoundError:
        raise DataError(f"there is no file {path}") from None
    except (OSError, EOFError, ZlibError) as damage:
        raise DataError(f"{path} cannot be read: {damage}. If it was downloaded, download it again") from damage


def _elements(path: Path, file: IO[bytes] | gzip.GzipFile) -> Any:
    """Read the elements of a file that may be gzipped, decompressing no more than its header announces."""
    head = file.read(4)
    if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in TYPES:
        raise DataError(f"{path} is not an IDX file: it starts with {head.hex(' ') or 'nothing'}")
    element, rank = np.dtype(TYPES[head[2]]), head[3]
    extents = file.read(4 * rank)
    if len(extents) < 4 * rank or rank > MAX_AXES:
        raise DataError(f"{path} ends within its header: it says {rank} axes and has {4 + len(extents)} bytes")
    shape = struct.unpack(f">{rank}I", extents)
    expected = element.itemsize * prod(shape)
    content = bytearray()
    while len(content) <= expected and (more := file.read(min(CHUNK, expected + 1 - len(content)))):
        content += more
    if len(content) != expected:
        start = 4 + 4 * rank
        there = "more" if len(content) > expected else f"{start + len(content):,}"
        raise DataError(f"{path} says the shape {shape}, which takes {start + expected:,} bytes; it has {there}")
    return np.frombuffer(content, element).reshape(shape).astype(element.newbyteorder("="))


DOWNLOAD = (
    'curl -fL --create-dirs -O "https://ossci-datasets.s3.amazonaws.com/mnist/'
    '{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz" --output-dir'
)
"""Message of how to get the files, as nothing is downloaded."""


class MNIST(ArrayDataset):
    """MNIST (or a data set in its format) from a folder with its four IDX files, gzipped or not.

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
