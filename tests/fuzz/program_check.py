"""Runs a random program with PyTorch and with tilegrad, in every mode, and compares what is seen of it."""

from __future__ import annotations

import random
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz.programs import GRID, Program, space_of, tensor

EPSILON = {"float64": 2.0**-44, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""A rounding of each type; of float64 some of its own, as no wider type shows what rounding does to it."""


class Seen(NamedTuple):
    """One thing that a program shows: what it is called, its element type, its elements."""

    name: str
    dtype: str
    elements: np.ndarray


class Wrong(Exception):
    """A result of tilegrad that differs from PyTorch's."""


class Refused(Exception):
    """tilegrad raises where PyTorch computes."""


def shown(name: str, x: Any) -> Seen:
    """Show a result as users would read it."""
    if not hasattr(x, "tolist"):
        return Seen(name, type(x).__name__, np.asarray(x))
    dtype = getattr(x.dtype, "name", None) or str(x.dtype).removeprefix("torch.")
    return Seen(name, dtype, np.asarray(x.tolist(), dtype="float64" if dtype in GRID else None).reshape(tuple(x.shape)))


class Wide:
    """PyTorch with float64 in place of every floating-point type: what rounding does to a program is the difference."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __getattr__(self, name: str) -> Any:
        return self.torch.float64 if name in GRID else getattr(self.torch, name)


class WideFunctional:
    """`torch.nn.functional` with norms written out: second derivatives of PyTorch's own are inexact in any type."""

    def __init__(self, functional: Any) -> None:
        self.functional = functional

    def __getattr__(self, name: str) -> Any:
        return getattr(self.functional, name)

    @staticmethod
    def normed(x: Any, axes: Sequence[int]) -> Any:
        off = x - x.mean(tuple(axes), keepdim=True)
        return off / ((off * off).mean(tuple(axes), keepdim=True) + 1e-5).sqrt()

    def batch_norm(self, x: Any, mean: None, variance: None, training: bool) -> Any:
        return self.normed(x, [n for n in range(x.dim()) if n != 1])

    def instance_norm(self, x: Any) -> Any:
        return self.normed(x, range(2, x.dim()))

    def group_norm(self, x: Any, groups: int) -> Any:
        return self.normed(x.reshape(x.shape[0], groups, -1), (2,)).reshape(x.shape)

    def layer_norm(self, x: Any, shape: Sequence[int]) -> Any:
        return self.normed(x, range(x.dim() - len(shape), x.dim()))


def run(T: Any, program: Program, wide: bool = False) -> list[Seen]:
    """Everything that is seen of a program: results, arguments and state after each call, looks, gradients."""
    module = Wide(T) if wide else T
    space = space_of(T, program.state, {}, program.views, wide)
    space["T"] = module
    if wide:
        space["F"] = WideFunctional(space["F"])
    exec(program.source, space)
    function = space["program"]
    if program.mode.startswith("jit") and T.__name__ == "tilegrad":
        function = T.jit(function)
    found: list[Seen] = []
    for n, call in enumerate(program.calls):
        space |= call.globals
        tracked = "gradient" in program.mode
        tensors = [tensor(T, a, tracked, wide) for a in call.tensors.values()]
        leaves = [x for x in tensors if x.requires_grad]
        results = function(*tensors, *call.numbers.values())
        found += watched(T, program, n, results, leaves)
        found += [shown(f"call {n}: {k} afterwards", x) for k, x in zip(call.tensors, tensors)]
        found += [shown(f"call {n}: {k} afterwards", space[k]) for k in (*program.state, *program.views)]
    return found + [Seen(f"look {n}", type(x).__name__, np.asarray(x)) for n, x in enumerate(space["seen"])]


def watched(T: Any, program: Program, n: int, results: list[Any], leaves: list[Any]) -> Iterator[Seen]:
    """The results of a call, in the order that the mode says; and their gradients."""
    order = list(range(len(results)))
    if program.mode == "looks":
        random.Random(program.seed).shuffle(order)
    if "gradient" in program.mode:
        yield from differentiated(T, results, leaves)
    for k in order:
        yield shown(f"call {n}: {program.results[k]}", results[k])


def differentiated(T: Any, results: list[Any], leaves: list[Any]) -> Iterator[Seen]:
    """Gradients of first and second order of a sum of the results."""
    first: tuple[Any, ...] = ()
    second: tuple[Any, ...] = ()
    if leaves:
        loss = weighed(results)
        if loss is not None:
            first = T.autograd.grad(loss, leaves, create_graph=True, allow_unused=True)
    again = weighed(first)
    if again is not None:
        second = T.autograd.grad(again, leaves, allow_unused=True)
    for n, x in enumerate(leaves):
        for name, found in (("gradient", first), ("second gradient", second)):
            none = not found or found[n] is None
            yield shown(f"{name} {n}", T.zeros_like(x) if none else found[n])


def weighed(values: Sequence[Any]) -> Any:
    """A sum of the elements of those tensors that have a history, each with another weight."""
    parts = [(n + 1) * 0.5 * (v * v).sum() + v.sum() for n, v in enumerate(values) if v is not None and v.requires_grad]
    return sum(parts[1:], parts[0]) if parts else None


@contextmanager
def default_type(T: Any, dtype: Any) -> Iterator[None]:
    before = T.get_default_dtype()
    T.set_default_dtype(dtype)
    try:
        yield
    finally:
        T.set_default_dtype(before)


def expected(program: Program) -> tuple[list[Seen], list[float]]:
    """Run with PyTorch: the results with the tolerance of each, or the error that it raises."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = run(torch, program)
        with default_type(torch, torch.float64):
            wide = run(torch, program, wide=True)
    coarse = EPSILON[_precision(program)]
    return want, [near(a, b, coarse) for a, b in zip(want, wide, strict=True)]


def _precision(program: Program) -> str:
    """The coarser of float32 and float64 that a program computes in."""
    return "float32" if re.search(r"float(?:32|16)?(?!64)", str(program)) else "float64"


def near(narrow: Seen, wide: Seen, coarse: float) -> float:
    """The largest difference that another correct computation may have: some roundings of the largest element, and a
    multiple of PyTorch's own error against float64. `program_rounding` decides the remaining cases.
    """
    a, b = narrow.elements, wide.elements
    if a.dtype.kind != "f" or a.shape != b.shape:
        return 0.0
    finite = np.isfinite(a) & np.isfinite(b)
    error = float(np.abs(a - b)[finite].max()) if finite.any() else 0.0
    largest = max(float(np.abs(a)[finite].max()) if finite.any() else 0.0, 1 / 16)
    return 2 * error + 2 * max(coarse, EPSILON.get(narrow.dtype, 0)) * largest


def compare(got: list[Seen], want: list[Seen], tolerances: list[float]) -> None:
    """Raises `Wrong` at the first difference."""
    if [s.name for s in got] != [s.name for s in want]:
        raise Wrong(f"seen: {[s.name for s in got]}, not {[s.name for s in want]}")
    for g, w, tolerance in zip(got, want, tolerances, strict=True):
        if g.elements.shape != w.elements.shape or g.dtype != w.dtype:
            raise Wrong(f"{w.name}: {g.dtype} {list(g.elements.shape)}, not {w.dtype} {list(w.elements.shape)}")
        if w.name.startswith(("gradient", "second")):  # where a derivative is not there, nobody asks which number it is
            w = w._replace(elements=np.where(np.isfinite(w.elements), w.elements, g.elements))
        if tolerance:
            same = np.allclose(g.elements, w.elements, rtol=0, atol=tolerance, equal_nan=True)
        else:
            same = np.array_equal(g.elements, w.elements, equal_nan=w.elements.dtype.kind == "f")
        if not same:
            raise Wrong(f"{w.name}: {difference(g.elements, w.elements)} (within {tolerance:.1e})")


def difference(got: np.ndarray, want: np.ndarray) -> str:
    """Small arrays, or of large ones the element that is farthest off."""
    if got.size <= 16 or got.dtype.kind not in "fiu":
        return f"{got.tolist()}, not {want.tolist()}"
    off = np.abs(got.astype(np.float64) - want)
    at = np.unravel_index(int(np.argmax(np.where(np.isnan(off), np.inf, off))), off.shape)
    return f"{int((off != 0).sum())} of {got.size} differ; {[int(n) for n in at]}: {got[at]}, not {want[at]}"


def measured(program: Program, device: str = "cpu") -> list[Seen]:
    """Run with tilegrad; in the mode `threads` from several threads at once."""
    import tilegrad as tg
    from tilegrad.config import changed

    with changed(device=place(device)):
        try:
            return together(tg, program) if program.mode == "threads" else run(tg, program)
        except (AssertionError, Exception) as e:
            raise Refused(f"{type(e).__name__}: {e}") from e


@cache
def place(name: str) -> str:
    """The device of a name; those that only tests have are made at the first use.

    checked: kernels are interpreted, each access is checked. simulated: a GPU whose kernels are interpreted. emulated:
    one that runs the CUDA C++ of its kernels, compiled by g++ (seconds for each).
    """
    from tilegrad.backend.reference import ReferenceDevice
    from tilegrad.runtime.device import register

    if name == "checked":
        return register(ReferenceDevice("checked", checked=True)).name
    if name not in ("simulated", "emulated"):
        return name
    from tests.backend.cuda.emulating import EmulatingDriver
    from tests.backend.cuda.simulated import SimulatedDriver
    from tilegrad.backend.cuda.device import CudaDevice

    return register(CudaDevice(SimulatedDriver() if name == "simulated" else EmulatingDriver(), 50)).name


def together(T: Any, program: Program, count: int = 4) -> list[Seen]:
    """Runs a program on several threads; what they see must agree."""
    barrier, found = threading.Barrier(count), [list[Seen]() for _ in range(count)]
    failures: list[BaseException] = []

    def work(n: int) -> None:
        barrier.wait()
        try:
            found[n] = run(T, program)
        except Exception as e:
            failures.append(e)

    team = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    if failures:
        raise failures[0]
    for other in found[1:]:
        compare(other, found[0], [0.0] * len(other))
    return found[0]
