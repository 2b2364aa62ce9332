"""Inferencers: they run the network of an engine for one caller each, on activations of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import ArgumentError, DeviceError
from ..functions.creation import tensor
from ..ir.graph import Input, TensorType
from ..ir.size import known
from ..lazy.evaluation import array_of
from ..lazy.handle import wrap
from ..runtime import events
from ..runtime.device import device
from ..tensor import Tensor
from ..tree import LEAF, flatten, unflatten
from .activations import Activations, CallPart, address_of
from .plans import batch_parts

if TYPE_CHECKING:
    from .engine import Engine

Array = np.ndarray[Any, Any]
MAX_LAYOUTS = 256
"""Kinds of calls of which an inferencer remembers the plans and the shapes of the results."""


class CallLayout(NamedTuple):
    """Hold what is the same in all calls with arguments of the same shapes."""

    parts: list[CallPart]
    shapes: list[tuple[int, ...]]
    """The shapes of the results."""
    direct: Callable[..., None] | None
    """Runs the network on the addresses of arguments and results; None where there is more to do."""


class Inferencer:
    """Runs the network of an engine: called with its inputs, by place or by name, it returns the outputs.

    Numpy arrays are answered with numpy arrays, tensors with tensors, in the structure that the network returns. The
    results are the caller's; `out` takes arrays to write them to instead, one for each output in order or by name.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.device = device(engine.device)
        self._names = [x.name for x in engine.inputs]
        self._dtypes: list[Any] = [x.dtype.numpy for x in engine.inputs]
        self._result_dtypes: list[Any] = [x.dtype.numpy for x in engine.outputs]
        self._is_flat = all(tree == LEAF for tree in engine.network.arguments.values())
        self._returns_one = engine.network.results == LEAF
        self._layouts: dict[tuple[tuple[int, ...], ...], CallLayout] = {}
        self._lock = threading.Lock()
        self._activations = Activations(engine, self.device)

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        given: Sequence[Any] = args
        if kwargs or not self._is_flat or len(args) != len(self._names):
            given = self._leaves(args, kwargs)
        buffers: list[Any] | None = None
        for x, dtype in zip(given, self._dtypes, strict=True):
            if x.__class__ is not np.ndarray or x.dtype != dtype or not x.flags.c_contiguous:
                has_tensors = any(isinstance(y, Tensor) for y in given)
                given, buffers = self._arrays(given), [] if has_tensors and out is None else None
                break
        shapes = tuple([x.shape for x in given])
        layout = self._layouts.get(shapes) or self._new_layout(given, shapes)
        if layout.direct is not None and out is None and buffers is None and not events.listeners:
            results = list(map(np.empty, layout.shapes, self._result_dtypes))
            with self._lock:
                layout.direct(*map(address_of, given), *map(address_of, results))
            return self._structured(results)
        if out is not None:
            results, given = self._results_in(out, layout, given)
        elif buffers is not None:
            results = self._results_on(buffers, layout)
        else:
            results = list(map(np.empty, layout.shapes, self._result_dtypes))
        self.engine.calls += 1
        try:
            with self._lock:
                self._compute(layout, given, results)
        finally:
            self.engine.calls -= 1
        return self._structured(results if buffers is None else self._tensors(buffers, layout))

    def _structured(self, results: Sequence[Any]) -> Any:
        """Return results as the network does."""
        return results[0] if self._returns_one else unflatten(self.engine.network.results, results)

    def _compute(self, layout: CallLayout, given: Sequence[Array], results: Sequence[Array]) -> None:
        for part in layout.parts:
            self._activations.run(part, given, results)
        for n, source in layout.parts[0].plan.copied:
            results[n][...] = self._source(layout, source, given, results)

    def _source(self, layout: CallLayout, source: int, given: Sequence[Array], results: Sequence[Array]) -> Array:
        """Return what a result is copied from: another result, an argument, or a constant."""
        if source < len(given):
            return results[source] if source < 0 else given[source]
        plan, weights = layout.parts[0].plan, self.engine.weights
        return array_of(wrap(weights.values[source - len(plan.arguments)]))

    def _leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """Match arguments with the inputs of the network."""
        if self._is_flat and len(args) + len(kwargs) == len(self._names):
            named = {**dict(zip(self._names, args, strict=False)), **kwargs}
            if named.keys() == set(self._names):
                return [named[name] for name in self._names]
        self.engine.network.leaves_of(args, kwargs)  # raises, unless arguments are nested
        found = dict(zip(self.engine.network.arguments, args, strict=False)) | dict(kwargs)
        return flatten([found[name] for name in self.engine.network.arguments if name in found])[0]

    def _arrays(self, given: Sequence[Any]) -> list[Array]:
        """Convert arguments to arrays of the element types that the network takes."""
        self._check_kinds(given)
        arrays = [array_of(x) if isinstance(x, Tensor) else x for x in given]
        return [np.ascontiguousarray(x, t).reshape(x.shape) for x, t in zip(arrays, self._dtypes, strict=True)]

    def _check_kinds(self, given: Sequence[Any]) -> None:
        """Raise unless all arguments are arrays, or tensors on the device, of the element types wanted."""
        network = self.engine.network
        for x, spec, dtype in zip(given, self.engine.inputs, self._dtypes, strict=True):
            if isinstance(x, Tensor) and x.device is not self.device:
                raise DeviceError(
                    f"the engine is on {self.device}, and an argument on {x.device}: move it, as in "
                    f"x.to({self.engine.device!r})"
                )
            if isinstance(x, Tensor) and x.dtype is spec.dtype:
                continue
            if not isinstance(x, np.ndarray) or x.dtype.newbyteorder("=") != dtype:
                leaves = network.leaves_of(given, {}) if self._is_flat else given
                network.sizes_of([tensor(y) if isinstance(y, np.ndarray) else y for y in leaves])
                raise ArgumentError(f"the argument {spec.name!r} is to be an array of {dtype}, not {x!r:.60}")

    def _new_layout(self, given: Sequence[Any], shapes: tuple[tuple[int, ...], ...]) -> CallLayout:
        """Find the plans for arguments of these shapes."""
        engine = self.engine
        found: Any = engine.network.sizes_of([x if isinstance(x, Tensor) else tensor(x) for x in given])
        engine.check_batch(found)
        if engine.batches and engine.batch is not None:
            parts = [
                CallPart(engine.plan({engine.batch: b}), start, rows, rows < b)
                for start, rows, b in batch_parts(found[engine.batch], engine.batches)
            ]
        else:
            parts = [CallPart(engine.plan(found), 0, 0, False)]
        if self._activations.reserve(max(part.plan.activation_bytes for part in parts)):
            self._layouts.clear()
        results = engine.network.graph.outputs[: len(engine.outputs)]
        direct = None if parts[0].plan.contexts is None or len(parts) > 1 else self._activations.direct(parts[0])
        layout = CallLayout(parts, [tuple([known(d, found) for d in x.type.shape]) for x in results], direct)
        while len(self._layouts) >= min(MAX_LAYOUTS, 4 * engine.max_plans):
            del self._layouts[next(iter(self._layouts))]
        self._layouts[shapes] = layout
        return layout

    def _results_in(self, out: Any, layout: CallLayout, given: Sequence[Array]) -> tuple[list[Array], Sequence[Array]]:
        """Check the arrays that results are written to; arguments that share memory with them are copied."""
        specs = self.engine.outputs
        if isinstance(out, Mapping) and set(out) == {spec.name for spec in specs}:
            out = [out[spec.name] for spec in specs]
        results = flatten(out)[0]
        if len(results) != len(specs):
            raise ArgumentError(
                f"out: {len(specs)} arrays are wanted ({', '.join(s.name for s in specs)}), not {len(results)}"
            )
        for x, spec, shape in zip(results, specs, layout.shapes, strict=True):
            _check_result(x, spec, shape)
        if any(np.may_share_memory(x, y) for n, x in enumerate(results) for y in results[:n]):
            raise ArgumentError("out: two of the arrays share memory")
        overlaps = [any(np.may_share_memory(x, y) for y in results) for x in given]
        return results, [x.copy() if o else x for x, o in zip(given, overlaps, strict=True)]

    def _results_on(self, buffers: list[Any], layout: CallLayout) -> list[Array]:
        """Allocate results on the device; return views of them."""
        results = []
        for shape, spec in zip(layout.shapes, self.engine.outputs, strict=True):
            type = TensorType(spec.dtype, shape, self.engine.device)
            buffers.append(self.device.allocate(known(type.bytes, {})))
            view = self.device.view(buffers[-1], spec.dtype, shape)
            assert view is not None
            results.append(view)
        return results

    def _tensors(self, buffers: Sequence[Any], layout: CallLayout) -> list[Tensor]:
        """Make tensors of results."""
        made = []
        for buffer, shape, spec in zip(buffers, layout.shapes, self.engine.outputs, strict=True):
            value = Input(TensorType(spec.dtype, shape, self.engine.device))
            value.hold(buffer)
            made.append(wrap(value))
        return made


def _check_result(x: Any, spec: Any, shape: Sequence[int]) -> None:
    """Raise an error unless a result can be written to an array."""
    is_array = isinstance(x, np.ndarray)
    if not is_array or x.shape != shape or x.dtype != spec.dtype.numpy:
        have = f"{x.dtype} {list(x.shape)}" if is_array else type(x).__name__
        raise ArgumentError(f"out: {spec.name!r} is to be an array of {spec.dtype.name} {list(shape)}, not {have}")
    if not x.flags.c_contiguous or not x.flags.writeable:
        raise ArgumentError(f"out: the array for {spec.name!r} is read-only, or its elements are not contiguous")
