"""Run some sequences of a batch, as lanes, through all steps of a recurrent layer.

The gradient kernel reads weights in groups of neighbouring rows, (rows // group, columns, group): a product reads a few
rows at a time, which are contiguous then; rows with a stride of some thousand bytes would compete for the same cache
sets.
"""

# mypy: ignore-errors
# (Parameters in capitals are constants.)

from __future__ import annotations

from ...tiles.read import core as tl
from ...tiles.read.scope import TileFunction
from ..op_kernel import OpKernel, below, int64, load_masked


@TileFunction
def product(weight, state, j, k, GATE, S):
    gate = tl.zeros((S.units, S.lanes), S.dtype)
    gate = tl.dot(tl.load(weight + ((j + GATE * S.units)[:, None] * S.units + k[None, :])), state, gate)
    return gate


@TileFunction
def contribution(x, t, j, n, GATE, ROWS, S):
    # Contributions of inputs, loaded where they are added, so that the product does not begin with a copy.
    return load_masked(
        x + (t * (ROWS * S.size) + (j + GATE * S.units)[:, None] * S.batch + n[None, :]), below(n, S.batch, 0)
    )


@TileFunction
def activated_gate(x, weight, out, state, t, j, k, n, place, GATE, KIND, S, KEPT):
    # The activation is applied to each block of the product while it is in the first-level cache.
    given = contribution(x, t, j, n, GATE, S.gates, S)
    gate = tl.zeros((S.units, S.lanes), S.dtype)
    gate = tl.dot(tl.load(weight + ((j + GATE * S.units)[:, None] * S.units + k[None, :])), state, gate)
    gate = tl.math.tanh(given + gate) if KIND == "lstm" and GATE == 2 else tl.sigmoid(given + gate)
    keep(out, t, n, place, gate, GATE, S, KEPT)
    return gate


@TileFunction
def keep(out, t, n, place, value, NUMBER, S, KEPT):
    if KEPT:
        tl.store(out + (S.kept + t * (KEPT * S.size) + NUMBER * S.size + place), value, mask=below(n, S.batch, 0))


@OpKernel
def recurrence(x, weight, hidden, more, out, KIND, S, KEPT):
    n = tl.program_id(0).to(tl.int64) * S.lanes + tl.arange(0, S.lanes)
    j = tl.arange(0, S.units)
    k = tl.arange(0, S.units)
    place = j[:, None] * S.batch + n[None, :]
    state = tl.zeros((S.units, S.lanes), S.dtype)
    state = load_masked(hidden + place, below(n, S.batch, 0))
    if KIND == "lstm":
        cell = tl.zeros((S.units, S.lanes), S.dtype)
        cell = load_masked(more[0] + place, below(n, S.batch, 0))
    for step in range(int64(0), S.length):
        t = S.length - 1 - step if S.reverse else step
        if KIND == "lstm":
            gates = [activated_gate(x, weight, out, state, t, j, k, n, place, g, KIND, S, KEPT) for g in range(4)]
            cell = gates[1] * cell + gates[0] * gates[2]
            state = gates[3] * tl.math.tanh(cell)
            keep(out, t, n, place, cell, 4, S, KEPT)
        elif KIND == "gru":
            gates = [activated_gate(x, weight, out, state, t, j, k, n, place, g, KIND, S, KEPT) for g in range(2)]
            m = tl.zeros((S.units, S.lanes), S.dtype) + tl.load(more[0] + j)[:, None]
            m = tl.dot(tl.load(weight + ((j + 2 * S.units)[:, None] * S.units + k[None, :])), state, m)
            new = load_masked(
                x + (t * (3 * S.size) + (j + 2 * S.units)[:, None] * S.batch + n[None, :]), below(n, S.batch, 0)
            )
            new = tl.math.tanh(new + gates[0] * m)
            state = new + gates[1] * (state - new)
            keep(out, t, n, place, new, 2, S, KEPT)
            keep(out, t, n, place, m, 3, S, KEPT)
        else:
            given = contribution(x, t, j, n, 0, 1, S)
            gate = product(weight, state, j, k, 0, S)
            state = tl.math.tanh(given + gate) if KIND == "tanh" else tl.maximum(given + gate, 0.0)
        tl.store(out + (t * S.size + place), state, mask=below(n, S.batch, 0))
    if KIND == "lstm":
        tl.store(out + (S.length * S.size + place), cell, mask=below(n, S.batch, 0))


@TileFunction
def lstm_slopes(cell, flow, before, gates, high):
    slope0 = cell * gates[2] * gates[0] * (1.0 - gates[0])
    slope1 = cell * before * gates[1] * (1.0 - gates[1])
    slope2 = cell * gates[0] * (1.0 - gates[2] * gates[2])
    slope3 = flow * high * gates[3] * (1.0 - gates[3])
    return slope0, slope1, slope2, slope3


@TileFunction
def gru_slopes(made, hidden, out, flow, t, earlier, n, place, S):
    # Tiles are used again for other numbers, so that all of them stay in the first-level cache.
    before = load_masked(hidden + place, below(n, S.batch, 0))
    if (earlier >= 0) & (earlier < S.length):
        before = load_masked(made + (earlier * S.size + place), below(n, S.batch, 0))
    slope0 = load_masked(made + (S.kept + t * (4 * S.size) + place), below(n, S.batch, 0))
    slope1 = load_masked(made + (S.kept + t * (4 * S.size) + S.size + place), below(n, S.batch, 0))
    slope2 = load_masked(made + (S.kept + t * (4 * S.size) + 2 * S.size + place), below(n, S.batch, 0))
    slope3 = load_masked(made + (S.kept + t * (4 * S.size) + 3 * S.size + place), below(n, S.batch, 0))
    carry = flow * slope1
    before = flow * (before - slope2) * slope1 * (1.0 - slope1)
    slope2 = flow * (1.0 - slope1) * (1.0 - slope2 * slope2)
    slope1 = before
    before = slope2 * slope0
    slope0 = slope2 * slope3 * slope0 * (1.0 - slope0)
    slope3 = before
    tl.store(out + (t * (3 * S.size) + 2 * S.size + place), slope2, mask=below(n, S.batch, 0))
    tl.store(out + ((3 * S.length + 1) * S.size + t * S.size + place), slope3, mask=below(n, S.batch, 0))
    slope2 = slope3
    return slope0, slope1, slope2, carry


