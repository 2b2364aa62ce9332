"""`tg.tensorboard`: files for TensorBoard (see `profile/summary_writer.py`)."""

from .profile.summary_writer import SummaryWriter

__all__ = ["SummaryWriter"]
