"""Define recurrent cells: one step of an RNN, LSTM or GRU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any, ClassVar, NamedTuple

from ..errors import ArgumentError, ShapeError
from ..functions.creation import empty, zeros
from ..ir.graph import Value
from ..ir.location import current_location, working_for
from ..lazy.handle import wrap
from ..ops.activation import sigmoid
from ..ops.arithmetic import Add, Mul, Sub
from ..ops.movement import chunk
from ..ops.trigonometric import tanh
from ..tensor import Tensor
from . import functional, init
from .module import Module
from .parameter import Parameter

State = tuple[Tensor, ...]
"""Hidden state, and for an LSTM the cell state."""


class Weights(NamedTuple):
    """The parameters of one layer in one direction."""

    of_input: Tensor
    of_hidden: Tensor
    input_bias: Tensor | None
    hidden_bias: Tensor | None
    projection: Tensor | None = None


def input_gates(x: Tensor, w: Weights, joined: bool) -> Tensor:
    """Compute the inputs' part of all gates; both biases are added here if nothing comes between them."""
    bias = w.input_bias
    if joined and bias is not None and w.hidden_bias is not None:
        bias = bias + w.hidden_bias
    return functional.linear(x, w.of_input, bias)


def rnn_step(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor, State, Weights], State]:
    def step(x: Tensor, state: State, w: Weights) -> State:
        return (activation(x + state[0] @ w.of_hidden.t()),)

    return step


def lstm_step(x: Tensor, state: State, w: Weights) -> State:
    hidden, cell = state
    gates = x + hidden @ w.of_hidden.t()
    if _are_alike(gates, cell):
        hidden, cell = _recorded(_lstm_states, gates, cell)
    else:
        i, f, g, o = gates.chunk(4, -1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
    return hidden if w.projection is None else hidden @ w.projection.t(), cell


def gru_step(x: Tensor, state: State, w: Weights) -> State:
    (hidden,) = state
    y = functional.linear(hidden, w.of_hidden, w.hidden_bias)
    if _are_alike(x, y, hidden):
        return _recorded(_gru_states, x, y, hidden)
    xr, xz, xn = x.chunk(3, -1)
    hr, hz, hn = y.chunk(3, -1)
    update = (xz + hz).sigmoid()
    new = (xn + (xr + hr).sigmoid() * hn).tanh()
    return (new + update * (hidden - new),)


def _are_alike(*tensors: Tensor) -> bool:
    """Whether tensors are of one dtype and no views, so that their values may be combined without more."""
    dtype = tensors[0]._value.type.dtype
    return dtype.is_float and all(x._value.type.dtype is dtype and not x._moves and x._strides is None for x in tensors)


def _recorded(states: Callable[..., tuple[Value, ...]], *tensors: Tensor) -> State:
    """Record a step on values: its intermediate results need no tensors, which take longer to make than the values."""
    return tuple([wrap(value) for value in states(*[x.value for x in tensors])])


def _lstm_states(gates: Value, cell: Value) -> tuple[Value, Value]:
    i, f, g, o = chunk(gates, 4, -1)
    kept = Mul(sigmoid(f), cell)
    cell = Add(kept, Mul(sigmoid(i), tanh(g)))
    return Mul(sigmoid(o), tanh(cell)), cell


def _gru_states(x: Value, y: Value, hidden: Value) -> tuple[Value]:
    xr, xz, xn = chunk(x, 3, -1)
    hr, hz, hn = chunk(y, 3, -1)
    update = sigmoid(Add(xz, hz))
    new = tanh(Add(xn, Mul(sigmoid(Add(xr, hr)), hn)))
    return (Add(new, Mul(update, Sub(hidden, new))),)


def two_states(hx: Any) -> State:
    if not isinstance(hx, (tuple, list)) or len(hx) != 2:
        raise ArgumentError(f"LSTM: the state is a pair (hidden, cell), no {type(hx).__name__}")
    return tuple(hx)


def nonlinearity_named(name: str) -> Callable[[Tensor], Tensor]:
    if name not in ("tanh", "relu"):
        raise ArgumentError(f"RNN: nonlinearity is {name!r}: it must be 'tanh' or 'relu'")
    return functional.tanh if name == "tanh" else functional.relu


class RNNCellBase(Module):
    """The base of recurrent cells: one step of a layer."""

    gates: ClassVar[int] = 1
    joined: ClassVar[bool] = True
    states: ClassVar[int] = 1
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = self.gates * hidden_size
        shapes: dict[str, Sequence[int]] = {"weight_ih": (rows, input_size), "weight_hh": (rows, hidden_size)}
        for name, shape in {**shapes, "bias_ih": (rows,), "bias_hh": (rows,)}.items():
            present = bias or name.startswith("weight")
            self.register_parameter(name, Parameter(empty(*shape, device=device, dtype=dtype)) if present else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / sqrt(self.hidden_size) if self.hidden_size > 0 else 0.0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _step(self, x: Tensor, state: State, w: Weights) -> State:
        raise NotImplementedError

    def _run(self, input: Tensor, given: State | None) -> State:
        name = type(self).__name__
        if input.dim() not in (1, 2) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{name}: an input of the shape {tuple(input.shape)}: it must be (batch, {self.input_size}) or "
                f"({self.input_size},)"
            )
        shape = (*input.shape[:-1], self.hidden_size)
        state = given or (zeros(*shape, dtype=input.dtype, device=input.device),) * self.states
        for s in state:
            if tuple(s.shape) != shape:
                raise ShapeError(f"{name}: a state of the shape {tuple(s.shape)}: it must be {shape}, as the input is")
        w = Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        with working_for(current_location()):  # looked for once, not for every operation
            return self._step(input_gates(input, w, self.joined), state, w)

    def extra_repr(self) -> str:
        bias = "" if self.bias else ", bias=False"
        return f"{self.input_size}, {self.hidden_size}{bias}"


class RNNCell(RNNCellBase):
    """Compute one step of an RNN: `tanh(x @ W_ih.T + b_ih + h @ W_hh.T + b_hh)`, or with relu."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity
        nonlinearity_named(nonlinearity)

    def _step(self, x: Tensor, state: State, w: Weights) -> State:
        return rnn_step(nonlinearity_named(self.nonlinearity))(x, state, w)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._run(input, None if hx is None else (hx,))[0]


class GRUCell(RNNCellBase):
    """Compute one step of a GRU."""

    gates = 3
    joined = False

    def _step(self, x: Tensor, state: State, w: Weights) -> State:
        return gru_step(x, state, w)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._run(input, None if hx is None else (hx,))[0]


class LSTMCell(RNNCellBase):
    """Compute one step of an LSTM: the new hidden and cell state."""

    gates = 4
    states = 2

    def _step(self, x: Tensor, state: State, w: Weights) -> State:
        return lstm_step(x, state, w)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        hidden, cell = self._run(input, None if hx is None else two_states(hx))
        return hidden, cell
