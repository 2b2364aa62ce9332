"""Copying a saved state into the tensors of a module."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from ..autograd.modes import no_grad
from ..errors import ArgumentError
from ..functions.creation import as_tensor
from ..functions.promotion import kind_of
from ..tensor import Tensor

if TYPE_CHECKING:
    from .module import Module

EXTRA_STATE = "_extra_state"


class LoadResult(NamedTuple):
    """The names that a state lacked, and those that nobody wanted."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"LoadResult(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def load(module: Module, given: Mapping[str, Any], strict: bool, assign: bool) -> LoadResult:
    """Copies each tensor of `given` into the tensor of the same name, or says everything that does not fit."""
    name = type(module).__name__
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"load_state_dict of {name}: takes a dict of names and tensors, as state_dict() gives, not {kind_of(given)}"
        )
    state: dict[str, Any] = dict(given)
    noted: tuple[list[str], ...] = ([], [], [])
    parts = [(f"{path}." if path else "", part) for path, part in module.named_modules(remove_duplicate=False)]
    for prefix, part in parts:
        for hook in part._in_order("loading"):
            hook.function(part, state, prefix, {}, strict, *noted)
    own = {prefix + key: tensor for prefix, part in parts for key, tensor in part._own_state()}
    extra = {p + EXTRA_STATE: part for p, part in parts if _overrides(part, "set_extra_state")}
    wanted = [*own, *(key for key in extra if _overrides(extra[key], "get_extra_state"))]
    result = LoadResult(
        [key for key in wanted if key not in state] + noted[0],
        [key for key in state if key not in own and key not in extra] + noted[1],
    )
    _refuse(name, own, state, result, noted[2], strict)
    with no_grad():
        for key, tensor in own.items():
            if key in state and assign:
                tensor.data = as_tensor(state[key]).detach()
            elif key in state:
                tensor.copy_(as_tensor(state[key]))
    for key, part in extra.items():
        if key in state:
            part.set_extra_state(state[key])
    for _, part in reversed(parts):
        for hook in part._in_order("loaded"):
            hook.function(part, result)
    return result


def _overrides(module: Module, method: str) -> bool:
    """Whether the class of a module defines a method that `Module` only names."""
    return not getattr(type(module), method).__qualname__.startswith("Module.")


def _refuse(
    name: str, own: Mapping[str, Tensor], state: Mapping[str, Any], result: LoadResult, noted: list[str], strict: bool
) -> None:
    """Raises with all that does not fit, if something does not."""
    no_tensors = [
        f"{key}: {kind_of(state[key])} is no tensor" for key in own if key in state and not hasattr(state[key], "shape")
    ]
    wrong = no_tensors or [
        f"{key}: the module has the shape {tuple(own[key].shape)}, the state {tuple(state[key].shape)}"
        for key in own
        if key in state and tuple(own[key].shape) != tuple(state[key].shape)
    ]
    problems = [*wrong, *noted]
    if strict:
        missing, unexpected = result
        problems += [f"{key}: missing in the state{_hint(key, unexpected)}" for key in missing]
        problems += [f"{key}: not in the module{_hint(key, missing)}" for key in unexpected]
    if problems:
        count = f"{len(problems)} things do" if len(problems) > 1 else "one thing does"
        advice = "" if wrong or not strict else "\nGive strict=False to load what fits."
        raise ArgumentError(f"load_state_dict of {name}: {count} not fit:\n  " + "\n  ".join(problems) + advice)


def _hint(key: str, others: list[str]) -> str:
    """A name that is probably the same thing."""
    near = [other for other in others if other.split(".")[-1] == key.split(".")[-1]]
    found = get_close_matches(key, near, n=1, cutoff=0.5)
    return f" (there is {found[0]})" if found else ""
