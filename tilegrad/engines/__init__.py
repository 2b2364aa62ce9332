"""Run networks for inference: engines hold a network and its weights, inferencers run it at the same time."""

from .create import engine
from .engine import Engine
from .inferencer import Inferencer
from .specs import TensorSpec

__all__ = ["Engine", "Inferencer", "TensorSpec", "engine"]
