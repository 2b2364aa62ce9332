"""Make a module of an ONNX file: its initializers are parameters and buffers, its nodes run in `forward`."""

from __future__ import annotations

import os
import re
from typing import IO, Any

import numpy as np

from ..errors import ArgumentError, ShapeError
from ..functional import tensor
from ..ir.dtype import DType
from ..nn import Buffer, Module, Parameter
from ..serialization.files import Source
from ..tensor import Tensor
from .messages import ModelProto, TypeProto, ValueInfoProto
from .operators import RULES
from .problems import OnnxError, Problems
from .scope import Context, Environment, NodeCall, RunState, Scope, compiled
from .tensors import ELEMENT_TYPES
from .upgrades import NEWEST, OLDEST, upgraded
from .values import CONVERSIONS, Narrow

DOMAINS = {"ai.onnx": "", "": ""}
"""Names of domains that mean the same."""
WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
MAX_READ_ELEMENTS = 64
"""Larger constants of integers are buffers, unless an operator reads them to know a shape."""


class OnnxModule(Module):
    """A network from an ONNX file. Its parameters have the names of the initializers."""

    def __init__(self, model: ModelProto, folder: str | None = None, name: str = "the model") -> None:
        super().__init__()
        self.model = model
        problems = Problems(name)
        if model.graph is None:
            raise OnnxError(f"{name} has no graph: it is no ONNX file")
        versions = _versions(model, problems)
        about = Context(RULES, versions, upgraded, folder, problems)
        self._scope = compiled(model.graph, about)
        for value in model.graph.input:
            _check_type(value, problems)
        if model.functions:
            problems.add("the model", "functions of its own are not supported")
        problems.check()
        self._given = [v for v in model.graph.input if v.name not in self._scope.constants]
        self._stored: dict[str, tuple[Module, str]] = {}
        self._store()
        self.eval()

    @property
    def input_names(self) -> list[str]:
        """The names of the inputs."""
        return [value.name for value in self._given]

    @property
    def output_names(self) -> list[str]:
        """The names of the outputs."""
        return list(self._scope.outputs)

    @property
    def input_types(self) -> dict[str, tuple[DType, tuple[int | str, ...]]]:
        """The element types and the shapes of the inputs that are tensors; sizes that vary are words."""
        return {v.name: found for v in self._given if (found := _declared_type(v)) is not None}

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """Run the network; inputs go by place or by name. Several outputs are a tuple."""
        values: Environment = dict(self._scope.constants)
        for name, (owner, attribute) in self._stored.items():
            values[name] = getattr(owner, attribute)
        values |= self._arguments(inputs, named)
        first = next((v for v in values.values() if isinstance(v, Tensor)), None)
        around = RunState(None if first is None else first.device, self.training)
        results = tuple(_public(value) for value in self._scope.run(values, around))
        return results[0] if len(results) == 1 else results

    def _arguments(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Environment:
        """Match arguments with the inputs of the graph, and check their types."""
        names = self.input_names
        if len(inputs) > len(names):
            raise ArgumentError(f"the network has the inputs {', '.join(names)}; {len(inputs)} were given")
        found = dict(zip(names, inputs, strict=False))
        unknown = (named.keys() - set(names)) | (named.keys() & found.keys())
        if unknown:
            raise ArgumentError(
                f"no inputs, or given twice: {', '.join(sorted(unknown))}; there are {', '.join(names)}"
            )
        found |= named
        optional = {v.name for v in self._given if v.type is not None and v.type.optional_type is not None}
        missing = [name for name in names if name not in found and name not in optional]
        if missing:
            raise ArgumentError(f"inputs are missing: {', '.join(missing)}")
        return {value.name: _accepted(value, found.get(value.name)) for value in self._given}

    def _store(self) -> None:
        """Make parameters and buffers of the constants that no operator reads for a shape."""
        uses = _uses(self._scope)
        for name, value in list(self._scope.constants.items()):
            if isinstance(value, Narrow) or not _is_stored(value, uses.get(name, set())):
                continue
            made = tensor(value)
            trained = made.is_floating_point() and value.dtype.itemsize > 1 and "Statistic" not in uses.get(name, ())
            self._stored[name] = self._placed(name, Parameter(made) if trained else Buffer(made))
            del self._scope.constants[name]

    def _placed(self, name: str, made: Any) -> tuple[Module, str]:
        """Register a parameter or a buffer under its name, the parts of which are submodules."""
        owner: Module = self
        *path, last = [part for part in name.split(".") if part] or ["_"]
        for n, part in enumerate(path):
            inner = owner._modules.get(part)
            if inner is None and hasattr(owner, part):
                last = ".".join([*path[n:], last]).replace(".", "_")
                break
            if inner is None:
                inner = Module()
                owner.add_module(part, inner)
            owner = inner
        while hasattr(owner, last):
            last += "_"
        setattr(owner, last, made)
        return owner, last


def load(file: str | os.PathLike[str] | bytes | IO[bytes]) -> OnnxModule:
    """Load an ONNX file as a module, in evaluation mode.

    All that is not supported is listed in one error, with the names of the nodes. Elements in other files are read from
    the folder of the file.

    >>> import tilegrad as tg
    >>> tg.onnx.load(b"not a network")
    Traceback (most recent call last):
    ...
    tilegrad.onnx.problems.OnnxError: ...: the file is damaged, or of another kind
    """
    is_path = isinstance(file, (str, os.PathLike))
    with Source(file, mapped=is_path) as source:
        data = source.array(0, source.size)
        name = source.name
    folder = os.path.dirname(os.path.abspath(os.fspath(file))) if isinstance(file, (str, os.PathLike)) else None
    return OnnxModule(ModelProto.parse(data.data), folder, name)


def _versions(model: ModelProto, problems: Problems) -> dict[str, int]:
    found = {DOMAINS.get(entry.domain, entry.domain): entry.version for entry in model.opset_import}
    if not OLDEST <= found.get("", NEWEST) <= NEWEST:
        problems.add("the model", f"operators of version {found['']}: versions {OLDEST} to {NEWEST} are read")
    return found


def _check_type(value: ValueInfoProto, problems: Problems) -> None:
    kind = value.type
    while kind is not None and (kind.sequence_type or kind.optional_type):
        kind = (kind.sequence_type or kind.optional_type).elem_type  # type: ignore[union-attr]
    if kind is None or kind.tensor_type is None:
        problems.add(f"input {value.name!r}", "only tensors, and sequences of tensors, are supported")
    elif (known := ELEMENT_TYPES.get(kind.tensor_type.elem_type)) is None or known.held is None:
        problems.add(f"input {value.name!r}", f"elements of type {known.name if known else 'undefined'}")


def _accepted(value: ValueInfoProto, given: Any) -> Any:
    """Convert an argument, and compare it with the type of the input."""
    kind = value.type
    if given is None or kind is None:
        return None
    return _of_type(given, kind, value.name)


def _of_type(given: Any, kind: TypeProto, name: str) -> Any:
    if kind.optional_type is not None and kind.optional_type.elem_type is not None:
        return None if given is None else _of_type(given, kind.optional_type.elem_type, name)
    if kind.sequence_type is not None and kind.sequence_type.elem_type is not None:
        inner = kind.sequence_type.elem_type
        return [_of_type(item, inner, name) for item in given]
    if kind.tensor_type is None:
        raise ArgumentError(f"input {name!r}: its type is not supported")
    element = ELEMENT_TYPES[kind.tensor_type.elem_type]
    made = given if isinstance(given, Tensor) else tensor(np.asarray(given))
    if made.dtype is not element.held:
        raise ArgumentError(f"input {name!r} takes elements of type {element.name}, not {made.dtype.name}")
    shape = kind.tensor_type.shape
    if shape is not None:
        sizes = [d.dim_value if d.dim_value is not None else d.dim_param or "?" for d in shape.dim]
        fits = len(sizes) == made.dim() and all(
            isinstance(n, str) or n == m for n, m in zip(sizes, made.shape, strict=False)
        )
        if not fits:
            wanted = ", ".join(map(str, sizes))
            raise ShapeError(f"input {name!r} takes the shape ({wanted}), not {tuple(made.shape)}")
    return made if element.is_own else Narrow(made, element.name)


def _declared_type(value: ValueInfoProto) -> tuple[DType, tuple[int | str, ...]] | None:
    """Return the type that a file declares for an input; sizes without names are called `n` and `NAME_AXIS`."""
    kind = None if value.type is None else value.type.tensor_type
    held = None if kind is None else ELEMENT_TYPES[kind.elem_type].held
    if kind is None or kind.shape is None or held is None:
        return None
    words = re.sub(r"\W", "_", value.name, flags=re.ASCII)
    shape = [
        d.dim_value
        if d.dim_value
        else d.dim_param
        if WORD.fullmatch(d.dim_param or "")
        else f"{words}_{n}"
        if n
        else "n"
        for n, d in enumerate(kind.shape.dim)
    ]
    return held, tuple([x for x in shape if x is not None])


def _uses(scope: Scope) -> dict[str, set[str]]:
    """Return how operators take each value: the conversions of the inputs that it is."""
    found: dict[str, set[str]] = {}
    stack: list[NodeCall] = list(scope.steps)
    while stack:
        step = stack.pop()
        for n, name in enumerate(step.node.input):
            found.setdefault(name, set()).add(step.takes.conversion(n))
        for inner in step.graphs.values():
            stack += inner.steps
    return found


def _is_stored(value: Any, uses: set[str]) -> bool:
    """Whether a constant becomes a parameter or a buffer, rather than a part of the network's structure."""
    if not isinstance(value, np.ndarray) or not value.ndim or uses & CONVERSIONS.keys() - {"Any"}:
        return False
    return bool(value.dtype.kind not in "iub" or value.size > MAX_READ_ELEMENTS)


def _public(value: Any) -> Any:
    """Return an output as a tensor, a list, or None."""
    if isinstance(value, Narrow):
        return _public(value.held)
    if isinstance(value, list):
        return [_public(item) for item in value]
    return tensor(value) if isinstance(value, np.ndarray) else value
