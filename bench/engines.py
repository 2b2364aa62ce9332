"""Measure inference on the CPU, engines against ONNX Runtime, and write bench/results/cpu-engines-DATE.json.

Both run the same network, each in a process of its own that is stopped except in its turn. Results are
compared before a time counts; ratios are those within each round.

python -m bench.engines                 all networks
python -m bench.engines lenet:1 lstm    these
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import date
from statistics import geometric_mean, median
from typing import Any

import numpy as np

import tilegrad as tg
from bench import machine
from bench.networks import alexnet, lenet
from bench.turns import ROOT, THREADS, difference, ratios, summary
from tilegrad import nn

ROUNDS, SLICE_SECONDS = 15, 0.15
TOLERANCE = 1e-4
WARM_CALLS = 6
CALLERS = 2


def residual(nn: Any, channels: int, filters: int, stride: int) -> Any:
    """A block of ResNet-18."""

    class Residual(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
            self.first_norm, self.second_norm = nn.BatchNorm2d(filters), nn.BatchNorm2d(filters)
            self.second = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
            self.shortcut = nn.Identity()
            if stride > 1 or channels != filters:
                projection = nn.Conv2d(channels, filters, 1, stride, bias=False)
                self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(filters))

        def forward(self, x: Any) -> Any:
            y = self.first_norm(self.first(x)).relu()
            return (self.second_norm(self.second(y)) + self.shortcut(x)).relu()

    return Residual()


def resnet18(nn: Any) -> Any:
    blocks, channels = [], 64
    for filters in (64, 128, 256, 512):
        blocks += [residual(nn, channels, filters, 2 if filters > channels else 1), residual(nn, filters, filters, 1)]
        channels = filters
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def separable(nn: Any, channels: int, filters: int, stride: int) -> Any:
    """An inverted residual of MobileNet: expand, filter each channel, project."""
    wide = 6 * channels

    class Separable(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            layers = [nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
            layers += [nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()]
            self.layers = nn.Sequential(*layers, nn.Conv2d(wide, filters, 1, bias=False), nn.BatchNorm2d(filters))

        def forward(self, x: Any) -> Any:
            return x + self.layers(x) if stride == 1 and channels == filters else self.layers(x)

    return Separable()


def mobilenet(nn: Any) -> Any:
    stages = [(16, 24, 2), (24, 24, 1), (24, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 96, 1), (96, 160, 2)]
    stem = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6()]
    head = [nn.Conv2d(160, 640, 1, bias=False), nn.BatchNorm2d(640), nn.ReLU6(), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*stem, *[separable(nn, *s) for s in stages], *head, nn.Flatten(), nn.Linear(640, 1000))


def encoder(nn: Any) -> Any:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(384, 6, 1536, batch_first=True), 6)


def recurrent(nn: Any) -> Any:
    """An LSTM with a classifier on its last state."""

    class Recurrent(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.head = nn.LSTM(128, 256, batch_first=True), nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    return Recurrent()


NETWORKS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...], tuple[int, ...]]] = {
    "lenet": (lenet, (1, 28, 28), (1, 32)),
    "alexnet": (alexnet, (1, 224, 224), (1, 32)),
    "resnet18": (resnet18, (3, 224, 224), (1, 8)),
    "mobilenet": (mobilenet, (3, 224, 224), (1, 8)),
    "encoder": (encoder, (128, 384), (1, 8)),
    "lstm": (recurrent, (64, 128), (1, 8)),
}
"""Networks, with the shape of an example and the batches that are measured."""


def example(name: str, batch: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((batch, *NETWORKS[name][1])).astype(np.float32)


def write_files(name: str, batch: int, folder: str) -> None:
    """Write the weights of a network, and the ONNX file that PyTorch makes of it."""
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    torch.backends.mha.set_fastpath_enabled(False)
    theirs, ours, x = NETWORKS[name][0](torch.nn).eval(), NETWORKS[name][0](tg.nn).eval(), example(name, batch)
    ours.load_state_dict({key: tg.tensor(value.numpy()) for key, value in theirs.state_dict().items()})
    tg.save_safetensors(ours.state_dict(), f"{folder}/net.safetensors")
    names = {"input_names": ["x"], "output_names": ["y"]}
    torch.onnx.export(theirs, (torch.from_numpy(x),), f"{folder}/net.onnx", dynamo=False, opset_version=17, **names)


def caller(
    library: str, name: str, x: np.ndarray, folder: str, threads: int
) -> Callable[[], Callable[[np.ndarray], np.ndarray]]:
    """Load the network; return a function that makes callers, which share its weights."""
    if library == "tilegrad":
        network = NETWORKS[name][0](tg.nn).eval()
        network.load_state_dict(tg.load_safetensors(f"{folder}/net.safetensors"))
        return tg.engine(network, tg.tensor(x)).inferencer
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(f"{folder}/net.onnx", options, providers=["CPUExecutionProvider"])
    return lambda: lambda x: session.run(None, {"x": x})[0]


def child(library: str, name: str, batch: int, folder: str, callers: int) -> None:
    """Answer the parent: a line with a number of seconds is answered with seconds per call."""
    x, start = example(name, batch), time.perf_counter()
    make = caller(library, name, x, folder, 1 if callers > 1 else THREADS)
    calls = [make() for _ in range(callers)]
    results = [call(x) for call in calls]
    first = time.perf_counter() - start
    np.save(f"{folder}/{library}.npy", results[0])
    for call in calls * WARM_CALLS:
        call(x)
    print(json.dumps({"first_s": first}), flush=True)
    for line in sys.stdin:
        print(json.dumps(timed(calls, x, float(line))), flush=True)


def timed(calls: list[Callable[[np.ndarray], np.ndarray]], x: np.ndarray, seconds: float) -> float:
    """Call for so many seconds, from a thread for each caller; return the median, or with threads the mean."""
    start, counts = time.perf_counter(), [0] * len(calls)
    stop, times = start + seconds, []
    if len(calls) == 1:
        while (before := time.perf_counter()) < stop or not times:
            calls[0](x)
            times.append(time.perf_counter() - before)
        return median(times)

    def work(n: int) -> None:
        while not counts[n] or time.perf_counter() < stop:
            for _ in range(16):
                calls[n](x)
            counts[n] += 16

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return (time.perf_counter() - start) / sum(counts)


class Player:
    """A child process that is stopped except in its turn."""

    def __init__(self, library: str, name: str, batch: int, folder: str, callers: int) -> None:
        words = ["child", library, name, str(batch), folder, str(callers)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "bench.engines", *words]
        self.process = subprocess.Popen(command, text=True, env=environment, **pipes)  # type: ignore[call-overload]
        self.first = self._answer()["first_s"]
        self.rounds: list[float] = []
        self.process.send_signal(signal.SIGSTOP)

    def _answer(self) -> Any:
        return json.loads(self.process.stdout.readline())

    def play(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(f"{SLICE_SECONDS}\n")
        self.process.stdin.flush()
        self.rounds.append(self._answer())
        self.process.send_signal(signal.SIGSTOP)


def measured(name: str, batch: int, callers: int = 1) -> dict[str, Any]:
    """Measure a network with one batch size, from so many threads that share its weights."""
    with tempfile.TemporaryDirectory() as folder:
        write_files(name, batch, folder)
        players = {library: Player(library, name, batch, folder, callers) for library in ("tilegrad", "onnxruntime")}
        try:
            found = [np.load(f"{folder}/{library}.npy") for library in players]
            error = difference([found[0]], [found[1]])
            if not error <= TOLERANCE:
                raise SystemExit(f"{name} {batch}: results differ by {error:.1e}")
            for _ in range(ROUNDS):
                for player in players.values():
                    player.play()
        finally:
            for player in players.values():
                player.process.kill()
    ours, theirs = players["tilegrad"], players["onnxruntime"]
    return {
        "network": name,
        "batch": batch,
        "callers": callers,
        "difference": error,
        "first_s": {library: player.first for library, player in players.items()},
        "times": {library: summary(player.rounds) for library, player in players.items()},
        "ratio": ratios(theirs.rounds, ours.rounds),
    }


SIDES = (20, 24, 28)
"""Extents of images that take turns."""


def alternating() -> dict[str, Any]:
    """Compare calls whose shapes take turns with calls of three engines of one shape each."""
    tg.manual_seed(0)
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Conv2d(16, 4, 1)).eval()
    images = [np.ones((4, 1, side, side), np.float32) for side in SIDES]
    one = tg.engine(model, shapes=[("n", 1, "h", "w")]).inferencer()
    static = [tg.engine(model, x).inferencer() for x in images]
    start = time.perf_counter()
    for x in images:
        one(x)
    first = time.perf_counter() - start
    rounds: dict[str, list[float]] = {"alternating": [], "static": []}
    for _ in range(3 * ROUNDS):
        rounds["alternating"].append(timed([lambda _: [one(x) for x in images]], images[0], SLICE_SECONDS / 3))
        pairs = list(zip(static, images, strict=True))
        rounds["static"].append(timed([lambda _: [call(x) for call, x in pairs]], images[0], SLICE_SECONDS / 3))  # noqa: B023
    times = {name: summary(found) for name, found in rounds.items()}
    return {"sides": SIDES, "first_s": first, "times": times, "ratio": ratios(rounds["alternating"], rounds["static"])}


def table(record: dict[str, Any]) -> str:
    """Show a record as the table of docs/inference.md."""
    lines = [
        "| network | batch | threads that call | against ONNX Runtime | quartiles |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in record["rows"]:
        ratio, first, third = (row["ratio"][key] for key in ("median", "first", "third"))
        lines.append(
            f"| {row['network']} | {row['batch']} | {row['callers']} | {ratio:.2f} | {first:.2f} to {third:.2f} |"
        )
    return "\n".join(lines)


def main(words: list[str]) -> None:
    wanted = [(word.partition(":")[0], word.partition(":")[2]) for word in words]
    rows: list[dict[str, Any]] = []
    for name, (_, _, batches) in NETWORKS.items():
        for batch in batches:
            if wanted and not any(n == name and b in ("", str(batch)) for n, b in wanted):
                continue
            for callers in (1, CALLERS) if (name, batch) == ("lenet", 1) else (1,):
                rows.append(measured(name, batch, callers))
                print(name, batch, callers, {k: round(v, 2) for k, v in rows[-1]["ratio"].items()}, flush=True)
    varying = alternating()
    print("alternating shapes", {k: round(v, 3) for k, v in varying["ratio"].items()}, flush=True)
    single = [row["ratio"]["median"] for row in rows if row["callers"] == 1]
    print(f"geometric mean {geometric_mean(single):.2f}")
    if not wanted:
        record = {"date": date.today().isoformat(), "machine": machine.describe(), "rows": rows, "alternating": varying}
        path = ROOT / "bench" / "results" / f"cpu-engines-{record['date']}.json"
        path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:4], int(sys.argv[4]), sys.argv[5], int(sys.argv[6]))
    else:
        main(sys.argv[1:])
