"""`tg.tensorboard`: write curves, texts, histograms, pictures, settings and graphs of networks for TensorBoard.

The files are written without TensorBoard, which is only needed to look at them.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError
from ..ir.graph import Input, Value, topological
from ..serialization.event_files import EventFile, doubles, field, single
from ..tensor import Tensor
from ..tree import flatten
from .files import write_whole
from .plugins import END, EXPERIMENT, START, curve, hyperparameters, plugin, projector_entry, sound, tensor_of

SCALAR, IMAGE, HISTOGRAM, AUDIO, TENSOR, METADATA = 2, 4, 5, 6, 8, 9
"""The fields of a value in a summary."""
BUCKETS = 30
LEFT_OUT = {
    "add_video": "write single pictures with add_image",
    "add_mesh": "write a picture of it with add_image",
    "add_custom_scalars": "write curves of one picture with add_scalars",
}


def array_of(x: Any) -> np.ndarray:
    """Convert a tensor, an array, or a number to an array."""
    return np.asarray(x.detach().cpu().numpy() if isinstance(x, Tensor) else x)


def number_of(x: Any, tag: str) -> float:
    """Convert a number, or the only element of a tensor, to a float."""
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
        """Add a point of a curve."""
        self._add(tag, single(SCALAR, number_of(scalar_value, tag)), global_step, walltime)

    def add_scalars(
        self, main_tag: str, tag_scalar_dict: Mapping[str, Any], global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add points of several curves in one chart: each has a folder of its own, as TensorBoard wants it."""
        for tag, value in tag_scalar_dict.items():
            name = f"{main_tag.replace('/', '_')}_{tag}"
            if name not in self._files:
                self._files[name] = EventFile(os.path.join(self.log_dir, name), self._suffix)
            self._add(main_tag, single(SCALAR, number_of(value, tag)), global_step, walltime, name)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """Add a text, in Markdown."""
        value = field(TENSOR, tensor_of(text_string))
        self._add(f"{tag}/text_summary", value + field(METADATA, plugin("text")), global_step, walltime)

    def add_histogram(
        self, tag: str, values: Any, global_step: int | None = None, bins: Any = BUCKETS,
        walltime: float | None = None, max_bins: int | None = None,
    ) -> None:  # fmt: skip
        """Add a histogram of the elements of a tensor."""
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
        """Add a picture: bytes, or floats from 0 to 1."""
        found = array_of(img_tensor)
        if found.ndim != len(dataformats) or sorted(dataformats) not in (sorted("CHW"), sorted("HW")):
            raise ShapeError(f"add_image: {tag!r} has shape {found.shape}, which is not {dataformats}")
        order = [dataformats.index(axis) for axis in "HWC" if axis in dataformats]
        picture = found.transpose(order).reshape(*(found.shape[n] for n in order[:2]), -1)
        height, width, channels = picture.shape
        head = field(1, height) + field(2, width) + field(3, channels)
        self._add(tag, field(IMAGE, head + field(4, png(as_bytes(picture)))), global_step, walltime)

    def add_images(
        self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:  # fmt: skip
        """Add several pictures as one, in rows of eight."""
        found = array_of(img_tensor)
        if found.ndim != 4 or sorted(dataformats) != sorted("NCHW"):
            raise ShapeError(f"add_images: {tag!r} has shape {found.shape}, which is not {dataformats}")
        images = found.transpose([dataformats.index(axis) for axis in "NCHW"])
        self.add_image(tag, grid(images), global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """Add a figure of matplotlib, or a list of them side by side."""
        figures = figure if isinstance(figure, list | tuple) else [figure]
        drawn = [drawing(each, tag) for each in figures]
        if len({x.shape for x in drawn}) != 1:
            raise ShapeError(f"add_figure: the figures of {tag!r} have several sizes")
        self.add_image(tag, np.concatenate(drawn, axis=1), global_step, walltime, "HWC")
        if close:
            for each in figures:
                each.clear()

    def add_audio(
        self, tag: str, snd_tensor: Any, global_step: int | None = None, sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add a sound: floats from -1 to 1."""
        self._add(tag, field(AUDIO, sound(array_of(snd_tensor), sample_rate, tag)), global_step, walltime)

    def add_pr_curve(
        self, tag: str, labels: Any, predictions: Any, global_step: int | None = None, num_thresholds: int = 127,
        weights: Any = None, walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add precision and recall of predictions (from 0 to 1) for labels (0 or 1) at thresholds."""
        given = None if weights is None else array_of(weights)
        found = curve(array_of(labels), array_of(predictions), num_thresholds, given, tag)
        about = plugin("pr_curves", field(2, found.shape[1]))
        self._add(tag, field(TENSOR, tensor_of(found)) + field(METADATA, about), global_step, walltime)

    def add_confusion_matrix(
        self, tag: str, matrix: Any, global_step: int | None = None, class_names: Sequence[str] = (),
        walltime: float | None = None,
    ) -> None:  # fmt: skip
        """Add how often each class (row) was taken for each other (column): `python -m tilegrad view` shows it."""
        found = array_of(matrix).astype(np.float32)
        if found.ndim != 2 or found.shape[0] != found.shape[1] or len(class_names) not in (0, len(found)):
            raise ShapeError(
                f"add_confusion_matrix: {tag!r} has shape {found.shape} for {len(class_names)} names: it is square"
            )
        about = plugin("confusion_matrix", json.dumps(list(map(str, class_names))).encode())
        self._add(tag, field(TENSOR, tensor_of(found)) + field(METADATA, about), global_step, walltime)

    def add_hparams(
        self, hparam_dict: Mapping[str, Any], metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None, run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:  # fmt: skip
        """Add the hyperparameters of a run with its results, in a folder of their own."""
        if not isinstance(hparam_dict, Mapping) or not isinstance(metric_dict, Mapping):
            raise ArgumentError("add_hparams takes two dicts: settings by name, and results by name")
        parts = hyperparameters(hparam_dict, metric_dict, hparam_domain_discrete or {})
        with SummaryWriter(os.path.join(self.log_dir, run_name or str(time.time()))) as writer:
            for tag, content in zip((EXPERIMENT, START, END), parts, strict=True):
                writer._add(tag, field(METADATA, plugin("hparams", content)), None, None)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def add_embedding(
        self, mat: Any, metadata: Sequence[Any] | None = None, label_img: Any = None, global_step: int | None = None,
        tag: str = "default", metadata_header: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        """Add rows of a matrix as points, with labels and small pictures, for the projector."""
        points = array_of(mat)
        if points.ndim != 2:
            raise ShapeError(
                f"add_embedding: {tag!r} has shape {points.shape}: it is a matrix with a row for each point"
            )
        for name, given in (("metadata", metadata), ("label_img", label_img)):
            if given is not None and len(given) != len(points):
                raise ShapeError(f"add_embedding: {name} has {len(given)} entries for {len(points)} points")
        place = f"{global_step or 0:05d}/{tag}"
        folder = os.path.join(self.log_dir, place)
        os.makedirs(folder, exist_ok=True)
        rows = ["\t".join(f"{x:.8g}" for x in point) for point in points.tolist()]
        write_whole(os.path.join(folder, "tensors.tsv"), "\n".join([*rows, ""]))
        if metadata is not None:
            lines = ["\t".join(map(str, x)) if metadata_header else str(x) for x in metadata]
            head = ["\t".join(metadata_header)] if metadata_header else []
            write_whole(os.path.join(folder, "metadata.tsv"), "\n".join([*head, *lines, ""]))
        size = (0, 0)
        if label_img is not None:
            pictures = array_of(label_img)
            size = pictures.shape[3], pictures.shape[2]
            columns = int(np.ceil(np.sqrt(len(pictures))))
            sheet = as_bytes(grid(pictures, columns, 0).transpose(1, 2, 0))
            with open(os.path.join(folder, "sprite.png"), "wb") as file:
                file.write(png(sheet))
        with open(os.path.join(self.log_dir, "projector_config.pbtxt"), "a") as file:
            file.write(projector_entry(f"{tag}:{place}", place, metadata is not None, size))

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """Add the graph of a network, as it is recorded for an input."""
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
        """Write everything that was added to the file."""
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
        near = get_close_matches(name, dir(SummaryWriter), 1)
        raise AttributeError(f"SummaryWriter has no {name}" + (f": did you mean {near[0]}?" if near else ""))


def as_bytes(picture: np.ndarray) -> np.ndarray:
    """Convert a picture of floats from 0 to 1 to bytes; bytes are unchanged."""
    return (np.clip(picture * 255, 0, 255) if picture.dtype.kind == "f" else picture).astype(np.uint8)


def grid(images: np.ndarray, columns: int = 8, frame: int = 2) -> np.ndarray:
    """Tile images (N, C, H, W) in rows as one (C, H, W), with a frame around each; one channel becomes three."""
    count, channels, height, width = images.shape
    columns = min(columns, max(1, count))
    rows, channels = -(-count // columns), 3 if channels == 1 else channels
    whole = np.zeros((channels, rows * (height + frame) + frame, columns * (width + frame) + frame), images.dtype)
    for n, image in enumerate(images):
        y, x = frame + n // columns * (height + frame), frame + n % columns * (width + frame)
        whole[:, y : y + height, x : x + width] = image
    return whole


def drawing(figure: Any, tag: str) -> np.ndarray:
    """Render a figure of matplotlib."""
    if not hasattr(figure, "canvas"):
        raise ArgumentError(f"add_figure: {tag!r} is a {type(figure).__name__}, and not a figure of matplotlib")
    canvas = import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def png(picture: np.ndarray) -> bytes:
    """Encode bytes of height, width and 1, 3 or 4 channels as a PNG file."""
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
    """Encode a graph as TensorFlow does: a node for each value, with its inputs and its shape."""
    called: dict[Value, str] = {}
    nodes = []
    for value in topological(outputs, names.__contains__):
        is_given = value in names or isinstance(value, Input)
        op = ("Parameter" if "." in names.get(value, "") else "Input") if is_given else value.op
        module = value.location.module if value.location and not is_given else ""
        called[value] = names.get(value, f"{module}.{op}_{len(called)}".lstrip(".")).replace(".", "/")
        extents = b"".join(field(2, field(1, int(n))) for n in value.shape if isinstance(n, int))
        shapes = field(1, "_output_shapes") + field(2, field(1, field(7, extents)))
        reads = b"" if is_given else b"".join(field(3, called[x]) for x in value.inputs)
        nodes.append(field(1, field(1, called[value]) + field(2, op) + reads + field(5, shapes)))
    return b"".join(nodes) + field(4, field(1, 22))
