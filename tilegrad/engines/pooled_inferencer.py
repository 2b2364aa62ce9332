"""Inferencers on devices that allocate from a pool of their own: each has a stream, and results stay on the device."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from ..deferred import part
from ..functions.creation import tensor, zeros
from ..functions.joining import cat
from ..functions.views import narrow
from ..ir.graph import Input, Value
from ..lazy.evaluation import array_of, in_memory
from ..lazy.handle import wrap
from ..runtime.buffer import DeviceBuffer
from ..runtime.executable import Runner
from ..tensor import Tensor
from .activations import CallPart
from .inferencer import Inferencer
from .plans import Plan

if TYPE_CHECKING:
    from .engine import Engine


class PooledInferencer(Inferencer):
    """Runs on a stream of its own; tensors are answered with tensors on the device."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        stream = part(f"backend.{self.device.kind}.contexts", "CallerStream")
        self._stream = None if stream is None else stream(self.device)
        self._runners: dict[Plan, Runner] = {}

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        given = self._leaves(args, kwargs)
        are_arrays = not any(isinstance(x, Tensor) for x in given)
        self._check_kinds(given)
        with self._lock, nullcontext() if self._stream is None else self._stream.entered():
            tensors = [tensor(x, device=self.engine.device) if isinstance(x, np.ndarray) else x for x in given]
            shapes = tuple([tuple(x.shape) for x in tensors])
            layout = self._layouts.get(shapes) or self._new_layout(tensors, shapes)
            parts = [self._part(part, tensors) for part in layout.parts]
            found: list[Any] = parts[0] if len(parts) == 1 else [cat(pieces) for pieces in zip(*parts, strict=True)]
            if out is not None:
                results, _ = self._results_in(out, layout, ())
                for x, y in zip(results, found, strict=True):
                    x[...] = array_of(y)
                found = list(results)
            elif are_arrays:
                found = [array_of(x).copy() for x in found]
        return self._structured(found)

    def _part(self, part: CallPart, given: Sequence[Tensor]) -> list[Tensor]:
        """Compute rows of the results from rows of the arguments."""
        plan, tensors = part.plan, list(given)
        if part.rows and (part.is_padded or part.rows < given[0].shape[0]):
            tensors = [self._rows(x, part) for x in given]
        run = self._runners.get(plan)
        if run is None:
            while len(self._runners) >= self.engine.max_plans:
                del self._runners[next(iter(self._runners))]
            executable = plan.compiled.executable
            run = executable.bound() if self._stream is None else self._stream.runner(executable)
            self._runners[plan] = run
        buffers: list[DeviceBuffer] = [*[in_memory(x).buffer for x in tensors], *plan.shared]
        made = [_tensor_on(b, x) for b, x in zip(run(buffers), plan.outputs, strict=True)]
        return [narrow(x, 0, 0, part.rows) for x in made] if part.is_padded else made

    def _rows(self, x: Tensor, part: CallPart) -> Tensor:
        """Take the rows of a part, followed by zeros."""
        rows = narrow(x, 0, part.start, part.rows)
        if not part.is_padded:
            return rows
        missing = part.plan.rows - part.rows
        return cat([rows, zeros(missing, *x.shape[1:], dtype=x.dtype, device=self.engine.device)])


def _tensor_on(buffer: DeviceBuffer, output: Value) -> Tensor:
    value = Input(output.type)
    value.hold(buffer)
    return wrap(value)
