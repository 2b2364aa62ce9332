"""Answers of requests: iterators of tokens, which arrive while others are computed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from ..errors import ArgumentError, TilegradError
from .token_sampling import Sampling


class OverloadedError(TilegradError):
    """A request that was refused because too many are waiting."""

    retry_after = 1.0
    """Seconds after which it may be asked for again."""


class Request:
    """State of a request, shared by the thread that computes it and those that wait for it."""

    def __init__(self, prompt: tuple[int, ...], settings: Sampling, most: int) -> None:
        self.prompt, self.settings, self.most = prompt, settings, most
        self.tokens: list[int] = []
        self.reason: str | None = None
        """Why it is finished: length, stop, cancelled, deadline or error."""
        self.error: BaseException | None = None
        self.is_cancelled = False
        self.deadline = None if settings.timeout is None else time.monotonic() + settings.timeout
        self.changed = threading.Condition()
        self.listeners: list[Callable[[], None]] = []
        self.slot: int | None = None

    def deliver(self, token: int) -> None:
        """Append a token; finish at the limit, or at a token that stops the answer, which is not part of it."""
        if token in self.settings.stop:
            return self.finish("stop")
        self.tokens.append(token)
        if len(self.tokens) >= self.most:
            return self.finish("length")
        self._notify()

    def finish(self, reason: str, error: BaseException | None = None) -> None:
        self.error, self.reason = error, reason
        self._notify()

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()
            listeners = list(self.listeners)
        for listener in listeners:
            listener()

    def reason_to_end(self) -> str | None:
        """Return why the request must end before it is complete, if it must."""
        if self.is_cancelled:
            return "cancelled"
        return "deadline" if self.deadline is not None and time.monotonic() >= self.deadline else None


class Completion:
    """The answer to a request: iterate over its tokens (`for` or `async for`), or ask for all of them by `result`.

    Each iteration starts at the first token. A request ends when nothing refers to its completion any more.
    """

    def __init__(self, request: Request, generator: Any) -> None:
        self._request, self._generator = request, generator

    def __del__(self) -> None:
        self._request.is_cancelled = True

    def cancel(self) -> None:
        """End the request after the step that is being computed; tokens that have arrived stay."""
        self._request.is_cancelled = True

    @property
    def prompt(self) -> tuple[int, ...]:
        """Tokens of the prompt."""
        return self._request.prompt

    @property
    def tokens(self) -> tuple[int, ...]:
        """Tokens that have arrived."""
        return tuple(self._request.tokens)

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended: length, stop, cancelled, deadline or error; None while it goes on."""
        return self._request.reason

    @property
    def seed(self) -> int:
        """Seed of the random choices, also if none was given."""
        return self._request.settings.seed or 0

    def __iter__(self) -> Iterator[int]:
        count = 0
        while self._arrives(count):
            yield self._request.tokens[count]
            count += 1

    def _arrives(self, count: int, until: float | None = None) -> bool:
        """Wait for a token after the first `count` ones; return whether there is one."""
        request = self._request
        while len(request.tokens) <= count:
            if request.reason is not None:
                if request.error is not None:
                    raise request.error
                return False
            if until is not None and time.monotonic() >= until:
                raise TimeoutError(f"{len(request.tokens)} tokens have arrived, and the answer goes on")
            self._generator.advance(request, count, until)
        return True

    def result(self, timeout: float | None = None) -> list[int]:
        """Return all tokens of the answer; raise TimeoutError if it takes longer. The request then still goes on."""
        until = None if timeout is None else time.monotonic() + timeout
        while self._arrives(len(self._request.tokens), until):
            pass
        return list(self._request.tokens)

    async def __aiter__(self) -> AsyncIterator[int]:
        request, loop, arrived = self._request, asyncio.get_running_loop(), asyncio.Event()

        def listener() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(arrived.set)

        with request.changed:
            request.listeners.append(listener)
        self._generator.run_in_background()
        count = 0
        try:
            while True:
                arrived.clear()
                while count < len(request.tokens):
                    yield request.tokens[count]
                    count += 1
                if request.reason is not None and count == len(request.tokens):
                    break
                await arrived.wait()
        finally:
            with request.changed:
                request.listeners.remove(listener)
        if request.error is not None:
            raise request.error

    def pieces(self) -> Iterator[str]:
        """Iterate over the text of the answer, as far as its characters are complete."""
        decoder = TextDecoder(self._tokenizer())
        for token in self:
            if piece := decoder.add(token):
                yield piece
        if rest := decoder.rest():
            yield rest

    async def apieces(self) -> AsyncIterator[tuple[int | None, str]]:
        """Iterate over tokens with the text that each completes, if there is a tokenizer; at the end text alone."""
        decoder = TextDecoder(self._tokenizer()) if self.has_tokenizer else None
        async for token in self:
            yield token, "" if decoder is None else decoder.add(token)
        if decoder is not None and (rest := decoder.rest()):
            yield None, rest

    @property
    def has_tokenizer(self) -> bool:
        """Whether answers can be text."""
        return self._generator.tokenizer is not None

    def text(self, timeout: float | None = None) -> str:
        """Return the text of the whole answer."""
        return str(self._tokenizer().decode(self.result(timeout)))

    def _tokenizer(self) -> Any:
        if self._generator.tokenizer is None:
            raise ArgumentError(
                "the generator has no tokenizer, so answers are tokens: TextGenerator(model, tokenizer=...)"
            )
        return self._generator.tokenizer

    def __repr__(self) -> str:
        return f"<Completion of {len(self.prompt)} tokens: {len(self.tokens)} more, {self.finish_reason or 'goes on'}>"


class TextDecoder:
    """Decode tokens one by one, holding back characters whose bytes are not complete."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.tokens: list[int] = []
        self.given = ""

    def add(self, token: int) -> str:
        """Return the text that a token completes."""
        self.tokens.append(token)
        return self._more(str(self.tokenizer.decode(self.tokens)).rstrip("\ufffd"))

    def rest(self) -> str:
        """Return the text that was held back."""
        return self._more(str(self.tokenizer.decode(self.tokens))) if self.tokens else ""

    def _more(self, text: str) -> str:
        if len(text) <= len(self.given):
            return ""
        piece, self.given = text[len(self.given) :], text
        return piece
