"""Examples of ops that put elements in other places."""

from __future__ import annotations

import numpy as np

from tests.ops.registry import (
    NONE,
    SMALL,
    example,
    floats,
    functional,
)
from tilegrad.ops import movement, windows

# --- movement ----------------------------------------------------------------------------------------

example(movement.Permute, lambda x: movement.permute(x, (2, 0, -2)), SMALL, torch=lambda t, x: x.permute(2, 0, -2))
example(movement.Permute, lambda x: movement.transpose(x, 0, 2), SMALL, torch=lambda t, x: x.transpose(0, 2))
example(movement.Permute, lambda x: movement.moveaxis(x, 0, -1), SMALL, torch=lambda t, x: t.moveaxis(x, 0, -1))
example(
    movement.Permute,
    lambda x: movement.moveaxis(x, (0, 1), (2, 0)),
    SMALL,
    torch=lambda t, x: t.moveaxis(x, (0, 1), (2, 0)),
)
for start, stop, step in (
    (1, 4, 2),
    (None, None, -1),
    (-1, None, -2),
    (5, 1, 1),
    (None, -2, None),
    (-100, 100, 3),
    (3, 0, -1),
):
    example(
        movement.Slice if (start, stop) != (5, 1) else None,
        lambda x, s=(start, stop, step): movement.slice_axis(x, -1, *s),
        floats(2, 5),
        numpy=lambda x, s=(start, stop, step): x[:, slice(*s)],
        name=f"slice {start}:{stop}:{step}",
    )
example(movement.Slice, lambda x: movement.narrow(x, 1, 1, 2), SMALL, torch=lambda t, x: x.narrow(1, 1, 2))
example(movement.Slice, lambda x: movement.select(x, 1, -1), SMALL, torch=lambda t, x: x.select(1, -1))
example(movement.Slice, lambda x: movement.flip(x, (0, 2)), SMALL, torch=lambda t, x: x.flip(0, 2))
example(movement.Slice, lambda x: movement.split(x, 3, 2), SMALL, torch=lambda t, x: x.split(3, 2))
example(movement.Slice, lambda x: movement.split(x, (1, 3), 2), SMALL, torch=lambda t, x: x.split((1, 3), 2))
example(movement.Slice, lambda x: movement.chunk(x, 3, 2), SMALL, torch=lambda t, x: x.chunk(3, 2))
example(
    movement.Pad,
    lambda x: movement.pad(x, ((0, 0), (1, 2), (0, 3)), 0.5),
    SMALL,
    torch=functional("pad", (0, 3, 1, 2), "constant", 0.5),
)
example(
    movement.Pad, lambda x: movement.pad(x, ((0, 0), (-1, 2), (3, -2))), SMALL, torch=functional("pad", (3, -2, -1, 2))
)
example(movement.Pad, lambda x: movement.pad(x, ((1, 1), (0, 0))), NONE, torch=functional("pad", (0, 0, 1, 1)))
example(
    movement.Pad,
    lambda x: movement.Pad(x, (5, 1), (-2, 1), (7, 4)),
    floats(3, 2),
    numpy=lambda x: np.pad(
        np.pad(x, ((0, 0), (1, 1)))[[2, 2, 1, 1, 0, 0]] * [[0], [1], [0], [1], [0], [1]], ((0, 1), (0, 0))
    ),
)
example(
    movement.Cat,
    lambda *xs: movement.cat(xs, 1),
    SMALL,
    floats(2, 1, 4),
    floats(2, 0, 4),
    torch=lambda t, *xs: t.cat(xs, 1),
)
example(
    movement.Cat, lambda *xs: movement.cat(xs), floats(0), floats(2, 3), floats(1, 3), torch=lambda t, *xs: t.cat(xs)
)
example(movement.Cat, lambda *xs: movement.stack(xs, -1), SMALL, SMALL + 1, torch=lambda t, *xs: t.stack(xs, -1))
example(
    None, lambda x: movement.roll(x, (1, -5), (0, 2)), SMALL, torch=lambda t, x: x.roll((1, -5), (0, 2)), name="roll"
)
example(None, lambda x: movement.roll(x, 5), SMALL, torch=lambda t, x: x.roll(5), name="roll")
example(
    None, lambda x: movement.repeat(x, (2, 1, 3)), floats(2, 2), torch=lambda t, x: x.repeat(2, 1, 3), name="repeat"
)
for axis in (None, 1):
    example(
        None,
        lambda x, a=axis: movement.repeat_interleave(x, 3, a),
        floats(2, 2),
        torch=lambda t, x, a=axis: x.repeat_interleave(3, a),
        name="repeat_interleave",
    )
example(None, lambda x: movement.squeeze(x), floats(1, 3, 1), torch="squeeze", name="squeeze")
example(
    None, lambda x: movement.squeeze(x, (0, 1)), floats(1, 3, 1), torch=lambda t, x: x.squeeze((0, 1)), name="squeeze"
)
example(None, lambda x: movement.unsqueeze(x, -2), floats(2, 3), torch=lambda t, x: x.unsqueeze(-2), name="unsqueeze")
example(None, lambda x: movement.flatten(x, 1), SMALL, torch=lambda t, x: x.flatten(1), name="flatten")
example(
    None,
    lambda x: movement.unflatten(x, 2, (2, -1)),
    SMALL,
    torch=lambda t, x: x.unflatten(2, (2, -1)),
    name="unflatten",
)
for offset in (0, 1, -2, 3, 7):
    example(
        windows.Diagonal,
        lambda x, o=offset: windows.diagonal(x, o, 2, 0),
        SMALL,
        torch=lambda t, x, o=offset: x.diagonal(o, 2, 0),
    )
    example(
        windows.DiagonalEmbed,
        lambda x, o=offset: windows.diagonal_embed(x, o, 0, 2),
        floats(2, 3),
        torch=lambda t, x, o=offset: t.diag_embed(x, o, 0, 2),
    )
    example(None, lambda x, o=offset: windows.tril(x, o), SMALL, torch=lambda t, x, o=offset: x.tril(o), name="tril")
    example(None, lambda x, o=offset: windows.triu(x, -o), SMALL, torch=lambda t, x, o=offset: x.triu(-o), name="triu")
example(None, lambda x: windows.diag(x, 1), floats(3), torch=lambda t, x: t.diag(x, 1), name="diag")
for width, step in ((2, 1), (3, 2), (1, 3), (5, 1)):
    example(
        windows.Unfold,
        lambda x, w=width, s=step: windows.unfold(x, 1, w, s),
        floats(2, 5, 3),
        torch=lambda t, x, w=width, s=step: x.unfold(1, w, s),
    )
example(
    windows.Fold,
    lambda x: windows.Fold(x, 0, 2, 7),
    floats(3, 2, 3),
    numpy=lambda x: np.stack(
        [x[0, :, 0], x[0, :, 1], x[0, :, 2] + x[1, :, 0], x[1, :, 1], x[1, :, 2] + x[2, :, 0], x[2, :, 1], x[2, :, 2]]
    ),
)
