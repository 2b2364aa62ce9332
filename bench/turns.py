"""Interleave contenders in processes of their own, and compute the ratios of their times."""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from bench import networks
from bench.contenders import Contender
from bench.workloads import Size, Workload

ROOT = Path(__file__).parent.parent
THREADS = 2
THREAD_KNOBS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TILEGRAD_THREADS")
SLICE = 0.05
"""Seconds of a slice: short enough that fluctuations of the machine hit all contenders alike."""
ROUNDS = 21
MAX_FOREIGN_SHARE = 0.1
"""Rounds in which other processes took more of the machine than this are dropped, if enough remain."""
FEWEST_ROUNDS = 7
PATIENCE = 120.0
"""Seconds after which no further round begins, once there are enough."""
FIRST_ROUNDS = 3
FARTHER, NEAR = 2.0, {"": 1e-4, "high": 3e-3, "bf16": 2e-2}
"""Bounds of a gradient's error: this many times PyTorch's; smaller errors always pass."""
FAR_BEHIND = 4.0
"""A contender that is this many times slower than the fastest after the first rounds is dropped."""


def environment(contender: Contender) -> dict[str, str]:
    threads = {name: str(THREADS) for name in THREAD_KNOBS}
    kept = {name: x for name, x in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}  # installed, all have it
    return {**kept, **threads, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **contender.environment}


class Player:
    """A child process that is stopped except in its turn."""

    def __init__(self, contender: Contender, workload: Workload, size: Size) -> None:
        self.contender = contender
        self.rounds: list[float] = []
        self.error = ""
        command = [sys.executable, "-m", "bench.child", contender.name, workload.name, json.dumps(size)]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(contender),
        )
        self._read()

    def ask(self, **question: Any) -> dict[str, Any]:
        if self.error:
            return {}
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the process ended"}
        self.error = answer.get("error", "")
        if not self.error:
            self.process.send_signal(signal.SIGSTOP)
        return answer

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def play(contenders: Sequence[Contender], workload: Workload, size: Size, rounds: int = ROUNDS) -> dict[str, Any]:
    """Time all contenders on one workload and size, after comparing their results."""
    players = [Player(c, workload, size) for c in contenders]
    try:
        checked = _verify(players, workload, size)
        foreign = _rounds(players, rounds)
    finally:
        for player in players:
            player.end()
    clean = [n for n, share in enumerate(foreign) if share <= MAX_FOREIGN_SHARE]
    kept = clean if len(clean) >= min(FEWEST_ROUNDS, len(foreign)) else list(range(len(foreign)))
    ours = next((p.rounds for p in players if p.contender.name == "tilegrad" and not p.error), None)
    times, compared = {}, {}
    for player in players:
        if not player.error:
            name, played = player.contender.name, _played(player, kept)
            times[name] = summary([player.rounds[n] / workload.operations for n in played])
            if ours:
                compared[name] = ratios([player.rounds[n] for n in played], [ours[n] for n in played])
    return {
        "size": list(size),
        "rounds": len(kept),
        "clean": kept is clean,
        "verified": checked,
        "unable": {p.contender.name: p.error for p in players if p.error},
        "times": times,
        "ratios": compared,
    }


def _played(player: Player, kept: Sequence[int]) -> Sequence[int]:
    """The kept rounds of a contender; all of its rounds if none was kept."""
    own = range(len(player.rounds))
    return [n for n in kept if n in own] or own


def _rounds(players: Sequence[Player], most: int) -> list[float]:
    """Play the rounds; return the share of the machine that other processes took in each."""
    foreign: list[float] = []
    start = time.perf_counter()
    while len(foreign) < most:
        if len(foreign) >= FEWEST_ROUNDS and time.perf_counter() - start > PATIENCE:
            break
        foreign.append(_round(_still_playing([p for p in players if not p.error])))
    return foreign


def _still_playing(players: Sequence[Player]) -> list[Player]:
    """All contenders at first, then those that may still be the fastest.

    Ours always plays, since the others are compared with it.
    """
    if any(len(p.rounds) < FIRST_ROUNDS for p in players):
        return list(players)
    fastest = min(min(p.rounds) for p in players)
    return [p for p in players if p.contender.name == "tilegrad" or min(p.rounds) < FAR_BEHIND * fastest]


def _round(players: Sequence[Player]) -> float:
    """Run a slice of each; return the share of the machine that other processes took."""
    others, start, own = _busy(), time.perf_counter(), 0.0
    for player in players:
        before = _cpu_of(player.process.pid)
        times = player.ask(slice=SLICE).get("times", [])
        own += _cpu_of(player.process.pid) - before
        if times:
            player.rounds.append(statistics.median(times))
    available = (time.perf_counter() - start) * (os.cpu_count() or 1)
    return max(0.0, _busy() - others - own) / available


