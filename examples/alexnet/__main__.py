"""Read AlexNet from a file, make an engine and inferencers, and compare the ways to run them.

python -m examples.alexnet --batch 1 --seconds 8
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import tilegrad as tg
from examples.alexnet.host_sequence import run_on_host
from examples.alexnet.network import WIDTHS, alexnet
from tilegrad.engines import Engine


def main(words: Sequence[str] | None = None) -> Engine:
    parser = argparse.ArgumentParser(prog="python -m examples.alexnet", description=__doc__)
    parser.add_argument("--file", type=Path, help="where the text of the network is written, and read from")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--side", type=int, default=224, help="extent of an image")
    parser.add_argument("--narrow", type=int, default=1, help="divides all widths")
    parser.add_argument("--callers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8.0, help="of measurements")
    given = parser.parse_args(words)

    network = alexnet(tuple([w // given.narrow for w in WIDTHS]), given.side)
    file = given.file or Path("alexnet.txt")
    file.write_text(network.text)
    program = tg.load_program(file)
    engine = tg.engine(program, max_batch=given.batch)
    print(f"{len(network.layers)} layers, {sum(p.numel() for p in program.parameters()):,} parameters")
    print(engine.memory)

    x = np.random.default_rng(0).standard_normal((given.batch, 1, given.side, given.side)).astype(np.float32)
    weights = {name: program.tensor(name) for name in network.weights}
    by_host = run_on_host(network, weights, tg.tensor(x)).numpy()
    infer = engine.inferencer()
    print(f"largest difference from launches by the host: {np.abs(infer(x) - by_host).max():.1e}")
    print(f"launches by the host take {host_time(network, weights, x) / call_time(infer, x):.1f} times as long")
    print(engine.report(given.batch, given.seconds, given.callers))
    return engine


def host_time(network: object, weights: dict[str, tg.Tensor], x: np.ndarray) -> float:
    return call_time(lambda image: run_on_host(network, weights, tg.tensor(image)), x)  # type: ignore[arg-type]


def call_time(call: object, x: np.ndarray) -> float:
    """Return the shortest of some times of a call."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call(x)  # type: ignore[operator]
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
