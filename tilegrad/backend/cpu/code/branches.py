"""Split a kernel whose instances take one of two branches into three functions.

LLVM keeps constants in registers only in loops without such a branch. One function finds the run of instances that take
the first branch, one runs those, and one runs a single instance of the other branch, at a border for example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....ir.tile import Assign, If, Kernel, Load, Statement, Tile
from ....ir.tile_access import expressions, names_in, walk
from ..costs import MIN_BORDER_STATEMENTS

DISPATCHER = """define void @NAME(ptr noalias %arguments, i64 %begin, i64 %end) #0 {
entry:
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %turn, label %leave
turn:
  %from = phi i64 [ %begin, %entry ], [ %next, %border ]
  %to = call i64 @NAME_stretch(ptr %arguments, i64 %from, i64 %end)
  call void @NAME_inside(ptr %arguments, i64 %from, i64 %to)
  %done = icmp sge i64 %to, %end
  br i1 %done, label %leave, label %border
border:
  %next = add i64 %to, 1
  call void @NAME_border(ptr %arguments, i64 %to, i64 %next)
  %again = icmp slt i64 %next, %end
  br i1 %again, label %turn, label %leave
leave:
  ret void
}"""


class KernelPart(NamedTuple):
    """A function of a kernel; with a condition, it returns the first instance for which that is false."""

    kernel: Kernel
    head: str
    attributes: str = "#0"
    condition: Tile | None = None


def split_branches(kernel: Kernel) -> list[KernelPart]:
    """Split a kernel into functions: usually one."""
    name, body = kernel.name, kernel.body
    last = body[-1] if body else None
    before = body[:-1]
    if (
        not isinstance(last, If)
        or len(last.otherwise) < MIN_BORDER_STATEMENTS
        or not all(isinstance(s, Assign) for s in before)
    ):
        return [KernelPart(kernel, f"void @{name}")]
    needed = _slice(before, last.condition)
    if any(isinstance(x, Load) for x in (*walk(last.condition), *expressions(*needed))):
        return [KernelPart(kernel, f"void @{name}")]  # the instance before may have stored what is loaded
    inside, other = (kernel.replaced(body=(*before, *case)) for case in (last.body, last.otherwise))
    return [
        KernelPart(kernel.replaced(body=needed), f"internal i64 @{name}_stretch", "#1", last.condition),
        KernelPart(inside, f"internal void @{name}_inside", "#1"),
        KernelPart(other, f"internal void @{name}_border", "#1"),
    ]


def dispatcher(name: str) -> str:
    """Return the kernel that dispatches to its parts."""
    return DISPATCHER.replace("NAME", name)


def _slice(body: Sequence[Statement], condition: Tile) -> tuple[Statement, ...]:
    """Slice the assignments that a condition depends on."""
    names = names_in(condition)
    found: list[Statement] = []
    for s in reversed(body):
        if isinstance(s, Assign) and s.name in names:
            found.append(s)
            names |= names_in(s.value)
    return tuple(reversed(found))
