"""Hints, assertions and prints: builtins that do not affect a kernel's results."""

from __future__ import annotations

from typing import Any

from ...ir.tile import Assert, Print
from ...ir.tile_types import Refused
from .arithmetic import binary, invert, numeric_tile, to_bool
from .builtin import Builtin, builtin
from .values import SymbolicTile, describe, value_leaves
from .writer import TileWriter


def _hint(name: str) -> Builtin:
    def hint(w: TileWriter, input: Any, values: Any) -> Any:
        return input

    hint.__name__ = hint.__qualname__ = name
    hint.__doc__ = "Accepted: the compiler finds out what this tells it."
    return builtin(hint)


multiple_of, max_contiguous, max_constancy = (_hint(n) for n in ("multiple_of", "max_contiguous", "max_constancy"))


@builtin
def assume(w: TileWriter, cond: Any) -> None:
    """Declare a condition that always holds; `check` verifies it."""
    device_assert.run(w, (cond, "tl.assume"), {})


@builtin
def debug_barrier(w: TileWriter) -> None:
    """Do nothing: statements of a program already run in order. Accepted for Triton's kernels."""


@builtin
def static_assert(w: TileWriter, cond: Any, msg: Any = "") -> None:
    """Refuse to compile the kernel unless a constant is true."""
    if isinstance(cond, SymbolicTile):
        raise Refused("tl.static_assert takes what is known when the kernel is compiled; tl.device_assert takes tiles")
    if not cond:
        raise Refused(f"tl.static_assert failed{f': {msg}' if msg else ''}")


@builtin
def static_print(w: TileWriter, *values: Any, sep: str = " ", end: str = "\n") -> None:
    """Print constants while the kernel is compiled."""
    print(*[describe(v) if isinstance(v, SymbolicTile) else v for v in values], sep=sep, end=end)


@builtin
def device_print(w: TileWriter, prefix: Any, *args: Any, hex: bool = False) -> None:
    """Print one line for each element when the kernel runs."""
    if not isinstance(prefix, str):
        raise Refused(f'tl.device_print begins with a text: tl.device_print("x", x), and not {describe(prefix)}')
    for value in args:
        if len(value_leaves(value)) != 1:
            raise Refused(f"tl.device_print prints tiles and numbers, and not {describe(value)}")
    w.emit(Print(prefix, tuple([numeric_tile(w.tile(x), "tl.device_print").tile for x in args])))


@builtin
def device_assert(w: TileWriter, cond: Any, msg: Any = "", mask: Any = None) -> None:
    """Assert a condition under `check`; free of cost in other runs."""
    claimed = to_bool(w, cond)
    if mask is not None:
        claimed = binary(w, "bitor", invert(w, to_bool(w, mask)), claimed)
    w.emit(Assert(w.tile(claimed).tile, str(msg)))
