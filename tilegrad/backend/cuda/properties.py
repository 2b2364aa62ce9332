"""Properties of a GPU, and checks of launches against its limits."""

from __future__ import annotations

from typing import NamedTuple

from ...errors import DeviceError, LaunchError
from .driver import Driver, cuda_major

FEATURES_MAJOR = 9
"""First major compute capability with architecture-specific features (sm_90a)."""
REGISTER_UNIT = 256
"""Granularity of a warp's registers."""
RESERVED_SHARED = 1024
"""Bytes of shared memory reserved per block."""


MATRIX_UNIT_OPERATIONS = {
    70: {"float16": 1024},
    75: {"float16": 1024, "int8": 2048},
    80: {"float16": 2048, "bfloat16": 2048, "tf32": 1024, "int8": 4096},
    86: {"float16": 1024, "bfloat16": 1024, "tf32": 512, "int8": 2048},
    89: {"float16": 1024, "bfloat16": 1024, "tf32": 512, "int8": 2048, "float8": 2048},
    90: {"float16": 4096, "bfloat16": 4096, "tf32": 2048, "int8": 8192, "float8": 8192},
    100: {"float16": 8192, "bfloat16": 8192, "tf32": 4096, "int8": 16384, "float8": 16384},
    120: {"float16": 1024, "bfloat16": 1024, "tf32": 512, "int8": 2048, "float8": 2048},
}
"""Operations of the matrix units of a multiprocessor in a cycle, by compute capability: published peaks of dense
products, an addition and a multiplication counted as two."""


