"""Make engines: `engine` reads a network from a file, or records a module."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import ArgumentError, DTypeError, ShapeError
from ..functions.creation import tensor, zeros
from ..ir.dtype import DType, float32
from ..ir.size import Size
from ..nn.graph_module import NetworkGraph, input_name
from ..nn.module import Module
from ..nn.record import named_arguments
from ..nn.recurrent import RNNBase
from ..ops.recurrence import Recurrence
from ..saved.exported import ExportedProgram, export, load_program
from ..serialization.files import File
from ..tensor import Tensor
from ..tree import flatten, mapped
from .engine import MAX_PLANS, Engine
from .specs import Shape, declared_type

BATCH = "n"
"""Name of the size that counts the examples of a batch, where a network does not name it."""
MAX_STEPWISE_SEQUENCES, MAX_STEPS = 8, 128
"""Sequences, half of the lanes of a vector, and steps up to which recurrent layers are recorded step by step: each step
is two launches."""
EXAMPLE_EXTENT = 2
"""Extent that stands for a size that varies while a network is recorded."""


def engine(
    model: Module | File,
    example: Any = None,
    *,
    max_batch: int | None = None,
    shapes: Mapping[str, Any] | Sequence[Any] | None = None,
    batches: Sequence[int] = (),
    max_plans: int = MAX_PLANS,
) -> Engine:
    """Make an engine of a network for inference, from a module, a saved program or an ONNX file.

    A module is recorded with an `example`, or with `shapes`: for each input a shape such as `("n", 3, 32, 32)` (of
    float32 elements) or a type such as `"int64[n, 128]"`, in order or by name; words are sizes that vary. With an
    example and `max_batch`, axis 0 varies. A call takes up to `max_batch` examples at once.

    >>> import tilegrad as tg
    >>> net = engine(tg.nn.Linear(2, 1).eval(), tg.ones(4, 2), max_batch=8)
    >>> infer = net.inferencer()
    >>> infer(tg.ones(3, 2)).shape, [str(x) for x in (*net.inputs, *net.outputs)]
    ((3, 1), ['input: float32[n, 2]', 'output: float32[n, 1]'])
    """
    if max_batch is not None and (not isinstance(max_batch, int) or isinstance(max_batch, bool) or max_batch < 1):
        raise ArgumentError(f"max_batch is a number of examples, at least 1, not {max_batch!r:.40}")
    names, is_file = None, not isinstance(model, Module)
    if not isinstance(model, Module):
        model = _loaded(model)
    if not isinstance(model, ExportedProgram):
        names = getattr(model, "output_names", None)
        model, example, shapes = _recorded(model, example, max_batch, shapes), None, None
    if example is not None or shapes is not None:
        raise ArgumentError("the network has shapes already: example and shapes are for modules that are not recorded")
    most = _max_batch(model.graph, max_batch)
    return Engine(model, most, batches=batches, names=names, owns_tensors=is_file, max_plans=max_plans)


def _loaded(file: Any) -> Module:
    """Load a network from a file; ONNX files are known by their ending."""
    if not isinstance(file, str | os.PathLike) and not hasattr(file, "read") and not isinstance(file, bytes):
        raise ArgumentError(f"engine: a module or the path of a file is wanted, not {type(file).__name__}")
    if isinstance(file, str | os.PathLike) and os.fspath(file).endswith(".onnx"):
        from ..onnx import load

        return load(file)
    return load_program(file)


def _input_types(model: Module, example: Any, shapes: Any) -> dict[str, Any]:
    """Return the types of the inputs of a module without an example, by name."""
    declared: dict[str, Any] = getattr(model, "input_types", {})
    if example is None and (declared or shapes is not None):
        return {**declared, **_declared(model, shapes or {}, declared)}
    if example is None or shapes is not None:
        raise ArgumentError("engine: a module needs either an example or shapes")
    return declared


def _recorded(model: Module, example: Any, max_batch: int | None, shapes: Any) -> ExportedProgram:
    """Record a module in evaluation mode, for the sizes that vary."""
    declared = _input_types(model, example, shapes)
    mode = model.training
    model.eval()
    try:
        if example is None:
            arguments = {name: zeros(*map(_extent, shape), dtype=dtype) for name, (dtype, shape) in declared.items()}
            dynamic = {name: _words(shape) for name, (_, shape) in declared.items()}
            return _exported(model, (), arguments, dynamic)
        args = tuple(example) if isinstance(example, tuple | list) else (example,)
        return _exported(model, args, {}, _batch_axes(model, args) if max_batch is not None else {})
    except (ShapeError, DTypeError) as problem:
        name = _layer_of(problem, model)
        if not name:
            raise
        raise type(problem)(f"layer {name}: {problem.args[0]}") from None
    finally:
        model.train(mode)


def _exported(model: Module, args: Sequence[Any], kwargs: dict[str, Any], dynamic: dict[str, Any]) -> ExportedProgram:
    """Record a module. Recurrent layers on few sequences are recorded step by step: a fused step has a lane for each
    sequence, so that most of a vector would be empty.
    """
    made = export(model, args, kwargs=kwargs, dynamic=dynamic)
    found = [v.sizes for v in made.graph.graph.values() if isinstance(v, Recurrence)]
    is_short = all(isinstance(s.length, int) and s.length <= MAX_STEPS for s in found)
    if not found or not is_short or max(s.batch for s in found) > MAX_STEPWISE_SEQUENCES:
        return made.eval()
    layers = [layer for layer in model.modules() if isinstance(layer, RNNBase) and not layer.unrolled]
    for layer in layers:
        layer.unrolled = True
    try:
        return export(model, args, kwargs=kwargs, dynamic=dynamic).eval()
    finally:
        for layer in layers:
            layer.unrolled = False


def _layer_of(problem: BaseException, model: Module) -> str:
    """Name the innermost layer whose `forward` raised an error, with its class."""
    names = {id(module): name for name, module in model.named_modules()}
    found, step = "", problem.__traceback__
    while step is not None:
        layer = step.tb_frame.f_locals.get("self")
        if step.tb_frame.f_code.co_name == "forward" and names.get(id(layer)):
            found = f"{names[id(layer)]!r} ({type(layer).__name__})"
        step = step.tb_next
    return found


def _declared(model: Module, shapes: Any, known: Mapping[str, Any]) -> dict[str, tuple[DType, Shape]]:
    """Read the shapes of the inputs, given by name or in order; element types that a file declares are kept."""
    names = list(known or inspect.signature(model.forward).parameters)
    if not isinstance(shapes, Mapping):
        if not isinstance(shapes, Sequence) or isinstance(shapes, str) or len(shapes) > len(names):
            raise ArgumentError(f"shapes: a shape for each input is wanted, by name or in order: {', '.join(names)}")
        shapes = dict(zip(names, shapes, strict=False))
    unknown = set(shapes) - set(names)
    if unknown:
        raise ArgumentError(f"shapes names {min(unknown)!r}, but the inputs are {', '.join(names)}")
    return {name: declared_type(x, name, known.get(name, (float32,))[0]) for name, x in shapes.items()}


def _extent(size: int | str) -> int:
    """Return an extent that stands for a size while a network is recorded."""
    return EXAMPLE_EXTENT if isinstance(size, str) else size


def _words(shape: Shape) -> dict[int, str]:
    """Return the sizes that vary, by axis."""
    return {axis: d for axis, d in enumerate(shape) if isinstance(d, str)}


def _batch_axes(model: Module, args: Sequence[Any]) -> dict[str, Any]:
    """Let axis 0 vary in each tensor of an example that has as many rows there as the first."""
    leaves = [x if isinstance(x, Tensor) else tensor(x) for x in flatten(args)[0]]
    rows = leaves[0].shape[0] if leaves and leaves[0].dim() else None
    if rows is None:
        raise ShapeError("engine: the example has no axis 0, so that it is no batch")
    try:
        bound = inspect.signature(model.forward).bind(*args)
    except TypeError as problem:
        raise ArgumentError(f"the example does not fit {type(model).__name__}.forward: {problem}") from None

    def axes(x: Any) -> dict[int, str]:
        return {0: BATCH} if tuple(x.shape[:1]) == (rows,) else {}

    return {name: mapped(axes, x) for name, x in named_arguments(bound).items()}


def _max_batch(network: NetworkGraph, wanted: int | None) -> int | None:
    """Return the largest batch; None if any is taken."""
    first = network.argument_inputs[0] if network.argument_inputs else None
    rows = first.type.shape[0] if first is not None and first.type.shape else None
    if isinstance(rows, Size) or wanted is None or rows == wanted:
        return wanted if isinstance(rows, Size) else rows
    name = "none" if first is None else f"{input_name(first)!r}, whose axis 0 has {rows} rows"
    raise ShapeError(
        f"max_batch={wanted}, but the network was recorded for batches of one size (input {name}): export it with "
        "dynamic={'" + (input_name(first) if first is not None else "x") + "': {0: 'n'}}"
    )
