"""Attach gradients to operators: the user's rule, or the reference's gradient.

The derivative of a user's rule is the second derivative of the reference, so second derivatives and `jvp` are right
even if the rule is a kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..autograd.engine import walking
from ..errors import DTypeError, GradientError, OperatorError, ShapeError
from ..functions.promotion import kind_of
from ..ir.graph import Value
from ..lazy.handle import Handle, mode, wrap
from ..lazy.storage import detached
from ..ops.broadcasting import fill, shown
from ..ops.joint import joint_outputs
from ..transform.autodiff import gradients, tracked_input
from ..transform.batch import substitute

if TYPE_CHECKING:
    from .meaning import OperatorMeaning
    from .signature import Declaration, Form

UPSTREAM = "upstream"
Shares = list["Value | None"]


def with_gradient(meaning: OperatorMeaning, outputs: Sequence[Value], arguments: Sequence[Value]) -> list[Value]:
    """Attach a backward function to the outputs of an operator."""

    def rule(upstreams: Sequence[Value | None]) -> Shares:
        known = [
            u if u is not None else fill(0.0 if t.dtype.is_float else 0, t.shape, t.dtype, t.device)
            for u, t in zip([*upstreams, *(None for _ in outputs[len(upstreams) :])], meaning.results, strict=True)
        ]
        if meaning.op.rule is None:
            return of_reference(meaning, arguments, known)
        return of_user(meaning, outputs, arguments, known)

    floats = [n for n, y in enumerate(outputs) if y.dtype.is_float]
    separate = [detached(outputs[n]) for n in floats]
    made = dict(zip(floats, joint_outputs(separate, arguments, _restricted(rule, floats, len(outputs))), strict=True))
    return [made.get(n, y) for n, y in enumerate(outputs)]


def _restricted(rule: Callable[[Sequence[Value | None]], Shares], places: Sequence[int], count: int) -> Any:
    """Restrict a rule for all outputs to some of them."""

    def some(upstreams: Sequence[Value | None]) -> Shares:
        everything: Shares = [None] * count
        for place, u in zip(places, upstreams, strict=False):
            everything[place] = u
        return rule(everything)

    return some


def of_reference(meaning: OperatorMeaning, arguments: Sequence[Value], upstreams: Sequence[Value]) -> Shares:
    """Differentiate the reference."""
    pullback = meaning.pullback()
    changes = dict(zip((*pullback.inputs, *pullback.upstreams), (*arguments, *upstreams), strict=True))
    found = iter(substitute([s for s in pullback.shares if s is not None], changes))
    return [None if s is None else next(found) for s in pullback.shares]


def of_user(
    meaning: OperatorMeaning, outputs: Sequence[Value], arguments: Sequence[Value], upstreams: Sequence[Value]
) -> Shares:
    """Apply and check the user's rule; higher derivatives come from the reference."""
    rule = meaning.op.rule
    assert rule is not None
    shares = _checked(meaning, rule(**_given(meaning, outputs, arguments, upstreams)), arguments)
    places = [n for n, s in enumerate(shares) if s is not None]
    reads = [*arguments, *upstreams]
    if not places or not mode.enabled or not any(x.tracked for x in reads):
        return shares

    def further(seconds: Sequence[Value | None]) -> Shares:
        return _second(meaning, {n: u for n, u in zip(places, seconds, strict=False) if u is not None}, reads)

    made = joint_outputs([detached(shares[n]) for n in places], reads, further)  # type: ignore[arg-type]
    for n, value in zip(places, made, strict=True):
        shares[n] = value
    return shares


def _second(meaning: OperatorMeaning, seconds: dict[int, Value], reads: Sequence[Value]) -> Shares:
    pullback = meaning.pullback()
    given = (*pullback.inputs, *pullback.upstreams)
    flowing = [(s, u) for n, u in seconds.items() if (s := pullback.shares[n]) is not None and s.tracked]
    if not flowing:
        return [None] * len(given)
    places = [tracked_input(s.type) for s, _ in flowing]
    with walking(True, True):
        found = gradients([s for s, _ in flowing], places, given)
    changes = dict(zip((*given, *places), (*reads, *(u for _, u in flowing)), strict=True))
    done = iter(substitute([g for g in found if g is not None], changes))
    return [None if g is None else next(done) for g in found]


