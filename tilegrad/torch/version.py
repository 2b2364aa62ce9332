"""Implement `torch.version`."""

from __future__ import annotations

__version__ = "2.0.0+tilegrad"
"""Version of PyTorch whose names are implemented."""
cuda = None
hip = None
git_version = "none"
