"""Read ONNX files, without the package `onnx`."""

from __future__ import annotations

from .messages import ModelProto
from .problems import OnnxError

__all__ = ["ModelProto", "OnnxError"]
