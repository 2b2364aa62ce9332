"""Recurrent layers with all steps in one kernel, forward and backward.

The contributions of the inputs to the gates are given for all steps. The batch is the last axis: each sequence is a
lane, weights are read as scalars, and the hidden state stays in place between steps.

    tanh, relu    h' = f(x + W h)
    lstm          c' = s(f) c + s(i) tanh(g);   h' = s(o) tanh(c');          i f g o = x + W h
    gru           h' = n + z (h - n);   r z = s(x + W h);   n = tanh(x + r m);   m = W h + b

where s is the logistic function. Gates are stored for the gradient, if one may be wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from ..errors import ShapeError
from ..ir.graph import TensorType, Value
from ..ir.precision import Precision
from ..ir.size import Dim, Shape, Size, known, product
from ..runtime.device import device
from .arithmetic import Add, add
from .broadcasting import reduce_sum, reshape, shown
from .cast import cast, widened
from .contraction import contract
from .movement import Pad, cat, narrow, transpose
from .opaque import Opaque
from .recurrence_second import GateFactors, gate_gradients, group_weights, previous_states, second_gradients, split_rows
from .recurrence_sizes import GATES, SAVED_PER_UNIT, CellKind, RecurrenceSizes, layer
from .tile_code import TileCode, with_precision


def is_one_kernel(units: int, place: str) -> bool:
    """Return whether one kernel runs all steps of a layer on a device; otherwise each step is a product."""
    most = device(place).target.max_fused_recurrent_units
    return not most or units <= most


class _Recurrent(Opaque):
    quick_reference = True

    @property
    def layout(self) -> dict[str, Shape]:
        """Return the names and sizes of the pieces of the result."""
        raise NotImplementedError

    def infer(self) -> TensorType:
        first = self.inputs[0]
        return first.type.with_shape((sum([product(shape) for shape in self.layout.values()]),))

    def parts(self) -> dict[str, Value]:
        """Return the pieces of the result by name."""
        return _split(self, self.layout)


def _split(x: Value, layout: dict[str, Shape]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    start: Dim = 0
    for name, shape in layout.items():
        count = product(shape)
        found[name] = reshape(narrow(x, 0, start, count), shape)
        start = start + count
    return found


@final
class Recurrence(_Recurrent):
    """All hidden states (length, units, batch), the last cells of an LSTM, and what is stored for the gradient."""

    x: Value
    """Contributions of the inputs to the gates: (length, gates * units, batch)."""
    weight: Value
    """(gates * units, units)."""
    hidden: Value
    """First hidden state: (units, batch)."""
    more: tuple[Value, ...]
    """First cells of an LSTM (units, batch), or the bias of a GRU's m (units)."""
    kind: CellKind
    reverse: bool
    keeps: bool
    precision: Precision

    def infer(self) -> TensorType:
        shapes = [x.shape for x in self.inputs]
        if any(isinstance(extent, Size) for shape in (shapes[0][1:], *shapes[1:]) for extent in shape):
            raise ShapeError(
                f"recurrence: the sizes {', '.join(map(shown, shapes))} must be known (the length need not)"
            )
        length, units, batch = self.sizes
        rows = GATES[self.kind] * units
        if shapes[:3] != [(length, rows, batch), (rows, units), (units, batch)]:
            raise ShapeError(
                f"recurrence: {', '.join(map(shown, shapes))} are no gates, weights and states of {self.kind}"
            )
        return super().infer()

    @property
    def sizes(self) -> RecurrenceSizes:
        units, batch = self.hidden.shape
        return RecurrenceSizes(self.x.shape[0], known(units, {}), known(batch, {}))

    @property
    def layout(self) -> dict[str, Shape]:
        length, units, batch = self.sizes
        found: dict[str, Shape] = {"hidden": (length, units, batch)}
        if self.kind == "lstm":
            found["cell"] = (units, batch)
        if self.keeps and SAVED_PER_UNIT[self.kind]:
            found["kept"] = (length, SAVED_PER_UNIT[self.kind] * units, batch)
        return found

    def reference(self, *arrays: Any) -> Any:
        x, weight, h, *more = arrays
        length = known(self.sizes.length, {})
        outputs: list[Any] = [None] * length
        kept: list[Any] = [None] * length
        c: Any = more[0] if more else None
        for t in range(length)[:: -1 if self.reverse else 1]:
            h, c, kept[t] = _step(self.kind, x[t], weight, h, c)
            outputs[t] = h
        parts = [np.stack(outputs).ravel()]
        if self.kind == "lstm":
            parts.append(c.ravel())
        if "kept" in self.layout:
            parts.append(np.stack(kept).ravel())
        return np.concatenate(parts).astype(x.dtype)

    def kernel(self) -> TileCode:
        from .kernels.recurrence import recurrence

        inputs = {"x": self.x.type, "weight": self.weight.type, "hidden": self.hidden.type}
        more = tuple([x.type for x in self.more])
        spec = layer(self.kind, self.sizes, self.reverse, self.dtype)
        kept = spec.saved if self.keeps else 0
        code = recurrence.code({**inputs, "more": more}, self.type, spec.grid, KIND=self.kind, S=spec, KEPT=kept)
        return with_precision(code, self.precision)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        arriving, own = _split(upstream, self.layout), self.parts()
        factors, more, extra = GateFactors(self.kind, self.reverse, self.precision), self.more[:1], None
        if "kept" in own and _reaches_past(upstream, self.shape[0] - product(self.layout["kept"])):
            count = SAVED_PER_UNIT[self.kind]
            kept = (split_rows(arriving["kept"], count), split_rows(own["kept"], count))
            extra = gate_gradients(factors, *kept, self.weight, self.hidden, more)
        of_states = arriving["hidden"] if extra is None else add(arriving["hidden"], extra.upstream)
        last = (*more, arriving["cell"]) if self.kind == "lstm" else ()
        given = (of_states, group_weights(transpose(self.weight)), self, self.hidden, last)
        shares = RecurrenceGradient(*given, *factors).parts()
        if extra is not None:
            name = "cell" if self.kind == "lstm" else "m"
            added = {"gates": extra.gates, "first": extra.first, name: extra.more}
            shares = {name: add(share, added[name]) for name, share in shares.items()}
        to_gates = of_hidden = shares["gates"]
        if self.kind == "gru":
            of_hidden = cat([narrow(to_gates, 1, 0, 2 * self.sizes.units), shares["m"]], 1)
        earlier = previous_states(own["hidden"], self.hidden, self.reverse)
        to_weight = contract(of_hidden, earlier, "lgn,lhn->gh", self.precision)
        to_more = [shares["cell"]] if self.kind == "lstm" else []
        to_more = [reduce_sum(shares["m"], (0, 2))] if self.kind == "gru" else to_more
        return [to_gates, to_weight, shares["first"], *to_more]


