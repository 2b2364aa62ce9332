"""Describe who holds memory, for the error when there is no more of it."""

from __future__ import annotations

from ..ir.graph import Value
from ..runtime.device import owner_tables
from ..runtime.live_objects import live_objects

MAX_LISTED_TENSORS = 8
"""Most tensors named in an out-of-memory error."""
REMEDIES = (
    "What helps: a smaller batch, tilegrad.checkpoint around parts of the network, autocast to bfloat16, "
    "tilegrad.no_grad() where no gradient is needed, and del for what is not used any more. "
    "tilegrad.memory.summary() lists parameters, gradients, optimizer state and activations"
)


def largest_tensors(device: str) -> list[str]:
    """List the largest tensors of a device with their lines, below a heading. Slow: examines all live objects."""
    for listed in owner_tables:
        try:
            return listed(device)
        except Exception:
            pass
    found: dict[int, Value] = {}
    for value in live_objects(Value):
        buffer = value.__dict__.get("buffer")
        if buffer is not None and buffer.device.name == device and buffer.bytes:
            found.setdefault(buffer.address, value)
    largest = sorted(found.values(), key=lambda value: -value.buffer.bytes)[:MAX_LISTED_TENSORS]
    lines = [
        f"  {format_bytes(value.buffer.bytes):>10}  {value.type}  {value.location or ''}".rstrip() for value in largest
    ]
    return ["the largest tensors:", *lines] if lines else []


def format_bytes(bytes: int) -> str:
    """Format a number of bytes.

    >>> format_bytes(3 << 30), format_bytes(700)
    ('3.00 GiB', '700 bytes')
    """
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes >= size:
            return f"{bytes / size:.2f} {unit}"
    return f"{bytes} bytes"
