"""Calls of external functions in the task table of a program (`call_outside` in `runtime.ll`)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from ...runtime.external_work import PreparedWork


class NativeExternalCall:
    """A prepared external call, with the memory of its status and its table of offsets."""

    def __init__(self, prepared: PreparedWork, kind: str) -> None:
        self.prepared = prepared
        self.kind = kind
        self.status = ctypes.c_int64(0)
        rows = [offset for row in prepared.offsets for offset in row]
        self.offsets = (ctypes.c_int64 * max(1, len(rows)))(*rows)

    @property
    def words(self) -> list[int]:
        """Arguments of `call_outside` before those of each tensor."""
        made = self.prepared
        places = [ctypes.addressof(self.status), ctypes.addressof(self.offsets)]
        return [len(made.data), len(made.offsets), made.entry, made.call, *places]


def raise_external_errors(calls: Sequence[NativeExternalCall]) -> None:
    """Raise the error of the first external call that failed in the last run."""
    failed = None
    for call in calls:
        status = call.status.value
        if status:
            call.status.value = 0
            failed = failed or call.prepared.failed(status)
    if failed is not None:
        raise failed