def _ungrouped(weight: Any) -> Any:
    return weight.swapaxes(1, 2).reshape(-1, weight.shape[1])


def _reaches_past(share: Value, start: Dim) -> bool:
    """Return whether an upstream gradient may be nonzero behind a position of the result."""
    if isinstance(share, Add):
        return _reaches_past(share.x, start) or _reaches_past(share.y, start)
    if isinstance(share, Pad) and share.steps == (1,) and share.value == 0.0:
        excess = share.starts[0] + share.x.shape[0] - start
        return any(c > 0 for c in excess.terms.values()) if isinstance(excess, Size) else excess > 0
    return True


@final
class RecurrenceGradient(_Recurrent):
    """Gradients of the inputs' contributions, of the first states, and of a GRU's m."""

    upstream: Value
    weight: Value
    """Transposed weights: (units, gates * units), in groups of rows."""
    made: Value
    """The result of the forward kernel: states, and what is stored for the gradient."""
    hidden: Value
    more: tuple[Value, ...]
    """LSTM: the first cells, and the upstream gradient of the last."""
    kind: CellKind
    reverse: bool
    precision: Precision

    @property
    def sizes(self) -> RecurrenceSizes:
        length, units, batch = self.upstream.shape
        return RecurrenceSizes(length, known(units, {}), known(batch, {}))

    @property
    def layout(self) -> dict[str, Shape]:
        length, units, batch = self.sizes
        found: dict[str, Shape] = {"gates": (length, GATES[self.kind] * units, batch), "first": (units, batch)}
        if self.kind == "lstm":
            found["cell"] = (units, batch)
        if self.kind == "gru":
            found["m"] = (length, units, batch)
        return found

    def reference(self, *arrays: Any) -> Any:
        upstream, grouped, made, hidden, *more = arrays
        weight, (_, units, batch), length = _ungrouped(grouped), self.sizes, len(upstream)
        states, behind = made[: upstream.size].reshape(upstream.shape), made[upstream.size :]
        kept = behind[hidden.size if self.kind == "lstm" else 0 :].reshape(
            length, SAVED_PER_UNIT[self.kind] * units, batch
        )
        to_h = np.zeros_like(hidden)
        to_c = more[1] if self.kind == "lstm" else None
        gates: list[Any] = [None] * length
        ms: list[Any] = [None] * length
        for t in range(length)[:: 1 if self.reverse else -1]:
            earlier = t + 1 if self.reverse else t - 1
            inside = 0 <= earlier < length
            to_h = to_h + upstream[t]
            if self.kind == "lstm":
                last = kept[earlier][4 * units :] if inside else more[0]
                gates[t], to_c = _lstm_back(to_h, to_c, last, np.split(kept[t], 5))
                to_h = weight @ gates[t]
            elif self.kind == "gru":
                last = states[earlier] if inside else hidden
                gates[t], ms[t], through = _gru_back(to_h, last, np.split(kept[t], 4))
                to_h = through + weight @ np.concatenate([gates[t][: 2 * units], ms[t]])
            else:
                slope = 1 - states[t] ** 2 if self.kind == "tanh" else states[t] > 0
                gates[t] = to_h * slope
                to_h = weight @ gates[t]
        last_parts = {"lstm": [to_c], "gru": ms}.get(self.kind, [])
        return np.concatenate([np.ravel(part) for part in (*gates, to_h, *last_parts)]).astype(upstream.dtype)

    def kernel(self) -> TileCode:
        from .kernels.recurrence import recurrence_gradient

        names, more = ("upstream", "weight", "made", "hidden"), tuple([x.type for x in self.more])
        inputs = {name: x.type for name, x in zip(names, self.inputs, strict=False)}
        spec = layer(self.kind, self.sizes, self.reverse, self.dtype)
        code = recurrence_gradient.code({**inputs, "more": more}, self.type, spec.grid, KIND=self.kind, S=spec)
        return with_precision(code, self.precision)

    def gradient(self, upstream: Value) -> Sequence[Value | None]:
        factors, given = GateFactors(self.kind, self.reverse, self.precision), self.inputs[:4]
        return second_gradients(factors, given, self.more, self.parts(), _split(upstream, self.layout))


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _step(kind: CellKind, x: Any, weight: Any, h: Any, more: Any) -> tuple[Any, Any, Any]:
    """Compute one step on numpy arrays: new states, and what is stored."""
    added = weight @ h
    if kind == "lstm":
        i, f, g, o = np.split(x + added, 4)
        i, f, g, o = _logistic(i), _logistic(f), np.tanh(g), _logistic(o)
        cell = f * more + i * g
        return o * np.tanh(cell), cell, np.concatenate([i, f, g, o, cell])
    if kind == "gru":
        (xr, xz, xn), (hr, hz, hn) = np.split(x, 3), np.split(added, 3)
        r, z, m = _logistic(xr + hr), _logistic(xz + hz), hn + more[:, None]
        n = np.tanh(xn + r * m)
        return n + z * (h - n), more, np.concatenate([r, z, n, m])
    return np.tanh(x + added) if kind == "tanh" else np.maximum(x + added, 0), more, None


