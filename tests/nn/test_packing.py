"""Sequences of different lengths, and recurrent layers on them, against PyTorch."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.errors import TilegradError

torch = pytorch()
rnn, theirs = tg.nn.utils.rnn, torch.nn.utils.rnn

rng = np.random.default_rng(0)
LENGTHS = [3, 5, 1, 4]
SEQUENCES = [rng.standard_normal((n, 4)).astype(np.float32) for n in LENGTHS]


def both(make: Any) -> tuple[Any, Any]:
    return make(rnn, tg), make(theirs, torch)


def same(ours: Any, expected: Any, tolerance: float = 1e-5) -> None:
    if expected is None:
        assert ours is None
    elif isinstance(expected, (tuple, list)):
        assert len(ours) == len(expected)
        for x, y in zip(ours, expected, strict=True):
            same(x, y, tolerance)
    else:
        assert tuple(ours.shape) == tuple(expected.shape)
        np.testing.assert_allclose(ours.detach().numpy(), expected.detach().numpy(), tolerance, tolerance)


@pytest.mark.parametrize(
    "options", [{}, {"batch_first": True}, {"padding_value": -1.0}, {"padding_side": "left"}], ids=str
)
def test_padding(options: dict[str, Any]) -> None:
    ours, expected = both(lambda m, lib: m.pad_sequence([lib.tensor(x) for x in SEQUENCES], **options))
    same(ours, expected)
    if "padding_side" not in options:
        first = options.get("batch_first", False)
        same(rnn.unpad_sequence(ours, tg.tensor(LENGTHS), first), [torch.tensor(x) for x in SEQUENCES])


@pytest.mark.parametrize("batch_first", [False, True])
def test_packing(batch_first: bool) -> None:
    def packed(m: Any, lib: Any) -> Any:
        x = m.pad_sequence([lib.tensor(x) for x in SEQUENCES], batch_first)
        return m.pack_padded_sequence(x, lib.tensor(LENGTHS), batch_first, enforce_sorted=False)

    ours, expected = both(packed)
    same(tuple(ours), tuple(expected))
    for options in ({}, {"total_length": 7}, {"padding_value": 9.0, "batch_first": True}):
        same(rnn.pad_packed_sequence(ours, **options), theirs.pad_packed_sequence(expected, **options))
    same(rnn.unpack_sequence(ours), theirs.unpack_sequence(expected))
    falling = [SEQUENCES[n] for n in (1, 3, 0, 2)]
    same(*map(tuple, both(lambda m, lib: m.pack_sequence([lib.tensor(x) for x in falling]))))


@pytest.mark.parametrize(
    ("kind", "layers", "bidirectional", "unrolled"),
    [("RNN", 2, False, False), ("RNN", 1, True, True), ("GRU", 1, True, False), ("LSTM", 1, True, False)]
    + [("LSTM", 1, False, True), ("projected LSTM", 1, False, True)],
)
def test_layers(kind: str, layers: int, bidirectional: bool, unrolled: bool) -> None:
    """Outputs, last states and all gradients, with first states that are not zero."""
    name, options = kind.split()[-1], {"proj_size": 3} if "projected" in kind else {}
    options |= {"num_layers": layers, "bidirectional": bidirectional}
    other = getattr(torch.nn, name)(4, 6, **options)
    layer = getattr(tg.nn, name)(4, 6, **options)
    layer.load_state_dict({k: tg.tensor(v.detach().numpy()) for k, v in other.state_dict().items()})
    layer.unrolled = unrolled
    count = layers * (2 if bidirectional else 1)
    shapes = [(count, 4, 3 if "projected" in kind else 6), (count, 4, 6)][: 2 if name == "LSTM" else 1]
    first = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    found = []
    for m, lib, net in ((rnn, tg, layer), (theirs, torch, other)):
        x = m.pad_sequence([lib.tensor(s) for s in SEQUENCES]).requires_grad_()
        states = [lib.tensor(s, requires_grad=True) for s in first]
        packed = m.pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
        output, last = net(packed, tuple(states) if name == "LSTM" else states[0])
        lasts = list(last) if name == "LSTM" else [last]
        padded, _ = m.pad_packed_sequence(output)
        ((padded**2).sum() + sum((s**3).sum() for s in lasts)).backward()
        found.append([padded, *lasts, x.grad, *(s.grad for s in states), *(p.grad for p in net.parameters())])
    same(*found, 2e-5)


def test_under_jit() -> None:
    layer = tg.nn.LSTM(4, 6)
    x = rnn.pad_sequence([tg.tensor(s) for s in SEQUENCES])

    def last(x: tg.Tensor) -> tg.Tensor:
        return layer(rnn.pack_padded_sequence(x, LENGTHS, enforce_sorted=False))[1][0]

    same(tg.jit(last)(x), torch.tensor(last(x).detach().numpy()))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rnn.pack_padded_sequence(tg.ones(3, 2, 1), [1, 3]), "not in falling order"),
        (lambda: rnn.pack_padded_sequence(tg.ones(3, 2, 1), [4, 3]), "from 1 to 3 for each of 2"),
        (lambda: rnn.pad_sequence([tg.ones(3, 2), tg.ones(3, 1)]), "first axis only"),
        (lambda: rnn.pad_packed_sequence(rnn.pack_sequence([tg.ones(3, 2)]), total_length=2), "less than the 3"),
        (lambda: tg.nn.GRU(5, 2)(rnn.pack_sequence([tg.ones(3, 2)])), "5 features"),
    ],
)
def test_refused(call: Any, words: str) -> None:
    with pytest.raises(TilegradError, match=words):
        call()
