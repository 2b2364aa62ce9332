"""Continuous batching: tokens do not depend on what else is in the batch; threads, ends, failures, wrong use."""

import gc
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.generation.language_models import CONTEXT, MODELS, VOCABULARY, GroupedQueries, filled, gpt, greedy
from tilegrad.errors import ArgumentError, NaNError
from tilegrad.generation import ByteTokenizer, CharacterTokenizer, OverloadedError, TextGenerator

POISON = 9
"""A token of which the model with NaN makes NaN."""


@pytest.fixture(scope="module")
def generator() -> Iterator[TextGenerator]:
    with TextGenerator(
        gpt(), max_batch=3, prefill_chunks=(4, 16), tokenizer=CharacterTokenizer("ABCDEFGHIJKLMNOPQRSTUVW")
    ) as it:
        yield it


@pytest.fixture(scope="module")
def poisoned() -> Iterator[TextGenerator]:
    model = gpt()
    with tg.no_grad():
        weights = model.wte.weight.detach().numpy().copy()
        weights[POISON] = np.nan
        model.wte = tg.nn.Embedding(VOCABULARY, 16, _weight=tg.tensor(weights))
    model.head = tg.nn.Linear(16, VOCABULARY, bias=False)
    with TextGenerator(HeadOfItsOwn(filled(model.head), model), max_batch=2, max_length=CONTEXT) as it:
        yield it


class HeadOfItsOwn(tg.nn.Module):
    """A GPT whose scores are not products with the embedding, which has NaN."""

    def __init__(self, head: Any, gpt: Any) -> None:
        super().__init__()
        self.head, self.gpt = head, gpt
        self.eval()

    def forward(self, tokens: Any, cache: Any = None) -> Any:
        x = self.gpt.wte(tokens) + self.gpt.wpe(cache.positions)
        for block in self.gpt.h:
            x = block(x, cache)
        return self.head(self.gpt.ln_f(x))


def prompts(count: int) -> list[list[int]]:
    rng = np.random.default_rng(2)
    return [rng.integers(0, VOCABULARY, rng.integers(1, 25)).tolist() for _ in range(count)]


@pytest.mark.parametrize("name", MODELS)
def test_greedy_tokens_are_those_without_a_cache(name: str, generator: TextGenerator) -> None:
    model = MODELS[name]()
    chosen = generator if name == "gpt" else TextGenerator(model, max_batch=3)
    answers = [chosen.generate(p, max_new_tokens=12, temperature=0) for p in prompts(5)]
    for prompt, answer in zip(prompts(5), answers):
        assert answer.result() == greedy(model, prompt, 12)
        assert answer.finish_reason == "length"


def test_tokens_do_not_depend_on_the_rest_of_the_batch(generator: TextGenerator) -> None:
    """Requests with settings of all kinds, alone and among others that join and leave, in two orders."""
    settings = [{"temperature": t, "top_k": k, "top_p": p} for t in (0.7, 2.0) for k in (None, 5) for p in (1.0, 0.8)]
    given = [(p, {**s, "seed": n, "max_new_tokens": 3 + n}) for n, (p, s) in enumerate(zip(prompts(8), settings))]
    alone = [generator.generate(p, **s).result() for p, s in given]
    assert len({tuple(x) for x in alone}) == len(alone)
    for order in (range(8), [5, 2, 7, 0, 3, 6, 1, 4]):
        answers = {n: generator.submit(given[n][0], **given[n][1]) for n in order}
        assert [answers[n].result() for n in range(8)] == alone
    assert generator.programs <= 3  # one for the step, one for each length of chunk


def test_an_answer_is_read_again_and_while_it_grows(in_front: TextGenerator) -> None:
    generator = in_front
    answer = generator.generate([1, 2], max_new_tokens=6, seed=3)
    assert answer.finish_reason is None
    first = next(iter(answer))
    assert answer.tokens[0] == first
    assert len(answer.tokens) < 6
    assert "goes on" in repr(answer)
    assert list(answer) == list(answer) == answer.result() == list(answer.tokens)
    assert answer.prompt == (1, 2)
    again = generator.generate([1, 2], max_new_tokens=6, seed=answer.seed)
    assert again.result() == answer.result()


