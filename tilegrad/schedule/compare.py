"""Compare two kernels on random inputs with the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import TilegradError
from ..ir.dtype import DType
from ..ir.program import Launch, Program, ProgramBuffer
from ..ir.size import known
from ..runtime.buffer import DeviceBuffer as Memory
from ..runtime.device import Device, device

SIZES = (3, 37)
"""Values of dynamic sizes in a comparison."""
TOLERANCES = {"f64": 1e-9, "f32": 2e-4, "f16": 2e-2, "bf16": 6e-2}
"""Relative tolerance of sums in another order, by type."""


def first_difference(program: Program, old: Launch, new: Launch) -> str:
    """Describe the first difference between the results of two launches; empty if they agree.

    The interpreter refuses accesses outside of a buffer, so a wrong kernel does no harm.
    """
    place = device("reference")
    trials = SIZES if program.sizes else SIZES[:1]
    for trial, extent in enumerate(trials):
        sizes = {name: extent + n for n, name in enumerate(program.sizes)}
        arrays, expected = _example(place, program, old, sizes, trial)
        try:
            got = _ran(place, program, new, arrays, sizes)
        except TilegradError as problem:
            return str(problem).rstrip(".")
        for name, mine in expected.items():
            found = difference(mine, got[name], program.buffer(name))
            if found:
                return found
    return ""


def _example(
    place: Device, program: Program, launch: Launch, sizes: dict[str, int], seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw random elements for every buffer of a launch, and run it on them.

    Integers may be positions: they are small enough to be inside of any axis.
    """
    for below in (100, 8, 2):
        arrays = _random(program, launch, sizes, seed, below)
        try:
            return arrays, _ran(place, program, launch, arrays, sizes)
        except TilegradError:
            continue
    arrays = _random(program, launch, sizes, seed, 1)
    return arrays, _ran(place, program, launch, arrays, sizes)


def _random(program: Program, launch: Launch, sizes: dict[str, int], seed: int, below: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    arrays = {}
    for name in dict.fromkeys(a for a in launch.arguments if isinstance(a, str)):
        type = program.buffer(name).type
        shape = tuple(known(d, sizes) for d in type.shape)
        if type.dtype.is_float:
            arrays[name] = rng.standard_normal(shape).astype(type.dtype.numpy)
        else:
            arrays[name] = rng.integers(0, min(below, int(type.dtype.max) + 1), shape).astype(type.dtype.numpy)
    return arrays


def _ran(
    place: Device, program: Program, launch: Launch, arrays: dict[str, Any], sizes: dict[str, int]
) -> dict[str, Any]:
    """Return the contents of the buffers after a launch."""
    memory: dict[str, Memory] = {name: place.from_host(array) for name, array in arrays.items()}
    arguments = [memory[a] if isinstance(a, str) else known(a, sizes) for a in launch.arguments]
    place.compile(launch.kernel)(arguments, tuple(tiles.count(sizes) for tiles in launch.grid))
    return {name: place.to_host(memory[name], _dtype(program, name), array.shape) for name, array in arrays.items()}


def _dtype(program: Program, name: str) -> DType:
    return program.buffer(name).type.dtype


def difference(expected: Any, got: Any, buffer: ProgramBuffer) -> str:
    """Describe where two arrays differ by more than the order of sums explains."""
    if np.array_equal(expected, got):
        return ""
    dtype = buffer.type.dtype
    wide, other = (expected, got)
    if dtype.is_float:
        wide, other = expected.astype(np.float64), got.astype(np.float64)
        tolerance = TOLERANCES.get(str(dtype), 1e-4)
        scale = float(np.max(np.abs(wide), initial=1.0, where=np.isfinite(wide)))
        same = np.isclose(other, wide, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    else:
        same = np.equal(wide, other)
    if same.all():
        return ""
    place = np.unravel_index(int(np.argmin(same)), same.shape) if same.shape else ()
    at = f"{buffer.name}[{', '.join(map(str, place))}]" if place else buffer.name
    wrong = int(same.size - np.count_nonzero(same))
    return f"{at} is {_number(got, place)} and should be {_number(expected, place)} ({wrong} of {same.size} differ)"


def _number(array: Any, place: Any) -> str:
    value = array[place]
    return f"{float(value):.6g}" if array.dtype.kind not in "iub" else str(value)
