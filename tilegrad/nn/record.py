"""Record a network as a graph: call it once on placeholders."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..autograd.modes import no_grad, set_grad_enabled
from ..errors import ArgumentError, TilegradError, TraceError
from ..functions.creation import tensor
from ..ir.graph import Graph, Input, TensorType, Value, topological
from ..ir.node import amend
from ..ir.size import Dim, Size, comparisons
from ..jitted.tracing import NoProgram, Trace
from ..lazy.evaluation import array_of
from ..lazy.handle import Handle, wrap
from ..lazy.storage import detached, one_writer
from ..ops.bind_sizes import bind_sizes
from ..ops.cast import Detach
from ..ops.joint import JointOutput, identity_rule
from ..random import generator_of
from ..tensor import Tensor
from ..transform.share import on_inputs
from ..tree import flatten, unflatten
from .graph_module import RANDOM, GraphModule, NetworkGraph, graph_key, plain
from .module import Module
from .parameter import Parameter
from .utils.stateless import functional_call

COMMON_EXTENT = 3
"""Extent of the other sizes while a graph is tried where one size is 1."""
SYMBOL = re.compile(r"[A-Za-z_][A-Za-z_0-9]*", re.ASCII)


def recorded(
    model: Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    dynamic: Mapping[str, Any] | None = None,
    training: bool = True,
) -> GraphModule:
    """Record a module in evaluation and in training mode; the result shares its parameters and buffers.

    Without `training` only evaluation is recorded.

    `dynamic` names the sizes that vary: {"input": {0: "n"}} for axis 0 of the argument `input`. An argument that is
    built of several tensors has such a dict for each, in the same containers.
    """
    recorder = _NetworkRecorder(model, args, kwargs or {}, dynamic or {})
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        evaluation = recorder.record_for_all_sizes()
        constants = dict(recorder.constants)
        trained: NetworkGraph | None = None
        if training:
            model.train()
            trained = recorder.record_for_all_sizes()
    finally:
        for module, mode in modes:
            module.training = mode
    if trained is None or graph_key(trained) == graph_key(evaluation):
        trained = None
    else:
        constants = recorder.constants
    tensors = {**recorder.state, **constants}
    saved = {*model.state_dict(keep_vars=True), *constants}
    made = GraphModule(evaluation, tensors, trained, [name for name in tensors if name not in saved])
    return made.train(model.training)


class _NetworkRecorder:
    """Calls a module on placeholders for one kind of arguments."""

    def __init__(self, model: Module, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic: Any) -> None:
        self.model = model
        self.state = _state(model)
        self.constants: dict[str, Tensor] = {}
        """Tensors that the module reads besides its own."""
        signature = model.signature if isinstance(model, GraphModule) else inspect.signature(model.forward)
        try:
            self.bound = signature.bind(*args, **kwargs)
        except TypeError as problem:
            raise ArgumentError(f"the example does not fit {type(model).__name__}.forward: {problem}") from None
        leaves, self.structure = flatten(dict(self.bound.arguments))
        arguments = named_arguments(self.bound)
        unknown = set(dynamic) - set(arguments)
        if unknown:
            raise ArgumentError(f"dynamic names {min(unknown)!r}, but the arguments are {', '.join(arguments)}")
        self.arguments = {name: plain(flatten(x)[1]) for name, x in arguments.items()}
        named = [pair for name, x in arguments.items() for pair in _leaves(name, x, dynamic.get(name))]
        taken = {*self.state, RANDOM}
        self.inputs = [
            (name + "_" * (name in taken), _type(name, x, axes)) for (name, axes), x in zip(named, leaves, strict=True)
        ]

    def record(self) -> NetworkGraph:
        """Record one call, with gradients, so that what `no_grad` and `detach` cut is cut in the graph.

        Where gradients follow rules in Python (`autograd.Function`, checkpoints), the graph has no gradients.
        """
        constants = dict(self.constants)
        try:
            return self._record(True)
        except _GradientInPython:
            self.constants = constants
            return self._record(False)

    def record_for_all_sizes(self) -> NetworkGraph:
        """Record a graph, and note the sizes for which the network decides otherwise when they are 1.

        Symbols are larger than 1, so that a comparison with 1 says nothing of the call it stands for.
        """
        network = self.record()
        names = sorted({n for _, type in self.inputs for e in type.shape if isinstance(e, Size) for n in e.names()})
        special = [name for name in names if not self._holds_at_one(network, name, names)]
        return network.replaced(unequal=(*network.unequal, *[(Size.named(name), 1) for name in special]))  # type: ignore[no-any-return]

    def _holds_at_one(self, network: NetworkGraph, symbol: str, symbols: Sequence[str]) -> bool:
        """Whether a graph computes what the network does where one size is 1."""
        sizes = {name: 1 if name == symbol else COMMON_EXTENT for name in symbols}
        inputs, constants = self.inputs, dict(self.constants)
        self.inputs = [(name, bind_sizes(type, sizes)) for name, type in inputs]
        try:
            other = self.record()
            given = {name: _example(type) for name, type in self.inputs}
            tensors = {**self.state, **self.constants, **given}
            with no_grad():
                return _computes_same(network, other, tensors, sizes)
        except (TilegradError, ValueError, TypeError):
            return False
        finally:
            self.inputs, self.constants = inputs, constants

    def _record(self, tracked: bool) -> NetworkGraph:
        placeholders = [_placeholder(type, name, tracked) for name, type in self.inputs]
        own = {
            name: _placeholder(x.own_value().type, name, tracked and isinstance(x, Parameter))
            for name, x in _distinct(self.state).items()
        }
        random = {generator_of(x.device).tensor.base().storage for x in [*placeholders, *own.values()]}
        trace = Trace()
        with set_grad_enabled(tracked), one_writer, comparisons() as unequal:
            try:
                with trace:  # tensors made within it are its own
                    given = [wrap(x) for x in placeholders]
                    stand_ins = {name: wrap(x) for name, x in own.items()}
                    trace.arguments.update(map(id, given))
                    self.bound.arguments.update(unflatten(self.structure, given))
                    made = functional_call(self.model, stand_ins, self.bound.args, self.bound.kwargs)
                    results, structure = flatten(made)
                    outputs = [_result(x) for x in results]
                    changed = {name: x.value for name, x in stand_ins.items() if _is_written(x)}
            except NoProgram as reason:
                raise TraceError(f"the network cannot be recorded: {reason}") from None
            finally:
                trace.finish()
        if trace.numbers:
            raise TraceError("the network reads a number of the host in each call: make it an argument or a buffer")
        for storage, final in trace.finals.items():
            if storage not in random:
                raise TraceError("the network writes to a tensor that is no parameter or buffer of it: register_buffer")
            changed[RANDOM] = final
        new: dict[Value, Value] = {x: x for x in (*placeholders, *own.values())}
        for storage, captured in trace.captured.items():
            x = captured.placeholder
            name = RANDOM if storage in random else self._constant(captured.base.current())
            new[x] = Input(x.type, name)
        made = self._plain([*outputs, *changed.values()], new)
        used = [*[x for v in topological(made) for x in v.inputs], *made]  # in the order of the printed lines
        read = dict.fromkeys(v for v in used if isinstance(v, Input) and v not in placeholders)
        graph = Graph((*placeholders, *read), tuple(made if tracked else map(Detach, made)))
        return NetworkGraph(graph, self.arguments, plain(structure), tuple(changed), tuple(unequal.values()))

    def _plain(self, outputs: Sequence[Value], new: dict[Value, Value]) -> list[Value]:
        """Rebuild values on plain inputs; tensors in memory become constants."""
        for value in topological(outputs, lambda v: v in new or v.buffer is not None):
            if value.buffer is not None:
                new[value] = Input(value.type, self._constant(value))
            elif value not in new:
                new[value] = _copied(value, tuple([new[x] for x in value.inputs]))
        return [new[v] for v in outputs]

    def _constant(self, value: Value) -> str:
        """Add a constant unless there is one with the same elements; return its name."""
        x = wrap(detached(value)).clone()
        bits = array_of(x).tobytes()
        for name, known in self.constants.items():
            if known.dtype is x.dtype and known.shape == x.shape and array_of(known).tobytes() == bits:
                return name
        name = f"constants.{len(self.constants)}"
        self.constants[name] = x
        return name


def _example(type: TensorType) -> Tensor:
    """Make elements on which networks differ: normal numbers, or zeros and ones."""
    shape: Any = type.shape
    draw = np.random.default_rng(0)
    array = draw.standard_normal(shape) if type.dtype.is_float else draw.integers(0, 2, shape)
    return tensor(array, dtype=type.dtype, device=type.device)


def _computes_same(x: NetworkGraph, y: NetworkGraph, tensors: Mapping[str, Tensor], sizes: Mapping[str, int]) -> bool:
    """Whether two graphs have equal results, but for the order of sums."""
    if (x.results, x.updates) != (y.results, y.updates):
        return False
    read = [
        {v: generator_of(v.device).tensor.value if v.name == RANDOM else tensors[v.name].value for v in g.graph.inputs}  # type: ignore[attr-defined]
        for g in (x, y)
    ]
    for a, b in zip(x.values(read[0], sizes), y.values(read[1], {}), strict=True):
        if a.type != b.type or not np.allclose(_numbers(a), _numbers(b), 1e-3, 1e-4, equal_nan=True):
            return False
    return True


def _numbers(x: Value) -> np.ndarray[Any, Any]:
    found = array_of(wrap(x))
    return found.astype(np.float64) if x.dtype.is_float else found


def _state(model: Module) -> dict[str, Tensor]:
    """Return the parameters and buffers by name; those that are shared have several names."""
    named = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
    return dict(named)


def _distinct(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Keep the first name of each tensor."""
    first = {id(x): name for name, x in reversed(list(state.items()))}
    return {name: x for name, x in state.items() if first[id(x)] == name}


