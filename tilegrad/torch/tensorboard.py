"""`torch.utils.tensorboard`: curves, texts, histograms, pictures and the graph of a network, for TensorBoard to show.

The files are written without TensorBoard, which is only needed to look at them.
"""

from __future__ import annotations

import os
import socket
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError
from ..ir.graph import Input, Value, topological
from ..tensor import Tensor
from ..tree import flatten
from .doors import missing
from .event_files import EventFile, doubles, field, single

SCALAR, IMAGE, HISTOGRAM, TENSOR, METADATA = 2, 4, 5, 8, 9
"""The fields of a value in a summary."""
BUCKETS = 30
LEFT_OUT = {
    "add_audio": "write it to a file with the standard library's wave",
    "add_video": "write single pictures with add_image",
    "add_embedding": "write the matrix with add_histogram, or save it with tilegrad.save",
    "add_mesh": "write a picture of it with add_image",
    "add_figure": "draw the figure into an array, and write that with add_image",
    "add_pr_curve": "compute precision and recall, and write them with add_scalar",
    "add_hparams": "write them with add_text, and the results with add_scalar",
}


def array_of(x: Any) -> np.ndarray:
    """A tensor, an array, or a number as an array."""
    return np.asarray(x.detach().cpu().numpy() if isinstance(x, Tensor) else x)


def number_of(x: Any, tag: str) -> float:
    """A number, or the only element of a tensor."""
    found = array_of(x)
    if found.size != 1 or found.dtype.kind not in "biuf":
        raise ArgumentError(f"add_scalar: {tag!r} is {found.dtype} of shape {found.shape}, and not a single number")
    return float(found.reshape(()))


