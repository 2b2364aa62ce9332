"""`tg.profiler`: where time goes; PyTorch's names (see `profile/profiler.py`)."""

from .profile.profiler import (
    ProfilerAction,
    ProfilerActivity,
    emit_nvtx,
    profile,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "ProfilerAction", "ProfilerActivity", "emit_nvtx", "profile", "record_function", "schedule", "supported_activities",
    "tensorboard_trace_handler",
]  # fmt: skip
