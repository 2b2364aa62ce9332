"""Measurements of whole processes: cold start, import, slowdown next to a busy neighbour, size on disk."""

import importlib.metadata
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import turns
from bench.contenders import CONTENDERS, Contender
from bench.memory import alexnet_memory
from bench.workloads import Size, Workload

COLD_ROUNDS = 9
BURN = "while True: pass"


def cold(contenders: Sequence[Contender], workload: Workload, size: Size) -> dict[str, Any]:
    """Time a process that starts, builds the work and does it once; file caches are warm."""
    code = (
        "import importlib, sys; from bench.workloads import WORKLOADS; "
        "module = importlib.import_module('bench.contenders.' + sys.argv[1]); "
        f"module.mlp(WORKLOADS['mlp'].inputs({size}), sys.argv[2])()"
    )
    # torch.compile takes many seconds here, each time; malloc settings change nothing
    started = [c for c in contenders if c.variant in ("", "eager") and not c.tuned]
    commands = {c.name: [sys.executable, "-c", code, c.module, c.variant] for c in started}
    return _paired(commands, {c.name: turns.environment(c) for c in contenders}, size)


def imports(contenders: Sequence[Contender], workload: Workload, size: Size) -> dict[str, Any]:
    """Time a process that only imports."""
    names = {c.name: c.library for c in contenders if not c.variant or c.name == "torch"}
    commands = {name: [sys.executable, "-c", f"import {library}"] for name, library in names.items()}
    return _paired(commands, {c.name: turns.environment(c) for c in contenders}, size)


def _paired(commands: dict[str, list[str]], environments: dict[str, dict[str, str]], size: Size) -> dict[str, Any]:
    times: dict[str, list[float]] = {name: [] for name in commands}
    unable: dict[str, str] = {}
    for n in range(COLD_ROUNDS + 1):
        for name, command in commands.items():
            if name in unable:
                continue
            start = time.perf_counter()
            done = subprocess.run(command, env=environments[name], capture_output=True, text=True, cwd=turns.ROOT)
            if done.returncode:
                unable[name] = done.stderr.strip().splitlines()[-1][:300]
                times.pop(name)
            elif n:  # the first fills the disk caches
                times[name].append(time.perf_counter() - start)
    ours = times.get("tilegrad")
    return {
        "size": list(size),
        "rounds": COLD_ROUNDS,
        "unable": unable,
        "times": {name: turns.summary(values) for name, values in times.items()},
        "ratios": {name: turns.ratios(values, ours) for name, values in times.items()} if ours else {},
    }


def beside_a_busy_core(contenders: Sequence[Contender], workload: Workload, size: Size) -> dict[str, Any]:
    """Measure how much longer each contender takes while another process keeps one core busy."""
    quiet = turns.play(contenders, workload, size, turns.FEWEST_ROUNDS)
    neighbour = subprocess.Popen([sys.executable, "-c", BURN])
    try:
        busy = turns.play(contenders, workload, size, turns.FEWEST_ROUNDS)
    finally:
        neighbour.kill()
        neighbour.wait()
    both = [name for name in quiet["times"] if name in busy["times"]]
    slowdowns = {name: busy["times"][name]["median"] / quiet["times"][name]["median"] for name in both}
    return busy | {"slowdowns": slowdowns, "quiet": quiet["times"], "ratios": {}}


def installed(contenders: Sequence[Contender], workload: Workload, size: Size) -> dict[str, Any]:
    """The size of each library on disk, with its dependencies."""
    libraries = list(dict.fromkeys(c.library for c in contenders))
    return {"size": [], "bytes": {name: _bytes_of(name) for name in libraries}, "times": {}, "ratios": {}}


def _bytes_of(package: str) -> int:
    """
    >>> _bytes_of("numpy") > 10_000_000
    True
    """
    total, known, waiting = 0, set[str](), [package]
    while waiting:
        name = waiting.pop().lower().replace("_", "-")
        if name in known:
            continue
        known.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name == "tilegrad":
                waiting += ["numpy", "llvmlite", "ml-dtypes", "rich"]
                total += sum(p.stat().st_size for p in (turns.ROOT / "tilegrad").rglob("*") if p.is_file())
            continue
        files = [Path(str(found.locate_file(f))) for f in found.files or []]
        total += sum(f.stat().st_size for f in files if f.is_file())
        for requirement in found.requires or []:
            if "extra ==" not in requirement:
                waiting.append(_name(requirement))
    return total


def _name(requirement: str) -> str:
    """
    >>> _name("rich>=13; python_version > '3'")
    'rich'
    """
    for n, character in enumerate(requirement):
        if not (character.isalnum() or character in "-_."):
            return requirement[:n]
    return requirement


MEASURES: dict[str, Callable[[Sequence[Contender], Workload, Size], dict[str, Any]]] = {
    "cold": cold,
    "import": imports,
    "installed": installed,
    "alexnet_memory": alexnet_memory,
}


def measure(contenders: Sequence[Contender], workload: Workload, size: Size) -> dict[str, Any]:
    """Measure a workload and size in the way that the workload names."""
    if workload.while_busy:
        return beside_a_busy_core(contenders, workload, size)
    return MEASURES.get(workload.name, turns.play)(contenders, workload, size)


def chosen(libraries: Sequence[str]) -> list[Contender]:
    """Ours and the contenders of these libraries; a full name chooses one setting."""
    return [c for c in CONTENDERS if c.name == "tilegrad" or c.library in libraries or c.name in libraries]
