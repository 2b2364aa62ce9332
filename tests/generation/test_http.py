"""Routes of a server: whole answers, streams, and what wrong requests are answered with."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

import tilegrad as tg
from tests.generation.language_models import CONTEXT, VOCABULARY, begun_requests, gpt
from tilegrad.generation import CharacterTokenizer, TextGenerator
from tilegrad.generation.http import RequestError, routes, server_sent_events

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVW"


@pytest.fixture(scope="module")
def models() -> Iterator[dict[str, TextGenerator]]:
    made = {
        "letters": TextGenerator(gpt(), max_batch=2, tokenizer=CharacterTokenizer(LETTERS)),
        "tokens": TextGenerator(gpt(), max_batch=2, max_waiting=1),
    }
    yield made
    for generator in made.values():
        generator.close()


def answered(models: dict[str, TextGenerator], name: str, body: Any) -> Any:
    return asyncio.run(routes(models)[0].answer(name, body))  # type: ignore[arg-type]


def streamed(models: dict[str, TextGenerator], name: str, body: Any, most: int = 1000) -> list[Any]:
    """Events as a client reads them, at most so many before it hangs up."""

    async def read() -> list[Any]:
        found: list[Any] = []
        stream = server_sent_events(await routes(models)[1].answer(name, body))
        async for piece in stream:
            assert piece.startswith(b"data: ")
            assert piece.endswith(b"\n\n")
            found.append(json.loads(piece[6:]))
            if len(found) == most:
                await stream.aclose()  # type: ignore[attr-defined]
                break
        return found

    return asyncio.run(read())


def test_a_whole_answer(models: dict[str, TextGenerator]) -> None:
    settings = {"max_new_tokens": 5, "seed": 3, "top_k": 4}
    wanted = models["letters"].generate("CAB", **settings)
    found = answered(models, "letters", {"id": "7", "text_input": "CAB", "parameters": {**settings, "stream": False}})
    assert found == {
        "id": "7",
        "model_name": "letters",
        "text_output": wanted.text(),
        "output_ids": wanted.result(),
        "details": {"finish_reason": "length", "prompt_tokens": 3, "generated_tokens": 5, "seed": 3},
    }
    assert answered(models, "tokens", {"input_ids": [2, 0, 1], "parameters": settings})["output_ids"] == wanted.result()


@pytest.mark.parametrize("name", ["letters", "tokens"])
def test_a_stream(models: dict[str, TextGenerator], name: str) -> None:
    body = {"input_ids": [2, 0, 1], "parameters": {"max_new_tokens": 6, "seed": 4}}
    whole = answered(models, name, body)
    *events, last = streamed(models, name, body)
    assert [n for event in events for n in event["output_ids"]] == whole["output_ids"]
    assert last == {"model_name": name, "details": whole["details"]}
    if name == "letters":
        assert "".join(event["text_output"] for event in events) == whole["text_output"]


def test_streams_at_the_same_time(models: dict[str, TextGenerator]) -> None:
    """More than there are slots."""
    bodies = [{"input_ids": [n], "parameters": {"max_new_tokens": 3 + n, "seed": n}} for n in range(6)]

    async def one(body: Any) -> list[int]:
        events = await routes(models)[1].answer("letters", body)
        return [n async for event in events for n in event.get("output_ids", [])]

    async def every() -> list[list[int]]:
        return await asyncio.gather(*map(one, bodies))

    assert asyncio.run(every()) == [answered(models, "letters", body)["output_ids"] for body in bodies]


def test_a_client_that_hangs_up_ends_its_request(
    models: dict[str, TextGenerator], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = begun_requests(models["letters"], monkeypatch)
    assert len(streamed(models, "letters", {"input_ids": [1]}, most=1)) == 1
    assert [x._request.is_cancelled for x in begun] == [True]


def test_an_error_within_a_stream() -> None:
    model = gpt()
    with tg.no_grad():
        model.ln_f.weight.fill_(float("nan"))
    with TextGenerator(model, max_batch=1) as broken:
        events = streamed({"broken": broken}, "broken", {"input_ids": [1]})
        assert "are NaN or infinite" in events[0]["error"]
        assert events[1]["details"]["finish_reason"] == "error"
        with pytest.raises(RequestError, match="NaN or infinite") as problem:
            answered({"broken": broken}, "broken", {"input_ids": [1]})
        assert problem.value.status == 500


def test_deadlines_are_no_errors(models: dict[str, TextGenerator]) -> None:
    found = answered(models, "tokens", {"input_ids": [1], "parameters": {"timeout": 0}})
    assert found["details"]["finish_reason"] == "deadline"


def test_too_many_requests(models: dict[str, TextGenerator]) -> None:
    generator = TextGenerator(gpt(), max_batch=1, max_waiting=1)
    waiting = generator.generate([1])
    with pytest.raises(RequestError, match="waiting already") as problem:
        answered({"full": generator}, "full", {"input_ids": [1]})
    assert (problem.value.status, problem.value.headers) == (429, {"Retry-After": "1"})
    assert waiting.finish_reason is None


def parameters(**given: Any) -> dict[str, Any]:
    return {"input_ids": [1], "parameters": given}


WRONG: list[tuple[Any, str]] = [
    *((body, "must be a JSON object") for body in (None, [], "text", 3)),
    ({}, "give either text_input"),
    ({"text_input": "A", "input_ids": [1]}, "give either text_input"),
    ({"parameters": {}}, "give either text_input"),
    *(({"text_input": x}, "text_input must be a text") for x in (None, 3, ["A"], {})),
    *(({"input_ids": x}, "input_ids a list of tokens") for x in (None, 3, "A", {})),
    *(({"input_ids": [1], "parameters": x}, "parameters must be an object") for x in (None, [], "x", 1)),
    ({"text_input": "A"}, "the prompt is text: give tokens"),
    ({"input_ids": []}, "at least one token"),
    *(({"input_ids": [x]}, "token") for x in ("A", None, 1.5, True, [1], -1, VOCABULARY, 1 << 80, {})),
    ({"input_ids": [[1], [2, 3]]}, "inhomogeneous|one dimension"),
    ({"input_ids": [1] * CONTEXT}, "there may be 40"),
    (parameters(beams=4), "no setting beams"),
    (parameters(self=4), "self"),
    (parameters(prompt=4), "prompt"),
    *((parameters(max_new_tokens=x), "max_new_tokens") for x in (0, -1, "5", 1.5, True, 1 << 70)),
    *((parameters(temperature=x), "temperature is") for x in (-1, "hot", None, [], float("nan"))),
    *((parameters(top_k=x), "top_k is") for x in (0, -3, "1", 0.5)),
    *((parameters(top_p=x), "top_p is") for x in (0, 1.5, "p", None)),
    *((parameters(seed=x), "seed is") for x in (-1, "1", 1 << 64)),
    *((parameters(stop=x), "stop is") for x in ("END", [-1], [None], [[1]])),
    *((parameters(timeout=x), "timeout is") for x in (-1, "1", float("inf"))),
]


@pytest.mark.parametrize("kind", [0, 1], ids=["whole", "stream"])
def test_wrong_requests(models: dict[str, TextGenerator], kind: int) -> None:
    """Each is refused before anything is computed or sent."""
    for body, message in WRONG:
        with pytest.raises(RequestError, match=message) as problem:
            asyncio.run(routes(models)[kind].answer("tokens", body))  # type: ignore[arg-type]
        assert problem.value.status == 400, body
        assert problem.value.body == {"error": str(problem.value)}
        assert "[at " not in str(problem.value)  # no lines of the server
    with pytest.raises(RequestError, match="no model 'other'; there are letters, tokens") as problem:
        asyncio.run(routes(models)[kind].answer("other", {"input_ids": [1]}))  # type: ignore[arg-type]
    assert problem.value.status == 404
    assert models["tokens"].load["waiting"] == 0
