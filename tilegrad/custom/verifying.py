"""`op.verify()` and `tilegrad.custom.opcheck(fn, *examples)`: run every check on many arguments and report."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import ArgumentError, OperatorError
from ..ir.dtype import float64
from ..runtime.device import devices
from . import checks
from .examples import (
    SCALAR_ROUNDS,
    SIZES,
    arguments,
    as_source,
    as_text,
    has_numbers,
    has_variable_dtype,
    instantiate,
    reproducible,
    tensors,
)
from .operator import Operator
from .signature import Declaration

Trial = list[Any]
"""Reproducible arguments."""


class CheckResult(NamedTuple):
    """The outcome of one check, with a script that reproduces a failure."""

    name: str
    ok: bool
    detail: str
    script: str = ""

    def __str__(self) -> str:
        first, *rest = self.detail.splitlines() or [""]
        lines = [f"{'ok  ' if self.ok else 'FAIL'}  {self.name:14}  {first}", *(f"      {line}" for line in rest)]
        return "\n".join(lines if self.ok else [*lines, textwrap.indent(self.script, "      > ")])


class VerificationReport:
    """The outcomes of all checks; prints one line each, and is true if none failed."""

    def __init__(self, name: str, lines: Sequence[CheckResult]) -> None:
        self.name = name
        self.lines = tuple(lines)

    @property
    def failures(self) -> tuple[CheckResult, ...]:
        return tuple([line for line in self.lines if not line.ok])

    def __bool__(self) -> bool:
        return not self.failures

    def __getitem__(self, name: str) -> CheckResult:
        found = next((line for line in self.lines if line.name == name), None)
        if found is None:
            raise KeyError(f"there is no check {name!r}; there are: {', '.join(line.name for line in self.lines)}")
        return found

    def __str__(self) -> str:
        end = f"{len(self.failures)} of {len(self.lines)} checks failed" if self.failures else "no check failed"
        return "\n".join([f"{self.name}: {end}", *map(str, self.lines)])

    __repr__ = __str__


class Verification:
    """Runs the checks of one operator or function."""

    def __init__(self, fn: Callable[..., Any], trials: Sequence[Trial], ulps: float) -> None:
        self.fn = fn
        self.trials = list(trials)
        self.ulps = ulps
        self.lines: list[CheckResult] = []

    def run(self, name: str, check: str, trials: Sequence[Trial], **options: Any) -> None:
        """Run one check on some arguments; arguments that the operator refuses count as refused."""
        details: list[str] = []
        refused = ""
        for trial in trials:
            why = checks.refuses(self._reference, instantiate(trial))
            if why:
                refused = refused or f"; {as_text(trial)} is refused: {why.splitlines()[0]}"
                continue
            try:
                details.append(getattr(checks, check)(self.fn, *instantiate(trial), **options))
            except Exception as error:
                script = self.script(check, trial, options)
                self.lines.append(CheckResult(name, False, f"{as_text(trial)}: {error}", script))
                return
        if details:
            worst = max(details, key=lambda d: float(d.split()[2]) if d.startswith("at most") else -1.0)
            count = f"{len(details)} call{'s' * (len(details) != 1)}"
            self.lines.append(CheckResult(name, True, f"{count}: {worst}{refused}"))

    @property
    def _reference(self) -> Callable[..., Any]:
        return self.fn.reference if isinstance(self.fn, Operator) else self.fn

    def script(self, check: str, trial: Trial, options: dict[str, Any]) -> str:
        """Return a short script that reproduces the failure."""
        given = "".join(f", {name}={value!r}" for name, value in options.items())
        call = f"checks.{check}(fn, {as_source(trial)}{given})"
        return "\n".join(["import tilegrad as tg", "from tilegrad.custom import checks", *found_by(self.fn), call])


def found_by(fn: Any) -> list[str]:
    """Return the lines of a script that import an operator or function."""
    inner = fn.fn if isinstance(fn, Operator) else fn
    module, code = sys.modules.get(inner.__module__), getattr(inner, "__code__", None)
    if inner.__module__ != "__main__" and getattr(module, "__spec__", None) is not None:
        lines = [f"import {inner.__module__}"]
        place = inner.__module__
    else:
        lines = ["import runpy", f'found = runpy.run_path({code.co_filename if code else "?"!r}, run_name="found")']
        place = "found"
    if isinstance(fn, Operator):
        namespace = fn.declaration.namespace or place
        return [*lines, f'fn = tg.custom.operators["{namespace}::{fn.name}"]']
    if place == "found":
        return [*lines, f'fn = found["{inner.__name__}"]']
    return [*lines, f"fn = {place}.{inner.__qualname__}"]


def _generated(declaration: Declaration) -> tuple[list[Trial], list[Trial], list[Trial]]:
    """Generate arguments of all sizes, of the first size, and in float64; numbers vary if there are any."""
    rounds = range(1, SCALAR_ROUNDS if has_numbers(declaration) else 1)
    varied = [arguments(declaration, SIZES[0], numbers=n) for n in rounds]
    trials = [*(arguments(declaration, sizes) for sizes in SIZES), *varied]
    doubles = [arguments(declaration, s, 1) for s in SIZES[:2]]
    doubles += [arguments(declaration, SIZES[0], 1, numbers=n) for n in rounds]
    return trials, [arguments(declaration, SIZES[0]), *varied], doubles


def verify(op: Operator, *examples: Any, ulps: float = checks.ULPS) -> VerificationReport:
    """Verify an operator on generated arguments and on examples, if given."""
    declaration = op.declaration
    given = [reproducible(e if isinstance(e, tuple) else (e,)) for e in examples]
    trials, usual, doubles = (given, given, given) if given else _generated(declaration)
    doubles = [t for t in doubles if _are_doubles(t)]
    whole = Verification(op, trials, ulps)
    whole.run("shapes", "deterministic", trials)
    if has_variable_dtype(declaration) and not given:
        whole.run("dtypes", "deterministic", [arguments(declaration, SIZES[0], n) for n in range(3)])
    _check_kernels(whole, op, trials, usual)
    if not given:
        whole.run("strides", "strides", [arguments(declaration, s, strided=True) for s in SIZES[:1]])
    _check_any_function(whole, trials, usual)
    if doubles:
        _check_gradients(whole, op, doubles)
    if op.rule is not None:
        whole.run("own gradient", "rule", usual)
    return VerificationReport(op.name, whole.lines)


def _check_gradients(whole: Verification, op: Operator, doubles: list[Trial]) -> None:
    if op.arrays and op.rule is None:
        whole.lines.append(CheckResult("gradients", True, "not tried: it is a function on arrays, and was given none"))
        return
    whole.run("gradients", "gradients", doubles)
    if op.rule is not None:
        whole.run("second order", "gradients", doubles[:1], order=2)
    whole.run("forward", "forward", doubles[:1])


def _are_doubles(trial: Trial) -> bool:
    floats = [x for x in tensors(trial) if x.dtype.is_float]
    return bool(floats) and all(x.dtype is float64 for x in floats)


def _check_kernels(whole: Verification, op: Operator, trials: Sequence[Trial], usual: Sequence[Trial]) -> None:
    """Check each kernel against the reference on the available devices."""
    here = {d.kind for d in devices()} - {"reference", "interpreter", "null"}
    for kind in sorted({*op.kernels, "cpu"} if "" in op.kernels else op.kernels):
        places = sorted(here) if kind == "" else [kind] if kind in here else []
        if kind and not places:
            whole.lines.append(CheckResult(f"kernel {kind}", True, f"not tried: there is no {kind} on this machine"))
        for place in places:
            if any(line.name == f"kernel {place}" for line in whole.lines):
                continue
            whole.run(f"kernel {place}", "kernel", trials, device=place, ulps=whole.ulps)
    if "" in op.kernels or "cpu" in op.kernels:
        whole.run("memory", "memory", usual)


def _check_any_function(whole: Verification, trials: Sequence[Trial], usual: Sequence[Trial]) -> None:
    """Run the checks that apply to every function of tensors."""
    whole.run("aliasing", "separate", usual)
    if any(len(list(tensors(t))) > 1 for t in usual):
        whole.run("one for two", "same_twice", usual)
    whole.run("traced", "traced", [*usual, *trials[-1:]])
    if any(list(tensors(t)) for t in usual):
        whole.run("mapped", "mapped", usual)


def opcheck(fn: Callable[..., Any], *examples: Any, ulps: float = checks.ULPS) -> VerificationReport:
    """Verify an operator or any function of tensors on examples: each a tensor or a tuple of arguments.

    >>> import tilegrad as tg
    >>> bool(tg.custom.opcheck(tg.sin, tg.ones(3)))
    True
    """
    if isinstance(fn, Operator):
        return verify(fn, *examples, ulps=ulps)
    if not callable(fn):
        raise ArgumentError(f"opcheck takes an operator or a function of tensors, not {type(fn).__name__}")
    if not examples:
        raise ArgumentError(f"opcheck: what {checks.name_of(fn)} takes is not declared: give examples of its arguments")
    trials = [reproducible(e if isinstance(e, tuple) else (e,)) for e in examples]
    wrong = next((t for t in trials if not list(tensors(t))), None)
    if wrong is not None:
        raise ArgumentError(f"opcheck: an example has no tensor: ({as_text(wrong)})")
    whole = Verification(fn, trials, ulps)
    whole.run("determinism", "deterministic", trials)
    _check_any_function(whole, trials, trials)
    doubles = [t for t in trials if _are_doubles(t)]
    if doubles:
        whole.run("gradients", "gradients", doubles)
        whole.run("forward", "forward", doubles)
    return VerificationReport(checks.name_of(fn), whole.lines)


__all__ = ["CheckResult", "OperatorError", "VerificationReport", "opcheck", "verify"]
