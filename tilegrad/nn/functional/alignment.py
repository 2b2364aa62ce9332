"""Define the connectionist temporal classification loss."""

from __future__ import annotations

from collections.abc import Sequence

from ...control import scan
from ...errors import ArgumentError, ShapeError
from ...functions.arithmetic import where
from ...functions.creation import arange, as_tensor
from ...functions.joining import pad, stack
from ...ir.dtype import int64
from ...jitted.function import tracing
from ...lazy.evaluation import MAX_CHECKED_INDICES, array_of
from ...tensor import Tensor
from .losses import reduced

NEVER = -1e30
"""Logarithm of probability 0: finite, as differences of infinities are NaN."""


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Compute the CTC loss of log-probabilities (T, N, C) and labels (N, S), or all labels in one row (Graves et al.,
    2006).

    Blanks may stand between labels and must between equal ones. Its gradient is right behind a `log_softmax`, and for
    any other input as well.
    """
    single = log_probs.dim() == 2
    if log_probs.dim() not in (2, 3):
        raise ShapeError(f"ctc_loss: log_probs need (T, N, C) or (T, C), but the shape is {tuple(log_probs.shape)}")
    likelihood = log_probs.unsqueeze(1) if single else log_probs
    steps, batch, classes = likelihood.shape
    if not 0 <= blank < classes:
        raise ArgumentError(f"ctc_loss: blank={blank} is no class: there are {classes}, 0 to {classes - 1}")
    wanted = _lengths("target_lengths", target_lengths, batch).to(targets.device)
    given = _lengths("input_lengths", input_lengths, batch).to(targets.device)
    _check_lengths("input_lengths", given, steps)
    _check_lengths("target_lengths", wanted, targets.shape[1] if targets.dim() == 2 else None)
    labels = _rows(targets, wanted, batch, single)
    losses = _negative_log_likelihood(likelihood, _with_blanks(labels, blank), given, wanted, blank)
    impossible = losses > -NEVER / 2
    losses = where(impossible, 0.0 if zero_infinity else float("inf"), losses)
    if single:
        losses = losses.squeeze(0)
    if reduction == "mean":
        return (losses / wanted.clamp(min=1).to(losses.dtype).reshape(losses.shape)).mean()
    return reduced(losses, reduction)


def _lengths(name: str, given: Tensor | Sequence[int], batch: int) -> Tensor:
    lengths = given if isinstance(given, Tensor) else as_tensor(list(given) if isinstance(given, Sequence) else given)
    lengths = lengths.reshape(-1)
    if lengths.shape[0] != batch:
        raise ShapeError(f"ctc_loss: {name} has {lengths.shape[0]} numbers for {batch} sequences")
    return lengths.to(int64)


def _check_lengths(name: str, lengths: Tensor, most: int | None) -> None:
    """Raise for invalid lengths, where they are known without computing anything."""
    if tracing() or lengths.value.buffer is None or not 0 < lengths.numel() <= MAX_CHECKED_INDICES:
        return
    numbers = array_of(lengths).tolist()
    if min(numbers) < 0 or (type(most) is int and max(numbers) > most):
        raise ArgumentError(f"ctc_loss: {name} are {numbers}: they must be from 0 to {'any' if most is None else most}")


def _rows(targets: Tensor, lengths: Tensor, batch: int, single: bool) -> Tensor:
    """Return the labels of each sequence in a row; later elements are unspecified."""
    if targets.dim() == 2 and targets.shape[0] == batch:
        return targets.to(int64)
    if targets.dim() != 1:
        raise ShapeError(
            f"ctc_loss: targets need (N, S) with N = {batch}, or one row of all labels, but the shape is "
            f"{tuple(targets.shape)}"
        )
    if single:
        return targets.to(int64).unsqueeze(0)
    longest = int(lengths.amax().item()) if batch else 0
    first = (lengths.cumsum(0) - lengths).unsqueeze(1)
    places = (first + arange(longest, device=targets.device)).clamp(max=max(targets.shape[0] - 1, 0))
    return targets.to(int64)[places]


def _with_blanks(labels: Tensor, blank: int) -> Tensor:
    """Insert blanks before, between and after the labels."""
    between = stack((labels * 0 + blank, labels), 2).reshape(labels.shape[0], 2 * labels.shape[1])
    return pad(between, (0, 1), value=blank)


def _negative_log_likelihood(likelihood: Tensor, path: Tensor, given: Tensor, wanted: Tensor, blank: int) -> Tensor:
    steps, batch, _ = likelihood.shape
    places = path.shape[1]
    emitted = likelihood.gather(2, path.unsqueeze(0).expand(steps, batch, places)).clamp(min=NEVER)
    here = arange(places, device=path.device)
    # a step over the place before is allowed from one label to a different one
    leaps = (path != blank) & (path != pad(path, (2, 0), value=-1)[:, :places]) & (here >= 2)
    first = where(here < 2, emitted[0], NEVER)
    if places > 1:
        first = where((here == 1) & (wanted == 0).unsqueeze(1), NEVER, first)

    def step(before: Tensor, x: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        emission, time = x
        one = pad(before, (1, 0), value=NEVER)[:, :places]
        two = where(leaps, pad(before, (2, 0), value=NEVER)[:, :places], NEVER)
        after = (stack((before, one, two), 0).logsumexp(0) + emission).clamp(min=NEVER)
        return where((time < given).unsqueeze(1), after, before), None

    last = first
    if steps > 1:
        last, _ = scan(step, first, (emitted[1:], arange(1, steps, device=path.device)))
    ends = (here == (2 * wanted).unsqueeze(1)) | (here == (2 * wanted - 1).unsqueeze(1))
    return -where(ends, last, NEVER).logsumexp(1)
