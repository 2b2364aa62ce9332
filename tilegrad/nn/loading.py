"""Copy a saved state into the tensors of a module."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from ..autograd.modes import no_grad
from ..errors import ArgumentError, TilegradError
from ..functions.creation import as_tensor
from ..functions.promotion import kind_of
from ..tensor import Tensor
from .parameter import EXTRA_STATE

if TYPE_CHECKING:
    from .module import Module

MAX_HINTED_NAMES, MAX_HINTED_CHARACTERS = 2000, 200
"""Number and length of the names up to which similar names are searched for."""


class LoadResult(NamedTuple):
    """The names that the state lacks, and those that the module lacks."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"LoadResult(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def load(module: Module, given: Mapping[str, Any], strict: bool, assign: bool) -> LoadResult:
    """Copy each tensor of `given` into the tensor of the same name, or raise with everything that does not fit."""
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
    found, wrong = _converted(own, state)
    _refuse(name, wrong + noted[2], result, strict)
    with no_grad():
        for key, tensor in found.items():
            if assign:
                own[key].data = tensor.detach()
            else:
                own[key].copy_(tensor)
    for key, part in extra.items():
        if key in state:
            part.set_extra_state(state[key])
    for _, part in reversed(parts):
        for hook in part._in_order("loaded"):
            hook.function(part, result)
    return result


def _overrides(module: Module, method: str) -> bool:
    """Test whether the class of a module overrides a method that `Module` only declares."""
    return not getattr(type(module), method).__qualname__.startswith("Module.")


def _converted(own: Mapping[str, Tensor], state: Mapping[str, Any]) -> tuple[dict[str, Tensor], list[str]]:
    """Return the elements for the tensors of the module, and the mismatches, before anything is changed."""
    found: dict[str, Tensor] = {}
    wrong: list[str] = []
    for key, tensor in own.items():
        if key not in state:
            continue
        value = state[key]
        if not hasattr(value, "shape"):
            wrong.append(f"{key}: {kind_of(value)} is no tensor")
        elif tuple(value.shape) != tuple(tensor.shape):
            wrong.append(f"{key}: the module has the shape {tuple(tensor.shape)}, the state {tuple(value.shape)}")
        else:
            try:
                found[key] = as_tensor(value)
            except (TilegradError, TypeError, RuntimeError) as problem:  # PyTorch's sparse ones, say, have their own
                wrong.append(f"{key}: {problem.args[0]}")
    return found, wrong


def _refuse(name: str, wrong: list[str], result: LoadResult, strict: bool) -> None:
    """Raise with all mismatches, if there are any."""
    problems = [*wrong]
    if strict:
        missing, unexpected = result
        hints = _NameSuggestions(missing, [*map(str, unexpected)])
        problems += [f"{key}: missing in the state{hints.of(key, hints.unexpected)}" for key in missing]
        problems += [f"{key}: not in the module{hints.of(str(key), hints.missing)}" for key in unexpected]
    if problems:
        count = f"{len(problems)} things do" if len(problems) > 1 else "one thing does"
        advice = "" if wrong or not strict else "\nGive strict=False to load what fits."
        raise ArgumentError(f"load_state_dict of {name}: {count} not fit:\n  " + "\n  ".join(problems) + advice)


class _NameSuggestions:
    """Suggestions of similar names, for short lists of names only, as comparing them is slow."""

    def __init__(self, missing: list[str], unexpected: list[str]) -> None:
        self.missing, self.unexpected = _by_ending(missing), _by_ending(unexpected)
        self.left = MAX_HINTED_NAMES

    def of(self, key: str, others: Mapping[str, list[str]]) -> str:
        near = others.get(key.rpartition(".")[2], [])
        self.left -= len(near)
        if self.left < 0 or len(key) > MAX_HINTED_CHARACTERS:
            return ""
        found = get_close_matches(key, near, n=1, cutoff=0.5)
        return f" (there is {found[0]})" if found else ""


def _by_ending(names: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        if len(name) <= MAX_HINTED_CHARACTERS:
            found.setdefault(name.rpartition(".")[2], []).append(name)
    return found
