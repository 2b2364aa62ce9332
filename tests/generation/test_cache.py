"""Decoding with a cache against computing everything anew; caches are written in place."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.generation.language_models import CONTEXT, MODELS, VOCABULARY, gpt, logits
from tilegrad.errors import ArgumentError, ShapeError
from tilegrad.generation import KeyValueCache
from tilegrad.generation.cache import scores_of
from tilegrad.generation.slots import Slots
from tilegrad.generation.token_sampling import Sampling

BOUND = 1e-5
"""Largest difference of scores of size 1 with and without a cache: sums are in another order."""


@pytest.mark.parametrize("name", MODELS)
def test_scores_with_a_cache_are_those_without(name: str) -> None:
    """Prompts of several lengths in chunks of 16, then single tokens; rows do not depend on one another."""
    model = MODELS[name]()
    cache = KeyValueCache(model, 4, CONTEXT)
    tokens = np.random.default_rng(1).integers(0, VOCABULARY, (4, CONTEXT))
    lengths = [1, 15, 16, 33]

    @tg.jit
    def scores(tokens: Any, slots: Any, starts: Any) -> Any:
        with tg.no_grad():
            return scores_of(model, tokens, cache.view(slots, starts, tokens.shape[1]))

    for slot, length in enumerate(lengths):
        for start in range(0, length, 16):
            chunk = np.zeros((1, 16), np.int64)
            part = tokens[slot, start : min(length, start + 16)]
            chunk[0, : len(part)] = part
            found = scores(*map(tg.tensor, (chunk, [slot], [start])))
            assert found.shape == (1, 16, VOCABULARY)
            wanted = logits(model, tokens[slot, : start + len(part)])
            np.testing.assert_allclose(found[0, len(part) - 1].numpy(), wanted, atol=BOUND * abs(wanted).max())
    for n in range(5):
        places = [length + n for length in lengths]
        given = [tokens[range(4), places][:, None], np.arange(4), np.array(places)]
        found = scores(*map(tg.tensor, given)).numpy()[:, 0]
        order = [2, 0, 3, 1]
        again = scores(*(tg.tensor(x[order]) for x in given)).numpy()[:, 0]
        np.testing.assert_array_equal(again, found[order])  # bit for bit, wherever a row is
        for row in range(4):
            wanted = logits(model, tokens[row, : places[row] + 1])
            np.testing.assert_allclose(found[row], wanted, atol=BOUND * abs(wanted).max())


def test_caches_are_written_in_place() -> None:
    """A step has no temporary as large as a cache, copies nothing, and the memory of the cache stays where it is."""
    slots = Slots(gpt(), 4, CONTEXT, [16], None)
    for _ in range(3):
        slots.begin(2, Sampling(temperature=0.0))
        slots.go_on(2, slots.read(2, [1, 2, 3]) or 0)
        places = [x.data_ptr() for x in (*slots.cache.keys, *slots.cache.values)]
        for _ in range(3):
            slots.step()
    assert [x.data_ptr() for x in (*slots.cache.keys, *slots.cache.values)] == places
    for jitted in (slots.steps, slots.reads):
        (program,) = [p.compiled.program for p in jitted.programs]
        assert "copy" not in str(program)
        temporaries = [line for line in str(program).splitlines() if " temporary, " in line]
        assert temporaries
        assert not [line for line in temporaries if f"[4,2,{CONTEXT}," in line]


def test_attention_layers_refuse_what_a_cache_cannot_do() -> None:
    x, nn = tg.ones(1, 1, 8), tg.nn
    view = KeyValueCache(gpt(), 1, 8).view(tg.tensor([0]), tg.tensor([0]), 1)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    wrong = [
        (nn.MultiheadAttention(8, 2), (x, x, x), {}),
        (nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True), (x, x, x), {}),
        (nn.MultiheadAttention(8, 2, batch_first=True, add_zero_attn=True), (x, x, x), {}),
        (layer, (x, x + 1, x), {}),
        (layer, (x[0], x[0], x[0]), {}),
        (layer, (x, x, x), {"attn_mask": tg.zeros(1, 1)}),
        (layer, (x, x, x), {"key_padding_mask": tg.zeros(1, 1)}),
    ]
    for attention, given, settings in wrong:
        with pytest.raises(ArgumentError, match="with a cache is causal self-attention"):
            attention(*given, **settings, cache=view)


def test_bytes_of_a_cache() -> None:
    cache = KeyValueCache(gpt(), 3, 10)
    assert cache.bytes == 2 * 2 * 3 * 2 * 10 * 8 * 4  # keys and values, layers, slots, heads, positions, width, float32


def test_models_that_take_no_part() -> None:
    linear = tg.nn.Embedding(5, 5)
    with pytest.raises(ArgumentError, match="takes no cache: let it be called as model"):
        KeyValueCache(linear, 1, 4)
    with pytest.raises(ArgumentError, match="does not attend to its cache"):
        KeyValueCache(lambda tokens, cache: linear(tokens), 1, 4)
    with pytest.raises(ShapeError, match=r"returns \(1, 5\): scores must have the shape"):
        KeyValueCache(lambda tokens, cache: linear(tokens)[:, 0], 1, 4)
    with pytest.raises(ArgumentError, match="not a module or function"):
        KeyValueCache(3, 1, 4)


@pytest.mark.parametrize(
    "shapes, message",
    [
        ([(1, 2, 4)] * 3, "give .batch, heads, length, width. for a length of 1"),
        ([(1, 2, 3, 4)] * 3, "for a length of 1"),
        ([(1, 2, 1, 4), (1, 2, 1, 4), (1, 2, 1, 5)], "keys and values must have one shape"),
        ([(1, 2, 1, 4), (1, 2, 1, 5), (1, 2, 1, 5)], "and the width of the queries"),
        ([(1, 3, 1, 4), (1, 2, 1, 4), (1, 2, 1, 4)], "3 heads cannot share 2 heads of keys"),
        ([(1, 4, 1, 8)] * 3, "but the cache was made for"),
    ],
)
def test_attention_of_other_shapes(shapes: list[tuple[int, ...]], message: str) -> None:
    view = KeyValueCache(gpt(), 2, 8).view(tg.tensor([0]), tg.tensor([0]), 1)
    with pytest.raises(ShapeError, match=message):
        view.attend(*(tg.ones(*shape) for shape in shapes))