def named_arguments(bound: inspect.BoundArguments) -> dict[str, Any]:
    """Name the arguments of a call; those that `*` collects are numbered."""
    found: dict[str, Any] = {}
    for name, x in bound.arguments.items():
        match bound.signature.parameters[name].kind:
            case inspect.Parameter.VAR_POSITIONAL:
                found.update({f"{name}_{n}": part for n, part in enumerate(x)})
            case inspect.Parameter.VAR_KEYWORD:
                found.update(x)
            case _:
                found[name] = x
    return found


def _leaves(name: str, x: Any, axes: Any) -> Iterator[tuple[str, dict[int, str]]]:
    """Yield the name of each tensor of an argument, and the sizes of it that vary, by axis."""
    if x is None:
        return
    if isinstance(x, (dict, tuple, list)):
        pairs = list(x.items() if isinstance(x, dict) else enumerate(x))
        for key, part in pairs:
            found = axes.get(key) if isinstance(axes, Mapping) else axes[key] if axes else None
            yield from _leaves(f"{name}.{key}", part, found)
        return
    if axes is not None and not isinstance(axes, Mapping):
        raise ArgumentError(f"dynamic is a dict for each tensor, as in {{{name!r}: {{0: 'n'}}}}, not {axes!r:.40}")
    yield name, dict(axes or {})