@TileFunction
def plain_slope(made, flow, t, n, place, KIND, S):
    after = load_masked(made + (t * S.size + place), below(n, S.batch, 0))
    slope = tl.zeros((S.units, S.lanes), S.dtype)
    slope = flow * (1.0 - after * after) if KIND == "tanh" else tl.where(after > 0.0, flow, 0.0)
    return slope


@OpKernel
def recurrence_gradient(upstream, weight, made, hidden, more, out, KIND, S):
    n = tl.program_id(0).to(tl.int64) * S.lanes + tl.arange(0, S.lanes)
    j = tl.arange(0, S.units)
    k = tl.arange(0, S.units)
    place = j[:, None] * S.batch + n[None, :]
    rows = j // S.group * (S.gates * S.units * S.group) + j % S.group
    flow = tl.zeros((S.units, S.lanes), S.dtype)
    if KIND == "lstm":
        cell = tl.zeros((S.units, S.lanes), S.dtype)
        cell = load_masked(more[1] + place, below(n, S.batch, 0))
    for step in range(int64(0), S.length):
        t = step if S.reverse else S.length - 1 - step
        earlier = t + 1 if S.reverse else t - 1
        flow = flow + load_masked(upstream + (t * S.size + place), below(n, S.batch, 0))
        if KIND == "lstm":
            at = S.kept + t * (5 * S.size)
            before = load_masked(more[0] + place, below(n, S.batch, 0))
            if (earlier >= 0) & (earlier < S.length):
                last = S.kept + earlier * (5 * S.size) + 4 * S.size
                before = load_masked(made + (last + place), below(n, S.batch, 0))
            gates = [load_masked(made + (at + g * S.size + place), below(n, S.batch, 0)) for g in range(4)]
            high = load_masked(made + (at + 4 * S.size + place), below(n, S.batch, 0))
            high = tl.math.tanh(high)
            cell = cell + flow * gates[3] * (1.0 - high * high)
            slopes = lstm_slopes(cell, flow, before, gates, high)
            cell = cell * gates[1]
        elif KIND == "gru":
            slopes = gru_slopes(made, hidden, out, flow, t, earlier, n, place, S)
            flow = slopes[3]
        else:
            slopes = [plain_slope(made, flow, t, n, place, KIND, S)]
        for g in tl.static_range(2 if KIND == "gru" else S.gates):
            tl.store(out + (t * (S.gates * S.size) + g * S.size + place), slopes[g], mask=below(n, S.batch, 0))
        if KIND != "gru":
            flow = tl.zeros((S.units, S.lanes), S.dtype)
        for g in tl.static_range(S.gates):
            flow = tl.dot(tl.load(weight + (rows[:, None] + ((k + g * S.units) * S.group)[None, :])), slopes[g], flow)
    tl.store(out + (S.length * S.gates * S.size + place), flow, mask=below(n, S.batch, 0))
    if KIND == "lstm":
        tl.store(out + ((S.length * S.gates + 1) * S.size + place), cell, mask=below(n, S.batch, 0))


@OpKernel
def recurrence_tangent(x, factors, hidden, weight, more, out, KIND, S, ROWS, FACTORS):
    n = tl.program_id(0).to(tl.int64) * S.lanes + tl.arange(0, S.lanes)
    j = tl.arange(0, S.units)
    k = tl.arange(0, S.units)
    place = j[:, None] * S.batch + n[None, :]
    state = tl.zeros((S.units, S.lanes), S.dtype)
    state = load_masked(hidden + place, below(n, S.batch, 0))
    if KIND == "lstm":
        cell = tl.zeros((S.units, S.lanes), S.dtype)
        cell = load_masked(more[0] + place, below(n, S.batch, 0))
    for step in range(int64(0), S.length):
        t = S.length - 1 - step if S.reverse else step
        g = [contribution(x, t, j, n, r, ROWS, S) for r in range(ROWS)]
        h = [product(weight[0], state, j, k, r, S) for r in range(0 if KIND == "scan" else S.gates)]
        f = [
            load_masked(factors + (t * (FACTORS * S.size) + r * S.size + place), below(n, S.batch, 0))
            for r in range(FACTORS)
        ]
        if KIND == "scan":
            state = f[0] * state + g[0]
        elif KIND == "lstm":
            cell = cell * f[5] + (g[0] + h[0]) * f[0] + (g[1] + h[1]) * f[1] + (g[2] + h[2]) * f[2]
            state = cell * f[4] + (g[3] + h[3]) * f[3]
            tl.store(out + (S.length * S.size + t * S.size + place), cell, mask=below(n, S.batch, 0))
        elif KIND == "gru":
            new = (g[3] + h[2]) * f[3] + (g[0] + h[0]) * f[0] + g[2]
            state = new * f[2] + (g[1] + h[1]) * f[1] + state * f[4]
        else:
            state = f[0] * (g[0] + h[0])
        tl.store(out + (t * S.size + place), state, mask=below(n, S.batch, 0))
