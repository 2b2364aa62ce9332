"""Write networks as ONNX files: record a call, and write each op of its graph as nodes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..config import VERSION
from ..errors import ArgumentError
from ..ir.graph import Value
from ..lazy.evaluation import array_of
from ..nn import Module
from ..nn.graph_module import GraphModule, NetworkGraph, input_name
from ..nn.record import recorded
from ..ops.joint import JointOutput, Recompute
from ..runtime.atomic_write import replacing
from ..tensor import Tensor
from ..tree import flatten
from .graph_writer import GraphWriter, Writing, needed, tensor_of
from .messages import (
    DimensionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    StringStringEntryProto,
    TensorProto,
    TensorShapeProto,
    TensorTypeProto,
    TypeProto,
    ValueInfoProto,
)
from .network import OnnxModule
from .problems import OnnxError, Problems
from .tensors import EXTERNAL, NUMBERS
from .upgrades import NEWEST
from .written_ops import WRITINGS

DEFAULT_OPSET = 20
"""The version of the operators that is written: the first with GELU. Nodes mean the same in later ones."""
IR_VERSION = 10
MAX_FILE_BYTES = 1 << 31
"""The limit of a message of Protocol Buffers: larger networks need their tensors in a file of their own."""
ALIGNMENT_BYTES = 4096
"""Tensors in a file of their own begin at pages, so that they are mapped."""
TOLERANCE = {2: 1e-2, 4: 1e-3, 8: 1e-6}
"""The difference that is allowed between the network and the file, relative to the largest result, by size in bytes."""


def export(
    model: Module,
    args: Any = (),
    f: str | os.PathLike[str] | None = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    opset_version: int | None = None,
    external_data: bool = False,
    dynamic_shapes: Mapping[str, Any] | None = None,
    dynamic_axes: Mapping[str, Any] | None = None,
    verify: bool = True,
) -> ModelProto:
    """Write a network as an ONNX file; the arguments are those of `torch.onnx.export`.

    The network is recorded in evaluation mode. Ops without an ONNX operator are listed in one error before anything
    is written. With `verify` the file is loaded and run beside the network. With `external_data` the tensors are
    written into a file of their own, beside the other.

    >>> import tilegrad as tg
    >>> net = tg.nn.Sequential(tg.nn.Linear(3, 2), tg.nn.ReLU())
    >>> file = tg.onnx.export(net, tg.ones(4, 3), dynamic_axes={"input": {0: "batch"}})
    >>> [node.op_type for node in file.graph.node]
    ['Transpose', 'MatMul', 'Add', 'Relu', 'Identity']
    >>> tg.onnx.load(file.encoded())(tg.ones(7, 3)).shape
    (7, 2)
    """
    opset = DEFAULT_OPSET if opset_version is None else opset_version
    if not DEFAULT_OPSET <= opset <= NEWEST:
        raise ArgumentError(f"export writes the operators of versions {DEFAULT_OPSET} to {NEWEST}, not {opset}")
    if not isinstance(model, Module):
        raise ArgumentError(f"export takes a module, not {type(model).__name__}: write one whose forward calls it")
    given = (args,) if isinstance(args, (Tensor, np.ndarray)) else tuple(args)
    sizes = dynamic_shapes if dynamic_shapes is not None else _named_sizes(model, given, dynamic_axes, input_names)
    net = recorded(model, given, kwargs, sizes, training=False)
    made = _model(net, opset, input_names, output_names)
    if verify:
        _verify(model, made, given, kwargs or {})
    if f is not None:
        _save(made, os.fspath(f), external_data)
    return made


def _named_sizes(
    model: Module, args: Sequence[Any], axes: Mapping[str, Any] | None, names: Sequence[str] | None
) -> Mapping[str, Any] | None:
    """Return the sizes that vary by the names of the arguments of `forward`."""
    if axes is None:
        return None
    own = [input_name(x) for x in recorded(model, args, training=False).graph.argument_inputs]
    renamed = dict(zip(names or own, own, strict=False))
    made: dict[str, Any] = {}
    for name, which in axes.items():
        if name in renamed:
            listed: Mapping[int, str] = which if isinstance(which, Mapping) else {n: f"{name}_{n}" for n in which}
            made[renamed[name]] = {n: str(word).replace(".", "_") for n, word in listed.items()}
        elif name not in (names or own):  # sizes of results follow from those of the arguments
            continue
    return made


def _model(
    net: GraphModule, opset: int, input_names: Sequence[str] | None, output_names: Sequence[str] | None
) -> ModelProto:
    """Write the graph of a recorded network."""
    network: NetworkGraph = net.graph
    problems = Problems("the network")
    if network.updates:
        problems.add("the call", f"it writes to {', '.join(network.updates)}, which files cannot express")
    rules: dict[type[Value], Writing] = {**WRITINGS, JointOutput: _first, Recompute: _first}
    writer = GraphWriter(rules, problems)
    inputs = network.argument_inputs
    names = _names(input_names, [input_name(x) for x in inputs], "inputs")
    writer.names.update(zip(inputs, names, strict=True))
    for value, name in zip(inputs, names, strict=True):
        for axis, size in enumerate(value.shape):
            if not isinstance(size, int):
                writer.sizes.setdefault(size, (name, axis))
    tensors = {name: array_of(net.tensor(name)) for name in network.tensor_names if name in dict(net.state_dict())}
    for value in network.graph.inputs[len(inputs) :]:
        name = input_name(value)
        tensors.setdefault(name, array_of(net.tensor(name)))
        writer.names[value] = name
    for value in network.graph.values():
        if value not in writer.names:
            writer.write(value)
    count = len(network.graph.outputs) - len(network.updates)
    results = network.graph.outputs[:count]
    ends = _names(output_names, [f"output_{n}" if count > 1 else "output" for n in range(count)], "outputs")
    last = [NodeProto([writer.name(v)], [end], end, "Identity") for v, end in zip(results, ends, strict=True)]
    problems.check()
    nodes = [*needed(writer.nodes, [node.input[0] for node in last]), *last]
    read = {name for node in nodes for name in node.input}
    stored = [tensor_of(x, name) for name, x in tensors.items() if name in read]
    stored += [x for name, x in writer.constants.items() if name in read]
    graph = GraphProto(
        nodes,
        "network",
        stored,
        input=[_described(name, value) for name, value in zip(names, inputs, strict=True)],
        output=[_described(name, value) for name, value in zip(ends, results, strict=True)],
    )
    return ModelProto(IR_VERSION, "tilegrad", VERSION, graph=graph, opset_import=[OperatorSetIdProto("", opset)])


def _first(value: Any, writer: GraphWriter) -> str:
    """Write a value with a rule for gradients: files have none."""
    return writer.name(value.x)


def _names(given: Sequence[str] | None, own: list[str], what: str) -> list[str]:
    if given is None:
        return own
    if len(given) != len(own) or len(set(given)) != len(own):
        raise ArgumentError(f"the network has {len(own)} {what}, and {list(given)} are their names")
    return [*given]


def _described(name: str, value: Value) -> ValueInfoProto:
    """Return the type of an input or an output."""
    sizes = [DimensionProto(n) if isinstance(n, int) else DimensionProto(dim_param=str(n)) for n in value.shape]
    return ValueInfoProto(name, TypeProto(TensorTypeProto(NUMBERS[value.dtype], TensorShapeProto(sizes))))


def _verify(model: Module, made: ModelProto, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Run the network and the file, and compare."""
    mode = model.training
    leaves, _ = flatten((args, dict(kwargs)))
    try:
        wanted, _ = flatten(model.eval()(*args, **kwargs))
    finally:
        model.train(mode)
    found = OnnxModule(ModelProto.parse(made.encoded()))(*leaves)
    for n, (x, y) in enumerate(zip(wanted, found if isinstance(found, tuple) else (found,), strict=True)):
        one, other = array_of(x.detach()).astype(np.float64), array_of(y.detach()).astype(np.float64)
        if one.shape != other.shape:
            raise OnnxError(f"result {n} of the file has shape {other.shape}, and that of the network {one.shape}")
        allowed = TOLERANCE.get(x.dtype.bytes, 0.0) * max(float(np.nanmax(abs(one), initial=0)), 1e-6)
        if not np.allclose(one, other, 0, allowed, equal_nan=True):
            raise OnnxError(f"result {n} of the file differs by {np.nanmax(abs(one - other)):.3g} from the network's")


