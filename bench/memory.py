"""Measure the memory of a training step of AlexNet: ours as planned, PyTorch's by the growth of its process."""

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench import turns
from bench.contenders import Contender
from bench.workloads import Size, Workload

STEPS = 2


def alexnet_memory(contenders: Sequence[Contender], workload: Workload, size: Size) -> dict[str, Any]:
    """Bytes of a step: parameters, activations, gradients; each measured in a process of its own."""
    found: dict[str, float] = {}
    unable: dict[str, str] = {}
    for contender in contenders:
        if contender.variant not in ("", "eager") or contender.name not in MEASURES:
            continue
        command = [sys.executable, "-m", "bench.memory", contender.name, str(size[0])]
        done = subprocess.run(
            command, env=turns.environment(contender), capture_output=True, text=True, cwd=turns.ROOT, check=False
        )
        if done.returncode:
            unable[contender.name] = done.stderr.strip().splitlines()[-1][:300]
        else:
            found[contender.name] = json.loads(done.stdout.splitlines()[-1])
    return {"size": list(size), "bytes": found, "times": {}, "ratios": {}, "unable": unable}


def network(library: Any) -> Any:
    """AlexNet with dropout, as people train it."""
    from bench import networks

    layers = list(networks.alexnet(library.nn))
    at = next(n for n, layer in enumerate(layers) if type(layer).__name__ == "Flatten")
    head, tail = layers[: at + 3], layers[at + 3 :]
    return library.nn.Sequential(*head, library.nn.Dropout(), *tail[:2], library.nn.Dropout(), *tail[2:])


def tilegrad(batch: int) -> float:
    """Plan the program without running it."""
    import tilegrad as tg

    model = network(tg).to("null")
    optimizer = tg.optim.SGD(model.parameters(), lr=0.1)

    @tg.jit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step(tg.zeros(batch, 1, 224, 224, device="null"), tg.zeros(batch, dtype=tg.int64, device="null"))
    assert step.memory is not None
    return float(step.memory.peak)


def torch(batch: int) -> float:
    """The parameters, and the growth of the process's peak memory over several steps."""
    from importlib import import_module
    from resource import RUSAGE_SELF, getrusage

    library: Any = import_module("torch")
    model = network(library)
    optimizer = library.optim.SGD(model.parameters(), lr=0.1)
    x, y = library.zeros(batch, 1, 224, 224), library.zeros(batch, dtype=library.int64)
    before = getrusage(RUSAGE_SELF).ru_maxrss
    for _ in range(STEPS):
        optimizer.zero_grad()
        library.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    grown = 1024 * (getrusage(RUSAGE_SELF).ru_maxrss - before)
    return float(grown + sum(p.numel() * p.element_size() for p in model.parameters()))


MEASURES = {"tilegrad": tilegrad, "torch": torch}

if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]](int(sys.argv[2]))))
