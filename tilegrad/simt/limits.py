"""GPU launch limits and occupancy."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import ArgumentError, LaunchError
from ..ir.program import MAX_INSTANCES
from .lanes import LaunchShape


class Gpu(NamedTuple):
    """A model of GPU; sizes in bytes, bandwidth in bytes per second."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    threads_per_multiprocessor: int
    blocks_per_multiprocessor: int
    shared_per_multiprocessor: int
    shared_per_block: int
    """With opt-in, as tilegrad does; 48 KiB without."""
    l2: int
    bandwidth: float
    shared_reserved: int = 1024
    """Shared memory reserved per block, in bytes."""
    registers_per_multiprocessor: int = 65536
    registers_per_block: int = 65536
    registers_per_thread: int = 255
    register_unit: int = 256
    """Granularity of register allocation per warp; warps are allocated in multiples of `warp_unit`."""
    warp_unit: int = 4
    shared_unit: int = 128
    threads_per_block: int = 1024
    block: tuple[int, int, int] = (1024, 1024, 64)
    grid: tuple[int, int, int] = MAX_INSTANCES
    warp: int = 32

    @property
    def architecture(self) -> str:
        major, minor = self.capability
        return f"sm_{major}{minor}{'a' if major in (9, 10) else ''}"

    def resident(self, threads: int, shared: int) -> int:
        """Return the number of blocks that the whole GPU holds if registers do not limit it."""
        return max(1, occupancy(self, threads, shared=shared).blocks * self.multiprocessors)


KIB, MIB = 1 << 10, 1 << 20
MAX_STATIC_SHARED_BYTES = 48 * KIB
"""Largest static shared memory of a block in bytes, on every GPU; dynamic shared memory may be larger."""
GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu("V100", (7, 0), 80, 2048, 32, 96 * KIB, 96 * KIB, 6 * MIB, 900e9, 0, shared_unit=256),
        Gpu("T4", (7, 5), 40, 1024, 16, 64 * KIB, 64 * KIB, 4 * MIB, 320e9, 0, shared_unit=256),
        Gpu("A100", (8, 0), 108, 2048, 32, 164 * KIB, 163 * KIB, 40 * MIB, 1555e9),
        Gpu("RTX 3090", (8, 6), 82, 1536, 16, 100 * KIB, 99 * KIB, 6 * MIB, 936e9),
        Gpu("RTX 4090", (8, 9), 128, 1536, 24, 100 * KIB, 99 * KIB, 72 * MIB, 1008e9),
        Gpu("H100", (9, 0), 132, 2048, 32, 228 * KIB, 227 * KIB, 50 * MIB, 3352e9),
        Gpu("H200", (9, 0), 132, 2048, 32, 228 * KIB, 227 * KIB, 60 * MIB, 4814e9),
        Gpu("RTX 5090", (12, 0), 170, 1536, 24, 100 * KIB, 99 * KIB, 96 * MIB, 1792e9),
    )
}
"""Models by name, from NVIDIA's tables; the H200 as its driver reports it."""
DEFAULT = "H200"


def gpu(name: Any = None) -> Gpu:
    """Return a GPU model by name; by default this machine's GPU, else an H200.

    >>> gpu("4090").multiprocessors
    128
    """
    if isinstance(name, Gpu):
        return name
    if name is None:
        return _present() or GPUS[DEFAULT]
    found = [
        g for n, g in GPUS.items() if str(name).lower().replace("nvidia ", "") in (n.lower(), n.lower().split()[-1])
    ]
    if not found:
        raise ArgumentError(f"there is no GPU {name!r} in the table, which has {', '.join(GPUS)}: give a simt.Gpu(...)")
    return found[0]


def _present() -> Gpu | None:
    """Describe this machine's GPU as its driver reports it."""
    from .. import cuda

    if not cuda.is_available():
        return None
    found = cuda.get_device_properties()
    return Gpu(
        found.name.removeprefix("NVIDIA "),
        (found.major, found.minor),
        found.multi_processor_count,
        found.max_threads_per_multi_processor,
        found.max_blocks_per_multi_processor,
        found.shared_memory_per_multiprocessor,
        found.shared_memory_per_block_optin,
        found.L2_cache_size,
        found.memory_bandwidth,
        1024 if found.major >= 8 else 0,
        found.regs_per_multiprocessor,
        found.regs_per_block,
        shared_unit=128 if found.major >= 8 else 256,
        threads_per_block=found.max_threads_per_block,
        warp=found.warp_size,
    )


