"""Object files are mapped into memory without LLVM, or left to its linker."""

from __future__ import annotations

import ctypes
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")

from tilegrad import config
from tilegrad.backend.cpu import host_record, map_objects, objects

COUNTER = """
@count = internal global i64 5
@table = internal constant [4 x i64] [i64 3, i64 1, i64 4, i64 1]
declare ptr @memcpy(ptr, ptr, i64)
define i64 @next(ptr %out, i64 %k) {
  %c = load i64, ptr @count
  %d = add i64 %c, 1
  store i64 %d, ptr @count
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %k
  %done = call ptr @memcpy(ptr %out, ptr %at, i64 8)
  ret i64 %d
}
"""
CALLER = """
declare i64 @next(ptr, i64)
@number = external global i64
define i64 @twice(ptr %out, i64 %k) {
  %a = call i64 @next(ptr %out, i64 %k)
  %b = call i64 @next(ptr %out, i64 %k)
  %n = load i64, ptr @number
  %c = add i64 %b, %n
  ret i64 %c
}
"""
UNDEFINED = "declare void @nobody_has_this()\ndefine void @f() {\n call void @nobody_has_this()\n ret void\n}"


def image(ir: str) -> bytes:
    return objects.compile_object("test", ir, objects.host())


needs_elf = pytest.mark.skipif(
    sys.platform != "linux" or objects.host().triple.split("-")[0] != "x86_64", reason="other object files"
)
pytestmark = needs_elf


def function(address: int) -> Callable[..., int]:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(address)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_files_see_variables_constants_functions_and_one_another(order: Sequence[int]) -> None:
    number, out = ctypes.c_int64(100), ctypes.c_int64()
    images = [(image(COUNTER), image(CALLER))[n] for n in order]
    code = map_objects.map_objects(images, {"number": ctypes.addressof(number)})
    assert code is not None
    twice, next = function(code.exported["twice"]), function(code.exported["next"])
    assert (twice(ctypes.addressof(out), 2), out.value) == (107, 4)
    assert (next(ctypes.addressof(out), 0), out.value) == (8, 3)


def test_each_mapping_has_variables_of_its_own() -> None:
    out, made = ctypes.c_int64(), image(COUNTER)
    codes = [map_objects.map_objects([made], {}) for _ in range(2)]
    assert [function(c.exported["next"])(ctypes.addressof(out), 0) for c in codes if c is not None] == [6, 6]


def test_code_is_not_writable_and_variables_are_not_executable() -> None:
    code = map_objects.map_objects([image(COUNTER)], {})
    assert code is not None
    start = ctypes.addressof(ctypes.c_char.from_buffer(code.memory))
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    ranges = [(*[int(x, 16) for x in line[0].split("-")], line[1]) for line in lines]
    access = {
        name: next(kind for low, high, kind in ranges if low <= address < high)
        for name, address in (("code", code.exported["next"]), ("variables", start + len(code.memory) - 1))
    }
    assert access == {"code": "r-xp", "variables": "rw-p"}


def test_what_is_not_known_is_left_to_llvm() -> None:
    made = image(COUNTER)
    assert map_objects.map_objects([made, made], {}) is None  # defined twice
    assert map_objects.map_objects([image(UNDEFINED)], {}) is None
    assert map_objects.map_objects([b"\xcf\xfa\xed\xfe" + made[4:]], {}) is None  # of another system
    assert map_objects.map_objects([made[:18] + struct.pack("<H", 183) + made[20:]], {}) is None  # of another processor
    file = map_objects.ObjectFile(made)
    table = next(s for s in file.sections if s.kind == map_objects.RELOCATIONS)
    other = bytearray(made)
    other[table.offset + 8] = 2  # relative to the place
    assert map_objects.map_objects([bytes(other)], {}) is None


def test_files_that_are_cut_off_are_refused() -> None:
    made = image(CALLER)
    for length in random.Random(0).sample(range(len(made)), 40):
        assert map_objects.map_objects([made[:length]], {"number": 0, "next": 0}) is None


def test_llvm_links_what_is_not_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    out = ctypes.c_int64()
    monkeypatch.setattr(objects, "part", lambda module, name: None)
    code = objects.link([image(COUNTER)], ["next"])
    assert (function(code.addresses["next"])(ctypes.addressof(out), 1), out.value) == (6, 1)


def test_the_processor_is_detected_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def detect() -> tuple[str, ...]:
        calls.append(1)
        return "triple", "cpu", "+a,-b", "1.2"

    with config.changed(cache=str(tmp_path)):
        assert [host_record.recorded(detect) for _ in range(3)] == [("triple", "cpu", "+a,-b", "1.2")] * 3
        assert len(calls) == 1
        with config.changed(vectors="sse"):
            host_record.recorded(detect)
        assert len(calls) == 2
        monkeypatch.setattr(host_record, "_processor", lambda: "another")
        host_record.recorded(detect)
        assert len(calls) == 3
        monkeypatch.setattr(host_record, "_library", lambda: "")
        host_record.recorded(detect)
        host_record.recorded(detect)
        assert len(calls) == 5  # a library that is not known is asked each time


FIRST_WORK = """
import sys
import tilegrad as tg
x = tg.arange(5000.0)
print((x * 2 + 1).sum().item(), (x[:70].reshape(7, 10) @ x[:50].reshape(10, 5)).sum().item(), x.exp().amax().item())
print(sorted(name for name in sys.modules if name in ("llvmlite", "tilegrad.backend.cpu.emit", "random", "tempfile")))
"""


def test_work_whose_code_is_on_disk_loads_no_compiler(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FIRST_WORK]
    environment = {**os.environ, "TILEGRAD_CACHE": str(tmp_path), "TILEGRAD_TIER": "interpreted"}
    printed = [
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    ]
    (first, loaded), (second, later) = [text.splitlines() for text in printed]
    assert first == second
    assert "llvmlite" in loaded
    assert later == "[]"