def _busy() -> float:
    """Processor seconds of all processes, stolen time included."""
    fields = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _cpu_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _verify(players: Sequence[Player], workload: Workload, size: Size) -> dict[str, float]:
    """Compare each contender's results with the first peer's; drop those that disagree."""
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, list[np.ndarray]] = {}
        for n, player in enumerate(players):
            file = f"{folder}/{n}.npz"
            player.ask(check=file)
            if not player.error:
                with np.load(file) as stored:
                    found[player.contender.name] = [stored[name] for name in stored.files]
    judges = [name for name in found if name != "tilegrad"]
    if not judges:
        return {}
    wanted = found[judges[0]]
    differences = {name: difference(results, wanted) for name, results in found.items()}
    for player in players:
        if not differences.get(player.contender.name, 0) <= workload.tolerance:
            player.error = f"its results differ by {differences[player.contender.name]:.1e} from those of {judges[0]}"
    return differences | _verify_results(players, found, workload, size) | _verify_gradients(players, workload, size)


def _verify_results(
    players: Sequence[Player], found: dict[str, list[np.ndarray]], workload: Workload, size: Size
) -> dict[str, float]:
    """Compare results that hold gradients with float64, ours and PyTorch's."""
    both = [p for p in players if p.contender.name in ("tilegrad", "torch") and not p.error]
    if not workload.gives_gradients or len(both) < 2:
        return {}
    exact = import_module("bench.contenders.pytorch").exact(workload.name, workload.inputs(size))
    return _compared(both, {p.contender.name: found[p.contender.name] for p in both}, exact, workload, "result")


def _verify_gradients(players: Sequence[Player], workload: Workload, size: Size) -> dict[str, float]:
    """Compare all gradients of our training step and PyTorch's with float64; drop ours if its error is larger."""
    network, _, how = workload.name.partition("_")
    both = [p for p in players if p.contender.name in ("tilegrad", "torch") and not p.error]
    network = "mlp" if network == "mlp512" else network
    if network not in networks.BUILD or how in ("inference", "inference_bf16") or len(both) < 2:
        return {}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for player in both:
            if not player.ask(gradients=f"{folder}/found.npz").get("gradients"):
                return {}
            with np.load(f"{folder}/found.npz") as stored:
                found[player.contender.name] = [stored[name] for name in stored.files]
    torch, inputs = import_module("torch"), workload.inputs(size)
    given = network == "mlp"  # the weights are among the inputs
    exact = networks.exact_of_mlp(torch, inputs) if given else networks.exact_gradients(torch, network, inputs)
    return _compared(both, found, exact, workload, "gradient")


def _compared(
    both: Sequence[Player],
    found: dict[str, list[np.ndarray]],
    exact: Sequence[np.ndarray],
    workload: Workload,
    what: str,
) -> dict[str, float]:
    """The largest errors of our arrays and PyTorch's; ours is dropped if one is larger."""
    how = workload.name.partition("_")[2]
    ours, theirs = (networks.errors(found[name], exact) for name in ("tilegrad", "torch"))
    for n, (own, other) in enumerate(zip(ours, theirs, strict=True)):
        if not own <= max(NEAR.get(how, NEAR[""]), FARTHER * other):
            both[
                [p.contender.name for p in both].index("tilegrad")
            ].error = f"its {what} {n} is {own:.1e} from that in float64, and PyTorch's is {other:.1e}"
    return {f"{what}s of tilegrad": max(ours), f"{what}s of torch": max(theirs)}


def difference(results: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """The largest difference, relative to the largest element of each array."""
    if [x.shape for x in results] != [y.shape for y in wanted]:
        return float("inf")
    parts = []
    for x, y in zip(results, wanted, strict=True):
        scale = float(np.abs(y).max(initial=0)) or 1.0
        parts.append(float(np.abs(x - y).max(initial=0)) / scale)
    return float("inf") if np.isnan(parts).any() else max(parts)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Median, quartiles and best, in seconds."""
    first, median, third = quartiles(values)
    return {"median": median, "first": first, "third": third, "best": min(values)}


def ratios(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """The time of a peer over ours: median and quartiles of the ratios within each round."""
    first, median, third = quartiles([x / y for x, y in zip(theirs, ours, strict=True)])
    return {"median": median, "first": first, "third": third}


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """
    >>> quartiles([1.0, 2.0, 3.0, 4.0, 5.0])
    (2.0, 3.0, 4.0)
    """
    if len(values) < 2:
        return values[0], values[0], values[0]
    first, median, third = statistics.quantiles(values, n=4, method="inclusive")
    return first, median, third