class Occupancy(NamedTuple):
    """Resident blocks of a kernel per multiprocessor, and the resource that limits them."""

    blocks: int
    warps: int
    most_warps: int
    limit: str

    @property
    def fraction(self) -> float:
        return self.warps / self.most_warps

    def __str__(self) -> str:
        return (
            f"{self.blocks} blocks ({self.warps} of {self.most_warps} warps, {self.fraction:.0%}) on a multiprocessor, "
            f"limited by {self.limit}"
        )


def occupancy(on: Any = None, threads: int = 256, registers: int = 0, shared: int = 0) -> Occupancy:
    """Compute the occupancy of blocks of `threads` threads, given registers per thread and bytes of shared memory.

    >>> print(occupancy("A100", threads=256, registers=40))
    6 blocks (48 of 64 warps, 75%) on a multiprocessor, limited by registers
    """
    limits = gpu(on)
    if not 1 <= threads <= limits.threads_per_block:
        raise LaunchError(f"{threads} threads in a block: {limits.name} allows 1 to {limits.threads_per_block}")
    if registers < 0 or shared < 0:
        raise ArgumentError(f"{registers} registers a thread, {shared} bytes of shared memory: they are 0 or more")
    warps = -(-threads // limits.warp)
    most_warps = limits.threads_per_multiprocessor // limits.warp
    allowed = {"blocks": limits.blocks_per_multiprocessor, "threads": most_warps // warps}
    if registers:
        of_warp = -(-registers * limits.warp // limits.register_unit) * limits.register_unit
        held = limits.registers_per_multiprocessor // of_warp // limits.warp_unit * limits.warp_unit
        allowed["registers"] = held // warps
    used = -(-(shared + limits.shared_reserved) // limits.shared_unit) * limits.shared_unit
    if used:
        allowed["shared memory"] = limits.shared_per_multiprocessor // used
    limit = min(allowed, key=lambda name: allowed[name])
    blocks = max(0, allowed[limit])
    return Occupancy(blocks, blocks * warps, most_warps, limit)


def check_launch(
    limits: Gpu, kernel: str, shape: LaunchShape, static: int = 0, origin: str = "", registers: int = 0
) -> None:
    """Raise LaunchError, naming request and limit, unless the GPU can run such a launch."""

    def wrong(what: str, remedy: str) -> LaunchError:
        where = f" ({origin})" if origin else ""
        return LaunchError(f"kernel {kernel}{where}: {what}; {remedy}")

    for axis, (n, most) in enumerate(zip(shape.block, limits.block, strict=True)):
        if not 1 <= n <= most:
            raise wrong(
                f"{n} threads along axis {'xyz'[axis]} of a block {shape.block}: {limits.name} allows 1 to {most}",
                "use more blocks" if n > most else "a block has at least one thread",
            )
    if shape.threads > limits.threads_per_block:
        raise wrong(
            f"{shape.threads} threads in a block {shape.block}: {limits.name} allows 1 to {limits.threads_per_block}",
            "use smaller blocks, and more of them",
        )
    for axis, (n, most) in enumerate(zip(shape.grid, limits.grid, strict=True)):
        if not 1 <= n <= most:
            raise wrong(
                f"{n} blocks along axis {'xyz'[axis]} of the grid {shape.grid}: {limits.name} allows 1 to {most}",
                "launch nothing when there is nothing to do" if n < 1 else "let a thread do more, or use axis x",
            )
    shared = shape.shared + static
    if MAX_STATIC_SHARED_BYTES < static <= limits.shared_per_block:
        raise wrong(
            f"{static} bytes of static shared memory: CUDA allows {MAX_STATIC_SHARED_BYTES} of it, on any GPU",
            "declare the largest with simt.dynamic_shared(dtype), and give its bytes with the launch",
        )
    if not 0 <= shape.shared <= limits.shared_per_block - static:
        raise wrong(
            f"{shared} bytes of shared memory ({_shared_parts(static, shape.shared)}): {limits.name} allows "
            f"{limits.shared_per_block} for a block",
            "use smaller tiles",
        )
    if registers * shape.threads > limits.registers_per_block:
        raise wrong(
            f"{shape.threads} threads with {registers} registers each: {limits.name} has "
            f"{limits.registers_per_block} for a block",
            "use fewer threads",
        )


def _shared_parts(static: int, dynamic: int) -> str:
    if static and dynamic:
        return f"{static} static and {dynamic} dynamic"
    return "static" if static else "dynamic"
