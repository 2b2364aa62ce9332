"""Define recurrent layers: RNN, LSTM and GRU with several layers and both directions.

The inputs of all steps go through one product, outside of the loop; inside remains one product a step, with all gates
side by side (so a GRU's six products are two).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, ClassVar, TypeAlias

from ..errors import ArgumentError, ShapeError
from ..functions.autocasting import product_precision
from ..functions.creation import empty, zeros
from ..functions.joining import cat, stack
from ..lazy.handle import wrap
from ..ops.recurrence import is_one_kernel, recurrence
from ..ops.recurrence_sizes import CellKind
from ..tensor import Tensor
from . import functional, init
from .cells import State, Weights, gru_step, input_gates, lstm_step, nonlinearity_named, rnn_step, two_states
from .module import Module
from .packing import PackedSequence, last_steps, padded, present, repacked, reverse_within_lengths
from .parameter import Parameter

Lengths: TypeAlias = "Sequence[int] | None"
"""Lengths of packed sequences, in descending order."""


CLOSED = 1e4
"""Pre-activation that makes a gate exactly 0 or 1, whatever the hidden state adds."""


def _in_one_kernel(
    x: Tensor, state: State, w: Weights, kind: CellKind, reverse: bool, lengths: Lengths
) -> tuple[Tensor, State]:
    """Run one layer in one direction, all steps in one kernel, with the batch as the last axis."""
    bias, of_new_gate = _joined_biases(w, kind)
    more: Tensor | None = state[1].t() if kind == "lstm" else None
    if kind == "gru":
        more = zeros(w.of_hidden.shape[1], dtype=x.dtype, device=x.device) if of_new_gate is None else of_new_gate
    inputs = functional.linear(x, w.of_input, bias)
    if lengths is not None and kind == "lstm":
        inputs = _held(inputs, lengths)
    gates = inputs.transpose(1, 2)
    three = (gates.value, w.of_hidden.value, state[0].t().value)
    precision = product_precision(x.dtype)
    hidden, cell = recurrence(*three, None if more is None else more.value, kind, reverse, precision)
    outputs = wrap(hidden).transpose(1, 2)
    last = outputs[0 if reverse else -1] if lengths is None else last_steps(outputs, lengths)
    return outputs, (last,) if cell is None else (last, wrap(cell).t())


def _joined_biases(w: Weights, kind: CellKind) -> tuple[Tensor | None, Tensor | None]:
    """Add the biases of input and hidden state; a GRU's new gate has that of the hidden state apart."""
    bias, of_hidden = w.input_bias, w.hidden_bias
    if bias is None or of_hidden is None:
        return bias, None
    if kind != "gru":
        return bias + of_hidden, None
    units = w.of_hidden.shape[1]
    of_new_gate = of_hidden[2 * units :]
    return bias + cat([of_hidden[: 2 * units], of_new_gate * 0]), of_new_gate


def _held(gates: Tensor, lengths: Sequence[int]) -> Tensor:
    """Set the gates of an LSTM so that cells keep their value behind the ends of sequences."""
    exists = present(lengths, gates.shape[0], gates).unsqueeze(-1)
    closed, opened = gates.new_tensor(-CLOSED), gates.new_tensor(CLOSED)
    i, f, *rest = gates.chunk(4, -1)
    return cat([i.where(exists, closed), f.where(exists, opened), *rest], -1)


def _check_options(name: str, hidden_size: int, dropout: float, proj_size: int) -> None:
    if not 0 <= dropout <= 1:
        raise ArgumentError(f"{name}: dropout={dropout} is no probability: give a number from 0 to 1")
    if not 0 <= proj_size < hidden_size:
        raise ArgumentError(f"{name}: proj_size={proj_size} must be less than hidden_size={hidden_size}")


