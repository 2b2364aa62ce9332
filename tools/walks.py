"""Print the walk of a program through the source: every function on the way from a line of Python to machine code.

    python tools/walks.py            the number of functions on each walk
    python tools/walks.py exp        the functions of one walk, indented by caller, in the order of their first calls

A walk is given by its milestones: the functions that make the artefacts on the way. It is the union of the call stacks
at their first calls. Closures, lambdas, comprehensions and what is outside the package do not count.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).parent.parent
PACKAGE = str(ROOT / "tilegrad") + os.sep
sys.path.insert(0, str(ROOT))


def exp() -> Callable[[], object]:
    import tilegrad as tg

    x = tg.tensor([1.0, 2.0, 3.0] * 100).realize()
    return lambda: x.exp().numpy()


def matmul() -> Callable[[], object]:
    import tilegrad as tg

    x, y = (tg.ones(512, 512).bfloat16().realize() for _ in range(2))
    compile_for_amx()
    return lambda: (x @ y).realize()


def kernel() -> Callable[[], object]:
    import tilegrad as tg
    import tilegrad.language as tl

    @tg.kernel
    def double(x, out, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)

    x, out = (tg.ones(1000, device="cuda").realize() for _ in range(2))
    return lambda: double[(8,)](x, out, 1000, BLOCK=128)


class Compiled(Exception):
    """Compilation has ended; a program that needs AMX does not run on every machine."""


def compile_for_amx() -> None:
    """Compile the next programs for a processor with AMX, and do not run them."""
    from tilegrad.backend.cpu import build, executable, objects, processor

    host = objects.host()
    host = host._replace(cpu="x86-64-v4", features=f"{host.features},+amx-tile,+amx-bf16,+amx-int8,+avx512bf16")
    for module in (build, objects):
        module.host = lambda: host  # type: ignore[attr-defined]
    processor.amx_permitted = lambda: True

    def stop(*_: object) -> NoReturn:
        raise Compiled

    executable.CpuExecutable.bound = stop  # type: ignore[method-assign]


class Course(NamedTuple):
    """A program, and the functions that its walk passes through."""

    prepare: Callable[[], Callable[[], object]]
    milestones: tuple[str, ...]


COMPILER = (
    "ops/base.py:infer",
    "transform/fold_movement.py:fold_movement",
    "schedule/fuse.py:fuse",
    "schedule/lower.py:lower",
    "schedule/emit.py:emit",
    "schedule/assemble.py:program",
)
"""The op, the graph, the groups, the loops, the tile kernel and the program."""
CPU = (
    "backend/cpu/code/lower.py:lower",
    "backend/cpu/emit.py:effect",
    "backend/cpu/objects.py:compile_object",
    "backend/cpu/objects.py:link",
)
"""LLVM IR, its first store, the object and its address."""
AMX = "backend/cpu/code/amx_blocks.py:amx_instruction"
CUDA = (
    "ir/tile_checker.py:check",
    "backend/cuda/code/lower.py:lower",
    "backend/cuda/code/elements.py:_of",
    "backend/cuda/nvrtc.py:compile",
)
"""The tile kernel, CUDA C++, an expression in it, and the code of NVRTC."""
COURSES = {
    "exp": Course(exp, (*COMPILER, *CPU, "backend/cpu/maths/exponential.py:exp")),
    "matmul": Course(matmul, ("ops/contraction.py:infer", *COMPILER[1:], *CPU, AMX)),
    "kernel": Course(kernel, CUDA),
}


def name(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_code.co_name}"


def counts(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(PACKAGE) and not frame.f_code.co_name.startswith("<")


class Walk:
    """The functions on the way to milestones, each below its first caller."""

    def __init__(self, course: Course) -> None:
        self.missing = set(course.milestones)
        self.callers: dict[str, str | None] = {}
        program = course.prepare()
        threading.setprofile(self._watch)
        sys.setprofile(self._watch)
        try:
            with contextlib.suppress(Compiled):
                program()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]

    def _watch(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not counts(frame) or name(frame) not in self.missing:
            return
        self.missing.discard(name(frame))
        stack: list[str] = []
        at: FrameType | None = frame
        while at is not None:
            stack += [name(at)] if counts(at) else []
            at = at.f_back
        above = None
        for function in reversed(stack):
            self.callers.setdefault(function, above)
            above = function

    def depth(self, function: str | None) -> int:
        return 0 if function is None else 1 + self.depth(self.callers[function])


def main() -> None:
    os.environ.update(TILEGRAD_CACHE="off", TILEGRAD_CUDA="null", TILEGRAD_TIER="compiled")
    for which in sys.argv[1:] or COURSES:
        walk = Walk(COURSES[which])
        files = {function.partition(":")[0] for function in walk.callers}
        print(f"{which}: {len(walk.callers)} functions in {len(files)} files")
        if walk.missing:
            print("  never called:", *sorted(walk.missing))
        for function in walk.callers if sys.argv[1:] else ():
            print("  " * walk.depth(function) + function)


if __name__ == "__main__":
    main()