def test_seeds_are_drawn_if_none_is_given(generator: TextGenerator) -> None:
    found = []
    for _ in range(2):
        tg.manual_seed(5)
        found.append([generator.generate([1], max_new_tokens=2) for _ in range(2)])
    assert [x.seed for x in found[0]] == [x.seed for x in found[1]]
    assert found[0][0].seed != found[0][1].seed


def test_an_answer_ends_at_a_token_or_at_the_capacity(generator: TextGenerator) -> None:
    whole = generator.generate([4, 4], temperature=0).result()
    assert len(whole) == CONTEXT - 2
    stop = whole[5]
    answer = generator.generate([4, 4], temperature=0, stop=stop)
    assert answer.result() == whole[: whole.index(stop)]
    assert answer.finish_reason == "stop"
    assert len(generator.generate(list(range(20)) + [1] * (CONTEXT - 21)).result()) == 1


def test_threads_share_a_generator(generator: TextGenerator) -> None:
    wanted = [generator.generate([n, 1], max_new_tokens=8, seed=n).result() for n in range(8)]
    found: dict[int, Any] = {}

    def ask(n: int) -> None:
        begin = generator.submit if n % 2 else generator.generate
        found[n] = list(begin([n, 1], max_new_tokens=8, seed=n))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert [found[n] for n in range(8)] == wanted


@pytest.fixture
def in_front(generator: TextGenerator, monkeypatch: pytest.MonkeyPatch) -> TextGenerator:
    """The generator without a background thread: steps are computed by those who wait."""
    monkeypatch.setattr("tilegrad.generation.generator.IDLE_SECONDS", 0.02)
    with generator._lock:
        generator._lock.notify_all()
    while generator._thread is not None:
        time.sleep(0.01)
    return generator


def test_requests_are_cancelled(in_front: TextGenerator) -> None:
    generator = in_front
    answers = [generator.generate([n], temperature=0) for n in range(5)]  # two of them wait for a slot
    iterator = iter(answers[0])
    next(iterator)
    for answer in (answers[0], answers[4]):
        answer.cancel()
    assert len(list(iterator)) < 3
    assert answers[4].result() == []
    assert [answers[n].finish_reason for n in (0, 4)] == ["cancelled"] * 2
    assert len(answers[3].result()) == CONTEXT - 1
    assert generator.load["running"] + generator.load["waiting"] <= 2


def test_an_answer_that_nobody_refers_to_ends(in_front: TextGenerator) -> None:
    generator = in_front
    for token in generator.generate([3]):
        assert token >= 0
        break
    gc.collect()
    generator.generate([1], max_new_tokens=2).result()
    assert generator.load == {"running": 0, "waiting": 0, "slots": 3}


def test_deadlines(generator: TextGenerator) -> None:
    answer = generator.generate([1], timeout=0)
    assert answer.result() == []
    assert answer.finish_reason == "deadline"
    with pytest.raises(TimeoutError, match="tokens have arrived, and the answer goes on"):
        generator.generate([1]).result(timeout=0)


def test_too_many_requests() -> None:
    small = TextGenerator(gpt(), max_batch=1, max_waiting=2)
    answers = [small.generate([1], max_new_tokens=1) for _ in range(2)]
    with pytest.raises(OverloadedError, match="2 requests are waiting already") as problem:
        small.generate([1])
    assert problem.value.retry_after > 0
    answers[1].cancel()
    assert small.generate([1], max_new_tokens=1).result()  # in place of the cancelled one
    small.close()
    with pytest.raises(ArgumentError, match="closed"):
        small.generate([1])
    assert small.load["waiting"] == 0


def test_scores_that_are_nan_end_one_request_only(poisoned: TextGenerator) -> None:
    good = [poisoned.generate([1, 2, n], max_new_tokens=3, temperature=0) for n in range(3)]
    wanted = [x.result() for x in good]
    bad = [poisoned.submit([1, POISON, n], temperature=t) for n, t in ((1, 0), (2, 1.0))]
    answers = [poisoned.submit([1, 2, n], max_new_tokens=3, temperature=0) for n in range(3)]
    for x in bad:
        with pytest.raises(NaNError, match="scores of token 3 of a request are NaN"):
            x.result()
        assert x.finish_reason == "error"
    assert [x.result() for x in answers] == wanted  # in slots that NaN has been in


