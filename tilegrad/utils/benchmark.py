"""`tg.utils.benchmark`: time statements and compare them, with PyTorch's names."""

from ..profile.benchmark import Compare, Measurement, Timer

__all__ = ["Compare", "Measurement", "Timer"]
