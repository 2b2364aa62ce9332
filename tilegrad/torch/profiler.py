"""Implement `torch.profiler` and `torch.autograd.profiler`: time each operation separately.

Within such a profile operations are computed one by one, as PyTorch does it. `profile(one_by_one=False)`, or
`tilegrad.profiler.profile`, shows the fused programs that really run.
"""

from __future__ import annotations

from typing import Any

from ..profile import profiler
from ..profile.averages import Average as Average
from ..profile.averages import Averages as Averages
from ..profile.profiler import ProfilerAction as ProfilerAction
from ..profile.profiler import ProfilerActivity as ProfilerActivity
from ..profile.profiler import emit_nvtx as emit_nvtx
from ..profile.profiler import record_function as record_function
from ..profile.profiler import schedule as schedule
from ..profile.profiler import supported_activities as supported_activities
from ..profile.profiler import tensorboard_trace_handler as tensorboard_trace_handler


class profile(profiler.profile):
    """Record each operation within the block, computed one at a time."""

    one_by_one_by_default = True

    def __init__(self, enabled: Any = True, **options: Any) -> None:
        self.enabled = enabled is not False
        super().__init__(**options)

    def __enter__(self) -> profile:
        return super().__enter__() if self.enabled else self  # type: ignore[return-value]

    def __exit__(self, *raised: Any) -> None:
        if self.enabled:
            super().__exit__(*raised)
