"""Run `python -m tilegrad demo`: train a network to read handwritten digits, and show every stage."""

from .show import run

__all__ = ["run"]
