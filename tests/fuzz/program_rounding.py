"""Tells roundings from mistakes: runs a program with PyTorch, each result computed exactly and rounded by chance.

Two right ways to compute a sum differ by roundings, and what follows may make them large: a mean that is subtracted
from equal numbers, a product of softmaxes, the floor of a whole number. How far such results are apart over several
runs is how far tilegrad's may be from PyTorch's. What is exact in its type is the same in every run.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.fuzz.program_check import Seen, Wrong, compare, default_type, difference, run
from tests.fuzz.programs import Program

RUNS = 8
BITS = {"float64": 42, "float32": 22, "float16": 9, "bfloat16": 7}
"""Bits of a result that a perturbed run keeps: a few less than its type has, as one operation is several roundings."""

MARGIN = 8
"""Factor by which results may be farther apart than the perturbed runs are."""

SUMS = re.compile(
    r"aten\.(sum|nansum|mean|var|std|norm|linalg_|mm|bmm|addmm|addmv|addr|baddbmm|addbmm|dot|vdot|mv|conv|prod|cum|log_?cum|"
    r"logsumexp|_?(log_)?softmax|_?softmax|native_|_native|avg_pool|_adaptive|adaptive|upsample|_upsample|dist|cdist|_cdist|_pdist|"
    r"_scaled|index_add|index_put|_index_put|scatter_add|scatter_reduce|embedding|.*backward|trace|_weight_norm|renorm)"
)
"""Operations that add up: what they give is what elements that are a rounding off would give exactly."""

EXACT = re.compile(r"aten\.(sum|nansum|mm|bmm|addmm|dot|mv|conv|cumsum|index_add|scatter_add|trace)")
"""Operations among these that map integers to integers."""

BACKWARD = re.compile(r"aten\._(log_)?softmax_backward_data")

MEANS = re.compile(r"aten\.(var|std)_mean\.correction")

LONGEST = 1024
"""Terms up to which the error of a sum grows."""

INTEGERS = 2.0**31
"""Floating-point numbers beyond it become whichever integers a machine likes."""


class Rounding:
    """Random roundings."""

    def __init__(self, seed: int) -> None:
        import torch

        self.torch: Any = torch
        self.generator = torch.Generator().manual_seed(seed)

    def drawn(self, x: Any) -> Any:
        return self.torch.rand(x.shape, generator=self.generator, dtype=self.torch.float64)

    def rounded(self, x: Any, dtype: Any) -> Any:
        """One of the two neighbours of each element in a type, the nearer one more often."""
        bits = BITS[str(dtype).removeprefix("torch.")]
        mantissa, exponent = self.torch.frexp(x)
        whole = (mantissa * 2.0**bits + self.drawn(x)).floor()
        return self.torch.where(x.isfinite(), self.torch.ldexp(whole, exponent - bits), x).to(dtype)

    def apart(self, x: Any, of: Any) -> Any:
        """Elements that are up to a rounding of the largest element of another tensor off."""
        largest = float(of.abs().max()) if of.numel() else 0.0
        rounding = 2.0 ** -BITS[str(of.dtype).removeprefix("torch.")]
        return x + (self.drawn(x) * 2 - 1) * (largest * rounding if np.isfinite(largest) else 0.0)

    def moved(self, x: Any, dtype: Any, exact: bool) -> Any:
        """Elements of which each is a rounding off, and all together as far as a long sum in their type may be.

        Sums of quarters and small whole numbers may be exact: then these stay.
        """
        if exact and bool(((x * 16).frac() == 0).all()) and bool((x.abs() < 4096).all()):
            return x
        rounding = 2.0 ** -BITS[str(dtype).removeprefix("torch.")]
        common = (float(self.drawn(x.new_empty(()))) * 2 - 1) * min(x.numel(), LONGEST) / 16
        return x * (1 + (self.drawn(x) * 3).floor().sub(1) * rounding + common * rounding)


def is_float(x: Any) -> bool:
    import torch

    return isinstance(x, torch.Tensor) and str(x.dtype).removeprefix("torch.") in BITS


def exact(by: Rounding, function: Any, args: Any, kwargs: Any, writes: bool) -> Any:
    """Compute an operation in float64; sums are perturbed by a rounding, except for tensors that they write to."""
    import torch

    sums, whole = SUMS.match(str(function)) is not None, EXACT.match(str(function)) is not None

    def wide(x: Any, written: bool) -> Any:
        if isinstance(x, (list, tuple)):
            return type(x)(wide(part, False) for part in x)
        if isinstance(x, torch.dtype):
            return torch.float64 if x.is_floating_point else x
        if not isinstance(x, torch.Tensor):
            return x
        if not is_float(x):
            return x.clone() if written else x
        copy = x.to(torch.float64, copy=True)
        return by.moved(copy, x.dtype, whole) if sums and x.numel() and not written else copy

    given = [wide(x, writes and n == 0) for n, x in enumerate(args)]
    made = function(*given, **{k: wide(x, writes and k == "out") for k, x in kwargs.items()})
    if MEANS.match(str(function)):  # the mean that PyTorch keeps as it goes is not 0 where the sum is
        spread, mean = made
        axes = args[1] if len(args) > 1 and args[1] else list(range(args[0].dim()))
        made = spread, args[0].double().mean(axes, keepdim=True).reshape(mean.shape)
    if BACKWARD.match(str(function)) and is_float(args[0]) and isinstance(made, torch.Tensor):
        made = by.apart(made, args[0])  # a difference of what comes in, rounded, and of a part of it
    return made


def replaced(by: Rounding, made: Any, better: Any, written: bool) -> Any:
    """A result with better elements, rounded; what was written stays where it lies."""
    import torch

    if not is_float(made) or not made.numel() or better.shape != made.shape:
        return made
    if not written:
        return by.rounded(better, made.dtype)
    if torch._debug_has_internal_overlap(made) == 0:
        made.copy_(by.rounded(better, made.dtype))
    return made


@contextmanager
def rounding_at_random(seed: int) -> Iterator[None]:
    """Compute every operation within the block in float64, those of derivatives included, and round by chance."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    by = Rounding(seed)

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if "_efficientzerotensor" in str(function):  # what PyTorch cannot read from Python: it ends the process
                return torch.zeros(*args, **{k: v for k, v in kwargs.items() if k in ("dtype", "device")})
            aliases = [r.alias_info for r in function._schema.returns]
            writes = any(a is not None and a.is_write for a in aliases)
            if not aliases or (aliases[0] is not None and not writes):
                return function(*args, **kwargs)
            better = exact(by, function, args, kwargs, writes)
            made = function(*args, **kwargs)
            if not isinstance(made, (tuple, list)):
                return replaced(by, made, better, writes)
            return type(made)(replaced(by, x, y, writes) for x, y in zip(made, better, strict=True))

    with Mode():
        yield