def check_rule(name: str, rule: Callable[..., Any], known: Sequence[str]) -> None:
    """Check that a rule's parameters name existing arguments and results."""
    wrong = [n for n in requested_names(rule) if n not in known]
    if wrong:
        raise OperatorError(
            f"{name}: its gradient asks for `{wrong[0]}`; there are {', '.join(known)} (arguments, results, and what "
            "flows "
            "back)"
        )


def requestable_names(arguments: Sequence[str], results: Sequence[str]) -> list[str]:
    """Return the names that a rule may request in general."""
    upstreams = [UPSTREAM] if len(results) == 1 else [f"{UPSTREAM}_{name}" for name in results]
    return [*arguments, *results, *upstreams]


def _given(
    meaning: OperatorMeaning, outputs: Sequence[Value], arguments: Sequence[Value], upstreams: Sequence[Value]
) -> dict[str, Any]:
    declaration = meaning.op.declaration
    given = (*declaration.arguments(meaning.form, arguments), *outputs, *upstreams)
    values = dict(zip(_requestable(declaration), given, strict=True))
    return {n: _wrapped(values[n]) for n in meaning.op.asked}


def requested_names(rule: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameter names of a rule."""
    return tuple(inspect.signature(rule).parameters)


@lru_cache(256)
def _requestable(declaration: Declaration) -> list[str]:
    """Return the names that a rule may request, in order."""
    return requestable_names([p.name for p in declaration.parameters], [p.name for p in declaration.results])


def _wrapped(x: Any) -> Any:
    return wrap(x) if isinstance(x, Value) else tuple(map(_wrapped, x)) if isinstance(x, tuple) else x


@lru_cache(256)
def _tensors(declaration: Declaration, form: Form) -> tuple[list[str], list[bool], list[str]]:
    """Return the tensor names of a call form, which of them stand for numbers, and the remaining names."""
    names, varying = declaration.names(form), declaration.varying(form)
    return names, varying, [n for n, varies in zip(names, varying, strict=True) if not varies]


def _checked(meaning: OperatorMeaning, made: Any, arguments: Sequence[Value]) -> Shares:
    """Match a rule's results, given in order or by name, to the tensors."""
    names, varying, wanted = _tensors(meaning.op.declaration, meaning.form)
    if isinstance(made, dict):
        unknown = [n for n in made if n not in wanted]
        if unknown:
            raise GradientError(f"{meaning.name}: its gradient has {unknown[0]!r}; the tensors are {', '.join(wanted)}")
        given = [made.get(n) for n in wanted]
    else:
        given = list(_flat(made))
        if len(given) != len(wanted):
            raise GradientError(
                f"{meaning.name}: its gradient gives {len(given)} values for the tensors {', '.join(wanted)}: one for "
                "each, None for one that has none, or a dict by name"
            )
    rest = iter(given)
    return [
        None if varies else _share(meaning, name, next(rest), x)
        for name, varies, x in zip(names, varying, arguments, strict=True)
    ]


def _flat(made: Any) -> list[Any]:
    if not isinstance(made, tuple | list):
        return [made]
    return [x for part in made for x in _flat(part)]


def _share(meaning: OperatorMeaning, name: str, share: Any, x: Value) -> Value | None:
    if share is None:
        return None
    if not isinstance(share, Handle):
        raise GradientError(f"{meaning.name}: the gradient of `{name}` is {kind_of(share)}; a tensor or None is wanted")
    value = share.value
    if value.shape != x.shape:
        raise ShapeError(
            f"{meaning.name}: the gradient of `{name}` has shape {shown(value.shape)}, and `{name}` has "
            f"{shown(x.shape)}"
        )
    if value.dtype is not x.dtype:
        raise DTypeError(
            f"{meaning.name}: the gradient of `{name}` is {value.dtype.name}, and `{name}` is {x.dtype.name}: convert "
            "it "
            f"with .to({name}.dtype)"
        )
    return value if x.dtype.is_float else None
