"""The four languages: their data, printers, parsers and checkers. Nothing here computes."""

from . import position, program_printer, tile_printer  # normal forms of positions; kernels and programs in print

__all__ = ["position", "program_printer", "tile_printer"]
