"""The four languages: their data, printers, parsers and checkers. Nothing here computes."""

from . import program_printer, tile_printer  # they give kernels and programs their printed form

__all__ = ["program_printer", "tile_printer"]
