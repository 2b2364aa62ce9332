"""Describe the machine and its limits; a figure above a limit is a measurement error."""

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from typing import Any

from bench import turns
from bench.contenders import CONTENDERS
from bench.workloads import Size, Workload

TOLERANCE = 1.15
"""Tolerance, because limits are measured too."""


class AboveLimit(Exception):
    """A figure that the machine cannot reach."""


def describe() -> dict[str, Any]:
    """Give the processor, the versions, and the measured limits in bytes and operations per second."""
    code = "import json; from tilegrad.backend.cpu.limits import limits; print(json.dumps(dict(limits())))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=turns.environment(CONTENDERS[0])
    )
    limits = json.loads(done.stdout) if done.returncode == 0 else {"unknown": done.stderr.strip()[-200:]}
    versions = {}
    for package in ("numpy", "llvmlite", "torch", "jax"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cpus": os.cpu_count(),
        "threads": turns.THREADS,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
        "limits": limits,
    }


def kind(limits: dict[str, Any]) -> str:
    """Name a kind of machine: records of machines with different vectors are not mixed.

    >>> kind({"vector_bits": 256}), kind({"vector_bits": 512}), kind({"vector_bits": 512, "amx": True})
    ('cpu', 'cpu-avx512', 'cpu-amx')
    """
    return "cpu-amx" if limits.get("amx") else "cpu-avx512" if limits.get("vector_bits") == 512 else "cpu"


def share_of_limit(workload: Workload, size: Size, seconds: float, limits: dict[str, Any]) -> float | None:
    """The share of the machine's limit that a time reaches: of arithmetic, or of bandwidth beyond the caches."""
    shares = []
    low = ("_bf16", "_high") if limits.get("amx") else ("_bf16",) if limits.get("pairs") else ()
    on_unit = workload.name.endswith(low) if low else False  # whose speed nobody has measured
    if workload.flops(size) and "fma" in limits and not on_unit:
        shares.append(workload.flops(size) / seconds / limits["fma"])
    bytes = workload.bytes(size)
    if "triad" in limits and bytes > 2 * limits.get("L3", float("inf")):
        shares.append(bytes / seconds / max(limits[name] for name in ("read", "copy", "triad")))
    return max(shares, default=None)


def may_pass(workload: Workload, limits: dict[str, Any]) -> bool:
    """Tell whether correct results may beat one float32 multiply-add per product: by a matrix unit, or by Winograd
    tiles.
    """
    pairs = bool(limits.get("pairs")) and workload.name.endswith("_bf16")
    return bool(limits.get("amx")) or pairs or workload.name.startswith("convolution")


def check(workload: Workload, record: dict[str, Any], limits: dict[str, Any]) -> None:
    """Refuse impossible times; add our share of the limit to the record."""
    size = tuple(record["size"])
    for name, times in record["times"].items():
        share = share_of_limit(workload, size, times["median"] * workload.operations, limits)
        if share is not None and share > TOLERANCE and not may_pass(workload, limits):
            raise AboveLimit(
                f"{workload.name} {workload.label(size)}: {name} at {1e3 * times['median']:.3f} ms would be "
                f"{100 * share:.0f} % of what this machine can do: the measurement is wrong"
            )
        if share is not None and name == "tilegrad":
            record["share_of_limit"] = share
