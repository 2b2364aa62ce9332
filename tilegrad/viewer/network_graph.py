"""Read the graph of a network from an event file, TensorFlow's `GraphDef`, as `SummaryWriter.add_graph` writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ..serialization.event_files import Damaged, fields
from .model import PageMemory, PageNode, PageStep, Role

MAX_GRAPH_NODES = 20_000
"""Nodes of a graph that are shown."""
MAX_NAME_CHARACTERS, MAX_MODULE_DEPTH = 300, 32
ROLES: dict[str, Role] = {
    "Input": "input", "Placeholder": "input", "IO Node": "input", "Parameter": "parameter", "prim::Param": "parameter",
    "Variable": "parameter", "VariableV2": "parameter", "Const": "number",
}  # fmt: skip


class GraphNode(NamedTuple):
    """A node as the file has it; `reads` are the names of its inputs."""

    name: str
    op: str
    reads: tuple[str, ...]
    shape: tuple[int, ...] | None


def step_of_graph(name: str, message: bytes) -> PageStep:
    """Describe a graph as a step without launches: its nodes fold by the scopes in their names."""
    found: dict[str, GraphNode] = {}
    left_out = 0
    for number, value in fields(message):
        if number == 1:
            if len(found) < MAX_GRAPH_NODES:
                node = _node(_part(value))
                found.setdefault(node.name, node)
            else:
                left_out += 1
    order = _in_order(found)
    at = {node.name: n for n, node in enumerate(order)}
    read = {name for node in order for name in node.reads}
    nodes = [_page_node(node, at, node.name not in read) for node in order]
    parameters = sum(node["role"] == "parameter" for node in nodes)
    facts = [["nodes", f"{len(nodes):,}"], ["parameters", f"{parameters:,}"]]
    note = "the graph of add_graph, as it was recorded: it has no launches and no times"
    if left_out:
        note += f"; {left_out:,} more nodes are left out"
    return PageStep(
        name=name, device="", facts=facts, nodes=nodes, lines=[], kernels=[], passes=[],
        memory=PageMemory(moments=[], live=[], owners=[]), roof={}, note=note,
    )  # fmt: skip


def _node(message: bytes) -> GraphNode:
    name, op, reads, shape = "", "", [], None
    for number, value in fields(message):
        if number == 1:
            name = _text(value)
        elif number == 2:
            op = _text(value)
        elif number == 3:
            reads.append(_text(value).lstrip("^").partition(":")[0])
        elif number == 5:
            entry = dict(fields(_part(value)))
            if entry.get(1) == b"_output_shapes":
                shape = _shape(_part(entry.get(2, b"")))
    return GraphNode(name, op, tuple(reads), shape)


def _shape(attribute: bytes) -> tuple[int, ...] | None:
    """Return the extents of the first shape of a list; None if there is none."""
    listed = dict(fields(_part(dict(fields(attribute)).get(1, b""))))
    if 7 not in listed:
        return None
    extents = [dict(fields(_part(dim))).get(1, 0) for number, dim in fields(_part(listed[7])) if number == 2]
    return tuple(extent if isinstance(extent, int) and extent < 1 << 53 else 0 for extent in extents)


def _part(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise Damaged("a graph has a number for a part")
    return value


def _text(value: Any) -> str:
    return _part(value).decode("utf-8", "replace")[:MAX_NAME_CHARACTERS]


def _in_order(found: Mapping[str, GraphNode]) -> list[GraphNode]:
    """Order nodes so that each comes after those that it reads; of a loop, one edge is not followed."""
    order: list[GraphNode] = []
    begun: set[str] = set()
    for first in found:
        open_: list[tuple[str, Iterable[str]]] = [(first, iter(found[first].reads))] if first not in begun else []
        begun.add(first)
        while open_:
            name, rest = open_[-1]
            following = next((n for n in rest if n in found and n not in begun), None)
            if following is None:
                order.append(found[name])
                open_.pop()
            else:
                begun.add(following)
                open_.append((following, iter(found[following].reads)))
    return order


def _page_node(node: GraphNode, at: Mapping[str, int], output: bool) -> PageNode:
    parts = node.name.split("/")
    role = ROLES.get(node.op, "operation")
    return PageNode(
        name=".".join(parts) if role == "parameter" else parts[-1], op=node.op,
        type="" if node.shape is None else f"[{', '.join(map(str, node.shape))}]", bytes=0, role=role, phase="forward",
        module=".".join(parts[:-1][:MAX_MODULE_DEPTH]), line=None, kernels=[],
        reads=sorted({at[name] for name in node.reads if name in at and at[name] < at[node.name]}), output=output,
    )  # fmt: skip
