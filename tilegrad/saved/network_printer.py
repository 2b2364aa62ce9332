"""Print networks as text: tensors by name, then a line for each op.

    network   ::= "tilegrad network 1" tensors graph [graph]
    tensors   ::= "tensors:" tensor*
    tensor    ::= name ":" ("parameter" | "frozen" | "buffer" | "unsaved") type ["=" initial] | name "=" name
    initial   ::= "uniform" | "zeros" | "ones"
    graph     ::= ("evaluate" | "train") "(" name ":" structure, ... ")" "->" structure ":" line* return update*
    line      ::= name [":" type] "=" op "(" name, ..., attribute "=" literal, ... ")"
    return    ::= "return" name, ...
    update    ::= "update" name "=" name
    different ::= "where" size "!=" size
    structure ::= type | "tensor" | "None" | "(" structure, ... ")" | "[" structure, ... "]" | "{" key: structure "}"
    type      ::= dtype "[" size, ... "]" ["@" device]
    size      ::= term "+" term ...           term ::= integer or symbol "*" ...

Sizes are integers or polynomials in symbols: `float32[n, 1, 28, 28]`. Comments begin with `#`. The op is one of the
graph (docs/reference), or, in what a person writes, a function of `tilegrad.nn.functional` (`network_parser.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import TraceError
from ..ir.dtype import DType
from ..ir.graph import TensorType, Value
from ..ir.node import Node, Structure
from ..ir.size import Size
from ..nn.graph_module import GraphModule, NetworkGraph, graph_key, input_name
from ..nn.parameter import Parameter
from ..tree import LEAF, NOTHING, Tree
from .op_classes import CHECKS, op_class

HEADER = "tilegrad network 1"
PLAIN_NAME = re.compile(r"[%$]?(?:\d+\.)*[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
RESERVED = frozenset({"None", "True", "False", "inf", "nan", "tensor", "return", "update", "where"})


class TensorDeclaration(Node):
    """A tensor of a network: what it is for and its type, or the name of the one that it is the same as."""

    kind: str
    """`parameter`, `frozen`, `buffer` or `unsaved`; `same` for another name."""
    type: TensorType | None
    same_as: str = ""
    initial: str = ""


class Network(Node):
    """What a file says of a network, without the elements of its tensors."""

    tensors: dict[str, TensorDeclaration]
    graph: NetworkGraph
    training_graph: NetworkGraph | None

    def key(self) -> tuple[Any, ...]:
        """Return a key that equal networks share."""
        graphs = [graph_key(g) for g in (self.graph, self.training_graph) if g is not None]
        return tuple((name, *t.field_values()) for name, t in self.tensors.items()), tuple(graphs)

    def __str__(self) -> str:
        return network_text(self)


def network_of(module: GraphModule) -> Network:
    """Describe a module on graphs."""
    state = {*module.state_dict(keep_vars=True)}
    declared: dict[str, TensorDeclaration] = {}
    first: dict[int, str] = {}
    for name in module.tensor_names:
        x = module.tensor(name)
        known = first.setdefault(id(x), name)
        if known != name:
            declared[name] = TensorDeclaration("same", None, known)
            continue
        trained = "parameter" if x.requires_grad else "frozen"
        kind = trained if isinstance(x, Parameter) else "buffer" if name in state else "unsaved"
        declared[name] = TensorDeclaration(kind, x.own_value().type)
    return Network(declared, module.graph, module.training_graph)


def network_text(network: Network) -> str:
    """Print a network.

    >>> import tilegrad as tg
    >>> from ..nn.record import recorded
    >>> print(network_text(network_of(recorded(tg.nn.Linear(2, 1), (tg.ones(3, 2),), dynamic={"input": {0: "n"}}))))
    tilegrad network 1
    tensors:
      weight: parameter float32[1, 2]
      bias: parameter float32[1]
    evaluate(input: float32[n, 2]) -> tensor:
      %0: float32[2, 1] = permute(weight, axes=(1, 0))
      %1: float32[n, 1] = contract(input, %0, equation="ik,kj->ij")
      %2: float32[n, 1] = add(%1, bias)
      return %2
    <BLANKLINE>
    """
    lines = [HEADER, "tensors:"]
    for name, t in network.tensors.items():
        if t.type is None:
            lines.append(f"  {name_text(name)} = {name_text(t.same_as)}")
        else:
            initial = f" = {t.initial}" if t.initial else ""
            lines.append(f"  {name_text(name)}: {t.kind} {type_text(t.type)}{initial}")
    lines += graph_lines("evaluate", network.graph)
    if network.training_graph is not None:
        lines += graph_lines("train", network.training_graph)
    return "\n".join(lines) + "\n"


def graph_lines(mode: str, network: NetworkGraph) -> Iterator[str]:
    """Print one graph."""
    leaves = iter(network.argument_inputs)
    arguments = [f"{name_text(name)}: {_structure(tree, leaves)}" for name, tree in network.arguments.items()]
    yield f"{mode}({', '.join(arguments)}) -> {_structure(network.results, None)}:"
    names: dict[Value, str] = {x: name_text(input_name(x)) for x in network.graph.inputs}
    for value in network.graph.values():
        if value not in names:
            names[value] = f"%{len(names) - len(network.graph.inputs)}"
            yield f"  {names[value]}: {type_text(value.type)} = {_call(value, names)}"
    outputs = [names[v] for v in network.graph.outputs]
    count = len(outputs) - len(network.updates)
    for x, y in network.unequal:
        yield f"  where {x} != {y}"
    yield f"  return {', '.join(outputs[:count])}"
    for name, output in zip(network.updates, outputs[count:], strict=True):
        yield f"  update {name_text(name)} = {output}"


def _call(value: Value, names: Mapping[Value, str]) -> str:
    cls = type(value)
    if op_class(cls.op) is not cls:
        raise TraceError(f"a network with the op {cls.op} cannot be saved: it is no plain op of the graph")
    given = []
    for field in cls.input_fields:
        found = value.__dict__[field]
        single = cls.annotations[field] == "Value"
        given.append(names[found] if single else f"[{', '.join(names[x] for x in found)}]")
    for field in cls.attribute_fields:
        x = value.__dict__[field]
        if cls.__dict__.get(field, ...) == x and type(cls.__dict__[field]) is type(x):
            continue
        if not CHECKS[cls.annotations[field]](x):
            if field not in ("check", "checks"):
                raise TraceError(f"a network with {cls.op}[{field}={x!r:.60}] cannot be saved")
            x = None if field == "check" else ()
        given.append(f"{field}={literal(x)}")
    return f"{cls.op}({', '.join(given)})"


def literal(x: Any) -> str:
    """Print an attribute.

    >>> literal((1, -2.5, float("inf"), True, Size.named("n") * 2 + 1, "ik,kj->ij"))
    '(1, -2.5, inf, True, 2*n + 1, "ik,kj->ij")'
    """
    match x:
        case str():
            return json.dumps(x)
        case tuple():
            return f"({', '.join(map(literal, x))}{',' if len(x) == 1 else ''})"
        case DType():
            return x.name
        case TensorType():
            return type_text(x)
        case Structure():
            return f"{type(x).__name__}({', '.join(f'{n}={literal(x.__dict__[n])}' for n in x.fields)})"
        case bool() | int() | float() | Size() | None:
            return str(x)
    raise TraceError(f"a network with an attribute {x!r:.60} cannot be saved")


def type_text(type: TensorType) -> str:
    """Print a type: `float32[n, 3]`."""
    place = "" if type.device == "cpu" else f"@{json.dumps(type.device)}"
    return f"{type.dtype.name}[{', '.join(map(str, type.shape))}]{place}"


def name_text(name: str) -> str:
    """Print a name; one that is no plain word is quoted."""
    plain = PLAIN_NAME.fullmatch(name) and name not in RESERVED
    return name if plain else "@" + json.dumps(name)


def _structure(tree: Tree, leaves: Iterator[Value] | None) -> str:
    if tree == LEAF:
        return "tensor" if leaves is None else type_text(next(leaves).type)
    if tree == NOTHING:
        return "None"
    parts = [_structure(part, leaves) for part in tree.parts]
    if tree.kind is dict:
        return f"{{{', '.join(f'{json.dumps(k)}: {p}' for k, p in zip(tree.keys, parts, strict=True))}}}"
    if tree.kind is list:
        return f"[{', '.join(parts)}]"
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
