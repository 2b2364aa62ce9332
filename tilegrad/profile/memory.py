"""List the tensors that hold memory, with their origin: `tg.memory`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..backend.shortage import format_bytes
from ..ir.graph import Value
from ..jitted.memory_budget import shown_bytes
from ..lazy.handle import Handle
from ..nn.module import Module
from ..nn.parameter import Parameter
from ..optim.optimizer import Optimizer
from ..runtime.device import Device, device, known_devices
from ..runtime.live_objects import live_objects

KINDS = ("parameter", "gradient", "optimizer state", "buffer", "activation", "tensor", "result", "temporary")
"""Purposes of memory: activations are results that no tensor of the user holds, kept for gradients; results and
temporaries are those of a program."""
ROWS = 20
ERROR_ROWS = 8
"""Rows of the table in an out-of-memory error."""


class Owner(NamedTuple):
    """Memory of a device, with the tensor that it is for."""

    kind: str
    name: str
    """The name of a parameter, or of the operation that made a tensor."""
    shape: tuple[int, ...]
    dtype: str
    device: str
    bytes: int
    line: str
    """The user's line that made it; empty where it is not known."""

    def row(self, size: str) -> str:
        """Format it as a row of a table, with its size in the table's unit."""
        extents = ", ".join(map(str, self.shape))
        return f"{size:>10}  {self.kind:15}  {self.name}  {self.dtype}[{extents}]  {self.line}".rstrip()

    def __str__(self) -> str:
        return self.row(shown_bytes(self.bytes))


class Snapshot(NamedTuple):
    """The memory of devices at one time, the largest owners first."""

    owners: tuple[Owner, ...]
    live: int
    """Bytes that are in use: those of the owners, and what programs hold for their temporaries."""
    peak: int
    held: int
    """Bytes taken from the system."""

    @property
    def by_kind(self) -> dict[str, int]:
        """Bytes of each kind."""
        return totals(self.owners)

    def __str__(self) -> str:
        owned = sum(o.bytes for o in self.owners)
        lines = [
            f"{shown_bytes(self.live)} live, {shown_bytes(self.peak)} at the peak, "
            f"{shown_bytes(self.held)} taken from the system"
        ]
        lines += [f"{shown_bytes(bytes):>10}  {kind}" for kind, bytes in self.by_kind.items()]
        if self.live > owned:
            lines.append(f"{shown_bytes(self.live - owned):>10}  temporaries of programs, and room between blocks")
        lines += ["the largest:", *map(str, self.owners[:ROWS])]
        if len(self.owners) > ROWS:
            rest = self.owners[ROWS:]
            lines.append(f"{shown_bytes(sum(o.bytes for o in rest)):>10}  in {len(rest):,} others")
        return "\n".join(lines)


def totals(owners: Sequence[Owner]) -> dict[str, int]:
    """Sum the bytes of each kind."""
    found = {kind: sum(o.bytes for o in owners if o.kind == kind) for kind in KINDS}
    return {kind: bytes for kind, bytes in found.items() if bytes}


def snapshot(on: str | Device | None = None) -> Snapshot:
    """List what holds memory now, on one device or all. Slow: all live objects are examined.

    >>> import tilegrad as tg
    >>> x = tg.ones(1000, 1000).realize()
    >>> any(o.shape == (1000, 1000) and o.bytes == 4_000_000 for o in snapshot("cpu").owners)
    True
    """
    places = known_devices() if on is None else [device(on)]
    owners = sorted(_owners({p.name for p in places}), key=lambda o: -o.bytes)
    found = [p.statistics for p in places]
    return Snapshot(tuple(owners), *(sum(column) for column in list(zip(*found, strict=True))[:3]))


def summary(on: str | Device | None = None) -> str:
    """Return the snapshot as text."""
    return str(snapshot(on))


def labels_of(buffers: Sequence[Any]) -> list[tuple[str, str]]:
    """Return the kind and the name of the tensor that holds each buffer; empty texts where none does."""
    tensors, modules, optimizers, _ = _alive()
    named = _labels(tensors, modules, optimizers)
    found: dict[tuple[str, int], tuple[str, str]] = {}
    for x in tensors:
        held = _memory_of(x)
        if held is not None and id(x) in named:
            found.setdefault(_place(held), named[id(x)])
    return [found.get(_place(b), ("", "")) for b in buffers]


