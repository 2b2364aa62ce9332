"""Recurrent layers, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import functional as tg
from ...nn import functional as F
from ...tensor import Tensor
from ..problems import OnnxError
from ..rules import Function

Activation = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]

ACTIVATIONS: dict[str, Callable[..., Activation]] = {
    "affine": lambda a=1.0, b=0.0: lambda x: a * x + b,
    "elu": lambda a=1.0, b=0.0: lambda x: F.elu(x, a),
    "hardsigmoid": lambda a=0.2, b=0.5: lambda x: tg.clamp(a * x + b, 0, 1),
    "leakyrelu": lambda a=0.01, b=0.0: lambda x: F.leaky_relu(x, a),
    "relu": lambda a=0.0, b=0.0: tg.relu,
    "scaledtanh": lambda a=1.0, b=1.0: lambda x: a * tg.tanh(b * x),
    "sigmoid": lambda a=0.0, b=0.0: tg.sigmoid,
    "softplus": lambda a=0.0, b=0.0: F.softplus,
    "softsign": lambda a=0.0, b=0.0: F.softsign,
    "tanh": lambda a=0.0, b=0.0: tg.tanh,
    "thresholdedrelu": lambda a=1.0, b=0.0: lambda x: tg.where(x > a, x, tg.zeros_like(x)),
}
DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _bounded(function: Activation, clip: float | None) -> Activation:
    return function if clip is None else lambda x: function(tg.clamp(x, -clip, clip))


def _activations(
    kind: str, names: list[str] | None, alpha: list[float] | None, beta: list[float] | None, clip: float | None
) -> list[Activation]:
    """Return the activation functions of all directions."""
    alphas, betas, made = iter(alpha or ()), iter(beta or ()), []
    for name in names or ():
        make = ACTIVATIONS.get(name.lower())
        if make is None:
            raise OnnxError(f"there is no activation {name!r}")
        arguments = [a for a in (next(alphas, None), next(betas, None)) if a is not None]
        made.append(_bounded(make(*arguments), clip))
    return made


def rnn_step(x: Tensor, state: State, r: Tensor, b: Tensor, f: list[Activation], extra: Any) -> State:
    """One step: `x` has been multiplied by the weights of the inputs."""
    return (f[0](x + state[0] @ r.t() + b),)


def gru_step(x: Tensor, state: State, r: Tensor, b: Tensor, f: list[Activation], extra: Any) -> State:
    (h,) = state
    units = h.shape[-1]
    rz, rr, rh = r.split(units)
    bz, br, bh = b.split(units)
    xz, xr, xh = x.split(units, -1)
    z, reset = f[0](xz + h @ rz.t() + bz), f[0](xr + h @ rr.t() + br)
    new = f[1](xh + reset * (h @ rh.t() + bh)) if extra else f[1](xh + (reset * h) @ rh.t() + bh)
    return ((1 - z) * new + z * h,)


def lstm_step(x: Tensor, state: State, r: Tensor, b: Tensor, f: list[Activation], extra: Any) -> State:
    h, c = state
    peephole, coupled = extra
    i, o, forget, g = (x + h @ r.t() + b).split(h.shape[-1], -1)
    pi, po, pf = peephole
    i = f[0](i + pi * c)
    forget = 1 - i if coupled else f[0](forget + pf * c)
    c = forget * c + i * f[1](g)
    return f[0](o + po * c) * f[2](c), c


def _run(x: Tensor, step: Any, start: State, lengths: Tensor | None, backward: bool) -> tuple[Tensor, State]:
    """Run the steps of one direction; a sequence that has ended keeps its state, and its outputs are 0."""
    count = int(x.shape[0])
    state, made = start, []
    for n in reversed(range(count)) if backward else range(count):
        new = step(x[n], state)
        out = new[0]
        if lengths is not None:
            runs = (lengths > n).reshape(-1, 1)
            new = tuple(tg.where(runs, a, b) for a, b in zip(new, state, strict=True))
            out = tg.where(runs, out, tg.zeros_like(out))
        state = new
        made.append(out)
    return tg.stack(made[::-1] if backward else made), state


def recurrent(kind: str, step_of: Any) -> Any:
    """Return what runs a layer of one kind over all directions."""

    def run(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None,
        lengths: Tensor | None,
        starts: list[Tensor | None],
        extras: Any,
        functions: list[Activation],
        direction: str,
        layout: int,
    ) -> tuple[Tensor, ...]:
        x = x.transpose(0, 1) if layout else x
        units, batch = int(r.shape[-1]), int(x.shape[1])
        made, ends = [], []
        each = len(DEFAULTS[kind])
        for d in range(int(w.shape[0])):
            f = functions[d * each : (d + 1) * each]
            bias = b[d] if b is not None else tg.zeros(2 * GATES[kind] * units, dtype=x.dtype, device=x.device)
            given, inner = bias.split(GATES[kind] * units)
            start = tuple(
                tg.zeros(batch, units, dtype=x.dtype, device=x.device)
                if s is None
                else (s.transpose(0, 1) if layout else s)[d]
                for s in starts
            )
            step = _step(step_of, r[d], inner, f, extras(d))
            backward = direction == "reverse" or d == 1
            y, end = _run(x @ w[d].t() + given, step, start, lengths, backward)
            made.append(y)
            ends.append(end)
        y = tg.stack(made, 1)
        last = [tg.stack(column) for column in zip(*ends, strict=True)]
        if layout:
            return y.permute(2, 0, 1, 3), *(s.transpose(0, 1) for s in last)
        return y, *last

    return run


def _step(step_of: Any, r: Tensor, b: Tensor, f: list[Activation], extra: Any) -> Any:
    return lambda x, state: step_of(x, state, r, b, f, extra)


def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
) -> Any:
    """Run a plain recurrent layer."""
    names = activations or [*DEFAULTS["RNN"]] * int(w.shape[0])
    f = _activations("RNN", names, activation_alpha, activation_beta, clip)
    run = recurrent("RNN", rnn_step)
    return run(x, w, r, b, sequence_lens, [initial_h], lambda d: None, f, direction, layout)


def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Any:
    """Run a layer of gated units."""
    names = activations or [*DEFAULTS["GRU"]] * int(w.shape[0])
    f = _activations("GRU", names, activation_alpha, activation_beta, clip)
    run = recurrent("GRU", gru_step)
    return run(x, w, r, b, sequence_lens, [initial_h], lambda d: linear_before_reset, f, direction, layout)


def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    sequence_lens: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int = 0,
    input_forget: int = 0,
    layout: int = 0,
) -> Any:
    """Run a layer of units with long memory."""
    names = activations or [*DEFAULTS["LSTM"]] * int(w.shape[0])
    f = _activations("LSTM", names, activation_alpha, activation_beta, clip)

    def extras(d: int) -> Any:
        return ((0.0, 0.0, 0.0) if p is None else p[d].chunk(3)), input_forget

    run = recurrent("LSTM", lstm_step)
    return run(x, w, r, b, sequence_lens, [initial_h, initial_c], extras, f, direction, layout)


RULES: dict[str, Function] = {"GRU": gru, "LSTM": lstm, "RNN": rnn}
