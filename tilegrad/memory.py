"""`tg.memory`: which tensors hold the memory, now (`profile/memory.py`) and in a program (`program_memory.py`)."""

from .profile.memory import Owner, Snapshot, snapshot, summary
from .profile.program_memory import Peak, peak

__all__ = ["Owner", "Peak", "Snapshot", "peak", "snapshot", "summary"]
