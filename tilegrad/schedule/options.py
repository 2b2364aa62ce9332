"""Choose the tunable parameters of a group's kernel: the default, the candidates, and the locked choice."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import ArgumentError
from ..ir.graph import Value
from ..ir.scalar import Read, facts
from ..runtime.cache import key
from ..runtime.choice import Choice, Lock
from ..runtime.target_model import TargetModel
from . import matmul_tiles, strategies
from .contract import sides
from .flatten import flatten
from .group import Group
from .merge_axes import as_matrix


class KernelChoice(NamedTuple):
    """The choice for a kernel, and whether the cost model or a line of the lock made it."""

    choice: Choice
    why: str

    def __str__(self) -> str:
        return f"{self.choice or 'one piece'} ({self.why})"


def default(group: Group, target: TargetModel) -> Choice | None:
    """Return the choice of the cost model; None: the kernel is not tunable."""
    if group.kind == "opaque":
        return None
    flat = flatten(group, not target.coalesced_access)
    if group.kind == "contraction":
        return matmul_tiles.blocks(sides(as_matrix(flat, target), target).extents, target)
    return strategies.default(flat, target)


def candidates(group: Group, target: TargetModel) -> list[Choice]:
    """Return the choices that the tuner tries, the default first; none if the kernel is not tunable."""
    if group.kind == "opaque":
        return []
    flat = flatten(group, not target.coalesced_access)
    if group.kind == "contraction":
        return matmul_tiles.candidates(sides(as_matrix(flat, target), target).extents, target)
    return strategies.candidates(flat, target)


def refusal(group: Group, choice: Choice, target: TargetModel) -> str:
    """Return why a choice is invalid for a group; empty if it is valid."""
    if group.kind == "opaque":
        return "the kernel is as its op brings it"
    flat = flatten(group, not target.coalesced_access)
    if group.kind == "contraction":
        return matmul_tiles.refusal(sides(as_matrix(flat, target), target).extents, choice, target)
    return strategies.refusal(flat, choice, target)


def kernel_choice(group: Group, target: TargetModel, lock: Lock) -> KernelChoice | None:
    """Return the choice for a group: the locked one, or the cost model's."""
    found = locked(group, target, lock)
    if found is not None:
        return found
    choice = default(group, target)
    return None if choice is None else KernelChoice(choice, "cost model")


def locked(group: Group, target: TargetModel, lock: Lock) -> KernelChoice | None:
    """Look a group up in the lock."""
    entry = lock.entries.get(digest_of(group)) if lock.entries and group.kind != "opaque" else None
    if entry is None:
        return None
    reason = refusal(group, entry.choice, target)
    if reason:
        wrong = f"{lock.place(entry)}: `{entry.choice}` is no way to cut {entry.name}: {reason}"
        raise ArgumentError(f"{wrong}. Correct the line, or remove it")
    note = f": {entry.note}" if entry.note else ""
    return KernelChoice(entry.choice, f"{lock.place(entry)}{note}")


def digest_of(group: Group) -> str:
    """Digest what a group computes, on which shapes and types, in twelve digits: the same in every process."""
    names = names_of(group)
    types = ", ".join(f"{name}: {value.type.dtype}{list(map(str, value.shape))}" for value, name in names.items())
    return key("kernel choice 2", *group.steps(names), types)[:12]


def signature(group: Group) -> str:
    """Format the types that a group reads and stores."""
    stored = [v for v in names_of(group) if v in group.stored]
    read = [v for v in names_of(group) if v not in group.stored]
    return f"{', '.join(map(_type, read)) or 'nothing'} -> {', '.join(map(_type, stored))}"


def title(group: Group) -> str:
    """Name a group by the ops of what it stores."""
    return "_".join(dict.fromkeys(v.op for v in group.stored))[:48]


def _type(value: Value) -> str:
    return f"{value.type.dtype}[{','.join(map(str, value.shape))}]"


def names_of(group: Group) -> dict[Value, str]:
    """Name the tensors of a group x0, x1, ... in the order in which they occur."""
    found: dict[Value, str] = {}
    for s in group.stores:
        reads = [e.source for e in facts(s.expr).reads if isinstance(e, Read)]
        for value in (*reads, s.value):
            found.setdefault(value, f"x{len(found)}")
    return found