def _type(name: str, x: Any, axes: Mapping[int, str]) -> TensorType:
    """Return the type of an example, with symbols for the sizes that vary."""
    if isinstance(x, np.ndarray):
        x = tensor(x)
    if not isinstance(x, Handle):
        raise ArgumentError(
            f"the argument {name!r} is {type(x).__name__}, not a tensor: numbers and words belong to the network; "
            "write a module whose forward takes tensors alone"
        )
    shape: list[Dim] = list(x.own_value().type.shape)
    for axis, symbol in axes.items():
        if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            raise ArgumentError(f"dynamic: the argument {name!r} has {len(shape)} axes, so none with number {axis!r}")
        if not isinstance(symbol, str) or not SYMBOL.fullmatch(symbol):
            raise ArgumentError(f"dynamic: a size is named by a word, as in 'n' or 'length', not {symbol!r:.40}")
        shape[axis] = Size.named(symbol)
    return x.own_value().type.with_shape(tuple(shape))


def _result(x: Any) -> Value:
    if not isinstance(x, Tensor):
        raise TraceError(f"the network returns {type(x).__name__}; only tensors are recorded")
    return x.value


def _is_written(x: Tensor) -> bool:
    return x._base is not None and x._base.storage.changes > 0


class _GradientInPython(Exception):
    """Raised where a gradient follows a rule that is a function."""


def _placeholder(type: TensorType, name: str, tracked: bool) -> Input:
    made = Input(type, name)
    amend(made, tracked=tracked and type.dtype.is_float)
    return made


def _copied(value: Value, inputs: tuple[Value, ...]) -> Value:
    """Copy an op to other inputs; a copy with the gradient of its argument becomes the argument."""
    if not isinstance(value, JointOutput):
        return on_inputs(value, inputs) if inputs else value
    if value.joint.rule is identity_rule and isinstance(value.x, Detach) and value.x.x in value.arguments:
        return inputs[1]
    raise _GradientInPython
