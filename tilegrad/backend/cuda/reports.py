"""What people are shown of a compiled kernel."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .properties import Properties, blocks_at_once

if TYPE_CHECKING:
    from .build import Built

ADDRESS = re.compile(r"/\*[0-9a-fx]+\*/")
TARGET = re.compile(r"`\((\.?[\w$]+)\)")


def summary(made: Built, limits: Properties) -> str:
    """Registers, spills, threads, shared memory, and how much of a multiprocessor that fills."""
    blocks = blocks_at_once(limits, made.threads, made.shared, made.registers)
    warps = blocks * -(-made.threads // limits.warp_size)
    most = limits.max_threads_per_multi_processor // limits.warp_size
    code = f"{made.registers} registers, {made.spills} bytes spilled, " if made.image else "not compiled, "
    return (
        f"{made.name}: {code}{made.threads} threads, {made.shared} bytes of shared memory; {blocks} blocks at a time "
        f"on a multiprocessor ({100 * warps // most} % of its warps)"
    )


def readable(sass: str) -> str:
    """The instructions of a disassembled cubin, without addresses, codes and padding.

    >>> print(readable("  .L_x_6:\\n   /*0d50*/   @P0 BRA `(.L_x_6) ;  /* 0x0000 */\\n   /*0d60*/   NOP;"))
    .L_x_6:
    @P0 BRA .L_x_6
    """
    lines: list[str] = []
    for line in sass.splitlines():
        text = TARGET.sub(r"\1", ADDRESS.sub("", re.sub(r"/\* 0x[0-9a-f]+ \*/", "", line))).strip().rstrip("; ")
        if not text or text == "NOP":
            continue
        if lines and text == f"BRA {lines[-1].removesuffix(':')}":
            lines.pop()  # an endless loop after the end
        else:
            lines.append(text)
    return "\n".join(lines)