def _lstm_back(to_h: Any, to_c: Any, last: Any, kept: Any) -> tuple[Any, Any]:
    i, f, g, o, cell = kept
    high = np.tanh(cell)
    to_c = to_c + to_h * o * (1 - high * high)
    slopes = [to_c * g * i * (1 - i), to_c * last * f * (1 - f), to_c * i * (1 - g * g), to_h * high * o * (1 - o)]
    return np.concatenate(slopes), to_c * f


def _gru_back(to_h: Any, last: Any, kept: Any) -> tuple[Any, Any, Any]:
    r, z, n, m = kept
    to_n = to_h * (1 - z) * (1 - n * n)
    gates = np.concatenate([to_n * m * r * (1 - r), to_h * (last - n) * z * (1 - z), to_n])
    return gates, to_n * r, to_h * z


def recurrence(
    x: Value,
    weight: Value,
    hidden: Value,
    more: Value | None,
    kind: CellKind,
    reverse: bool,
    precision: Precision = "highest",
) -> tuple[Value, Value | None]:
    """Run a layer; return all hidden states, and the last cells of an LSTM. Shapes are those of `Recurrence`."""
    given = [widened(v) for v in (x, weight, hidden)]
    extra = () if more is None else (widened(more),)
    keeps = any(v.tracked for v in (*given, *extra))
    made = Recurrence(given[0], given[1], given[2], extra, kind, reverse, keeps, precision)
    parts = made.parts()
    cell = parts.get("cell")
    return cast(parts["hidden"], x.dtype), None if cell is None else cast(cell, x.dtype)
