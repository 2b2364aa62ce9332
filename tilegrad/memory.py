"""`tg.memory`: which tensors hold the memory (see `profile/memory.py`)."""

from .profile.memory import Owner, Snapshot, snapshot, summary

__all__ = ["Owner", "Snapshot", "snapshot", "summary"]
