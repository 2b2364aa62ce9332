"""Reports about compiled kernels and failures, for users."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .properties import GpuProperties, blocks_at_once

if TYPE_CHECKING:
    from .build import CudaBinary
    from .queues import QueuedWork

ADDRESS = re.compile(r"/\*[0-9a-fx]+\*/")
MAX_LISTED_KERNELS = 12
"""Most kernels named in an error."""
UNCOMPILED = "not compiled (there is no NVRTC: pip install 'tilegrad[cuda]'), "
TARGET = re.compile(r"`\((\.?[\w$]+)\)")


def summary(made: CudaBinary, limits: GpuProperties) -> str:
    """Summarise registers, spills, threads, shared memory and occupancy."""
    blocks = blocks_at_once(limits, made.threads, made.shared, made.registers)
    warps = blocks * -(-made.threads // limits.warp_size)
    most = limits.max_threads_per_multi_processor // limits.warp_size
    code = f"{made.registers} registers, {made.spills} bytes spilled, " if made.image else UNCOMPILED
    return (
        f"{made.name}: {code}{made.threads} threads, {made.shared} bytes of shared memory; {blocks} blocks at a time "
        f"on a multiprocessor ({100 * warps // most} % of its warps)"
    )


def blame(suspects: Sequence[Sequence[QueuedWork]]) -> str:
    """Name the kernels that may have caused a failure; `suspects` are lists of work, one per queue.

    >>> from .queues import QueuedWork
    >>> blame([[QueuedWork("step", (("softmax", "model.py:7"),))], []])
    ' in kernel softmax (model.py:7) of program step'
    """
    found = [work for works in suspects for work in dict.fromkeys(works)]
    names = [f"{name} ({origin})" if origin else name for work in found for name, origin in work.kernels]
    names = list(dict.fromkeys(names))
    programs = ", ".join(dict.fromkeys(work.program for work in found))
    if not names:
        return ". Nothing that tilegrad started was unfinished"
    if len(names) == 1:
        return f" in kernel {names[0]} of program {programs}"
    more = f" and {len(names) - MAX_LISTED_KERNELS} more" if len(names) > MAX_LISTED_KERNELS else ""
    return f" in program {programs}, in one of the kernels {', '.join(names[:MAX_LISTED_KERNELS])}{more}"


def clean_sass(sass: str) -> str:
    r"""Strip addresses, encodings and padding from disassembled machine code.

    >>> print(clean_sass("  .L_x_6:\n   /*0d50*/   @P0 BRA `(.L_x_6) ;  /* 0x0000 */\n   /*0d60*/   NOP;"))
    .L_x_6:
    @P0 BRA .L_x_6
    """
    lines: list[str] = []
    for line in sass.splitlines():
        text = TARGET.sub(r"\1", ADDRESS.sub("", re.sub(r"/\* 0x[0-9a-f]+ \*/", "", line))).strip().rstrip("; ")
        if not text or text == "NOP":
            continue
        if lines and text == f"BRA {lines[-1].removesuffix(':')}":
            lines.pop()  # the padding loop after the last instruction
        else:
            lines.append(text)
    return "\n".join(lines)
