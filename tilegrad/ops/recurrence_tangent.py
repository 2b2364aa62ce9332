"""Linear recurrences, which second gradients of recurrent layers consist of.

With s the state (and for an LSTM c), g = x + W s before the step, and factors that were computed for all steps:

    scan          s' = f s + x
    tanh, relu    s' = f g
    lstm          c' = f5 c + f0 g0 + f1 g1 + f2 g2;   s' = f4 c' + f3 g3
    gru           n = x2 + f3 g3 + f0 g0;   s' = f4 s + f2 n + f1 g1;   g3 = x3 + W2 s
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from ..errors import ShapeError
from ..ir.graph import TensorType, Value
from ..ir.precision import Precision
from ..ir.size import Size, known
from .arithmetic import add, mul
from .broadcasting import reshape, shown
from .contraction import matmul
from .movement import cat, narrow, squeeze, stack
from .opaque import Opaque
from .pullback import pullback
from .recurrence_sizes import FACTORS, RecurrenceSizes, TangentKind, layer
from .tile_code import TileCode, with_precision

ArraysOrValues = Callable[[Any, Any], Any]


@final
class RecurrenceTangent(Opaque):
    """All states (length, units, batch), followed by all cells of an LSTM."""

    x: Value
    """(length, rows * units, batch)."""
    factors: Value
    """(length, factors * units, batch)."""
    hidden: Value
    """First state: (units, batch)."""
    weight: tuple[Value, ...]
    more: tuple[Value, ...]
    """First cells of an LSTM."""
    kind: TangentKind
    reverse: bool
    precision: Precision

    @property
    def sizes(self) -> RecurrenceSizes:
        units, batch = self.hidden.shape
        return RecurrenceSizes(known(self.x.shape[0], {}), known(units, {}), known(batch, {}))

    def infer(self) -> TensorType:
        shapes = [x.shape for x in self.inputs]
        if any(isinstance(extent, Size) for shape in shapes for extent in shape):
            raise ShapeError(f"recurrence: the sizes {', '.join(map(shown, shapes))} must be known; take single steps")
        length, units, batch = self.sizes
        return self.x.type.with_shape(((2 if self.kind == "lstm" else 1) * length * units * batch,))

    def kernel(self) -> TileCode:
        from .kernels.recurrence import recurrence_tangent

        given: dict[str, Any] = {"x": self.x.type, "factors": self.factors.type, "hidden": self.hidden.type}
        given["weight"], given["more"] = (tuple([x.type for x in values]) for values in (self.weight, self.more))
        spec = layer(self.kind, self.sizes, self.reverse, self.dtype)
        numbers = {"ROWS": 4 if self.kind == "gru" else spec.gates, "FACTORS": FACTORS[self.kind]}
        code = recurrence_tangent.code(given, self.type, spec.grid, KIND=self.kind, S=spec, **numbers)
        return with_precision(code, self.precision)

    def reference(self, x: Any, factors: Any, hidden: Any, *rest: Any) -> Any:
        length, units, batch = self.sizes
        rows, parts = (a.reshape(length, -1, units, batch) for a in (x, factors))

        def gates(state: Any) -> Any:
            return (rest[0] @ state).reshape(-1, units, batch) if self.weight else ()

        cell = rest[-1] if self.more else None
        states, cells = self._steps(
            rows.__getitem__, parts.__getitem__, gates, hidden, cell, operator.add, operator.mul
        )
        return np.stack(states + (cells if self.more else [])).ravel().astype(x.dtype)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        """Differentiate step by step with ordinary ops: third gradients are rare."""
        units, batch = self.hidden.shape

        def gates(state: Value) -> list[Value]:
            return _parts(matmul(self.weight[0], state, self.precision), units, batch) if self.weight else []

        rows, factors = (lambda t, x=x: _parts(_at(x, t), units, batch) for x in (self.x, self.factors))
        cell = self.more[0] if self.more else None
        states, cells = self._steps(rows, factors, gates, self.hidden, cell, add, mul)
        whole = reshape(stack(states + (cells if self.more else [])), (-1,))
        return pullback([whole], [upstream], self.inputs)

    def _steps(
        self, rows: Any, factors: Any, gates: Any, state: Any, cell: Any, plus: ArraysOrValues, times: ArraysOrValues
    ) -> tuple[list[Any], list[Any]]:
        """Return all states and cells, of arrays or of values."""
        length = known(self.sizes.length, {})
        states, cells = [state] * length, [cell] * length
        for t in range(length)[:: -1 if self.reverse else 1]:
            state, cell = _step(self.kind, rows(t), gates(state), factors(t), state, cell, plus, times)
            states[t], cells[t] = state, cell
        return states, cells


def _step(
    kind: TangentKind, x: Any, product: Any, f: Any, state: Any, cell: Any, plus: ArraysOrValues, times: ArraysOrValues
) -> tuple[Any, Any]:
    if kind == "scan":
        return plus(times(f[0], state), x[0]), cell
    if kind == "gru":
        r, z, m = plus(x[0], product[0]), plus(x[1], product[1]), plus(x[3], product[2])
        n = plus(plus(x[2], times(m, f[3])), times(r, f[0]))
        return plus(plus(times(n, f[2]), times(z, f[1])), times(state, f[4])), cell
    g = [plus(a, b) for a, b in zip(x, product, strict=True)]
    if kind == "lstm":
        cell = times(cell, f[5])
        for n in range(3):
            cell = plus(cell, times(g[n], f[n]))
        return plus(times(cell, f[4]), times(g[3], f[3])), cell
    return times(f[0], g[0]), cell


def _at(x: Value, t: int) -> Value:
    return squeeze(narrow(x, 0, t, 1), 0)


def _parts(x: Value, units: Any, batch: Any) -> list[Value]:
    rows = known(x.shape[0], {}) // known(units, {})
    return [reshape(narrow(x, 0, n * known(units, {}), units), (units, batch)) for n in range(rows)]


def linear_scan(x: Value, factor: Value, first: Value, reverse: bool) -> Value:
    """Return the states s' = f s + x."""
    return reshape(RecurrenceTangent(x, factor, first, (), (), "scan", reverse, "highest"), x.shape)


def linear_recurrence(
    x: Value,
    factors: Sequence[Value],
    first: Value,
    weight: Value,
    more: Sequence[Value],
    kind: TangentKind,
    reverse: bool,
    precision: Precision,
) -> list[Value]:
    """Return all states, and all cells of an LSTM, each (length, units, batch)."""
    made = RecurrenceTangent(x, cat(factors, 1), first, (weight,), tuple(more), kind, reverse, precision)
    shape = (2 if more else 1, *factors[0].shape)
    return [squeeze(narrow(reshape(made, shape), 0, n, 1), 0) for n in range(known(shape[0], {}))]
