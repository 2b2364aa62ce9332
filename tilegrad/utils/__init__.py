"""`tg.utils`: PyTorch's name for what has no better place; there is `benchmark`."""

from . import benchmark as benchmark