class GpuProperties(NamedTuple):
    """Properties of one GPU, with PyTorch's names where it has them; sizes in bytes, clocks in kHz."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    max_threads_per_block: int
    max_threads_per_multi_processor: int
    max_blocks_per_multi_processor: int
    max_grid: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    regs_per_block: int
    regs_per_multiprocessor: int
    warp_size: int
    L2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    driver_version: int

    @property
    def capability(self) -> int:
        """Compute capability, 90 for sm_90."""
        return 10 * self.major + self.minor

    @property
    def architecture(self) -> str:
        """The architecture to compile for, with architecture-specific features.

        >>> from .null import NullDriver
        >>> properties(NullDriver(), 0).architecture
        'sm_90a'
        """
        return f"sm_{self.major}{self.minor}{'a' if self.major >= FEATURES_MAJOR else ''}"

    @property
    def runtime_version(self) -> int:
        """Version of the compiler, 13050 for 13.5; 0 without one."""
        from .nvrtc import is_available, version

        return version()[0] * 1000 + version()[1] * 10 if is_available() else 0

    @property
    def product_rates(self) -> dict[str, float]:
        """Operations per second of products in the matrix units, by their numbers; those that are not known lack.

        >>> from .null import NullDriver
        >>> {name: round(rate / 1e12) for name, rate in properties(NullDriver(), 0).product_rates.items()}
        {'float16': 1071, 'bfloat16': 1071, 'tf32': 535, 'int8': 2141, 'float8': 2141}
        """
        known = MATRIX_UNIT_OPERATIONS.get(self.capability, {})
        return {name: count * self.multi_processor_count * self.clock_rate * 1e3 for name, count in known.items()}

    @property
    def memory_bandwidth(self) -> float:
        """Memory bandwidth in bytes per second, from clock and width."""
        return 2.0 * self.memory_clock_rate * 1e3 * self.memory_bus_width / 8


def properties(driver: Driver, number: int) -> GpuProperties:
    """Query the properties of a device."""

    def of(attribute: str) -> int:
        return driver.attribute(number, attribute)

    return GpuProperties(
        name=driver.device_name(number),
        major=of("major"),
        minor=of("minor"),
        total_memory=driver.total_memory(number),
        multi_processor_count=of("multiprocessors"),
        max_threads_per_block=of("threads"),
        max_threads_per_multi_processor=of("threads_multiprocessor"),
        max_blocks_per_multi_processor=of("blocks_multiprocessor"),
        max_grid=of("grid"),
        shared_memory_per_block=of("shared"),
        shared_memory_per_block_optin=of("shared_optin"),
        shared_memory_per_multiprocessor=of("shared_multiprocessor"),
        regs_per_block=of("registers"),
        regs_per_multiprocessor=of("registers_multiprocessor"),
        warp_size=of("warp"),
        L2_cache_size=of("l2"),
        clock_rate=of("clock"),
        memory_clock_rate=of("memory_clock"),
        memory_bus_width=of("bus"),
        driver_version=driver.version,
    )


def blocks_at_once(limits: GpuProperties, threads: int, shared: int, registers: int) -> int:
    """Return how many blocks of a kernel a multiprocessor holds.

    >>> from .null import NullDriver
    >>> h200 = properties(NullDriver(), 0)
    >>> blocks_at_once(h200, 256, 0, 32), blocks_at_once(h200, 384, 200_000, 168), blocks_at_once(h200, 128, 0, 128)
    (8, 1, 4)
    """
    warps = -(-threads // limits.warp_size)
    allowed = [limits.max_blocks_per_multi_processor]
    allowed.append(limits.max_threads_per_multi_processor // (warps * limits.warp_size))
    if registers:
        of_warp = -(-registers * limits.warp_size // REGISTER_UNIT) * REGISTER_UNIT
        allowed.append(limits.regs_per_multiprocessor // (of_warp * warps))
    allowed.append(limits.shared_memory_per_multiprocessor // (shared + RESERVED_SHARED))
    return max(0, min(allowed))


def check_launch(
    limits: GpuProperties, kernel: str, blocks: int, threads: int, shared: int, registers: int = 0, origin: str = ""
) -> None:
    """Raise LaunchError if a launch exceeds the GPU's limits.

    >>> from .null import NullDriver
    >>> check_launch(properties(NullDriver(), 0), "softmax", 12, 1025, 0, origin="model.py:7")
    Traceback (most recent call last):
        ...
    tilegrad.errors.LaunchError: kernel softmax (model.py:7) wants 1025 threads in a block: NVIDIA H200 allows 1 to
    1024; make its tiles smaller
    """
    wrong = ""
    if not 1 <= threads <= limits.max_threads_per_block:
        wrong = f"{threads} threads in a block: {{}} allows 1 to {limits.max_threads_per_block}; make its tiles smaller"
    elif not 1 <= blocks <= limits.max_grid:
        tiles = "smaller" if blocks < 1 else "larger"
        wrong = f"a grid of {blocks} blocks: {{}} allows 1 to {limits.max_grid}; make its tiles {tiles}"
    elif not 0 <= shared <= limits.shared_memory_per_block_optin:
        most = limits.shared_memory_per_block_optin
        wrong = f"{shared} bytes of shared memory: {{}} allows {most} a block; make its tiles smaller"
    elif registers * threads > limits.regs_per_block:
        most = limits.regs_per_block
        wrong = f"{threads} threads with {registers} registers each: {{}} has {most} for a block; use fewer threads"
    if wrong:
        where = f" ({origin})" if origin else ""
        raise LaunchError(f"kernel {kernel}{where} wants {wrong.format(limits.name)}")


def check_compiler(limits: GpuProperties) -> None:
    """Raise DeviceError if the driver is too old for the compiler."""
    made, driver = limits.runtime_version, limits.driver_version
    if cuda_major(made) > cuda_major(driver):
        raise DeviceError(
            f"the NVIDIA driver is for CUDA {_dotted(driver)}, and this NVRTC makes kernels for {_dotted(made)}: "
            "update the driver (580 or newer), or install the compiler for it: pip install "
            f"nvidia-cuda-nvrtc-cu{cuda_major(driver)}"
        )


def _dotted(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
