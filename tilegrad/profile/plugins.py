"""Encode the messages of TensorBoard's plugins: hyperparameters, PR curves, audio, the projector."""

from __future__ import annotations

import io
import time
import wave
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, ShapeError
from ..serialization.event_files import field, single
from ..tensor import Tensor

EXPERIMENT, START, END = "_hparams_/experiment", "_hparams_/session_start_info", "_hparams_/session_end_info"
TEXT, TRUTH, NUMBER = 1, 2, 3
"""The types of settings."""
MIN_DIVISOR = 1e-7


def plugin(name: str, content: bytes = b"") -> bytes:
    """Encode the metadata of a value that a plugin shows."""
    return field(1, field(1, name) + field(2, content))


def tensor_of(x: np.ndarray | str) -> bytes:
    """Encode a text, or an array of floats, as a TensorFlow tensor."""
    if isinstance(x, str):
        return field(1, 7) + field(2, field(2, field(1, 1))) + field(8, x)
    shape = b"".join(field(2, field(1, n)) for n in x.shape)
    return field(1, 1) + field(2, shape) + field(5, x.astype("<f4").tobytes())


def curve(
    labels: np.ndarray, predictions: np.ndarray, thresholds: int, weights: np.ndarray | None, tag: str
) -> np.ndarray:
    """Compute true and false positives, true and false negatives, precision and recall at each threshold."""
    labels, predictions = labels.reshape(-1).astype(np.float64), predictions.reshape(-1).astype(np.float64)
    if labels.shape != predictions.shape or not labels.size:
        raise ShapeError(f"add_pr_curve: {tag!r} has {labels.size} labels for {predictions.size} predictions")
    if thresholds < 2 or not ((predictions >= 0) & (predictions <= 1)).all():
        raise ArgumentError(f"add_pr_curve: {tag!r}: predictions are from 0 to 1, and there are at least 2 thresholds")
    scale = np.ones_like(labels) if weights is None else weights.reshape(-1).astype(np.float64)
    buckets = np.floor(predictions * (thresholds - 1)).astype(np.int64)
    hits = np.bincount(buckets, labels * scale, thresholds)
    misses = np.bincount(buckets, (1 - labels) * scale, thresholds)
    true, false = hits[::-1].cumsum()[::-1], misses[::-1].cumsum()[::-1]
    precision = true / np.maximum(MIN_DIVISOR, true + false)
    recall = true / np.maximum(MIN_DIVISOR, true[0])
    return np.stack([true, false, false[0] - false, true[0] - true, precision, recall])


def hyperparameters(
    settings: Mapping[str, Any], results: Mapping[str, Any], choices: Mapping[str, Sequence[Any]]
) -> tuple[bytes, bytes, bytes]:
    """Encode the messages of an experiment, and of the beginning and the end of a run."""
    given = {name: _plain(name, value) for name, value in settings.items()}
    infos = b"".join(field(5, _info(name, value, choices.get(name, ()))) for name, value in given.items())
    infos += b"".join(field(6, field(1, field(2, name))) for name in results)
    entries = b"".join(field(1, field(1, name) + field(2, _value(value))) for name, value in given.items())
    now = float(time.time())
    return field(2, field(4, now) + infos), field(3, entries + field(5, now)), field(4, field(1, 1) + field(2, now))


def _plain(name: str, value: Any) -> bool | float | str:
    if isinstance(value, Tensor | np.generic | np.ndarray):
        value = value.item()
    if not isinstance(value, bool | int | float | str):
        raise ArgumentError(
            f"add_hparams: {name!r} is a {type(value).__name__}: a setting is a number, a bool, or a text"
        )
    return value


def _info(name: str, value: bool | float | str, choices: Sequence[Any]) -> bytes:
    kind = TRUTH if isinstance(value, bool) else TEXT if isinstance(value, str) else NUMBER
    domain = b"".join(field(1, _value(_plain(name, x))) for x in choices)
    return field(1, name) + field(4, kind) + (field(5, domain) if choices else b"")


def _value(x: bool | float | str) -> bytes:
    """Encode a google.protobuf.Value."""
    if isinstance(x, bool):
        return field(4, int(x))
    return field(3, x) if isinstance(x, str) else field(2, float(x))


def sound(samples: np.ndarray, rate: int, tag: str) -> bytes:
    """Encode samples as a WAV file in a message."""
    flat = np.squeeze(samples)
    if flat.ndim != 1:
        raise ShapeError(f"add_audio: {tag!r} has shape {samples.shape}: a sound is one row of samples")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((np.clip(flat, -1, 1) * 32767).astype("<i2").tobytes())
    head = single(1, float(rate)) + field(2, 1) + field(3, len(flat))
    return head + field(4, file.getvalue()) + field(5, "audio/wav")


def projector_entry(name: str, place: str, labels: bool, size: tuple[int, int]) -> str:
    """Format the entry of an embedding in the projector's settings."""
    lines = [f'tensor_name: "{_quoted(name)}"', f'tensor_path: "{_quoted(place)}/tensors.tsv"']
    lines += [f'metadata_path: "{_quoted(place)}/metadata.tsv"'] if labels else []
    if size != (0, 0):
        dims = " ".join(f"single_image_dim: {n}" for n in size)
        lines.append(f'sprite {{ image_path: "{_quoted(place)}/sprite.png" {dims} }}')
    return "embeddings {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