def other_runs(program: Program) -> list[list[Seen] | None]:
    """A program in float64, and rounded at random several times; None for a run that ended in an error."""
    import torch

    module: Any = torch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with default_type(torch, torch.float64):
            found: list[list[Seen] | None] = [run(module, program, wide=True)]
        for n in range(RUNS):
            try:
                with rounding_at_random(n):
                    found.append(run(module, program))
            except (RuntimeError, IndexError, ValueError):
                found.append(None)
    return found


def compare_within_roundings(program: Program, got: list[Seen], want: list[Seen], tolerances: list[float]) -> None:
    """Raise `Wrong` at the first result that roundings do not explain."""
    runs = other_runs(program)
    if any(r is None or [s.elements.shape for s in r] != [s.elements.shape for s in want] for r in runs):
        return  # what a program computes, or whether it ends, hangs on a rounding
    whole = [r for r in runs if r is not None]
    overflowed = any(
        bool((~np.isfinite(w.elements) & np.isfinite(s.elements)).any())
        for w, s in zip(want, whole[0], strict=True)
        if w.elements.dtype.kind == "f"
    )
    beyond = overflowed or any(float(np.abs(s.elements).max(initial=0)) > INTEGERS for s in whole[0] if s.dtype in BITS)
    for n, (g, w, tolerance) in enumerate(zip(got, want, tolerances, strict=True)):
        try:
            compare([g], [w], [tolerance])
        except Wrong:
            if g.elements.shape != w.elements.shape or g.dtype != w.dtype:
                raise
            if beyond and w.elements.dtype.kind in "iu":
                continue
            if "gradient" in w.name:  # where a derivative is not there, nobody asks which number it is
                w = w._replace(elements=np.where(np.isfinite(w.elements), w.elements, g.elements))
            right = explained(g.elements, w.elements, [r[n].elements for r in whole], tolerance, overflowed)
            if not right.all():
                text = difference(np.where(right, w.elements, g.elements), w.elements)
                raise Wrong(f"{w.name}: {text} (runs rounded at random agree)") from None


def explained(
    got: np.ndarray, want: np.ndarray, runs: Sequence[np.ndarray], tolerance: float, overflowed: bool
) -> np.ndarray:
    """Tell for each element whether it is correct: as near to PyTorch's as the perturbed runs are to each other."""
    others = np.stack([np.asarray(r) for r in runs])
    if got.dtype.kind not in "fiu":
        return (got == want) | (others != want).any(0)
    with np.errstate(all="ignore"):
        a, b = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
        distances = np.abs(np.asarray(others, dtype=np.float64) - b)
        finite = np.isfinite(distances)
        near = tolerance + MARGIN * (float(distances[finite].max()) if finite.any() else 0.0)
        if want.dtype.kind == "i":
            alike = want == np.iinfo(want.dtype).min  # of a NaN, say: any number will do
        else:
            alike = np.zeros(want.shape, dtype=bool)
        alike = alike | (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= near)
        unsure = ~(finite | (np.asarray(others, dtype=np.float64) == b) | (np.isnan(b) & np.isnan(others))).all(0)
    return alike | unsure | (overflowed & ~np.isfinite(a))
