"""Implement `torch.backends`: switches of libraries that tilegrad does not use; setting them has no effect."""

from __future__ import annotations

from types import SimpleNamespace

cudnn = SimpleNamespace(enabled=False, benchmark=False, deterministic=True, allow_tf32=False)
mkldnn = SimpleNamespace(enabled=False)
mps = SimpleNamespace(is_available=lambda: False, is_built=lambda: False)
