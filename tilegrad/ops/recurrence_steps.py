"""A recurrent layer as ordinary operations, step by step: what second gradients are taken of.

Both functions say what the kernels of `recurrence_code.py` compute, from the same inputs and in the same layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.graph import Value
from ..ir.precision import Precision
from ..ir.size import known
from .activation import relu, sigmoid
from .arithmetic import add, mul, sub
from .broadcasting import reshape
from .cast import cast
from .comparison import gt
from .contraction import matmul
from .movement import cat, narrow, squeeze, stack, transpose, unsqueeze
from .recurrence_code import KEPT, Kind, group_of
from .trigonometric import tanh


def in_groups(weight: Value) -> Value:
    """Weights (rows, columns) as the way back has them: (rows // group, columns, group)."""
    rows, columns = (known(extent, {}) for extent in weight.shape)
    group = group_of(rows)
    return transpose(reshape(weight, (rows // group, group, columns)))


def ungrouped(weight: Value) -> Value:
    """Weights in groups as (rows, columns)."""
    groups, columns, group = (known(extent, {}) for extent in weight.shape)
    return reshape(transpose(weight), (groups * group, columns))


def before(states: Value, first: Value, reverse: bool) -> Value:
    """The state that each step began with."""
    length = states.shape[0]
    first = reshape(first, (1, *first.shape))
    if reverse:
        return cat([narrow(states, 0, 1, length - 1), first], 0)
    return cat([first, narrow(states, 0, 0, length - 1)], 0)


def pieces(x: Value, count: int, axis: int = 0) -> list[Value]:
    """Parts of the same size along an axis."""
    each = known(x.shape[axis], {}) // count
    return [narrow(x, axis, n * each, each) for n in range(count)]


def states(
    given: Sequence[Value], more: Sequence[Value], kind: Kind, reverse: bool, keeps: bool, precision: Precision
) -> Value:
    """What `Recurrence` gives, from the gates' inputs, the weights and the first state."""
    x, weight, hidden = given
    length = known(x.shape[0], {})
    extra = more[0] if more else None
    hiddens, kept = [hidden] * length, [hidden] * length
    for t in range(length)[:: -1 if reverse else 1]:
        hidden, extra, kept[t] = _step(kind, _at(x, t), matmul(weight, hidden, precision), hidden, extra)
        hiddens[t] = hidden
    found = [stack(hiddens)]
    if kind == "lstm":
        assert extra is not None
        found.append(extra)
    if keeps and KEPT[kind]:
        found.append(stack(kept))
    return cat([reshape(part, (-1,)) for part in found])


def _at(x: Value, t: int) -> Value:
    return reshape(narrow(x, 0, t, 1), x.shape[1:])


def _step(kind: Kind, x: Value, added: Value, hidden: Value, more: Value | None) -> tuple[Value, Value | None, Value]:
    """The new state, an LSTM's new cell, and what is kept."""
    if kind == "lstm":
        assert more is not None
        i, f, g, o = pieces(add(x, added), 4)
        i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
        cell = add(mul(f, more), mul(i, g))
        return mul(o, tanh(cell)), cell, cat([i, f, g, o, cell])
    if kind == "gru":
        assert more is not None
        (xr, xz, xn), (hr, hz, hn) = pieces(x, 3), pieces(added, 3)
        r, z, m = sigmoid(add(xr, hr)), sigmoid(add(xz, hz)), add(hn, unsqueeze(more, 1))
        n = tanh(add(xn, mul(r, m)))
        return add(n, mul(z, sub(hidden, n))), more, cat([r, z, n, m])
    new = tanh(add(x, added)) if kind == "tanh" else relu(add(x, added))
    return new, more, new


def slopes(given: Sequence[Value], more: Sequence[Value], kind: Kind, reverse: bool, precision: Precision) -> Value:
    """What `RecurrenceGradient` gives, from the upstream, the weights, what the layer made, and the first state."""
    upstream, grouped, made, hidden = given
    weight, (length, units, batch) = ungrouped(grouped), (known(extent, {}) for extent in upstream.shape)
    count, behind = KEPT[kind], length + (kind == "lstm")
    rows = reshape(made, (behind + length * count, units, batch))
    hiddens = narrow(rows, 0, 0, length)
    kept = reshape(narrow(rows, 0, behind, length * count), (length, count, units, batch))
    parts = [squeeze(narrow(kept, 1, n, 1), 1) for n in range(count)]
    factors = _factors(kind, hiddens, parts, hidden, more, reverse)
    flow = mul(hidden, 0.0)
    cell = more[1] if kind == "lstm" else flow
    gates, ms = [flow] * length, [flow] * length
    for t in range(length)[:: 1 if reverse else -1]:
        flow, now = add(flow, _at(upstream, t)), [_at(factor, t) for factor in factors]
        back = None
        if kind == "lstm":
            of_i, of_f, of_g, of_o, of_cell, f = now
            cell = add(cell, mul(flow, of_cell))
            gates[t] = cat([mul(cell, of_i), mul(cell, of_f), mul(cell, of_g), mul(flow, of_o)])
            cell = mul(cell, f)
        elif kind == "gru":
            of_r, of_z, of_n, r, z = now
            slope = mul(flow, of_n)
            ms[t], through = mul(slope, r), mul(flow, z)
            first = cat([mul(slope, of_r), mul(flow, of_z)])
            gates[t], back = cat([first, slope]), add(through, matmul(weight, cat([first, ms[t]]), precision))
        else:
            gates[t] = mul(flow, now[0])
        flow = matmul(weight, gates[t], precision) if back is None else back
    last = {"lstm": [cell], "gru": [stack(ms)]}.get(kind, [])
    return cat([reshape(part, (-1,)) for part in (stack(gates), flow, *last)])


def _factors(
    kind: Kind, hiddens: Value, kept: Sequence[Value], hidden: Value, more: Sequence[Value], reverse: bool
) -> list[Value]:
    """What arrives at a step is multiplied by these: (length, units, batch)."""

    def rest(x: Value) -> Value:
        return sub(1.0, x)

    if kind == "lstm":
        i, f, g, o, cells = kept
        high = tanh(cells)
        last = before(cells, more[0], reverse)
        of_i, of_f, of_g = (mul(mul(g, i), rest(i)), mul(mul(last, f), rest(f)), mul(i, rest(mul(g, g))))
        return [of_i, of_f, of_g, mul(mul(high, o), rest(o)), mul(o, rest(mul(high, high))), f]
    if kind == "gru":
        r, z, n, m = kept
        of_z = mul(mul(sub(before(hiddens, hidden, reverse), n), z), rest(z))
        return [mul(mul(m, r), rest(r)), of_z, mul(rest(z), rest(mul(n, n))), r, z]
    if kind == "tanh":
        return [rest(mul(hiddens, hiddens))]
    return [cast(gt(hiddens, 0.0), hiddens.dtype)]
