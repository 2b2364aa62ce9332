"""An operator specialised for tensor types: its reference as a graph, its kernel on a device, its gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..autograd.engine import walking
from ..errors import DTypeError, GradientError, OperatorError, ShapeError, TraceError
from ..functions.autocasting import arithmetic
from ..functions.promotion import kind_of
from ..ir.graph import Graph, Input, TensorType, Value, topological
from ..ir.node import amend
from ..lazy.handle import Handle, mode, state, wrap
from ..ops.broadcasting import fill
from ..ops.declared import DeclaredMeaning
from ..ops.external_call import ExternalCall, external_call
from ..runtime.external_work import ArrayWork, with_known_sizes
from ..transform.autodiff import gradients, tracked_input
from .direct_call import DirectCall, find_direct_call
from .signature import Form

if TYPE_CHECKING:
    from .operator import Operator


class OperatorMeaning(DeclaredMeaning):
    """An operator for one call form and certain tensor types."""

    def __init__(self, op: Operator, form: Form, types: Sequence[TensorType]) -> None:
        self.op = op
        self.form = form
        self.types = tuple(types)
        self.name = op.name
        self.results = op.declaration.types(self.types, form)
        numbers = zip(op.declaration.parameters, form, strict=True)
        shown = [f"{p.name}={present.number}" for p, present in numbers if present.number is not None]
        self.label = op.name + (f"[{', '.join(shown)}]" if shown else "")
        self._reference: Graph | None = None
        self._code: dict[str, Graph] = {}
        self._pullback: Pullback | None = None
        self._with_known_sizes: dict[tuple[TensorType, ...], OperatorMeaning] = {}
        self.direct: DirectCall | None = None
        """The direct call, if there is one; known once the operator was compiled for the CPU."""

    def reference(self) -> Graph:
        if self._reference is None:
            fn = self.on_arrays(self.op.fn) if self.op.arrays else self.op.fn
            self._reference = self.traced(fn, "the reference", tracked=True)
        return self._reference

    def code(self, device: str) -> Graph:
        kind = device.partition(":")[0]
        fn = self.op.kernels.get(kind) or self.op.kernels.get("")
        if fn is None:
            return self.reference()
        if kind not in self._code:
            fn = self.on_arrays(fn.fn) if isinstance(fn, OnArrays) else fn
            self._code[kind] = self.traced(fn, f"the kernel for {kind}", tracked=False)
            if kind == "cpu" and self.op.autocast is None:
                self.direct = find_direct_call(self._code[kind])
        return self._code[kind]

    def with_known_sizes(self, sizes: Mapping[str, int]) -> OperatorMeaning:
        types = tuple([with_known_sizes(t, sizes) for t in self.types])
        if types == self.types:
            return self
        made = self._with_known_sizes.get(types)
        if made is None:
            made = self._with_known_sizes.setdefault(types, OperatorMeaning(self.op, self.form, types))
        return made

    def on_arrays(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a function on arrays as one on tensors that records a call."""
        declaration, form = self.op.declaration, self.form

        def given_arrays(*arrays: Any) -> Any:
            numbers = zip(arrays, declaration.varying(form), strict=True)
            with without_tensors(self.name):
                return fn(*declaration.arguments(form, [x.item() if varies else x for x, varies in numbers]))

        def on_tensors(*arguments: Any) -> Any:
            values = [x.value for x in flatten_tensors(arguments)]
            made = external_call(ArrayWork(self.name, given_arrays), values, self.results)
            return [wrap(v) for v in made]

        return on_tensors

    def pullback(self) -> Pullback:
        """Return the gradient of the reference as a graph."""
        if self._pullback is None:
            meant = self.reference()
            _refuse_foreign(self.name, meant)
            upstreams = [tracked_input(t) if t.dtype.is_float else Input(t) for t in self.results]
            flowing = [(y, u) for y, u in zip(meant.outputs, upstreams, strict=True) if y.tracked]
            with walking(True, True):
                found = gradients([y for y, _ in flowing], [u for _, u in flowing], meant.inputs)
            self._pullback = Pullback(meant.inputs, tuple(upstreams), tuple(found))
        return self._pullback

    def traced(self, fn: Callable[..., Any], what: str, tracked: bool) -> Graph:
        """Trace a function of tensors to a graph of placeholders."""
        declaration = self.op.declaration
        inputs = [Input(t, n) for t, n in zip(self.types, declaration.names(self.form), strict=True)]
        for x, varies in zip(inputs, declaration.varying(self.form), strict=True):
            if tracked and x.dtype.is_float:
                amend(x, tracked=True)
            if varies:
                x.note().is_number = True
        outs = [Input(t, p.name) for t, p in zip(self.results, declaration.results, strict=True)]
        with untraced(tracked):
            arguments = declaration.arguments(self.form, [wrap(x) for x in inputs])
            found = self._called(fn, what, arguments, outs)
        self._check(what, found, {*inputs}, {*outs})
        return Graph(tuple(inputs), tuple(found))

    def _called(self, fn: Callable[..., Any], what: str, arguments: list[Any], outs: list[Input]) -> list[Value]:
        """Call a function; return the values it returned or wrote to output arguments."""
        names = [p.name for p in self.op.declaration.results]
        if not has_parameters(fn, names):
            made = fn(*arguments)
            given = list(made) if isinstance(made, tuple | list) else [made]
            if len(given) != len(names):
                raise OperatorError(
                    f"{self.name}: {what} returned {len(given)} values; the signature says {len(names)}"
                )
            for x, name in zip(given, names, strict=True):
                if not isinstance(x, Handle):
                    raise OperatorError(f"{self.name}: {what} returned {kind_of(x)} for `{name}`, and not a tensor")
            return [x.value for x in given]
        tensors = []
        for out in outs:
            out.note().is_uninitialised = True
            tensors.append(wrap(out))
        if fn(*arguments, **dict(zip(names, tensors, strict=True))) is not None:
            raise OperatorError(f"{self.name}: {what} takes `{names[0]}` to write to, and returned something too")
        for x, out in zip(tensors, outs, strict=True):
            if x.own_value() is out and out.type.count != 0:
                raise OperatorError(f"{self.name}: {what} writes nothing to `{out.name}`")
        return [
            x.own_value() if out.type.count != 0 else fill(0, out.shape, out.dtype, out.device)
            for x, out in zip(tensors, outs, strict=True)
        ]

    def _check(self, what: str, found: Sequence[Value], inputs: set[Value], outs: set[Value]) -> None:
        """Check that results have the declared types and depend on the arguments only."""
        for value, type, p in zip(found, self.results, self.op.declaration.results, strict=True):
            if value.dtype is not type.dtype:
                raise DTypeError(
                    f"{self.name}: {what} gives {value.dtype.name} for `{p.name}`; the signature says "
                    f"{type.dtype.name}: {self.op.declaration}"
                )
            if value.shape != type.shape:
                raise ShapeError(
                    f"{self.name}: {what} gives shape {list(value.shape)} for `{p.name}`; the signature says "
                    f"{list(type.shape)}: {self.op.declaration}"
                )
        for x in topological(found, inputs.__contains__):
            if is_graph_input(x) and x not in inputs:
                if x in outs:
                    raise OperatorError(f"{self.name}: {what} reads `{x}` before it has written to it")
                raise OperatorError(
                    f"{self.name}: {what} uses a tensor of {x.type} that is none of its arguments (from outside, "
                    "random, "
                    "or made from a list): make it an argument, since what an operator gives may depend on nothing else"
                )


