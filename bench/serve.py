"""Measure the server: LeNet, with many connections, against the same server around ONNX Runtime without batches.

    python -m bench.serve            shows requests a second and latencies
    python -m bench.serve --keep     also writes bench/results/cpu-serve-DATE.json

The servers are processes of their own, which the load generator measures in turn, several times. All have the same
weights; their results are compared before any time counts, and each answer with that to a lone request.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from bench import machine
from tilegrad.serve.batching import Batcher, BatchSettings
from tilegrad.serve.engine_models import engine_loader
from tilegrad.serve.load_generator import (
    ServedAddress,
    address_of,
    agree,
    answer_arrays,
    generate,
    random_inputs,
    request_bytes,
    run_load,
)
from tilegrad.serve.model import LoadedNetwork
from tilegrad.serve.repository import ModelFile
from tilegrad.serve.server import THREAD_SWITCH_SECONDS, InferenceServer
from tilegrad.serve.tensor_data import ServedTensor

RESULTS = Path(__file__).resolve().parent / "results"
CONTENDERS = {
    "tilegrad": ("tilegrad", 32, 0, False),
    "tilegrad, no batches": ("tilegrad", 1, 0, False),
    "onnxruntime, 1 thread": ("onnxruntime", 1, 1, False),
    "onnxruntime, 2 threads": ("onnxruntime", 1, 2, False),
    "onnxruntime, 1 thread, on the event loop": ("onnxruntime", 1, 1, True),
    "onnxruntime, batches": ("onnxruntime", 32, 1, False),
}
"""Library, rows that run together, threads of a call (0: its own choice), whether calls run on the event loop."""
PEERS = [name for name, (library, rows, _, _) in CONTENDERS.items() if library != "tilegrad" and rows == 1]
COMPARED_INPUTS = 16


class CallsOnTheLoop:
    """Stands for the threads of a batcher: each call runs at once, where it was asked for."""

    def submit(self, call: Callable[..., None], *arguments: Any) -> None:
        call(*arguments)

    def shutdown(self, **options: bool) -> None:
        pass


def onnxruntime_loader(threads: int) -> Callable[[Path, BatchSettings], LoadedNetwork]:
    """A loader of networks that ONNX Runtime runs."""
    import onnxruntime

    def load(path: Path, settings: BatchSettings) -> LoadedNetwork:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

        def specs(values: Any) -> tuple[ServedTensor, ...]:
            rows = [("n", *value.shape[1:]) for value in values]
            return tuple(ServedTensor(v.name, np.dtype("float32"), s) for v, s in zip(values, rows, strict=True))

        inputs = specs(session.get_inputs())
        return LoadedNetwork(
            inputs, specs(session.get_outputs()), (lambda x: session.run(None, {inputs[0].name: x}),), "onnxruntime"
        )

    return load


def serve(name: str, folder: Path) -> None:
    """Serve as one of the contenders, until the process is ended."""
    library, rows, threads, on_the_loop = CONTENDERS[name]
    path = folder / ("lenet.tgp" if library == "tilegrad" else "lenet.onnx")
    load = engine_loader() if library == "tilegrad" else onnxruntime_loader(threads)
    server = InferenceServer([ModelFile("lenet", "1", path, BatchSettings(max_batch=rows))], load, port=0)
    server.load()
    if on_the_loop:
        batcher: Any = server.repository.find("lenet").batcher
        assert isinstance(batcher, Batcher)
        batcher._threads = CallsOnTheLoop()
    sys.setswitchinterval(THREAD_SWITCH_SECONDS)
    print(server.address, flush=True)
    server.run()


def write_networks(folder: Path) -> None:
    """Write one LeNet as a saved program and as an ONNX file."""
    import tilegrad as tg

    tg.manual_seed(0)
    model, x = tg.nn.models.LeNet().eval(), tg.ones(2, 1, 28, 28)
    tg.export(model, x, dynamic={"images": {0: "n"}}).save(folder / "lenet.tgp")
    names: dict[str, Any] = {"input_names": ["images"], "output_names": ["output"]}
    tg.onnx.export(model, (x,), folder / "lenet.onnx", dynamic_axes={"images": {0: "n"}}, **names)


def results(address: ServedAddress) -> list[np.ndarray]:
    """The answers to some requests that come alone."""
    metadata = address.metadata()
    inputs = [random_inputs(metadata, 1, seed) for seed in range(COMPARED_INPUTS)]
    requests = [request_bytes(address, metadata, x) for x in inputs]
    found: list[Any] = [None] * len(requests)
    for index, answer in asyncio.run(generate(address, requests, len(requests), 1)).answers:
        head, _, body = answer.partition(b"\r\n\r\n")
        (found[index],) = answer_arrays(head, body)
    return found


def measure(addresses: dict[str, ServedAddress], rounds: int, requests: int, connections: int) -> dict[str, Any]:
    """Measure each server in each round, in another order; results are verified."""
    expected = results(next(iter(addresses.values())))
    for name, address in addresses.items():
        assert all(map(agree, results(address), expected)), f"{name} has other results"
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in addresses}
    names = list(addresses)
    for n in range(rounds):
        for name in names[n % len(names) :] + names[: n % len(names)]:
            report = run_load(addresses[name], requests, connections, warm_up=requests // 4)
            assert not report.wrong, f"{name}: {report}"
            assert report.statuses.keys() == {200}, f"{name}: {report}"
            milliseconds = {f"p{q:g}_ms": round(1e3 * report.percentile(q), 3) for q in (50, 99)}
            samples[name].append({"requests_per_second": round(report.requests_per_second, 1), **milliseconds})
            print(f"{name:42} {samples[name][-1]}", flush=True)
    return summary(samples)


def summary(samples: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians, and ratios of what was measured in the same round: above 1 where tilegrad is better."""

    def median(name: str, what: str) -> float:
        return round(statistics.median(sample[what] for sample in samples[name]), 3)

    made: dict[str, Any] = {}
    for name, found in samples.items():
        made[name] = {what: median(name, what) for what in found[0]} | {"samples": found}
        if name != "tilegrad":
            pairs = list(zip(samples["tilegrad"], found, strict=True))
            made[name]["throughput_ratio"] = round(
                statistics.median(x["requests_per_second"] / y["requests_per_second"] for x, y in pairs), 3
            )
            made[name]["p99_ratio"] = round(statistics.median(y["p99_ms"] / x["p99_ms"] for x, y in pairs), 3)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the server against the same server around ONNX Runtime.")
    parser.add_argument("--rounds", type=int, default=7, help="how often each server is measured")
    parser.add_argument("--requests", type=int, default=4000, help="requests of a measurement")
    parser.add_argument("--connections", type=int, default=32, help="requests at once")
    parser.add_argument("--keep", action="store_true", help="write bench/results/cpu-serve-DATE.json")
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve[0], Path(options.serve[1]))
    with tempfile.TemporaryDirectory() as folder:
        write_networks(Path(folder))
        servers = {
            name: subprocess.Popen(
                [sys.executable, "-m", "bench.serve", "--serve", name, folder], stdout=subprocess.PIPE, text=True
            )
            for name in CONTENDERS
        }
        try:
            addresses = {
                name: address_of(process.stdout.readline().strip(), "lenet") for name, process in servers.items()
            }
            found = measure(addresses, options.rounds, options.requests, options.connections)
        finally:
            for process in servers.values():
                process.terminate()
                process.wait()
    best = min(PEERS, key=lambda name: found[name]["throughput_ratio"])
    print(f"best peer: {best}: {found[best]['throughput_ratio']} times its requests, p99 {found[best]['p99_ratio']}")
    if options.keep:
        record = {
            "date": time.strftime("%Y-%m-%d"),
            "machine": machine.describe(),
            "load": round(os.getloadavg()[0], 1),
            "versions": {name: version(name) for name in ("onnxruntime", "uvicorn", "httptools", "uvloop")},
            "what": f"LeNet, one image a request, {options.connections} connections, binary tensors",
            "best_peer": best,
            "servers": found,
        }
        path = RESULTS / f"cpu-serve-{record['date']}.json"
        path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
