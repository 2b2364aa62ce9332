"""Peak rates of this machine, measured once and cached: the figures next to which every speed is shown.

A kernel that seems faster than these was measured wrongly.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from ...runtime.cache import key, shared
from ...runtime.singletons import once
from . import ir_modules, native, objects
from .partition import NativeCall, partition
from .pool import MemoryPool
from .processor import amx_permitted, cache_sizes, has_fast_bf16_dot, model, vector_bits
from .task_table import ArgumentPatch, TaskTable

ACCUMULATORS = 12
"""Independent accumulators: more than two units with a latency of five cycles need, fewer than there are registers."""
FMA_STEPS = 100_000
"""Multiply-adds of an accumulator when their rate is measured."""
CACHE_READS = 1 << 20
"""Reads of 256 bytes with which a cache is measured."""
MIN_ARRAY_BYTES, MAX_ARRAY_BYTES = 64 << 20, 256 << 20
"""Sizes of the arrays that measure main memory, which no cache holds."""
CACHED_LINE_BYTES = 512
"""Twice the bytes that an iteration of the loop over a cache reads: half of the cache is used."""
MIN_SECONDS = 0.15
"""Seconds for which each figure is measured; the best run counts."""


@once
def limits() -> Mapping[str, Any]:
    """Bytes and float32 operations per second, sizes of caches in bytes, and units, by name."""
    found = shared("limits").read(_entry())
    figures: dict[str, Any] = measure_again() if found is None else json.loads(found)
    return figures | {"amx_permitted": amx_permitted(), "pairs": has_fast_bf16_dot()}


def measure_again() -> dict[str, Any]:
    """Measure again and keep the best of each figure ever seen, since other programs may have interfered."""
    store, name = shared("limits"), _entry()
    before = json.loads(store.read(name) or b"{}")
    measured = _measured(native.team())
    best = {k: max(v, before.get(k, v)) if isinstance(v, float) else v for k, v in measured.items()}
    store.write(name, json.dumps(best).encode())
    return best


def _entry() -> str:
    """Cache key of the figures."""
    team = native.team()
    return key("limits 2", *objects.host(), model(), team.threads, tuple(team.cores))


def _measured(team: native.Team) -> dict[str, Any]:
    caches = cache_sizes()
    bytes = min(MAX_ARRAY_BYTES, max(MIN_ARRAY_BYTES, 4 * caches.get("L3", 0)))
    pool = MemoryPool()
    blocks = pool.blocks(bytes)
    x, y, z = (pool.take(blocks) for _ in range(3))
    for address in (x, y, z):
        ctypes.memset(address, 0, bytes)  # page faults are not to be measured
    kernels = _kernels() | {f"{level}_read": _cached(level, size) for level, size in caches.items()}
    code = ir_modules.compile_kernels(list(kernels.items()), objects.host())
    lines = bytes // 256

    def rate(name: str, work: float, instances: int, threads: int) -> float:
        run = _runner(team, code.addresses[name], instances, threads)
        return work / _best(lambda: run(x, y, z))

    def flops(threads: int) -> float:
        instances = 8 * threads
        lanes = vector_bits() // 32
        return rate("fma", 2.0 * lanes * ACCUMULATORS * FMA_STEPS * instances, instances, threads)

    result = {
        "model": model(),
        "threads": team.threads,
        "vector_bits": vector_bits(),
        "amx": "+amx-tile" in objects.host().features.split(","),
        "read": rate("read", bytes, lines, team.threads),
        "copy": rate("copy", 2.0 * bytes, lines, team.threads),
        "triad": rate("triad", 3.0 * bytes, lines, team.threads),
        "fma_core": flops(1),
        "fma": flops(team.threads),
        **{f"{level}_read": rate(f"{level}_read", 256.0 * CACHE_READS, CACHE_READS, team.threads) for level in caches},
        **caches,
    }
    pool.trim()
    return result


def _runner(team: native.Team, kernel: int, instances: int, threads: int) -> Callable[..., None]:
    call = NativeCall("limit", kernel, (0, 0, 0, instances, 1, 1), instances, 1e9)
    patches = [ArgumentPatch(n, 0, n) for n in range(3)]
    return TaskTable(team, [call], partition([call], threads), patches, 3, long=True).run


def _best(run: Callable[[], None]) -> float:
    run()
    best, end = float("inf"), time.perf_counter() + MIN_SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best


def _kernels() -> dict[str, str]:
    """Benchmark kernels: each instance reads or writes 256 bytes of arrays x, y, z; instances of `fma` only compute."""
    vector = "<64 x float>"
    load = "  %{0}.v = load {1}, ptr %{0}.at, align 64"
    reads = {"read": "x", "copy": "x", "triad": "xy"}
    bodies = {
        "read": "  %sum.next = fadd <64 x float> %sum, %x.v",
        "copy": "  store <64 x float> %x.v, ptr %z.at, align 64, !nontemporal !0",
        "triad": "  %t = fmul <64 x float> %y.v, splat (float 3.0)\n  %r = fadd <64 x float> %x.v, %t\n"
        "  store <64 x float> %r, ptr %z.at, align 64, !nontemporal !0",
    }
    kernels = {"fma": _fma()}
    for name, body in bodies.items():
        loads = "\n".join(load.format(array, vector) for array in reads[name])
        kernels[name] = _loop(name, f"{loads}\n{body}", sums=name == "read")
    return kernels


def _cached(level: str, size: int) -> str:
    """Kernel that reads the same lines repeatedly, half as many as the cache holds."""
    lines = 1 << (max(1, size // CACHED_LINE_BYTES)).bit_length() - 1
    load = "  %x.v = load <64 x float>, ptr %x.at, align 64\n  %sum.next = fadd <64 x float> %sum, %x.v"
    return _loop(f"{level}_read", load, sums=True, lines=lines)


def _loop(name: str, body: str, *, sums: bool, lines: int = 0) -> str:
    pointers = "\n".join(
        f"  %{array}.slot = getelementptr i64, ptr %arguments, i64 {n}\n  %{array} = load ptr, ptr %{array}.slot"
        for n, array in enumerate("xyz")
    )
    line = "line" if lines else "i"
    places = "\n".join(f"  %{array}.at = getelementptr <64 x float>, ptr %{array}, i64 %{line}" for array in "xyz")
    if lines:
        places = f"  %line = and i64 %i, {lines - 1}\n{places}"
    sum_in = "  %sum = phi <64 x float> [ zeroinitializer, %entry ], [ %sum.next, %body ]\n" if sums else ""
    # One store at the end keeps the loads from being eliminated.
    sum_out = "  store <64 x float> %sum, ptr %z, align 64\n" if sums else ""
    return f"""define void @{name}(ptr %arguments, i64 %begin, i64 %end) {{
entry:
{pointers}
  br label %test
test:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
{sum_in}  %more = icmp ult i64 %i, %end
  br i1 %more, label %body, label %leave
body:
{places}
{body}
  %next = add i64 %i, 1
  br label %test
leave:
{sum_out}  ret void
}}
!0 = !{{i32 1}}
"""


def _fma() -> str:
    """Chains of multiply-adds in registers; an instance executes FMA_STEPS of them in each of ACCUMULATORS."""
    vector = f"<{vector_bits() // 32} x float>"
    intrinsic = f"@llvm.fma.v{vector_bits() // 32}f32"
    phis = "\n".join(
        f"  %a{n} = phi {vector} [ zeroinitializer, %test ], [ %b{n}, %body ]" for n in range(ACCUMULATORS)
    )
    steps = "\n".join(
        f"  %b{n} = call {vector} {intrinsic}({vector} %a{n}, {vector} %factor, {vector} %factor)"
        for n in range(ACCUMULATORS)
    )
    sums = "\n".join(
        f"  %s{n} = fadd {vector} %{f's{n - 1}' if n > 1 else 'b0'}, %b{n}" for n in range(1, ACCUMULATORS)
    )
    return f"""declare {vector} {intrinsic}({vector}, {vector}, {vector})
define void @fma(ptr %arguments, i64 %begin, i64 %end) {{
entry:
  %x = load ptr, ptr %arguments
  %z.slot = getelementptr i64, ptr %arguments, i64 2
  %z = load ptr, ptr %z.slot
  %factor = load {vector}, ptr %x, align 4
  br label %test
test:
  %i = phi i64 [ %begin, %entry ], [ %next, %done ]
  %more = icmp ult i64 %i, %end
  br i1 %more, label %body, label %leave
body:
  %n = phi i64 [ 0, %test ], [ %n.next, %body ]
{phis}
{steps}
  %n.next = add i64 %n, 1
  %again = icmp ult i64 %n.next, {FMA_STEPS}
  br i1 %again, label %body, label %done
done:
{sums}
  %place = getelementptr <64 x float>, ptr %z, i64 %i
  store {vector} %s{ACCUMULATORS - 1}, ptr %place, align 4
  %next = add i64 %i, 1
  br label %test
leave:
  ret void
}}
"""
