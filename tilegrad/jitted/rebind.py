"""Rebind a program when captured tensors have moved to other memory: `.data = ...`, a leaf made of a view, `t_()`.

The program uses the new storages if the same tensors share memory as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..lazy.handle import Handle
from ..lazy.layout import layout
from ..lazy.storage import Base, Move, Storage

if TYPE_CHECKING:
    from .specialised import Specialised


class CapturedStorage(NamedTuple):
    """The storage of a captured tensor."""

    tensor: Handle
    base: Base
    storage: Storage
    moves: tuple[Move, ...]
    layout_key: Any
    """Its layout in the storage."""


def storages_of(tensors: Iterable[Handle]) -> list[CapturedStorage]:
    """List the storages of the tensors that may share memory."""
    return [
        CapturedStorage(x, x._base, x._base.storage, x._moves, _layout_key(x)) for x in tensors if x._base is not None
    ]


def _layout_key(x: Handle) -> Any:
    """Key the layout of a tensor in its storage and the leaf that it is part of."""
    base = x._base
    assert base is not None
    return layout(x) if x._moves else x._strides, x._value.type, base.storage.value.type, type(base), base.is_tracked()


def rebind(program: Specialised) -> bool:
    """Rebind a program to the current storages of its tensors; return whether that was possible."""
    if all(p.base is p.tensor._base and p.moves == p.tensor._moves for p in program.places):
        return True
    now = storages_of(p.tensor for p in program.places)
    if len(now) != len(program.places) or any(
        a.layout_key != b.layout_key for a, b in zip(program.places, now, strict=True)
    ):
        return False
    pairs = {(a.storage, b.storage) for a, b in zip(program.places, now, strict=True)}
    if len({a for a, _ in pairs}) != len(pairs) or len({b for _, b in pairs}) != len(pairs):
        return False
    bases = {id(a.base): b.base for a, b in zip(program.places, now, strict=True)}
    captured = [bases.get(id(base)) for base in program.captured]
    if None in captured or any(a.outside is not None for a in program.aliases.values()):
        return False
    program.captured = [base for base in captured if base is not None]
    program.places = now
    _update_storages(program)
    return True


def _update_storages(program: Specialised) -> None:
    """Update what a program stores about captured storages."""
    program.written = {id(program.captured[n].storage) for n in program.updated}
    program.kept = {id(base.storage) for base in program.captured} - program.written
    if program.hoisted is not None:
        first, hoisted = len(program.given) - len(program.host) - len(program.captured), program.hoisted.hoisted
        from .hoisted_values import HoistedValues

        program.hoisted = HoistedValues(hoisted, [program.captured[n - first].storage for n in hoisted.inputs])
    program.drop_guards()


def inputs_overlap(program: Specialised, leaves: Sequence[Any]) -> bool:
    """Whether two inputs overlap in memory that the program writes to, which it was not compiled for."""
    written, read = set(program.written), set(program.kept)
    for n, x in enumerate(leaves):
        if not isinstance(x, Handle):
            continue
        memory = id(x if x._base is None else x._base.storage)
        if memory in written or (n in program.changed and memory in read):
            return True
        (written if n in program.changed else read).add(memory)
    return False
