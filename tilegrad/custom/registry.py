"""Registry of operators by name; modules and namespaces may reuse a name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

from ..errors import OperatorError

if TYPE_CHECKING:
    from .operator import Operator

O = TypeVar("O", bound="Operator")


class Operators:
    """Look up `operators["namespace::name"]`, or the name alone if it is unique. The namespace is the word before `::`
    in the signature, else the declaring module.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Operator] = {}

    def __getitem__(self, name: str) -> Operator:
        namespace, _, last = name.rpartition("::")
        found = [op for (n, own), op in self._known.items() if own == last and namespace in ("", n)]
        if len(found) == 1:
            return found[0]
        if found:
            full = ", ".join(f"{op.namespace}::{op.name}" for op in found)
            raise OperatorError(f"there are {len(found)} operators of the name {last}: {full}; say which")
        known = ", ".join(sorted(str(own) for _, own in self._known)) or "none yet"
        raise OperatorError(f"there is no operator {name!r}; declared are: {known}")

    def __iter__(self) -> Iterator[Operator]:
        return iter(list(self._known.values()))

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, name: object) -> bool:
        return any(name in (own, f"{n}::{own}") for n, own in self._known)


operators = Operators()


def register(op: O) -> O:
    """Register an operator, replacing one declared earlier in the same place."""
    operators._known[op.namespace, op.name] = op
    return op