class SummaryWriter:
    """Writes what is added to a file in `log_dir`; with `with`, closes it in the end.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, SummaryWriter(folder) as writer:
    ...     writer.add_scalar("loss", 0.5, 1)
    """

    def __init__(
        self, log_dir: str | os.PathLike[str] | None = None, comment: str = "", purge_step: int | None = None,
        max_queue: int = 10, flush_secs: float = 120, filename_suffix: str = "",
    ) -> None:  # fmt: skip
        stamp = time.strftime("%b%d_%H-%M-%S")
        self.log_dir = os.fspath(log_dir or os.path.join("runs", f"{stamp}_{socket.gethostname()}{comment}"))
        self._suffix, self._patience, self._flushed = filename_suffix, flush_secs, time.monotonic()
        self._files = {"": EventFile(self.log_dir, filename_suffix)}

    def get_logdir(self) -> str:
        return self.log_dir

    def add_scalar(
        self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: float | None = None,
        new_style: bool = False, double_precision: bool = False,
    ) -> None:  # fmt: skip
        """A point of a curve."""
        self._add(tag, single(SCALAR, number_of(scalar_value, tag)), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Points of several curves in one picture: each has a folder of its own, as TensorBoard wants it."""
        for tag, value in tag_scalar_dict.items():
            name = f"{main_tag.replace('/', '_')}_{tag}"
            if name not in self._files:
                self._files[name] = EventFile(os.path.join(self.log_dir, name), self._suffix)
            self._add(main_tag, single(SCALAR, number_of(value, tag)), global_step, walltime, name)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """A text, in Markdown."""
        shape = field(2, field(2, field(1, 1)))
        value = field(TENSOR, field(1, 7) + shape + field(8, text_string))
        self._add(f"{tag}/text_summary", value + field(METADATA, field(1, field(1, "text"))), global_step, walltime)

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = BUCKETS,
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """How the elements of a tensor are spread."""
        found = array_of(values).astype(np.float64).reshape(-1)
        if not found.size or not np.isfinite(found).all():
            raise ArgumentError(f"add_histogram: {tag!r} has {'infinities or NaN' if found.size else 'no elements'}")
        counts, limits = np.histogram(found, BUCKETS if bins == "tensorflow" else bins)
        sums = [found.min(), found.max(), found.size, found.sum(), np.square(found).sum()]
        head = b"".join(field(n, float(x)) for n, x in enumerate(sums, 1))
        self._add(tag, field(HISTOGRAM, head + doubles(6, limits[1:]) + doubles(7, counts)), global_step, walltime)

    def add_image(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:  # fmt: skip
        """A picture: bytes, or floats from 0 to 1."""
        found = array_of(img_tensor)
        if found.ndim != len(dataformats) or sorted(dataformats) not in (sorted("CHW"), sorted("HW")):
            raise ShapeError(f"add_image: {tag!r} has shape {found.shape}, which is not {dataformats}")
        order = [dataformats.index(axis) for axis in "HWC" if axis in dataformats]
        picture = found.transpose(order).reshape(*(found.shape[n] for n in order[:2]), -1)
        if picture.dtype.kind == "f":
            picture = np.clip(picture * 255, 0, 255)
        height, width, channels = picture.shape
        head = field(1, height) + field(2, width) + field(3, channels)
        self._add(tag, field(IMAGE, head + field(4, png(picture.astype(np.uint8)))), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Several pictures as one, in rows of eight."""
        from ..functional import tensor
        from .pictures import make_grid

        found = array_of(img_tensor).astype(np.float32)
        scale = 255 if array_of(img_tensor).dtype.kind in "iu" else 1
        images = found.transpose([dataformats.index(axis) for axis in "NCHW"]) / scale
        self.add_image(tag, make_grid(tensor(images)), global_step, walltime)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """The graph of a network, as it is recorded for an input."""
        if input_to_model is None:
            raise ArgumentError("add_graph: give it an input to record the network with: add_graph(model, images)")
        given = input_to_model if isinstance(input_to_model, tuple | list) else (input_to_model,)
        names = {p._value: name for name, p in getattr(model, "named_parameters", dict)()}
        outputs = [x.value for x in flatten(model(*given))[0] if isinstance(x, Tensor)]
        names |= {x._value: f"input{n}" for n, x in enumerate(flatten(given)[0]) if isinstance(x, Tensor)}
        self._files[""].add(field(4, graph_message(outputs, names)), None)
        if verbose:
            print(*(f"{v}: {v.type}" for v in topological(outputs)), sep="\n")

    def _add(self, tag: str, value: bytes, step: int | None, wall_time: float | None, file: str = "") -> None:
        self._files[file].add(field(5, field(1, field(1, tag) + value)), step, wall_time)
        if time.monotonic() - self._flushed > self._patience:
            self.flush()

    def flush(self) -> None:
        """Puts all that was added in the file."""
        self._flushed = time.monotonic()
        for file in self._files.values():
            file.flush()

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name in LEFT_OUT:
            raise AttributeError(f"SummaryWriter has no {name} here: {LEFT_OUT[name]}")
        raise missing("torch.utils.tensorboard.SummaryWriter", name, dir(SummaryWriter))


def png(picture: np.ndarray) -> bytes:
    """Bytes of height, width and 1, 3 or 4 channels as a PNG file."""
    height, width, channels = picture.shape
    kinds = {1: 0, 3: 2, 4: 6}
    if channels not in kinds:
        raise ShapeError(f"a picture has 1, 3 or 4 channels, not {channels}")

    def part(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, kinds[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in picture)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(rows)) + part(b"IEND", b"")


def graph_message(outputs: Sequence[Value], names: Mapping[Value, str]) -> bytes:
    """A graph as TensorFlow writes it down: a node for each value, with its inputs and its shape."""
    called: dict[Value, str] = {}
    nodes = []
    for value in topological(outputs, names.__contains__):
        is_given = value in names or isinstance(value, Input)
        op = ("Parameter" if "." in names.get(value, "") else "Input") if is_given else value.op
        called[value] = names.get(value, f"{op}_{len(called)}").replace(".", "/")
        extents = b"".join(field(2, field(1, int(n))) for n in value.shape if isinstance(n, int))
        shapes = field(1, "_output_shapes") + field(2, field(1, field(7, extents)))
        reads = b"" if is_given else b"".join(field(3, called[x]) for x in value.inputs)
        nodes.append(field(1, field(1, called[value]) + field(2, op) + reads + field(5, shapes)))
    return b"".join(nodes) + field(4, field(1, 22))


def __getattr__(name: str) -> Any:
    raise missing("torch.utils.tensorboard", name, ["SummaryWriter"])