class RNNBase(Module):
    """The base of recurrent layers: stacked layers of cells that run along a sequence."""

    gates: ClassVar[int] = 1
    joined: ClassVar[bool] = True
    """Whether the biases of input and hidden state are added without anything in between."""
    unrolled = False
    """True: compile each step as ordinary operations instead of one kernel for all steps."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if not (input_size > 0 and hidden_size > 0 and num_layers > 0):
            sizes = f"input_size={input_size}, hidden_size={hidden_size}, num_layers={num_layers}"
            raise ArgumentError(f"{type(self).__name__}: {sizes}: all must be positive")
        _check_options(type(self).__name__, hidden_size, dropout, proj_size)
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = dropout
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self._suffixes = ["", "_reverse"] if bidirectional else [""]
        given = proj_size or hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else given * len(self._suffixes)
            rows = self.gates * hidden_size
            shapes: list[tuple[str, Sequence[int]]] = [("weight_ih", (rows, width)), ("weight_hh", (rows, given))]
            shapes += [("bias_ih", (rows,)), ("bias_hh", (rows,))] if bias else []
            shapes += [("weight_hr", (proj_size, hidden_size))] if proj_size else []
            for suffix in self._suffixes:
                for kind, shape in shapes:
                    made = Parameter(empty(*shape, device=device, dtype=dtype))
                    self.register_parameter(f"{kind}_l{layer}{suffix}", made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1 / sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self) -> None:
        """Do nothing: the compiler chooses the layout of parameters."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """Return the parameters of each layer and direction."""
        names = [f"_l{layer}{suffix}" for layer in range(self.num_layers) for suffix in self._suffixes]
        kinds = ["weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"]
        return [[p for kind in kinds if (p := self._parameters.get(kind + name)) is not None] for name in names]

    def _weights(self, layer: int, suffix: str) -> Weights:
        kinds = ["weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"]
        found = [self._parameters.get(f"{kind}_l{layer}{suffix}") for kind in kinds]
        of_input, of_hidden, *rest = found
        assert of_input is not None
        assert of_hidden is not None
        return Weights(of_input, of_hidden, *rest)

    def _step(self, x: Tensor, state: State, w: Weights) -> State:
        raise NotImplementedError

    def _kind(self) -> CellKind:
        """Return the kind of cell for the kernel."""
        raise NotImplementedError

    def _state_widths(self) -> list[int]:
        return [self.hidden_size]

    def _run(self, input: Any, given: State | None) -> tuple[Any, State]:
        """Return the outputs of the last layer, and the last states of all layers."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, given)
        self._check(input)
        batched = input.dim() == 3
        axis = 0 if self.batch_first else 1
        x = input if batched else input.unsqueeze(axis)
        x = x.transpose(0, 1) if self.batch_first else x
        x, states = self._all_layers(x, self._initial(x, given, batched), None)
        x = x.transpose(0, 1) if self.batch_first else x
        if batched:
            return x, states
        return x.squeeze(axis), tuple([s.squeeze(1) for s in states])

    def _run_packed(self, input: PackedSequence, given: State | None) -> tuple[PackedSequence, State]:
        """Run sequences of different lengths: each state stops at the end of its sequence."""
        if input.data.dim() != 2 or input.data.shape[1] != self.input_size:
            raise ShapeError(
                f"{type(self).__name__}: packed sequences of the shape {tuple(input.data.shape)}: they must have "
                f"{self.input_size} features"
            )
        x = padded(input)
        states = self._initial(x, given, True)
        if input.sorted_indices is not None:
            states = tuple([s.index_select(1, input.sorted_indices) for s in states])
        x, states = self._all_layers(x, states, input.lengths())
        if input.unsorted_indices is not None:
            states = tuple([s.index_select(1, input.unsorted_indices) for s in states])
        return repacked(x, input), states

    def _all_layers(self, x: Tensor, initial: State, lengths: Lengths) -> tuple[Tensor, State]:
        last: list[State] = []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = functional.dropout(x, self.dropout)
            outputs = []
            for direction, suffix in enumerate(self._suffixes):
                number = layer * len(self._suffixes) + direction
                state = tuple([s[number] for s in initial])
                output, state = self._through(x, state, self._weights(layer, suffix), direction == 1, lengths)
                outputs.append(output)
                last.append(state)
            x = outputs[0] if len(outputs) == 1 else cat(outputs, -1)
        return x, tuple([stack(parts) for parts in zip(*last, strict=True)])

    def _through(
        self, x: Tensor, state: State, w: Weights, reverse: bool, lengths: Lengths = None
    ) -> tuple[Tensor, State]:
        """Run one layer through all steps in one direction."""
        if lengths is not None and reverse:
            outputs, state = self._through(reverse_within_lengths(x, lengths), state, w, False, lengths)
            return reverse_within_lengths(outputs, lengths), state
        length, *sizes = (*x.value.shape, w.of_hidden.shape[0])
        plain = not self.unrolled and w.projection is None and length != 0
        plain = plain and all(isinstance(n, int) and n > 0 for n in sizes)
        if plain and is_one_kernel(w.of_hidden.shape[1], x.value.device):
            return _in_one_kernel(x, state, w, self._kind(), reverse, lengths)
        return self._unrolled_steps(x, state, w, reverse, lengths)

    def _unrolled_steps(
        self, x: Tensor, state: State, w: Weights, reverse: bool, lengths: Lengths
    ) -> tuple[Tensor, State]:
        """Run one layer step by step."""
        gates = input_gates(x, w, self.joined)
        exists = None if lengths is None else present(lengths, x.shape[0], x).unsqueeze(-1)
        steps_done = []
        steps = range(x.shape[0])
        for n in reversed(steps) if reverse else steps:
            new = self._step(gates[n], state, w)
            state = new if exists is None else tuple([a.where(exists[n], b) for a, b in zip(new, state, strict=True)])
            steps_done.append(state[0])
        return stack(steps_done[::-1] if reverse else steps_done), state

    def _check(self, input: Tensor) -> None:
        name = type(self).__name__
        order = "(batch, length, features)" if self.batch_first else "(length, batch, features)"
        if input.dim() not in (2, 3) or input.shape[-1] != self.input_size:
            raise ShapeError(
                f"{name}: an input of the shape {tuple(input.shape)}: it must be {order}, or (length, features), with "
                f"{self.input_size} features"
            )
        if input.shape[1 if self.batch_first and input.dim() == 3 else 0] == 0:
            raise ShapeError(f"{name}: an input of the shape {tuple(input.shape)} has no steps")

    def _initial(self, x: Tensor, given: State | None, batched: bool) -> State:
        """Return the initial states (layers * directions, batch, width): zeros, if none are given."""
        count, batch = self.num_layers * len(self._suffixes), x.shape[1]
        shapes = [(count, batch, width) for width in self._state_widths()]
        if given is None:
            return tuple([zeros(*shape, dtype=x.dtype, device=x.device) for shape in shapes])
        found = []
        for state, shape in zip(given, shapes, strict=True):
            wanted = shape if batched else (shape[0], shape[2])
            if not isinstance(state, Tensor):
                raise ArgumentError(
                    f"{type(self).__name__}: an initial state is a tensor, not a {type(state).__name__}"
                )
            if tuple(state.shape) != wanted:
                raise ShapeError(
                    f"{type(self).__name__}: an initial state of the shape {tuple(state.shape)}: it must be {wanted}, "
                    "(layers * directions, batch, width)"
                )
            found.append(state if batched else state.unsqueeze(1))
        return tuple(found)

    def extra_repr(self) -> str:
        shown = [f"{self.input_size}, {self.hidden_size}"]
        defaults = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0}
        for name, default in {**defaults, "bidirectional": False}.items():
            if getattr(self, name) != default:
                shown.append(f"{name}={getattr(self, name)}")
        return ", ".join(shown)