def _refuse_foreign(name: str, meant: Graph) -> None:
    """Refuse to differentiate a reference that has no gradient."""
    for x in meant.values():
        if isinstance(x, ExternalCall) and x.type.dtype.is_float and any(v.tracked for v in x.arguments):
            raise GradientError(
                f"{name} has no gradient: its reference calls {x.op}, which cannot be differentiated. Give it one: "
                f"@{name}.gradient"
            )


def flatten_tensors(arguments: Sequence[Any]) -> list[Any]:
    """Flatten arguments to their tensors."""
    return [
        y
        for x in arguments
        for y in (flatten_tensors(x) if isinstance(x, tuple | list) else [x] if isinstance(x, Handle) else [])
    ]


class OnArrays:
    """A kernel that is a Python function on arrays."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn


class _NoTensors:
    """Tracer that refuses any use of tensors inside a function on arrays: the enclosing program is running."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, _: str) -> Any:
        raise TraceError(
            f"{self.name} is given as a function on arrays, and uses a tensor while a program runs: work on the arrays "
            "that it gets"
        )


@contextmanager
def without_tensors(name: str) -> Iterator[None]:
    """Refuse tensors while a function on arrays runs; waiting for one would deadlock with the running program."""
    before = state.trace
    state.trace = _NoTensors(name)
    try:
        yield
    finally:
        state.trace = before


def is_graph_input(x: Value) -> bool:
    """Whether a value is a graph input and not computed."""
    return isinstance(x, Input) or x.buffer is not None


class Pullback:
    """Computes gradients of the arguments from those of the results."""

    def __init__(
        self, inputs: tuple[Value, ...], upstreams: tuple[Value, ...], shares: tuple[Value | None, ...]
    ) -> None:
        self.inputs, self.upstreams, self.shares = inputs, upstreams, shares


@contextmanager
def untraced(recorded: bool) -> Iterator[None]:
    """Suspend tracers and autocast while an operator's functions run on placeholders."""
    before = state.trace, mode.enabled, mode.inference, arithmetic.low
    state.trace, mode.enabled, mode.inference, arithmetic.low = None, recorded, False, ()
    try:
        yield
    finally:
        state.trace, mode.enabled, mode.inference, arithmetic.low = before


def has_parameters(fn: Callable[..., Any], names: Sequence[str]) -> bool:
    """Whether a function has parameters with these names."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
    return all(name in parameters for name in names)