def _save(made: ModelProto, path: str, external: bool) -> None:
    """Write a file, atomically; with `external` its tensors into another, which is complete before."""
    assert made.graph is not None
    if not external:
        size = sum(len(x.raw_data or b"") for x in made.graph.initializer)
        if size >= MAX_FILE_BYTES:
            raise ArgumentError(f"{size:,} bytes of tensors are too many for one file: pass external_data=True")
        with replacing(path) as file:
            file.write(made.encoded())
        return
    location, place, moved = f"{os.path.basename(path)}.data", 0, []
    with replacing(f"{path}.data") as file:
        for tensor in made.graph.initializer:
            data = tensor.raw_data or b""
            padding = -place % ALIGNMENT_BYTES
            file.write(bytes(padding))
            file.write(data)
            entries = {"location": location, "offset": place + padding, "length": len(data)}
            place += padding + len(data)
            listed = [StringStringEntryProto(key, str(value)) for key, value in entries.items()]
            moved.append(
                TensorProto(
                    tensor.dims, tensor.data_type, name=tensor.name, external_data=listed, data_location=EXTERNAL
                )
            )
    whole = made.graph.initializer
    made.graph.initializer = moved
    try:
        with replacing(path) as file:
            file.write(made.encoded())
    finally:
        made.graph.initializer = whole
