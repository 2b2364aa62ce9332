"""Run a network from its recorded graph instead of from Python source.

A `NetworkGraph` is data: ops with attributes, the structure of the arguments and of the results, and the names of the
tensors that it reads. A `GraphModule` is a module on such graphs: it has parameters and buffers under the usual names,
and each call records the ops of its graph anew, so that it is differentiated, jitted and trained like any other module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter as Argument
from inspect import Signature
from operator import attrgetter
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError, ShapeError
from ..functions.creation import tensor
from ..ir.graph import Graph, Input, Value
from ..ir.node import Node, amend
from ..ir.size import Dim, Size, known
from ..lazy.handle import Handle, wrap
from ..ops.bind_sizes import bind_attributes
from ..ops.broadcasting import shown
from ..random import generator_of
from ..tensor import Tensor
from ..tree import LEAF, NOTHING, Tree, flatten, unflatten
from .module import Module
from .parameter import Parameter

RANDOM = "$random"
"""Name of the graph's input that is the state of the default generator."""


class NetworkGraph(Node):
    """A graph with the structure of its arguments and results.

    The inputs of the graph are the tensors among the arguments, then tensors by name: parameters, buffers, constants.
    Its outputs are the tensors among the results, then the new elements of the tensors named in `updates`.
    """

    graph: Graph
    arguments: dict[str, Tree]
    """The arguments in order, by name; all leaves are tensors."""
    results: Tree
    updates: tuple[str, ...]
    unequal: tuple[tuple[Size, Dim], ...]
    """Sizes that were taken for unequal: the graph does not hold for calls in which they are equal."""

    @property
    def argument_inputs(self) -> tuple[Value, ...]:
        """The inputs of the graph that are given in each call."""
        return self.graph.inputs[: sum(count_leaves(tree) for tree in self.arguments.values())]

    @property
    def tensor_names(self) -> list[str]:
        """The names of the other inputs."""
        return [input_name(x) for x in self.graph.inputs[len(self.argument_inputs) :]]

    def leaves_of(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
        """Match the arguments of a call; return the tensors among them in order."""
        given = dict(zip(self.arguments, args, strict=False))
        wanted = ", ".join(self.arguments)
        if len(args) > len(self.arguments):
            raise ArgumentError(f"the network takes {len(self.arguments)} arguments ({wanted}), not {len(args)}")
        for name, x in kwargs.items():
            if name not in self.arguments or name in given:
                what = "is given twice" if name in given else f"is unknown: the network takes {wanted}"
                raise ArgumentError(f"the argument {name!r:.60} {what}")
            given[name] = x
        leaves: list[Tensor] = []
        for name, tree in self.arguments.items():
            if name not in given and tree != NOTHING:
                raise ArgumentError(f"the argument {name!r} is missing: the network takes {wanted}")
            found, structure = flatten(given.get(name))
            if plain(structure) != tree:
                raise ArgumentError(f"the argument {name!r} is built as {described(structure)}, not {described(tree)}")
            leaves += [tensor(x) if isinstance(x, np.ndarray) else x for x in found]
        return leaves

    def sizes_of(self, leaves: Sequence[Tensor]) -> dict[str, Dim]:
        """Check the types of the tensors of a call; return the sizes that vary."""
        sizes: dict[str, Dim] = {}
        for x, given in zip(self.argument_inputs, leaves, strict=True):
            name, wanted = input_name(x), x.type
            if not isinstance(given, Handle):
                raise ArgumentError(f"the argument {name!r} is to be a tensor, not {type(given).__name__}")
            have = given.own_value().type
            if have.dtype is not wanted.dtype:
                raise DTypeError(
                    f"the argument {name!r} has {have.dtype.name} elements; the network takes {wanted.dtype.name}"
                )
            if have.rank != wanted.rank or not all(
                _matches(extent, now, sizes) for extent, now in zip(wanted.shape, have.shape, strict=True)
            ):
                raise ShapeError(
                    f"the argument {name!r} has shape {shown(have.shape)}; the network takes {shown(wanted.shape)}"
                    + (f" with {', '.join(f'{n} = {size}' for n, size in sizes.items())}" if sizes else "")
                )
        for size, other in self.unequal:
            if known(size, sizes) == known(other, sizes):  # type: ignore[arg-type]
                raise ShapeError(f"the network was recorded for sizes of which {size} is not {other}; here it is")
        return sizes

    def values(self, given: Mapping[Value, Value], sizes: Mapping[str, Dim]) -> list[Value]:
        """Record the graph on other inputs; return its outputs."""
        new = dict(given)
        for value in self.graph.values():
            if value not in new:
                changes = bind_attributes(value, sizes) if sizes else {}  # type: ignore[arg-type]
                inputs = [new[x] for x in value.inputs]
                if "keeps" in value.attribute_fields:  # what only the gradient reads
                    changes["keeps"] = any(x.tracked for x in inputs)
                made = value.replaced(**changes) if not inputs else value.with_inputs(inputs, **changes)
                amend(made, location=None)
                new[value] = made
        return [new[value] for value in self.graph.outputs]


class GraphModule(Module):
    """A network made from a recorded graph, with its tensors by name.

    `graph` is that of evaluation; `training_graph` that of training mode, where the two differ (dropout, batch norm).
    Tensors under several names are one tensor. Buffers in `unsaved` are no part of the state.

    >>> import tilegrad as tg
    >>> from .record import recorded
    >>> net = recorded(tg.nn.Linear(2, 1), (tg.ones(3, 2),), dynamic={"input": {0: "n"}})
    >>> net(tg.ones(5, 2)).shape, [name for name, _ in net.named_parameters()]
    ((5, 1), ['weight', 'bias'])
    """

    def __init__(
        self,
        graph: NetworkGraph,
        tensors: Mapping[str, Tensor],
        training_graph: NetworkGraph | None = None,
        unsaved: Iterable[str] = (),
    ) -> None:
        super().__init__()
        self.__dict__.update(graph=graph, training_graph=training_graph)
        left_out = set(unsaved)
        for name, x in tensors.items():
            _register(self, name, x, name not in left_out)
        missing = {n for g in self.graphs for n in g.tensor_names if n != RANDOM and n not in tensors}
        if missing:
            raise ArgumentError(f"the graph reads {', '.join(sorted(missing)[:5])}, but there is no such tensor")
        self.__dict__["_places"] = {name: attrgetter(name) for name in tensors}

    graph: NetworkGraph
    training_graph: NetworkGraph | None

    @property
    def graphs(self) -> list[NetworkGraph]:
        """The graph of evaluation, and that of training mode if it is another one."""
        return [self.graph] if self.training_graph is None else [self.graph, self.training_graph]

    @property
    def current_graph(self) -> NetworkGraph:
        """The graph of the mode that the module is in."""
        return self.training_graph if self.training and self.training_graph is not None else self.graph

    @property
    def signature(self) -> Signature:
        """The arguments by name."""
        return Signature([Argument(name, Argument.POSITIONAL_OR_KEYWORD) for name in self.graph.arguments])

    @property
    def unsaved(self) -> list[str]:
        """The names of the buffers that are no part of the state."""
        state = self.state_dict(keep_vars=True)
        return [name for name in self.tensor_names if name not in state]

    @property
    def tensor_names(self) -> list[str]:
        """The names of all tensors, also where one has several."""
        return list(self.__dict__["_places"])

    def tensor(self, name: str) -> Tensor:
        """Return the tensor that a graph calls by this name."""
        if name == RANDOM:
            return generator_of(self.graph.graph.outputs[0].device).tensor
        return self.__dict__["_places"][name](self)  # type: ignore[no-any-return]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        network = self.current_graph
        leaves = network.leaves_of(args, kwargs)
        sizes = network.sizes_of(leaves)
        given = [*leaves, *map(self.tensor, network.tensor_names)]
        read = {x: tensor.value for x, tensor in zip(network.graph.inputs, given, strict=True)}
        made = network.values(read, sizes)
        count = len(made) - len(network.updates)
        for name, value in zip(network.updates, made[count:], strict=True):  # the graph reads the elements from before
            self.tensor(name).write(value, "forward")
        tensors = dict(zip(network.argument_inputs, leaves, strict=True))
        results = [
            tensors[v] if v in tensors else wrap(x) for v, x in zip(network.graph.outputs, made[:count], strict=False)
        ]
        return unflatten(network.results, results)


def input_name(x: Value) -> str:
    """Return the name of a graph's input."""
    assert isinstance(x, Input)
    return x.name


def count_leaves(tree: Tree) -> int:
    """Count the leaves of a structure."""
    return 1 if tree == LEAF else sum(map(count_leaves, tree.parts))


def plain(tree: Tree) -> Tree:
    """Replace special containers by plain ones: named tuples by tuples, ordered dicts by dicts.

    >>> from collections import OrderedDict
    >>> from ..tree import flatten
    >>> described(plain(flatten(OrderedDict(a=1, b=(2, None)))[1]))
    "{'a': tensor, 'b': (tensor, None)}"
    """
    parts = tuple(map(plain, tree.parts))
    if tree.kind is None or tree.kind is type(None):
        return LEAF if tree.kind is None else NOTHING
    kind = next(k for k in (dict, tuple, list) if issubclass(tree.kind, k))
    return Tree(kind, tree.keys, parts)


def described(tree: Tree) -> str:
    """Print a structure as Python would, with the word `tensor` for each leaf."""

    class Word(str):
        __repr__ = str.__str__

    return repr(unflatten(plain(tree), [Word("tensor")] * count_leaves(tree)))


def _matches(wanted: Dim, have: Dim, sizes: dict[str, Dim]) -> bool:
    """Whether an extent fits; a size that is a single symbol gets its value."""
    if not isinstance(wanted, Size):
        return wanted == have
    if isinstance(have, int) and have < 1:
        return False
    (name,) = wanted.names()
    return sizes.setdefault(name, have) == have


def _register(module: Module, path: str, x: Tensor, persistent: bool) -> None:
    """Register a tensor under a dotted name, making the modules on the path."""
    *outer, name = path.split(".")
    for part in outer:
        if part not in module._modules:
            module.add_module(part, Module())
        module = module._modules[part]  # type: ignore[assignment]
    if isinstance(x, Parameter):
        module.register_parameter(name, x)
    else:
        module.register_buffer(name, x, persistent)


def graph_key(network: NetworkGraph) -> tuple[Any, ...]:
    """Return a key that equal networks share: ops, attributes, structure and names, not the tensors."""
    number: dict[Value, int] = {}
    rows: list[Any] = []
    for value in (*network.graph.inputs, *network.graph.values()):
        if value not in number:
            number[value] = len(number)
            exact = tuple([(type(a), repr(a)) if isinstance(a, float | int) else a for a in value.attributes])
            rows.append((type(value), exact, *[number[x] for x in value.inputs]))
    outputs = tuple([number[v] for v in network.graph.outputs])
    unequal = frozenset((str(x), str(y)) for x, y in network.unequal)
    return tuple(rows), outputs, tuple(network.arguments.items()), network.results, network.updates, unequal
