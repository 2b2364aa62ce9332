"""The four languages: their data, printers, parsers and checkers. Nothing here computes."""

from . import position  # the normal form of positions

__all__ = ["position"]
