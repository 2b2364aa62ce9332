"""Pad and pack sequences of different lengths, under PyTorch's names."""

from ..packing import *  # noqa: F403
from ..packing import __all__ as __all__
