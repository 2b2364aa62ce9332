"""Print tensors as PyTorch does."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .errors import ArgumentError
from .functions.promotion import get_default_dtype
from .ir.dtype import bool_, int64
from .lazy.evaluation import array_of
from .lazy.handle import is_tracing


class Options(NamedTuple):
    """Settings for printing tensors."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PROFILES = {"default": Options(), "short": Options(2, 1000, 2), "full": Options(threshold=math.inf)}

_options = Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set digits after the point, elements printed in full, elements at each edge, and line width."""
    global _options
    if profile is not None and profile not in PROFILES:
        raise ArgumentError(f"set_printoptions: profile is one of {', '.join(PROFILES)}, not {profile!r}")
    base = _options if profile is None else PROFILES[profile]
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _options = base._replace(**{k: v for k, v in given.items() if v is not None}, sci_mode=sci_mode)  # type: ignore[arg-type]


class NumberFormat:
    """The number format of one tensor: all elements are printed alike, with one width."""

    def __init__(self, numbers: np.ndarray[Any, Any]) -> None:
        self.floating = numbers.dtype.kind == "f"
        self.whole, self.scientific, self.width = True, False, 1
        if not self.floating:
            self.width = max((len(str(n)) for n in numbers.ravel().tolist()), default=1)
            return
        magnitudes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)]).astype(np.float64)
        if magnitudes.size == 0:
            return
        least, greatest = float(magnitudes.min()), float(magnitudes.max())
        self.whole = bool((np.ceil(magnitudes) == magnitudes).all())
        wide = greatest / least > 1000.0 or greatest > 1.0e8
        self.scientific = wide if self.whole else wide or least < 1.0e-4
        if _options.sci_mode is not None:
            self.scientific = _options.sci_mode
        finite = numbers[np.isfinite(numbers) & (numbers != 0)].ravel().tolist()
        self.width = max(1, *(len(self.text(n)) for n in finite))

    def text(self, n: Any) -> str:
        """Format a number to the common width."""
        if not self.floating:
            return str(n)
        if self.scientific:
            return f"{n:.{_options.precision}e}"
        if self.whole:
            return f"{n:.0f}" + ("." if math.isfinite(n) else "")
        return f"{n:.{_options.precision}f}"

    def __call__(self, n: Any) -> str:
        return self.text(n).rjust(self.width)


def show(x: Any) -> str:
    """Print a tensor."""
    if is_tracing():
        return f"<traced tensor {x.value.type}>"
    array = array_of(x)
    suffixes = []
    if x.value.device != "cpu":
        suffixes.append(f"device='{x.value.device}'")
    default = (get_default_dtype(), int64, bool_)
    if array.size == 0:
        body, default = "[]", (get_default_dtype(),)  # type: ignore[assignment]
        if array.ndim != 1:
            suffixes.append(f"size={tuple(array.shape)}")
    else:
        numbers = array.astype(np.float64) if x.value.dtype.is_float else array
        short = array.size > _options.threshold
        body = _block(numbers, NumberFormat(_edges(numbers) if short else numbers), len("tensor("), short)
    if x.value.dtype not in default:
        suffixes.append(f"dtype={x.value.dtype!r}")
    if x.grad_fn is not None:
        suffixes.append(f"grad_fn=<{x.grad_fn.name()}>")
    elif x.requires_grad:
        suffixes.append("requires_grad=True")
    return _with_suffixes(f"tensor({body}", suffixes)


def _with_suffixes(text: str, suffixes: list[str]) -> str:
    used = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if used + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * len("tensor(") + suffix
            used = len("tensor(") + len(suffix)
        else:
            text += ", " + suffix
            used += len(suffix) + 2
    return text + ")"


def _edges(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Select the printed part of a large tensor."""
    edge = _options.edgeitems
    for axis, extent in enumerate(x.shape):
        if extent > 2 * edge:
            x = np.take(x, [*range(edge), *range(extent - edge, extent)], axis)
    return x


def _block(x: np.ndarray[Any, Any], form: NumberFormat, indent: int, short: bool) -> str:
    if x.ndim == 0:
        return form(x.item())
    edge = _options.edgeitems
    cut = short and len(x) > 2 * edge
    chosen = [*x[:edge], *x[len(x) - edge :]] if cut else list(x)
    if x.ndim == 1:
        parts = [form(n.item()) for n in chosen]
        if cut:
            parts.insert(edge, " ...")
        in_line = max(1, (_options.linewidth - indent) // (form.width + 2))
        lines = [", ".join(parts[n : n + in_line]) for n in range(0, len(parts), in_line)]
        return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
    blocks = [_block(part, form, indent + 1, short) for part in chosen]
    if cut:
        blocks.insert(edge, "...")
    return "[" + ("," + "\n" * (x.ndim - 1) + " " * (indent + 1)).join(blocks) + "]"
