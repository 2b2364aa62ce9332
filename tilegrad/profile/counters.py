"""Count cycles, instructions and cache misses of the process with Linux's `perf_event_open`, through ctypes.

Many systems refuse it. Then a profile says so in one line, with the setting that allows it, and goes on without.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from pathlib import Path
from typing import Any

SYSCALLS = {"x86_64": 298, "aarch64": 241}
"""Number of `perf_event_open`, by architecture."""
COUNTERS = {"cycles": 0, "instructions": 1, "cache references": 2, "cache misses": 3, "branch misses": 5}
"""Hardware counters, by their number in `perf_hw_id`."""
ATTRIBUTE_BYTES = 112
DISABLED, INHERITED, WITHOUT_KERNEL, WITHOUT_HYPERVISOR = 1, 2, 1 << 5, 1 << 6
CLOSE_ON_EXEC = 8
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")


class HardwareCounters:
    """The counters of all threads of the process; `refused` says why there are none."""

    def __init__(self) -> None:
        self.refused = ""
        self._files: dict[str, list[int]] = {}

    def start(self) -> None:
        """Open the counters of each thread and begin to count."""
        number = SYSCALLS.get(platform.machine())
        if number is None or platform.system() != "Linux":
            self.refused = f"hardware counters: there is no perf_event_open on {platform.system()} {platform.machine()}"
            return
        library = _system()
        for name, counter in COUNTERS.items():
            for thread in sorted(int(task) for task in os.listdir("/proc/self/task")):
                file = library.syscall(number, _attribute(counter), thread, -1, -1, CLOSE_ON_EXEC)
                if file >= 0:
                    self._files.setdefault(name, []).append(file)
                elif ctypes.get_errno() != errno.ESRCH:  # a thread that has just ended has nothing to count
                    self.refused = refusal(ctypes.get_errno())
                    break
            if self.refused and not self._files:
                return

    def stop(self) -> dict[str, int]:
        """Read and close the counters."""
        found = {}
        for name, files in self._files.items():
            found[name] = sum(struct.unpack("q", os.read(file, 8))[0] for file in files)
            for file in files:
                os.close(file)
        self._files = {}
        return found


def _system() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _attribute(counter: int) -> bytes:
    """Encode `perf_event_attr`: a hardware counter of user code, inherited by new threads, counting at once."""
    flags = INHERITED | WITHOUT_KERNEL | WITHOUT_HYPERVISOR
    head = struct.pack("IIQQQQQ", 0, ATTRIBUTE_BYTES, counter, 0, 0, 0, flags)
    return head.ljust(ATTRIBUTE_BYTES, b"\0")


def refusal(number: int) -> str:
    """Say in one line why there are no counters, and how to get them.

    >>> refusal(errno.ENOENT)
    'hardware counters: this processor has none, or the virtual machine hides them (ENOENT)'
    """
    word = errno.errorcode.get(number, str(number))
    if number in (errno.EACCES, errno.EPERM):
        level = PARANOID.read_text().strip() if PARANOID.is_file() else "unknown"
        return (
            f"hardware counters: the system refuses them ({word}; kernel.perf_event_paranoid is {level}): "
            "sudo sysctl kernel.perf_event_paranoid=2, in a container with --cap-add PERFMON, allows them"
        )
    if number == errno.ENOSYS:
        return "hardware counters: this kernel has no perf_event_open (ENOSYS)"
    return f"hardware counters: this processor has none, or the virtual machine hides them ({word})"


def shown(found: dict[str, int]) -> str:
    """Format counters in one line.

    >>> shown({"cycles": 2000, "instructions": 3000, "cache misses": 5})
    'hardware counters: 2,000 cycles, 3,000 instructions (1.50 a cycle), 5 cache misses'
    """
    parts = []
    for name, count in found.items():
        ratio = count / found["cycles"] if name == "instructions" and found.get("cycles") else 0.0
        parts.append(f"{count:,} {name}" + (f" ({ratio:.2f} a cycle)" if ratio else ""))
    return f"hardware counters: {', '.join(parts)}"
