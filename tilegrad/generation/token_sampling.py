"""How the next token is chosen: settings of a request, and the choice for all rows of a batch at once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ..errors import ArgumentError
from ..functions.creation import empty
from ..ir.dtype import float32, int64
from ..tensor import Tensor
from .kernels import draw, weigh

TOKENS_PER_BLOCK = 1024
"""Entries of the vocabulary of a step of a kernel's loop."""
INVALID = -1
"""The choice from scores that are NaN or infinite."""
MAX_SEED = 1 << 63


@dataclass(frozen=True)
class Sampling:
    """Settings of a request.

    `temperature=0` takes the most likely token; otherwise logits are divided by it, the `top_k` most likely tokens are
    kept (all that are as likely as the last of them), then the fewest whose probabilities sum up to `top_p`, and one
    is drawn. The draw depends on the seed, the position and the scores alone.
    """

    max_new_tokens: int | None = None
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[int, ...] = ()
    """Tokens after which the answer ends; they are not part of it."""
    timeout: float | None = None
    """Seconds after which the answer ends as it is."""

    def __post_init__(self) -> None:
        _require_whole("max_new_tokens", self.max_new_tokens, 1)
        _require_whole("top_k", self.top_k, 1, "; None keeps all tokens")
        _require_whole("seed", self.seed, 0)
        if self.seed is not None and self.seed >= MAX_SEED:
            raise ArgumentError(f"seed is {self.seed}: give an integer below 2**63")
        _require_number("temperature", self.temperature, "a finite number of at least 0; 0 takes the most likely token")
        _require_number("top_p", self.top_p, "a probability above 0, at most 1")
        if not 0 < self.top_p <= 1:
            raise ArgumentError(f"top_p is {self.top_p}: give a probability above 0, at most 1")
        if self.timeout is not None:
            _require_number("timeout", self.timeout, "a number of seconds")
        object.__setattr__(self, "stop", _tokens(self.stop))


def _require_whole(name: str, given: Any, least: int, hint: str = "") -> None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int | np.integer) or given < least):
        raise ArgumentError(f"{name} is {given!r}: give an integer of at least {least}{hint}")


def _require_number(name: str, given: Any, wanted: str) -> None:
    is_number = isinstance(given, int | float | np.integer | np.floating) and not isinstance(given, bool)
    if not is_number or not math.isfinite(given) or given < 0:
        raise ArgumentError(f"{name} is {given!r}: give {wanted}")


def _tokens(given: Any) -> tuple[int, ...]:
    found = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str | bytes) else (given,)
    if any(isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0 for n in found):
        raise ArgumentError(f"stop is {given!r}: give tokens, which are integers of at least 0")
    return tuple(int(n) for n in found)


class SamplingTensors(NamedTuple):
    """The settings of all rows of a batch."""

    temperatures: Tensor
    top_ks: Tensor
    top_ps: Tensor
    seeds: Tensor


def choose(logits: Tensor, settings: SamplingTensors, positions: Tensor) -> Tensor:
    """Choose a token for each row of logits (batch, vocabulary), or `INVALID` if they are NaN or infinite."""
    rows, vocabulary = (int(n) for n in logits.shape)
    best, chosen = (empty(rows, dtype=int64, device=logits.device) for _ in range(2))
    weights = empty(rows, vocabulary, dtype=float32, device=logits.device)
    sizes = {"VOCABULARY": vocabulary, "BLOCK": min(TOKENS_PER_BLOCK, vocabulary)}
    weigh[(rows,)](logits.contiguous(), settings.temperatures, best, weights, **sizes)
    draw[(rows,)](weights, best, *settings, positions, chosen, **sizes)
    return chosen
