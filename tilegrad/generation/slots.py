"""The rows of a batch on the device: prompts are read in chunks, then all rows advance by one token a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..autograd.modes import no_grad
from ..errors import ArgumentError
from ..functional import tensor
from ..functions.arithmetic import where
from ..functions.creation import arange
from ..jitted.function import jit
from ..tensor import Tensor
from .cache import KeyValueCache, scores_of
from .token_sampling import Sampling, SamplingTensors, choose

DEFAULTS = Sampling(temperature=0.0)


class Slots:
    """Rows of one batch with their caches, lengths and settings.

    There is one program for a step of all rows, and one for each length of chunk in which prompts are read: lengths,
    settings and which rows are in use are data. A row that is not in use repeats one token at one position.
    """

    def __init__(self, model: Any, count: int, capacity: int, chunks: Sequence[int], device: Any) -> None:
        self.model, self.count, self.capacity, self.device = model, count, capacity, device
        self.chunks = sorted({min(n, capacity) for n in chunks})
        self.cache = KeyValueCache(model, count, capacity, device)
        self.lengths = [0] * count
        """Tokens of each row whose keys and values are in the cache."""
        self.tokens = [0] * count
        """The token with which each row goes on."""
        self.settings: list[Sampling] = [DEFAULTS] * count
        self.active = [False] * count
        self.numbers = arange(count, device=device).realize()
        self._uploaded: tuple[Any, ...] | None = None
        self.steps = jit(self._step)
        self.reads = jit(self._read)

    def _step(self, tokens: Tensor, positions: Tensor, active: Tensor, settings: SamplingTensors) -> Any:
        """Advance all rows by one token."""
        with no_grad():
            view = self.cache.view(self.numbers, positions, 1)
            logits = scores_of(self.model, tokens.unsqueeze(1), view)[:, -1]
            chosen = choose(logits, SamplingTensors(*settings), positions)
            following = where(active, chosen.clamp(min=0), tokens)
            return chosen, following, positions + active.to(positions.dtype)

    def _read(self, tokens: Tensor, slot: Tensor, start: Tensor, last: Tensor, settings: SamplingTensors) -> Any:
        """Read a chunk of one prompt, and choose the token after its last one."""
        with no_grad():
            view = self.cache.view(slot, start, int(tokens.shape[1]), last)
            logits = scores_of(self.model, tokens, view)
            if logits.shape[1] > 1:
                logits = view.last(logits)
            return choose(logits[:, 0], SamplingTensors(*settings), start + last)

    def begin(self, slot: int, settings: Sampling) -> None:
        """Take a row for a request."""
        self.lengths[slot], self.settings[slot] = 0, settings
        self._uploaded = None

    def read(self, slot: int, prompt: Sequence[int]) -> int | None:
        """Read the next chunk of a prompt; return the first token of the answer after the last one."""
        start = self.lengths[slot]
        left = prompt[start:]
        size = next((n for n in self.chunks if n >= len(left)), self.chunks[-1])
        used = min(size, len(left))
        # padded with a token of the prompt: scores of others might be NaN, and masked products with NaN are NaN
        chunk = np.full((1, size), left[used - 1], np.int64)
        chunk[0, :used] = left[:used]
        settings = self._tensors([self.settings[slot]])
        row, begun, last = (self._upload(np.array([n], np.int64)) for n in (slot, start, used - 1))
        chosen = self.reads(self._upload(chunk), row, begun, last, settings)
        self.lengths[slot] += used
        self._uploaded = None
        return int(chosen.item()) if used == len(left) else None

    def go_on(self, slot: int, token: int) -> None:
        """Let a row take part in the following steps, with its next token."""
        self.tokens[slot], self.active[slot] = token, True
        self._uploaded = None

    def release(self, slot: int) -> None:
        """Give a row back. Its position must be within the cache, as it is still computed."""
        self.lengths[slot] = self.tokens[slot] = 0
        self.active[slot], self.settings[slot] = False, DEFAULTS
        self._uploaded = None

    def step(self) -> list[int]:
        """Advance the active rows by one token; return the tokens of all rows."""
        if self._uploaded is None:
            numbers = [self._upload(np.array(x)) for x in (self.tokens, self.lengths, self.active)]
            self._uploaded = (*numbers, self._tensors(self.settings))
        tokens, positions, active, settings = self._uploaded
        chosen, *moved = self.steps(tokens, positions, active, settings)
        found: list[int] = chosen.tolist()
        self._uploaded = (*moved, active, settings)
        for slot in range(self.count):
            if self.active[slot]:
                self.lengths[slot] += 1
                self.tokens[slot] = max(found[slot], 0)
        return found

    def _tensors(self, rows: Sequence[Sampling]) -> SamplingTensors:
        columns = (
            np.array([s.temperature for s in rows], np.float32),
            np.array([s.top_k or 0 for s in rows], np.int64),
            np.array([s.top_p for s in rows], np.float32),
            np.array([s.seed or 0 for s in rows], np.int64),
        )
        return SamplingTensors(*map(self._upload, columns))

    def _upload(self, array: Any) -> Tensor:
        return tensor(array, device=self.device)

    @property
    def programs(self) -> int:
        """Programs that have been compiled."""
        return len(self.steps.programs) + len(self.reads.programs)


def checked_capacity(model: Any, max_length: int | None) -> int:
    """Return the tokens of the longest request: what is asked for, within the context of the model."""
    context = getattr(model, "context", None)
    if max_length is None and not isinstance(context, int):
        raise ArgumentError(f"{type(model).__name__} has no `context`, its largest number of tokens: give max_length=")
    found = context if max_length is None else max_length
    if isinstance(found, bool) or not isinstance(found, int) or found < 2:
        raise ArgumentError(f"max_length is {max_length!r}: give the tokens of the longest prompt with its answer")
    if isinstance(context, int) and found > context:
        raise ArgumentError(f"max_length is {found}, but the context of {type(model).__name__} has {context} tokens")
    return found
