"""Describe programs for the viewer: their memory over the launches, and programs that were saved without a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.program import Copy, Foreign, Launch, Program, ProgramBuffer, name_of, uses
from ..ir.program_printer import show_step
from ..ir.size import known
from .model import PageBlock, PageKernel, PageMemory, PageNode, PageStep, clipped

Computing = Launch | Copy | Foreign


def computing_steps(program: Program) -> list[Computing]:
    """Return the steps that take time: launches, copies and foreign calls."""
    return [s for s in program.steps if isinstance(s, Computing)]


def title_of(step: Computing) -> str:
    """Name a step by its kernel."""
    return f"copy {step.target}" if isinstance(step, Copy) else name_of(step)


def memory_of(program: Program, sizes: Mapping[str, int], titles: Sequence[str]) -> PageMemory:
    """List the live bytes during each launch, and their owners.

    Inputs and outputs are there from the first launch to the last, temporaries from the launch that writes them to the
    last that reads them.
    """
    steps = computing_steps(program)
    used: dict[str, list[int]] = {}
    for n, step in enumerate(steps):
        for name in uses(step):
            used.setdefault(name, []).append(n)
    end = max(0, len(steps) - 1)
    owners = []
    for b in program.buffers:
        at = used.get(b.name, [0, end])
        if b.alias is None and (b.role != "temporary" or b.name in used):
            span = (at[0], at[-1]) if b.role == "temporary" else (0, end)
            owners.append(_owner(b, span, sizes, at[0] if b.role == "temporary" else None))
    live = [sum(o["bytes"] for o in owners if o["first"] <= n <= o["last"]) for n in range(len(steps))]
    return PageMemory(moments=list(titles), live=live, owners=owners)


def _owner(b: ProgramBuffer, span: tuple[int, int], sizes: Mapping[str, int], kernel: int | None) -> PageBlock:
    return PageBlock(
        name=b.name, kind=b.role, type=str(b.type), bytes=known(b.type.bytes, sizes), line=None, node=None,
        kernel=kernel, first=span[0], last=span[1],
    )  # fmt: skip


def step_of_program(program: Program) -> PageStep:
    """Describe a saved program: its launches are the nodes of its graph. It has no lines, and no times."""
    sizes: dict[str, int] = dict.fromkeys(program.sizes, 1)
    nodes: list[PageNode] = []
    maker: dict[str, int] = {}
    for b in program.buffers:
        if b.role in ("input", "constant"):
            maker[b.name] = len(nodes)
            nodes.append(_node(b.name, b.role, str(b.type), known(b.type.bytes, sizes)))
    kernels = []
    for n, step in enumerate(computing_steps(program)):
        names = uses(step)
        reads = sorted({maker[name] for name in names if name in maker})
        kernels.append(_kernel(step))
        for name in names:
            if name not in maker or name in program.outputs:
                maker[name] = len(nodes)
        nodes.append(_node(title_of(step), "operation", "", 0, [n], reads, bool(set(names) & set(program.outputs))))
    note = f"for sizes of 1: it works for all values of {', '.join(program.sizes)}" if program.sizes else ""
    memory = memory_of(program, sizes, [k["title"] for k in kernels])
    return PageStep(
        name=program.name, device="", facts=[["launches", str(len(kernels))]], nodes=nodes, lines=[], kernels=kernels,
        passes=[], memory=memory, roof={}, note=note,
    )  # fmt: skip


def _node(
    name: str, op: str, type: str, bytes: int, kernels: list[int] = [], reads: list[int] = [], output: bool = False
) -> PageNode:
    return PageNode(
        name=name, op=op if op != "operation" else name, type=type, bytes=bytes,
        role="operation" if op == "operation" else "input", phase="forward", module="", line=None, kernels=kernels,
        reads=reads, output=output,
    )  # fmt: skip


def _kernel(step: Computing) -> PageKernel:
    origin = step.kernel.origin.split("\n")[0].partition(": ")[0] if isinstance(step, Launch) else ""
    text = str(step.kernel.replaced(origin="")) if isinstance(step, Launch) else show_step(step)
    title = title_of(step) + (f" ({origin})" if origin else "")
    return PageKernel(
        title=title, name=title_of(step), phase="forward", module="", lines=[], why=[], text=clipped(text), source="",
        language="", machine="", hot=[], seconds=None, bytes=0, operations=0, limit=0.0, share=None, bound="", hint="",
    )  # fmt: skip
