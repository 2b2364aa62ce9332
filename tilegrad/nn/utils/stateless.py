"""Call a module as a function of its parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...errors import ArgumentError
from ...tensor import Tensor
from ..module import Module

__all__ = ["functional_call"]

State = Mapping[str, Tensor]


def _check_names(kind: str, given: Collection[str], places: Collection[str], strict: bool) -> None:
    unknown, missing = [n for n in given if n not in places], [n for n in places if n not in given]
    if unknown:
        raise ArgumentError(f"functional_call: {kind} has no {', '.join(unknown)}")
    if strict and missing:
        raise ArgumentError(f"functional_call: strict=True, and of {kind} there is no {', '.join(missing)}")


def functional_call(
    module: Module,
    parameter_and_buffer_dicts: State | Sequence[State],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call a module with other tensors in place of its parameters and buffers, named as in `state_dict`.

    >>> import tilegrad as tg
    >>> layer = tg.nn.Linear(2, 1)
    >>> functional_call(layer, {"weight": tg.ones(1, 2), "bias": tg.zeros(1)}, tg.tensor([3.0, 4.0]))
    tensor([7.])
    """
    given: dict[str, Tensor] = {}
    single = isinstance(parameter_and_buffer_dicts, Mapping)
    for part in [parameter_and_buffer_dicts] if single else parameter_and_buffer_dicts:
        given.update(part)  # type: ignore[arg-type]
    places = {name: (registry, own) for name, registry, own in _places(module)}
    _check_names(type(module).__name__, given, places, strict)
    new = {id(registry[own]): given[n] for n, (registry, own) in places.items() if n in given}
    before = [(registry, own, registry[own]) for registry, own in places.values()]
    changed = {name: given[name] for name in places if name in given}
    if tie_weights:
        changed = {
            n: new[id(registry[own])] for n, (registry, own) in places.items() if id(registry[own]) in new
        } | changed
    try:
        for name, tensor in changed.items():
            registry, own = places[name]
            registry[own] = tensor
        args = () if args is None else args if isinstance(args, tuple) else (args,)
        return module(*args, **(kwargs or {}))
    finally:
        for registry, own, value in before:
            registry[own] = value


def _places(module: Module) -> list[tuple[str, dict[str, Any], str]]:
    """Yield the name of each parameter and buffer, and the module and attribute that hold it."""
    found = []
    for prefix, part in module.named_modules(remove_duplicate=False):
        for registry in (part._parameters, part._buffers):
            for own, value in registry.items():
                if value is not None:
                    found.append((f"{prefix}.{own}" if prefix else own, registry, own))
    return found