class RNN(RNNBase):
    """Run an RNN along a sequence: `h = tanh(x @ W_ih.T + b_ih + h @ W_hh.T + b_hh)`, or with relu.

    >>> import tilegrad as tg
    >>> output, h = tg.nn.RNN(8, 16, num_layers=2)(tg.ones(5, 3, 8))
    >>> output.shape, h.shape
    ((5, 3, 16), (2, 3, 16))
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        nonlinearity_named(nonlinearity)
        own = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(*own, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def _step(self, x: Tensor, state: State, w: Weights) -> State:
        return rnn_step(nonlinearity_named(self.nonlinearity))(x, state, w)

    def _kind(self) -> CellKind:
        return "tanh" if self.nonlinearity == "tanh" else "relu"

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, (hidden,) = self._run(input, None if hx is None else (hx,))
        return output, hidden


class GRU(RNNBase):
    """Run gated recurrent units (Cho et al., 2014) along a sequence, with the reset gate where PyTorch has it.

    >>> import tilegrad as tg
    >>> output, h = tg.nn.GRU(8, 16, bidirectional=True, batch_first=True)(tg.ones(3, 5, 8))
    >>> output.shape, h.shape
    ((3, 5, 32), (2, 3, 16))
    """

    gates = 3
    joined = False

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        own = (input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional)
        super().__init__(*own, device=device, dtype=dtype)

    def _step(self, x: Tensor, state: State, w: Weights) -> State:
        return gru_step(x, state, w)

    def _kind(self) -> CellKind:
        return "gru"

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        output, (hidden,) = self._run(input, None if hx is None else (hx,))
        return output, hidden


class LSTM(RNNBase):
    """Run a long short-term memory along a sequence; `proj_size` projects the hidden state to a smaller one.

    >>> import tilegrad as tg
    >>> output, (h, c) = tg.nn.LSTM(8, 16, proj_size=4)(tg.ones(5, 3, 8))
    >>> output.shape, h.shape, c.shape
    ((5, 3, 4), (1, 3, 4), (1, 3, 16))
    """

    gates = 4

    def _step(self, x: Tensor, state: State, w: Weights) -> State:
        return lstm_step(x, state, w)

    def _kind(self) -> CellKind:
        return "lstm"

    def _state_widths(self) -> list[int]:
        return [self.proj_size or self.hidden_size, self.hidden_size]

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        output, (hidden, cell) = self._run(input, None if hx is None else two_states(hx))
        return output, (hidden, cell)
