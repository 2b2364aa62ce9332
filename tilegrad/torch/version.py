"""`torch.version`."""

from __future__ import annotations

__version__ = "2.0.0+tilegrad"
"""PyTorch's, whose names these are."""
cuda = None
hip = None
git_version = "none"
