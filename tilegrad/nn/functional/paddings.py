"""Define padding as a function made of slices, flips and joins, whose gradients need no scatter."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import ArgumentError, ShapeError
from ...functions.joining import cat
from ...functions.joining import pad as constant_pad
from ...lazy.kept_formats import keeping_format
from ...lazy.layout import row_by_row
from ...tensor import Tensor

MODES = ("constant", "reflect", "replicate", "circular")


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad the last axes: (last before, last after, before the last, ...).

    Negative widths cut. "constant" puts `value`; "reflect" mirrors without repeating the border, "replicate" repeats
    it, "circular" goes on at the other end.

    >>> from tilegrad import tensor
    >>> pad(tensor([[1, 2, 3]]), (2, 1), "reflect")
    tensor([[3, 2, 1, 2, 3, 2]])
    """
    if mode not in MODES:
        raise ArgumentError(f"pad: mode {mode!r} is not there; there are {', '.join(MODES)}")
    if mode == "constant":
        return constant_pad(input, pad, mode, value)
    if value:
        raise ArgumentError(f"pad: mode {mode!r} takes no value: it puts elements of the input")
    if len(pad) % 2 or len(pad) > 2 * input.dim():
        raise ArgumentError(
            f"pad: {len(pad)} widths for an input of the shape {tuple(input.shape)}; two for each axis, the last first"
        )
    # PyTorch forgets the memory format where it goes on at the other end
    return (row_by_row if mode == "circular" else keeping_format(0))(_surrounded)(input, pad, mode)


def _surrounded(input: Tensor, pad: Sequence[int], mode: str) -> Tensor:
    padded = input
    for n in range(len(pad) // 2):
        padded = _padded(padded, input.dim() - 1 - n, pad[2 * n], pad[2 * n + 1], mode)
    return padded if any(pad) and min(pad) >= 0 else padded.clone()


def _padded(x: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    shape = tuple(x.shape)
    cut = min(before, 0), min(after, 0)
    if any(cut) and mode == "replicate" and 0 < shape[axis] + before + after and shape[axis] + sum(cut) <= 0:
        return _repeated(x, axis, 0 if after < 0 else shape[axis] - 1, shape[axis] + before + after)
    if any(cut):
        if shape[axis] + sum(cut) < 0:
            raise ShapeError(f"pad: ({before}, {after}) cuts more from axis {axis} of the shape {shape} than is there")
        x = x.narrow(axis, -cut[0], shape[axis] + sum(cut))
    length, before, after = x.shape[axis], max(before, 0), max(after, 0)
    if not before and not after:
        return x
    most = {"reflect": length - 1, "circular": length}.get(mode)
    if most is not None and max(before, after) > most:
        raise ShapeError(
            f"pad: mode {mode!r} can put at most {max(most, 0)} elements at each end of axis {axis} of the shape "
            f"{shape}, not {max(before, after)}"
        )
    if length == 0:
        raise ShapeError(f"pad: axis {axis} of the shape {shape} has no element to put at its ends")
    first, last = _ends(x, axis, before, after, mode)
    return cat([part for part, width in ((first, before), (x, 1), (last, after)) if width], axis)


def _ends(x: Tensor, axis: int, before: int, after: int, mode: str) -> tuple[Tensor, Tensor]:
    """Return what is put at the two ends of an axis."""
    length = x.shape[axis]
    match mode:
        case "reflect":
            return x.narrow(axis, 1, before).flip(axis), x.narrow(axis, length - 1 - after, after).flip(axis)
        case "circular":
            return x.narrow(axis, length - before, before), x.narrow(axis, 0, after)
    return _repeated(x, axis, 0, before), _repeated(x, axis, length - 1, after)


def _repeated(x: Tensor, axis: int, place: int, times: int) -> Tensor:
    shape = [times if n == axis else extent for n, extent in enumerate(x.shape)]
    return x.narrow(axis, place, 1).expand(*shape)