def _memory_of(x: Any) -> Any:
    """Return the memory of a tensor: that of its storage, if programs update it in place, or that of its value."""
    owned = x._base.storage.owned if x._base is not None else None
    return owned or x._value.__dict__.get("buffer")


def _place(b: Any) -> tuple[str, int]:
    """Identify memory by its address, which a program's handle and a tensor's have in common."""
    return b.device.name, b.address or id(b.owner)


def largest_owners(on: str) -> list[str]:
    """List the bytes of each kind and the largest owners of a device, for the error when there is no more memory."""
    owners = sorted(_owners({on}), key=lambda o: -o.bytes)
    kinds = ", ".join(f"{format_bytes(bytes)} {kind}" for kind, bytes in totals(owners).items())
    rows = [o.row(format_bytes(o.bytes)) for o in owners[:ERROR_ROWS]]
    return [f"they hold {kinds}; the largest tensors:", *rows] if owners else []


def variable_labels() -> dict[int, tuple[str, str]]:
    """Map the identity of each storage to the kind and the name of the tensor that holds it."""
    tensors, modules, optimizers, _ = _alive()
    labels = _labels(tensors, modules, optimizers)
    return {id(x._base.storage): labels[id(x)] for x in tensors if x._base is not None and id(x) in labels}


def tensor_labels() -> dict[int, tuple[str, str]]:
    """Map the identity of each tensor to its kind and name."""
    tensors, modules, optimizers, _ = _alive()
    return _labels(tensors, modules, optimizers)


def _owners(places: set[str]) -> Iterator[Owner]:
    tensors, modules, optimizers, values = _alive()
    tensors += [g for x in tensors if (g := _gradient(x)) is not None]
    labels = _labels(tensors, modules, optimizers)
    seen: set[int] = set()
    held = [(x._value, _memory_of(x), labels.get(id(x), ("tensor", ""))) for x in tensors]
    held.sort(key=lambda entry: KINDS.index(entry[2][0]))  # of tensors that share memory the one that says most
    held += [(v, v.__dict__.get("buffer"), ("activation", "")) for v in values]
    for value, buffer, (kind, name) in held:
        if buffer is None or buffer.device.name not in places or not buffer.bytes or id(buffer.owner) in seen:
            continue
        seen.add(id(buffer.owner))
        shape = tuple(n if isinstance(n, int) else -1 for n in value.shape)
        line = str(value.location) if value.location else ""
        yield Owner(kind, name or value.op, shape, value.dtype.name, buffer.device.name, buffer.owner.bytes, line)


def _alive() -> tuple[list[Any], list[Module], list[Optimizer], list[Value]]:
    """List the tensors, modules, optimizers and values of the process."""
    kinds: tuple[list[Any], list[Any], list[Any], list[Any]] = ([], [], [], [])
    wanted = (Handle, Module, Optimizer, Value)
    for thing in live_objects(*wanted):
        cls = type(thing)
        for found, kind in zip(kinds, wanted, strict=True):
            if issubclass(cls, kind) and (kind is not Handle or "_value" in thing.__dict__):
                found.append(thing)
    return kinds


def _labels(tensors: list[Any], modules: list[Module], optimizers: list[Optimizer]) -> dict[int, tuple[str, str]]:
    """Map the identity of each tensor to its purpose and its name."""
    found: dict[int, tuple[str, str]] = {id(x): ("parameter", "") for x in tensors if isinstance(x, Parameter)}
    parts = {id(m) for module in modules for m in module._modules.values() if m is not None}
    for root in [m for m in modules if id(m) not in parts]:
        found |= {id(b): ("buffer", name) for name, b in root.named_buffers()}
        found |= {id(p): ("parameter", name) for name, p in root.named_parameters()}
    names = {key: name for key, (kind, name) in found.items() if kind == "parameter"}
    for optimizer in optimizers:
        for parameter, kept in optimizer.state.items():
            for word, x in kept.items():
                if isinstance(x, Handle):
                    found.setdefault(id(x), ("optimizer state", f"{word} of {names.get(id(parameter)) or 'a tensor'}"))
    for x in tensors:
        gradient = _gradient(x)
        if gradient is not None:
            found[id(gradient)] = ("gradient", f"of {names.get(id(x)) or 'a tensor'}")
    return found


def _gradient(x: Any) -> Any:
    return x.own_gradient() if x.__dict__.get("_gradient") is not None else None
