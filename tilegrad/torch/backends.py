"""`torch.backends`: switches of libraries that tilegrad does not use. They may be set, and change nothing."""

from __future__ import annotations

from types import SimpleNamespace

cudnn = SimpleNamespace(enabled=False, benchmark=False, deterministic=True, allow_tf32=False)
mkldnn = SimpleNamespace(enabled=False)
mps = SimpleNamespace(is_available=lambda: False, is_built=lambda: False)
