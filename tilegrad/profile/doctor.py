"""Report what this machine offers, and what to do about what is missing: `python -m tilegrad doctor`."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from ..backend import cuda
from ..backend.cpu.limits import measure_again
from ..backend.cuda import libraries, nvrtc
from ..backend.cuda.device import CudaDevice
from ..config import settings
from ..runtime.device import Device, device, devices


class ReportLine(NamedTuple):
    """A line of the report; `advice` says how to improve it."""

    name: str
    fact: str
    advice: str = ""


OPTIONAL = {
    "mpi4py": ("several processes over MPI", "mpi4py mpich"),
    "ray": ("jobs on several machines", "ray"),
    "onnx": ("the checker of ONNX files", "onnx"),
}


def report(measure: bool = False) -> str:
    """Return the report as text; with `measure` the speeds are measured again, and the best ever measured are kept."""
    if measure:
        measure_again()
    lines = []
    for finding in findings():
        lines.append(f"{finding.name:16} {finding.fact}")
        lines.extend(f"{'':16} -> {line}" for line in finding.advice.splitlines())
    return "\n".join(lines)


def findings() -> list[ReportLine]:
    """Examine everything. The first time this measures the machine, which takes two seconds."""
    limits = device("cpu").limits
    return [
        _versions(),
        *_processor(limits),
        *_speeds(limits),
        *_products(),
        _huge_pages(),
        _cache(),
        _tier(),
        _knobs(),
        *_graphics(),
        _compiler(),
        *cuda_libraries(),
        *(_library(name, *about) for name, about in OPTIONAL.items()),
    ]


def _versions() -> ReportLine:
    import llvmlite.binding as llvm
    import numpy

    llvm_version = ".".join(map(str, llvm.llvm_version_info))
    system = f"{platform.system()} {platform.machine()}"
    return ReportLine(
        "software", f"Python {platform.python_version()}, numpy {numpy.__version__}, LLVM {llvm_version}, {system}"
    )


def _processor(limits: Mapping[str, Any]) -> list[ReportLine]:
    cores, threads = os.cpu_count() or 1, limits["threads"]
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    advice = ""
    if not sys.platform.startswith("linux"):
        advice = "worker threads exist on Linux only: programs run on one core here"
    elif threads != usable:
        advice = f"TILEGRAD_THREADS={threads} is set; without it there would be {usable}"
    elif usable < cores:
        advice = f"this process may use {usable} of {cores} cores (taskset, or the limits of a container)"
    units = "none"
    advice_units = ""
    if limits["amx"]:
        units = "AMX" if limits["amx_permitted"] else "AMX, not permitted"
        if not limits["amx_permitted"]:
            advice_units = "the system refuses AMX to this process: Linux 5.16 or newer is needed, in the host too"
    caches = ", ".join(f"{name} {_bytes(limits[name])}" for name in ("L1", "L2", "L3") if name in limits)
    return [
        ReportLine("processor", f"{limits['model'] or 'unknown'}, {threads} threads", advice),
        ReportLine("vector units", f"{limits['vector_bits']} bits: {limits['vector_bits'] // 32} float32"),
        ReportLine("matrix units", units, advice_units),
        ReportLine("caches", caches or "unknown"),
    ]


def _speeds(limits: Mapping[str, Any]) -> list[ReportLine]:
    return [
        ReportLine(f"memory {kind}", f"{limits[kind] / 1e9:.1f} GB/s on {limits['threads']} threads")
        for kind in ("read", "copy", "triad")
    ] + [
        ReportLine(
            "cache reads",
            ", ".join(f"{c} {limits[f'{c}_read'] / 1e9:.0f} GB/s" for c in ("L1", "L2", "L3") if f"{c}_read" in limits)
            or "not measured",
        ),
        ReportLine(
            "multiply-add", f"{limits['fma'] / 1e9:.0f} GFLOP/s float32, {limits['fma_core'] / 1e9:.0f} on one core"
        ),
    ]


def _products() -> list[ReportLine]:
    """List the arithmetic in which each device computes float32 products."""
    found = []
    for place in [d for d in devices() if d.kind in ("cpu", "cuda")]:
        words: dict[str, list[str]] = {}
        for precision, arithmetic in place.products.items():
            words.setdefault(arithmetic, []).append(precision)
        said = "; ".join(f"{', '.join(names)}: {arithmetic}" for arithmetic, names in words.items())
        found.append(ReportLine("float32 products", said if place.kind == "cpu" else f"{place.name}: {said}"))
    return found


def _huge_pages() -> ReportLine:
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    try:
        text = path.read_text()
    except OSError:
        return ReportLine("huge pages", "none")
    chosen = text[text.index("[") + 1 : text.index("]")]
    advice = f"large tensors are slower to touch first. As root: echo madvise > {path}" if chosen == "never" else ""
    if not settings().huge_pages:
        advice = "TILEGRAD_HUGE_PAGES=0 is set"
    return ReportLine("huge pages", chosen, advice)


def _cache() -> ReportLine:
    folder = settings().cache_folder
    if folder is None:
        return ReportLine("disk cache", "off", "every process compiles its kernels anew: unset TILEGRAD_CACHE")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sizes = [f.stat().st_size for f in folder.rglob("*") if f.is_file()]
    except OSError as e:
        return ReportLine(
            "disk cache", f"{folder} cannot be used: {e}", "set TILEGRAD_CACHE to a folder you may write to"
        )
    advice = "" if os.access(folder, os.W_OK) else "not writable: set TILEGRAD_CACHE to a folder you may write to"
    limit = _bytes(settings().cache_bytes)
    return ReportLine(
        "disk cache", f"{folder}: {len(sizes)} files, {_bytes(sum(sizes))} of at most {limit} for each kind", advice
    )


def _tier() -> ReportLine:
    """Tell what runs recorded work, outside of `jit`."""
    chosen = settings()
    rules = {
        "counted": f"ready kernels until meeting {chosen.compile_at} of a structure (large ones: later), then compiled",
        "compiled": "each structure is compiled at its first meeting (TILEGRAD_TIER=compiled)",
        "interpreted": "ready kernels always, nothing is compiled as a whole (TILEGRAD_TIER=interpreted)",
    }
    return ReportLine("recorded work", rules[chosen.tier])


def _knobs() -> ReportLine:
    chosen = settings()
    changed = [f"TILEGRAD_{k.upper()}={v}" for k, v in chosen._asdict().items() if v != type(chosen)()._asdict()[k]]
    return ReportLine("knobs", " ".join(changed) or "all as they are by default (listed in tilegrad/config.py)")


def _graphics() -> list[ReportLine]:
    found = [d for d in devices() if d.kind == "cuda"]
    if found:
        return [ReportLine(d.name, _graphics_processor(d)) for d in found]
    why = cuda.absence()
    return [ReportLine("GPUs", f"none: {why}" if why else "none: the NVIDIA driver knows of no GPU")]


def _graphics_processor(place: Device) -> str:
    said = str(place.limits.get("model", ""))
    if isinstance(place, CudaDevice):
        p = place.properties
        said += f", {p.total_memory >> 30} GiB, {p.multi_processor_count} multiprocessors, {p.architecture}"
        said += f", driver for CUDA {p.driver_version // 1000}.{p.driver_version % 1000 // 10}"
    return said


def _compiler() -> ReportLine:
    if nvrtc.is_available():
        return ReportLine("NVRTC", ".".join(map(str, nvrtc.version())))
    return ReportLine("NVRTC", "absent", "for kernels on NVIDIA GPUs: pip install 'tilegrad[cuda]'")


def cuda_libraries() -> list[ReportLine]:
    """List the libraries that may be used for products and convolutions, and why one is not used."""
    if cuda.absence():
        return []
    driver = next((d.properties.driver_version for d in devices() if isinstance(d, CudaDevice)), 0)
    lines = []
    for name, found, use in (
        ("cuBLASLt", libraries.cublaslt(), "for products where it is faster"),
        ("cuDNN", libraries.cudnn(), "for convolutions where it is faster"),
    ):
        if found is None:
            lines.append(ReportLine(name, "not found"))
            continue
        why = found.unusable_reason(driver)
        if not why and not libraries.is_enabled(name):
            why = "TILEGRAD_LIBRARIES=all is needed for it" if libraries.are_allowed() else "TILEGRAD_LIBRARIES=off"
        lines.append(
            ReportLine(
                name, f"{'.'.join(map(str, found.version))} ({found.path}): {f'not used: {why}' if why else use}"
            )
        )
    return lines


def _library(name: str, purpose: str, package: str) -> ReportLine:
    present = find_spec(name) is not None
    return ReportLine(
        name, "present" if present else "absent", "" if present else f"for {purpose}: pip install '{package}'"
    )


def _bytes(count: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.4g} {unit}"
    return f"{count} bytes"
