"""Properties of a processor that code generation depends on: vector width, registers, caches, matrix unit."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from ...config import settings

SSE_BYTES, AVX2_BYTES, AVX512_BYTES = 16, 32, 64
"""Bytes of the vectors of an x86 processor."""


class Target(NamedTuple):
    """A processor, as far as generated code depends on it.

    >>> Target("x86", 32, 16).lanes(4)
    8
    """

    architecture: str
    vector_bytes: int
    registers: int
    """Number of vector registers."""
    l1_bytes: int = 32768
    l2_bytes: int = 524288
    l3_bytes: int = 32 << 20
    """Bytes of the cache that all cores share."""
    matrix_unit: bool = False
    """Whether low-precision products use AMX."""
    pairs: bool = False
    """Whether `vdpbf16ps` multiplies bfloat16 numbers twice as fast as float32 multiply-adds."""

    def lanes(self, element_bytes: int) -> int:
        """Elements in one vector register."""
        return max(1, self.vector_bytes // element_bytes)

    @property
    def has_masks(self) -> bool:
        """Whether vectors are loaded and stored under a mask by one instruction: from AVX2 on."""
        return self.architecture == "x86" and self.vector_bytes > SSE_BYTES

    @property
    def min_masked_bytes(self) -> int:
        """Bytes of the smallest elements that have a mask: those of AVX2 are of words of 4 bytes."""
        return 2 if self.vector_bytes == AVX512_BYTES else 4


def target() -> Target:
    """Return the features of this machine that the settings allow."""
    from .processor import amx_permitted

    return _processor()._replace(matrix_unit=settings().amx and amx_permitted())


@cache
def _processor() -> Target:
    from . import objects
    from .processor import cache_sizes, has_fast_bf16_dot

    host, caches = objects.host(), _caches(cache_sizes())
    enabled = {f[1:] for f in host.features.split(",") if f.startswith("+")}
    if platform.machine().lower() in ("x86_64", "amd64"):
        if {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= enabled:
            return Target("x86", AVX512_BYTES, 32, *caches, pairs=has_fast_bf16_dot())
        if {"avx2", "fma"} <= enabled:
            return Target("x86", AVX2_BYTES, 16, *caches)
        return Target("x86", SSE_BYTES, 16, *caches)
    return Target("arm", 16, 32, *caches)


def _caches(sizes: Mapping[str, int]) -> tuple[int, int, int]:
    """Bytes of the L1 data, L2 and L3 caches, or typical values."""
    return sizes.get("L1", 32 << 10), sizes.get("L2", 512 << 10), sizes.get("L3", 32 << 20)
