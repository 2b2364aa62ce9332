"""Sequences of different lengths for recurrent layers, under PyTorch's names."""

from ..packing import *  # noqa: F403
from ..packing import __all__ as __all__
