"""Continuous batching: requests join and leave a batch between the steps that compute its next tokens."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, NaNError
from ..random import randint
from ..tensor import Tensor
from .completion import Completion, OverloadedError, Request
from .slots import Slots, checked_capacity
from .token_sampling import INVALID, Sampling

PREFILL_CHUNKS = (16, 128)
"""Tokens of a prompt that are read in one step; the last chunk is padded."""
MAX_WAITING = 1024
"""Requests that may wait for a slot."""
IDLE_SECONDS = 2.0
"""Seconds without work after which the background thread ends; the next request starts another."""


class TextGenerator:
    """Generate tokens with a causal language model, for many requests at a time.

    The model is called as `model(tokens, cache=view)` and calls `cache.attend(query, key, value)` in each layer of
    attention. Up to `max_batch` requests share each step; others wait, and join as soon as one ends. Same model, prompt
    and settings give the same tokens, whatever else is in the batch.

    >>> import tilegrad as tg
    >>> model = tg.nn.models.GPT(20, context=16, width=8, layers=1, heads=2).eval()
    >>> generator = tg.generation.TextGenerator(model, max_batch=2)
    >>> answer = generator.generate([1, 2, 3], max_new_tokens=5, temperature=0)
    >>> len(answer.result()), answer.finish_reason
    (5, 'length')
    """

    def __init__(
        self,
        model: Any,
        max_batch: int = 8,
        max_length: int | None = None,
        tokenizer: Any = None,
        prefill_chunks: Sequence[int] = PREFILL_CHUNKS,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        if getattr(model, "training", False):
            raise ArgumentError(
                f"{type(model).__name__} is in training mode, in which layers may draw: call model.eval()"
            )
        for name, given in (("max_batch", max_batch), ("max_waiting", max_waiting), *_named(prefill_chunks)):
            if isinstance(given, bool) or not isinstance(given, int) or given < 1:
                raise ArgumentError(f"{name} is {given!r}: give an integer of at least 1")
        self.max_length = checked_capacity(model, max_length)
        self.tokenizer, self.max_waiting = tokenizer, max_waiting
        self._slots = Slots(model, max_batch, self.max_length, prefill_chunks, _device_of(model))
        self._free = list(range(max_batch))
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._lock = threading.Condition()
        """Guards the lists of requests; a change is announced to the background thread."""
        self._stepping = threading.Lock()
        """Held by the thread that computes a step."""
        self._thread: threading.Thread | None = None
        self._is_closed = False

    # --- requests --------------------------------------------------------------------

    def generate(self, prompt: Any, **settings: Any) -> Completion:
        """Begin an answer that is computed while the caller iterates over it. `settings` are those of `Sampling`."""
        return self._begin(prompt, settings)

    def submit(self, prompt: Any, **settings: Any) -> Completion:
        """Begin an answer that is computed in the background."""
        completion = self._begin(prompt, settings)
        self.run_in_background()
        return completion

    def _begin(self, prompt: Any, settings: dict[str, Any]) -> Completion:
        request = self._request(prompt, settings)
        with self._lock:
            if self._is_closed:
                raise ArgumentError("the generator is closed")
            if len(self._waiting) >= self.max_waiting:
                self._drop_ended()
            if len(self._waiting) >= self.max_waiting:
                raise OverloadedError(f"{len(self._waiting)} requests are waiting already: try again later")
            self._waiting.append(request)
            self._lock.notify_all()
        return Completion(request, self)

    def _request(self, prompt: Any, settings: dict[str, Any]) -> Request:
        unknown = settings.keys() - Sampling.__dataclass_fields__.keys()
        if unknown:
            known = ", ".join(Sampling.__dataclass_fields__)
            raise ArgumentError(f"there is no setting {', '.join(sorted(unknown))}; there are {known}")
        tokens = self._tokens_of(prompt)
        chosen = Sampling(**settings)
        if chosen.seed is None:
            chosen = Sampling(**{**settings, "seed": int(randint(0, 1 << 31, (1,)).item())})
        if any(n >= self.vocabulary for n in chosen.stop):
            raise ArgumentError(f"stop is {chosen.stop}; the vocabulary has {self.vocabulary}")
        room = self.max_length - len(tokens)
        if room < 1:
            raise ArgumentError(f"the prompt has {len(tokens)} tokens; with an answer there may be {self.max_length}")
        if chosen.max_new_tokens is not None and chosen.max_new_tokens > room:
            raise ArgumentError(
                f"{len(tokens)} tokens of the prompt and max_new_tokens={chosen.max_new_tokens} are more than "
                f"max_length={self.max_length}"
            )
        return Request(tokens, chosen, chosen.max_new_tokens or room)

    def _tokens_of(self, prompt: Any) -> tuple[int, ...]:
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise ArgumentError("the prompt is text: give tokens, or the generator a tokenizer=")
            prompt = self.tokenizer.encode(prompt)
        array = np.asarray(prompt.numpy() if isinstance(prompt, Tensor) else prompt)
        if array.ndim != 1 or array.size == 0:
            raise ArgumentError(f"a prompt is at least one token, in one dimension; its shape is {array.shape}")
        if array.dtype.kind not in "iu":
            raise ArgumentError(f"tokens of a prompt are integers, not {array.dtype}")
        wrong = array[(array < 0) | (array >= self.vocabulary)]
        if wrong.size:
            raise ArgumentError(f"the prompt has token {wrong[0]}; the vocabulary has {self.vocabulary}")
        return tuple(array.tolist())

    # --- steps -----------------------------------------------------------------------

    def advance(self, request: Request, count: int, until: float | None = None) -> None:
        """Wait until a request may have more than `count` tokens; compute a step if no other thread does."""
        with self._lock:
            in_background = self._thread is not None
        if not in_background and self._stepping.acquire(blocking=False):
            try:
                self._step()
            finally:
                self._stepping.release()
            return
        with request.changed:
            if len(request.tokens) <= count and request.reason is None:
                left = IDLE_SECONDS if until is None else max(0.0, until - time.monotonic())
                # not for ever: the thread that computes may be a caller, which stops when it has its own tokens
                request.changed.wait(min(left, IDLE_SECONDS if in_background else 0.01))

    def _step(self) -> None:
        """Admit requests, read a chunk of one prompt, and advance all rows whose prompts are read."""
        with self._lock:
            self._retire()
            self._admit()
            running = list(self._running)
        reading = [r for r in running if not self._slots.active[self._slot(r)]]
        if reading:
            self._read(reading[0])
        decoding = [r for r in running if r.reason is None and self._slots.active[self._slot(r)]]
        if decoding:
            self._decode(decoding)
        with self._lock:
            self._retire()

    @staticmethod
    def _slot(request: Request) -> int:
        assert request.slot is not None
        return request.slot

    def _retire(self) -> None:
        """End requests that are cancelled or late, and give back the slots of those that are finished."""
        self._drop_ended()
        for request in self._running:
            if request.reason is None and (reason := request.reason_to_end()) is not None:
                request.finish(reason)
        for request in [r for r in self._running if r.reason is not None]:
            self._running.remove(request)
            self._slots.release(self._slot(request))
            self._free.append(self._slot(request))

    def _drop_ended(self) -> None:
        """End requests that were cancelled or late while they waited."""
        for request in self._waiting:
            if (reason := request.reason_to_end()) is not None:
                request.finish(reason)
        self._waiting = deque(r for r in self._waiting if r.reason is None)

    def _admit(self) -> None:
        while self._free and self._waiting:
            request = self._waiting.popleft()
            request.slot = self._free.pop(0)
            self._slots.begin(request.slot, request.settings)
            self._running.append(request)

    def _read(self, request: Request) -> None:
        try:
            token = self._slots.read(self._slot(request), request.prompt)
        except Exception as error:
            return request.finish("error", error)
        if token is not None:
            self._deliver(request, token)
            if request.reason is None:
                self._slots.go_on(self._slot(request), token)

    def _decode(self, requests: list[Request]) -> None:
        try:
            tokens = self._slots.step()
        except Exception as error:
            for request in requests:
                request.finish("error", error)
            return
        for request in requests:
            self._deliver(request, tokens[self._slot(request)])

    def _deliver(self, request: Request, token: int) -> None:
        if token == INVALID:
            place = len(request.prompt) + len(request.tokens)
            request.finish("error", NaNError(f"the scores of token {place} of a request are NaN or infinite"))
        elif (reason := request.reason_to_end()) is not None:
            request.finish(reason)
        else:
            request.deliver(token)

    # --- the background thread -------------------------------------------------------

    def run_in_background(self) -> None:
        """Compute steps in a thread of their own while there are requests."""
        with self._lock:
            if self._thread is None and not self._is_closed:
                self._thread = threading.Thread(target=self._run, name="tilegrad generation", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            self._run_while_there_is_work()
        finally:
            with self._lock:
                if self._thread is threading.current_thread():
                    self._thread = None  # an error: those who wait compute for themselves

    def _run_while_there_is_work(self) -> None:
        while True:
            with self._lock:
                if not self._has_work() and not self._is_closed:
                    self._lock.wait(IDLE_SECONDS)
                if not self._has_work():
                    self._thread = None
                    return
            with self._stepping:
                self._step()

    def _has_work(self) -> bool:
        return bool(self._waiting or self._running)

    def close(self) -> None:
        """Cancel all requests, and refuse others."""
        with self._lock:
            self._is_closed = True
            for request in (*self._waiting, *self._running):
                request.is_cancelled = True
            self._lock.notify_all()
        with self._stepping, self._lock:
            self._retire()

    def __enter__(self) -> TextGenerator:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    # --- what it takes ---------------------------------------------------------------

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""
        return int(self._slots.cache.vocabulary)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the caches of all slots."""
        return self._slots.cache.bytes

    @property
    def programs(self) -> int:
        """Compiled programs: one for the step, one for each length of chunk that was met."""
        return self._slots.programs

    @property
    def load(self) -> dict[str, int]:
        """Requests that run and that wait, and the slots."""
        with self._lock:
            return {"running": len(self._running), "waiting": len(self._waiting), "slots": self._slots.count}

    def __repr__(self) -> str:
        found = self.load
        return (
            f"<TextGenerator: {found['running']} of {found['slots']} slots in use, {found['waiting']} requests waiting>"
        )


def _named(chunks: Any) -> list[tuple[str, Any]]:
    return [("prefill_chunks", n) for n in chunks] or [("prefill_chunks", 0)]


def _device_of(model: Any) -> Any:
    parameters = getattr(model, "parameters", None)
    first = next(iter(parameters()), None) if callable(parameters) else None
    return None if first is None else first.device
