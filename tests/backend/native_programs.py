"""Small programs for the native runner, built without the compiler, and a helper that runs Python in a child process.

A fault in native code ends the process: tests of it run in children, with `faulthandler` on.
"""

import subprocess
import sys
import textwrap
from pathlib import Path

from tilegrad.backend.cpu import ir_modules, native, objects
from tilegrad.backend.cpu.partition import NativeCall, partition
from tilegrad.backend.cpu.task_table import ArgumentPatch, TaskTable

ROOT = Path(__file__).parents[2]
QUIET = ("-W", "ignore:This process:DeprecationWarning")
"""Python 3.12 and newer warn of forks in processes with threads; these tests do that on purpose."""

MIRROR = """
; target[i] = source[n - 1 - i] + 1 for i in begin .. end: reads what other threads wrote.
define void @mirror(ptr %arguments, i64 %begin, i64 %end) {
entry:
  %source = load ptr, ptr %arguments
  %target.at = getelementptr i64, ptr %arguments, i64 1
  %target = load ptr, ptr %target.at
  %n.at = getelementptr i64, ptr %arguments, i64 2
  %n = load i64, ptr %n.at
  br label %test
test:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %end
  br i1 %more, label %body, label %leave
body:
  %back = sub i64 %n, %i
  %at = sub i64 %back, 1
  %from = getelementptr i64, ptr %source, i64 %at
  %value = load i64, ptr %from
  %sum = add i64 %value, 1
  %to = getelementptr i64, ptr %target, i64 %i
  store i64 %sum, ptr %to
  %next = add i64 %i, 1
  br label %test
leave:
  ret void
}
"""


def mirror() -> int:
    """Address of the kernel; its code stays linked."""
    return _CODE.addresses["mirror"]


_CODE = ir_modules.compile_kernels([("mirror", MIRROR)], objects.host())


class Mirrors:
    """`depth` launches from `x` to `y` and back, each of which mirrors the array and adds one."""

    def __init__(
        self, count: int, depth: int, nanoseconds: float = 60_000.0, threads: int = 0, **options: bool
    ) -> None:
        team = native.team()
        self.count, self.depth = count, depth
        self.x, self.y = native.AlignedWords(count), native.AlignedWords(count)
        calls = [NativeCall("mirror", mirror(), (0, 0, count, count, 1, 1), count, nanoseconds) for _ in range(depth)]
        patches = [ArgumentPatch((n + slot) % 2, n, slot) for n in range(depth) for slot in (0, 1)]
        self.table = TaskTable(team, calls, partition(calls, threads or team.threads), patches, 2, **options)

    def run(self) -> None:
        self.table.run(self.x.address, self.y.address)

    def check(self, start: int = 0) -> None:
        """Run once from a ramp, and compare."""
        self.x.view[:] = memoryview(bytes(8 * self.count)).cast("q")
        for n in range(self.count):
            self.x.view[n] = start + n
        self.run()
        wanted = [start + n + self.depth for n in range(self.count)]
        if self.depth % 2:
            wanted = [start + self.count - 1 - n + self.depth for n in range(self.count)]
        result = (self.y if self.depth % 2 else self.x).view.tolist()
        assert result == wanted, (result[:8], wanted[:8])


def in_child(source: str, timeout: float = 120, prefix: tuple[str, ...] = (), **environment: str) -> str:
    """Run Python in a process of its own and return what it prints."""
    import os

    code = "from tests.backend.native_programs import *\n" + textwrap.dedent(source)
    done = subprocess.run(
        [*prefix, sys.executable, "-X", "faulthandler", *QUIET, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert not done.stderr, done.stderr[-4000:]
    return done.stdout
