"""Second gradients of recurrent layers, as products and recurrences over all steps.

The gradient is linear in the upstream gradient, with factors computed from stored gates. Its own gradient is a forward
recurrence (`recurrence_tangent.py`) and products of its values with the backward ones; the gradients of the factors
then flow back to the stored gates, through the gradient kernel once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..ir.graph import Value
from ..ir.precision import Precision
from ..ir.size import known
from .arithmetic import add, mul, sub
from .base import zeros_like
from .broadcasting import fill_like, reshape
from .cast import cast
from .comparison import gt
from .contraction import contract
from .movement import cat, narrow, squeeze, transpose
from .pullback import pullback
from .recurrence_sizes import SAVED_PER_UNIT, CellKind, group_rows
from .recurrence_tangent import linear_recurrence, linear_scan
from .trigonometric import tanh


def group_weights(weight: Value) -> Value:
    """Group the rows of weights (rows, columns) for the gradient kernel: (rows // group, columns, group)."""
    rows, columns = (known(extent, {}) for extent in weight.shape)
    group = group_rows(rows)
    return transpose(reshape(weight, (rows // group, group, columns)))


def ungroup_weights(weight: Value) -> Value:
    """Undo `group_weights`."""
    groups, columns, group = (known(extent, {}) for extent in weight.shape)
    return reshape(transpose(weight), (groups * group, columns))


def previous_states(states: Value, first: Value, reverse: bool) -> Value:
    """Return the state before each step."""
    length = states.shape[0]
    first = reshape(first, (1, *first.shape))
    if reverse:
        return cat([narrow(states, 0, 1, length - 1), first], 0)
    return cat([first, narrow(states, 0, 0, length - 1)], 0)


def first_step(states: Value, reverse: bool) -> Value:
    """Return the slice of the first step."""
    return squeeze(narrow(states, 0, states.shape[0] - 1 if reverse else 0, 1), 0)


def split_rows(x: Value, count: int) -> list[Value]:
    """Split axis 1 into parts of equal size."""
    each = known(x.shape[1], {}) // count if count else 0
    return [narrow(x, 1, n * each, each) for n in range(count)]


def after_first_step(x: Value) -> Value:
    return sub(1.0, x)


class GateFactors(NamedTuple):
    """The kind, direction and factors of a layer."""

    kind: CellKind
    reverse: bool
    precision: Precision

    def later(self, x: Value, last: Value) -> Value:
        """Return the values of the following step."""
        return previous_states(x, last, not self.reverse)

    def factors(self, hiddens: Value, kept: Sequence[Value], hidden: Value, more: Sequence[Value]) -> list[Value]:
        """Return the factors of the gradients at each step: (length, units, batch)."""
        if self.kind == "lstm":
            i, f, g, o, cells = kept
            high, last = tanh(cells), previous_states(cells, more[0], self.reverse)
            of_i, of_f, of_g = (
                mul(mul(g, i), after_first_step(i)),
                mul(mul(last, f), after_first_step(f)),
                mul(i, after_first_step(mul(g, g))),
            )
            return [
                of_i,
                of_f,
                of_g,
                mul(mul(high, o), after_first_step(o)),
                mul(o, after_first_step(mul(high, high))),
                f,
            ]
        if self.kind == "gru":
            r, z, n, m = kept
            of_z = mul(mul(sub(previous_states(hiddens, hidden, self.reverse), n), z), after_first_step(z))
            return [
                mul(mul(m, r), after_first_step(r)),
                of_z,
                mul(after_first_step(z), after_first_step(mul(n, n))),
                r,
                z,
            ]
        if self.kind == "tanh":
            return [after_first_step(mul(hiddens, hiddens))]
        return [cast(gt(hiddens, 0.0), hiddens.dtype)]


class SavedGradients(NamedTuple):
    """Contributions of the gradients of stored values to the gradient kernel."""

    upstream: Value
    gates: Value
    first: Value
    more: Value
    """To the gradient of an LSTM's first cells, or to all of a GRU's m."""


def gate_gradients(
    gate_factors: GateFactors,
    arriving: Sequence[Value],
    kept: Sequence[Value],
    weight: Value,
    hidden: Value,
    more: Sequence[Value],
) -> SavedGradients:
    """Return the gradients of the gates of an LSTM or GRU, for the gradient kernel that starts from states alone."""
    nothing = zeros_like(hidden)
    if gate_factors.kind == "lstm":
        i, f, g, o, _ = kept
        to_i, to_f, to_g, to_o, to_cell = arriving
        through = linear_scan(to_cell, gate_factors.later(f, nothing), nothing, not gate_factors.reverse)
        of_i, of_f, of_g, *_ = gate_factors.factors(through, kept, hidden, more)
        gates = [
            add(mul(mul(to_i, i), after_first_step(i)), mul(through, of_i)),
            add(mul(mul(to_f, f), after_first_step(f)), mul(through, of_f)),
        ]
        gates += [
            add(mul(to_g, after_first_step(mul(g, g))), mul(through, of_g)),
            mul(mul(to_o, o), after_first_step(o)),
        ]
        to_gates = of_hidden = cat(gates, 1)
        to_more = first_step(mul(through, f), gate_factors.reverse)
    else:
        r, z, n, m = kept
        to_r, to_z, to_n, to_m = arriving
        by_n = mul(to_n, after_first_step(mul(n, n)))
        first = [mul(mul(add(to_r, mul(by_n, m)), r), after_first_step(r)), mul(mul(to_z, z), after_first_step(z))]
        to_more = add(to_m, mul(by_n, r))
        to_gates, of_hidden = cat([*first, by_n], 1), cat([*first, to_more], 1)
    back = contract(weight, of_hidden, "gu,lgn->lun", gate_factors.precision)
    return SavedGradients(gate_factors.later(back, nothing), to_gates, first_step(back, gate_factors.reverse), to_more)


def second_gradients(
    gate_factors: GateFactors,
    given: Sequence[Value],
    more: Sequence[Value],
    own: dict[str, Value],
    arriving: dict[str, Value],
) -> list[Value | None]:
    """Return the gradients of the inputs of `RecurrenceGradient`: upstream, weight, made, hidden, more."""
    upstream, grouped, made, hidden = given
    weight, nothing = transpose(ungroup_weights(grouped)), zeros_like(hidden)
    length, units, batch = (known(extent, {}) for extent in upstream.shape)
    count, behind = SAVED_PER_UNIT[gate_factors.kind], length + (gate_factors.kind == "lstm")
    rows = reshape(made, (behind + length * count, units, batch))
    kept = reshape(narrow(rows, 0, behind, length * count), (length, count * units, batch)) if count else rows
    factors = gate_factors.factors(narrow(rows, 0, 0, length), split_rows(kept, count), hidden, more)
    x, of_hidden = arriving["gates"], own["gates"]
    if gate_factors.kind == "gru":
        x = cat([x, arriving["m"]], 1)
        of_hidden = cat([narrow(of_hidden, 1, 0, 2 * units), own["m"]], 1)
    firsts = [arriving["cell"]] if gate_factors.kind == "lstm" else []
    forth, *cells = linear_recurrence(x, factors, arriving["first"], weight, firsts, *gate_factors)
    earlier = previous_states(forth, arriving["first"], gate_factors.reverse)
    product = contract(weight, earlier, "gu,lun->lgn", gate_factors.precision)
    back = add(
        upstream, gate_factors.later(contract(weight, of_hidden, "gu,lgn->lun", gate_factors.precision), nothing)
    )
    to_weight = contract(of_hidden, earlier, "lgn,lun->gu", gate_factors.precision)
    last: list[Value | None] = []
    if gate_factors.kind == "lstm":
        i, f, g, o = split_rows(add(x, product), 4)
        cell = linear_scan(
            mul(back, factors[4]),
            gate_factors.later(factors[5], fill_like(hidden, 1.0)),
            more[1],
            not gate_factors.reverse,
        )
        of_cells = previous_states(cells[0], arriving["cell"], gate_factors.reverse)
        to_factors = [mul(i, cell), mul(f, cell), mul(g, cell), mul(o, back), mul(cells[0], back), mul(of_cells, cell)]
        last = [first_step(cells[0], not gate_factors.reverse)]
    elif gate_factors.kind == "gru":
        back = linear_scan(back, gate_factors.later(factors[4], nothing), nothing, not gate_factors.reverse)
        (xr, xz, xn, xm), (pr, pz, pm) = split_rows(x, 4), split_rows(product, 3)
        r, m, by_n = add(xr, pr), add(xm, pm), split_rows(own["gates"], 3)[2]
        n = add(xn, add(mul(r, factors[0]), mul(m, factors[3])))
        to_factors = [mul(r, by_n), mul(add(xz, pz), back), mul(n, back), mul(m, by_n), mul(earlier, back)]
    else:
        to_factors = [mul(add(x, product), back)]
    to_made, to_hidden, *to_more = pullback(factors, to_factors, [made, hidden, *more[:1]])
    return [forth, group_weights(transpose(to_weight)), to_made, to_hidden, *to_more, *last]
