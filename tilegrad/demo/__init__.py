"""`python -m tilegrad demo`: a network learns to read handwritten digits, and everything that happens is shown."""

from .show import run

__all__ = ["run"]
