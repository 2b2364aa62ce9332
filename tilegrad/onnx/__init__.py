"""Load networks from ONNX files and write them, without the package `onnx`."""

from __future__ import annotations

from .exporting import export
from .messages import ModelProto
from .network import OnnxModule, load
from .problems import OnnxError

__all__ = ["ModelProto", "OnnxError", "OnnxModule", "export", "load"]
