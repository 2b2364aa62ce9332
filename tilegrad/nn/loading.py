"""Copying a saved state into the tensors of a module."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from ..autograd.modes import no_grad
from ..creation import as_tensor
from ..errors import ArgumentError
from ..promotion import kind_of
from ..tensor import Tensor


class LoadResult(NamedTuple):
    """The names that a state lacked, and those that nobody wanted."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"LoadResult(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def load(name: str, own: Mapping[str, Tensor], given: Mapping[str, Any], strict: bool) -> LoadResult:
    """Copies each tensor of `given` into the tensor of the same name, or says everything that does not fit."""
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"load_state_dict of {name}: takes a dict of names and tensors, as state_dict() gives, not {kind_of(given)}"
        )
    missing = [key for key in own if key not in given]
    unexpected = [key for key in given if key not in own]
    no_tensors = [
        f"{key}: {kind_of(given[key])} is no tensor" for key in own if key in given and not hasattr(given[key], "shape")
    ]
    wrong = no_tensors or [
        f"{key}: the module has the shape {tuple(own[key].shape)}, the state {tuple(given[key].shape)}"
        for key in own
        if key in given and tuple(own[key].shape) != tuple(given[key].shape)
    ]
    problems = list(wrong)
    if strict:
        problems += [f"{key}: missing in the state{_hint(key, unexpected)}" for key in missing]
        problems += [f"{key}: not in the module{_hint(key, missing)}" for key in unexpected]
    if problems:
        count = f"{len(problems)} things do" if len(problems) > 1 else "one thing does"
        advice = "" if wrong or not strict else "\nGive strict=False to load what fits."
        raise ArgumentError(f"load_state_dict of {name}: {count} not fit:\n  " + "\n  ".join(problems) + advice)
    with no_grad():
        for key, tensor in own.items():
            if key in given:
                tensor.copy_(as_tensor(given[key]))
    return LoadResult(missing, unexpected)


def _hint(key: str, others: list[str]) -> str:
    """A name that is probably the same thing."""
    near = [other for other in others if other.split(".")[-1] == key.split(".")[-1]]
    found = get_close_matches(key, near, n=1, cutoff=0.5)
    return f" (there is {found[0]})" if found else ""
