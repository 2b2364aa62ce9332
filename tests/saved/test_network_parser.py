"""The text of a network is read back as it was, and whatever else is given ends in words."""

import numpy as np
import pytest

import tilegrad as tg
from tests.nn.test_record import NETWORKS
from tests.saved.networks import LENET, exported, mutations
from tilegrad.errors import CheckpointError
from tilegrad.nn import functional as F
from tilegrad.saved.exported import load_program
from tilegrad.saved.network_parser import parse_network
from tilegrad.saved.network_printer import network_of


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_printed_is_read_back(name: str, dynamic: bool) -> None:
    network = network_of(exported(name, dynamic))
    again = parse_network(str(network))
    assert str(again) == str(network)
    assert again.key() == network.key()


def test_a_network_written_by_hand_is_trained(tmp_path) -> None:
    assert len(LENET.splitlines()) <= 30
    (tmp_path / "lenet.txt").write_text(LENET)
    tg.manual_seed(0)
    net = load_program(tmp_path / "lenet.txt")
    draw = np.random.default_rng(0)
    images = draw.standard_normal((16, 1, 28, 28)).astype(np.float32)
    labels = tg.tensor(draw.integers(0, 10, 16))
    optimizer = tg.optim.Adam(net.parameters(), 0.003)
    losses = []
    for _ in range(12):
        loss = F.cross_entropy(net(tg.tensor(images)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] * 0.6
    net.save(tmp_path / "lenet.tgp")
    again = load_program(tmp_path / "lenet.tgp")
    with tg.no_grad():
        assert again(images).tolist() == net(images).tolist()


@pytest.mark.parametrize("name", [*NETWORKS, "by hand"])
def test_damaged_text_ends_in_words(name: str) -> None:
    text = LENET if name == "by hand" else str(exported(name))
    refused = 0
    for damaged in mutations(text.encode(), 60, len(name)):
        try:
            network = parse_network(damaged.decode("utf-8", "replace"))
        except CheckpointError as error:
            refused += 1
            assert "line" in str(error)  # noqa: PT017
        else:
            assert str(parse_network(str(network))) == str(network)
    assert refused > 30


HEAD = """tilegrad network 1
tensors:
  w: parameter float32[3]
  b: buffer float32[3]
evaluate(x: float32[n, 3]) -> tensor:
"""
WRONG = {
    "nothing": ("", "no network"),
    "another version": ("tilegrad network 2\n", "another version"),
    "a cycle": (HEAD + "  a = add(c, x)\n  c = neg(a)\n  return c\n", "'c', which is not there yet"),
    "itself": (HEAD + "  a = neg(a)\n  return a\n", "'a', which is not there yet"),
    "a name twice": (HEAD + "  a = neg(x)\n  a = neg(x)\n  return a\n", "there already"),
    "a tensor as a name": (HEAD + "  w = neg(x)\n  return w\n", "there already"),
    "an unknown op": (HEAD + "  a = ned(x)\n  return a\n", "did you mean neg?"),
    "a function of Python": (HEAD + "  a = eval(x)\n  return a\n", "'eval'"),
    "an operand too many": (HEAD + "  a = neg(x, x)\n  return a\n", "2 operands; it takes 1"),
    "an attribute of another kind": (HEAD + '  a = sum(x, axes="0", keepdim=False)\n  return a\n', "does not fit"),
    "an axis outside": (HEAD + "  a = sum(x, axes=(2), keepdim=False)\n  return a\n", "not axes of 2"),
    "an axis twice": (HEAD + "  a = permute(x, axes=(0, 0))\n  return a\n", "not axes of 2"),
    "shapes that do not fit": (HEAD + "  a = reshape(x, sizes=(n, 4))\n  return a\n", "line 6"),
    "elements outside": (
        HEAD + "  a = slice(x, starts=(0, 2), steps=(1, 1), sizes=(n, 2))\n  return a\n",
        "elements 2 to 3 are asked for on an axis of 3",
    ),
    "elements before": (
        HEAD + "  a = slice(x, starts=(0, 1), steps=(1, -1), sizes=(n, 3))\n  return a\n",
        "elements 1 to -1",
    ),
    "another type": (HEAD + "  a: float32[n, 4] = neg(x)\n  return a\n", "says f32[n,4], but neg makes f32[n,3]"),
    "a huge size": (HEAD.replace("float32[3]", f"float32[{2**60}]"), "no size"),
    "a huge product": (HEAD.replace("float32[3]", f"float32[{2**40}, {2**40}]"), "too large"),
    "a negative size": (HEAD.replace("float32[3]", "float32[-3]"), "negative"),
    "a size that varies in a tensor": (HEAD.replace("buffer float32[3]", "buffer float32[n]"), "varies"),
    "a size of nothing": (HEAD + "  a = expand(w, sizes=(m, 3))\n  return a\n", "the size m, which no argument has"),
    "a type of nothing": (HEAD.replace("float32[3]", "float33[3]"), "unknown type 'float33'"),
    "deep nesting": (HEAD + f"  a = reshape(x, sizes={'(' * 400}1{')' * 400})\n  return a\n", "nested more than"),
    "deep results": (HEAD.replace("-> tensor", f"-> {'[' * 400}tensor{']' * 400}"), "nested more than"),
    "a long number": (HEAD + f"  a = reshape(x, sizes=({'9' * 5000}))\n  return a\n", "no size"),
    "a declared tensor twice": (HEAD.replace("  b:", "  w:"), "declared already"),
    "a part of a tensor": (HEAD.replace("  b:", "  w.b:"), "one part is a tensor"),
    "no return": (HEAD + "  a = neg(x)\n", "without 'return'"),
    "too many results": (HEAD + "  return x, x\n", "returns 2 tensors, and the head says 1"),
    "a parameter that is updated": (HEAD + "  return x\n  update w = w\n", "it is a buffer"),
    "an update of another type": (HEAD + "  return x\n  update b = x\n", "it is a buffer of that type"),
    "two graphs of one mode": (HEAD + "  return x\nevaluate(x: float32[n, 3]) -> tensor:\n  return x\n", "each once"),
    "only a graph for training": (HEAD.replace("evaluate", "train") + "  return x\n", "no 'evaluate"),
    "other arguments in training": (
        HEAD + "  return x\ntrain(y: float32[n, 3]) -> tensor:\n  return y\n",
        "other arguments or results",
    ),
    "a string without an end": (HEAD + '  a = contract(x, x, equation="ij\n  return a\n', "has no meaning"),
    "something behind a line": (HEAD + "  a = neg(x) 3\n  return a\n", "behind its end"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_network_is_refused(case: str) -> None:
    text, words = WRONG[case]
    with pytest.raises(CheckpointError) as caught:
        parse_network(text, "net.txt")
    assert words in str(caught.value)
    assert str(caught.value).startswith("net.txt: line ")
