"""Load networks from ONNX files, without the package `onnx`."""

from __future__ import annotations

from .messages import ModelProto
from .network import OnnxModule, load
from .problems import OnnxError

__all__ = ["ModelProto", "OnnxError", "OnnxModule", "load"]
