"""Implement `torch.utils.tensorboard` by `tilegrad.tensorboard`."""

from __future__ import annotations

from typing import Any

from ..profile.summary_writer import SummaryWriter as SummaryWriter
from .doors import missing


def __getattr__(name: str) -> Any:
    raise missing("torch.utils.tensorboard", name, ["SummaryWriter"])