def test_a_model_that_fails_ends_the_requests_of_the_step() -> None:
    model = filled(GroupedQueries())
    broken = TextGenerator(model, max_batch=2)
    forward, model.forward = model.forward, None
    with pytest.raises(TypeError):
        broken.generate([1]).result()
    model.forward = forward
    assert broken.generate([1], max_new_tokens=2, temperature=0).result() == greedy(model, [1], 2)


def test_the_background_thread_ends_without_work(in_front: TextGenerator) -> None:
    for _ in range(2):
        in_front.submit([1], max_new_tokens=3).result()
        while in_front._thread is not None:
            time.sleep(0.01)


PROMPTS: list[tuple[Any, str]] = [
    ([], "at least one token"),
    ([[1, 2]], "in one dimension"),
    (3, "in one dimension"),
    ([1.5], "integers, not float64"),
    ([True], "integers, not bool"),
    (["a"], "integers, not"),
    ([1, -1], "has token -1; the vocabulary has 23"),
    ([1, 23], "has token 23"),
    ([1 << 70], "integers, not object"),
    ([1] * CONTEXT, "with an answer there may be 40"),
    ("AZ", "alphabet lacks 'Z'"),
    ("", "at least one token"),
]


@pytest.mark.parametrize("prompt, message", PROMPTS, ids=[str(x)[:20] for x, _ in PROMPTS])
def test_prompts_that_are_refused(generator: TextGenerator, prompt: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        generator.generate(prompt)


def test_requests_that_are_refused(generator: TextGenerator) -> None:
    with pytest.raises(ArgumentError, match="max_new_tokens=38 are more than max_length=40"):
        generator.generate([1, 2, 3], max_new_tokens=38)
    with pytest.raises(ArgumentError, match="no setting beams; there are max_new_tokens, temperature"):
        generator.generate([1], beams=2)
    with pytest.raises(ArgumentError, match="top_p is 0"):
        generator.submit([1], top_p=0)
    with pytest.raises(ArgumentError, match=r"stop is \(3, 23\); the vocabulary has 23"):
        generator.generate([1], stop=(3, 23))


def test_prompts_of_other_types(generator: TextGenerator) -> None:
    wanted = generator.generate([1, 2], max_new_tokens=3, seed=1).result()
    for prompt in ((1, 2), np.array([1, 2], np.uint8), tg.tensor([1, 2]), "BC"):
        assert generator.generate(prompt, max_new_tokens=3, seed=1).result() == wanted


def test_text(generator: TextGenerator) -> None:
    answer = generator.generate("BAD", max_new_tokens=5, seed=1)
    assert "".join(answer.pieces()) == answer.text() == "".join("ABCDEFGHIJKLMNOPQRSTUVW"[n] for n in answer.result())


def test_generators_that_are_refused() -> None:
    with pytest.raises(ArgumentError, match="in training mode"):
        TextGenerator(gpt().train())
    with pytest.raises(ArgumentError, match="context of GPT has 40 tokens"):
        TextGenerator(gpt(), max_length=41)
    with pytest.raises(ArgumentError, match="no `context`"):
        TextGenerator(lambda tokens, cache: tokens)
    wrong: dict[str, list[Any]] = {"max_batch": [0, 1.5, True], "max_waiting": [0], "prefill_chunks": [(), (0,)]}
    for name, values in wrong.items():
        for value in values:
            with pytest.raises(ArgumentError, match=f"{name} is"):
                TextGenerator(gpt(), **{name: value})
    for length in (1, 0, 2.5, True):
        with pytest.raises(ArgumentError, match="max_length is"):
            TextGenerator(gpt(), max_length=length)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="the prompt is text"):
        TextGenerator(gpt(), 1, 8).generate("A")
    with pytest.raises(ArgumentError, match="no tokenizer"):
        TextGenerator(gpt(), 1, 8).generate([1]).text()


def test_bytes_of_several_tokens_make_one_character() -> None:
    from tilegrad.generation.completion import TextDecoder

    decoder = TextDecoder(ByteTokenizer())
    assert [decoder.add(n) for n in "né€".encode()] == ["n", "", "é", "", "", "€"]
    assert decoder.rest() == ""
    decoder.add(0xE2)
    assert decoder.rest() == "\ufffd"
