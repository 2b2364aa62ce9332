"""Print a digest of the kernels that a fixed set of programs becomes, for CPUs and GPUs.

    python tools/generated.py > before.txt                  ... change the compiler ...
    python tools/generated.py > after.txt; diff before.txt after.txt
    python tools/generated.py --write FOLDER                writes every text, to see what differs

A commit that renames or moves code leaves every digest unchanged. The programs are all examples of ops and a training
step of each network below, in the tile language, as LLVM IR for three processors and as CUDA C++. Nothing runs.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import tilegrad as tg
import tilegrad.nn.functional as F
from bench.networks import BUILD
from tests.ops.registry import all_examples
from tilegrad.backend.cpu.code import lower as cpu
from tilegrad.backend.cpu.costs import cpu_model
from tilegrad.backend.cpu.target import Target
from tilegrad.backend.cuda.code import lower as cuda
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.compiler import Job, run_stages
from tilegrad.ir.graph import Graph
from tilegrad.ir.program import Launch, Program
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_printer import show_kernel

PROCESSORS = {
    "amx": Target("x86", 64, 32, 48 << 10, 2 << 20, 32 << 20, matrix_unit=True, pairs=True),
    "avx2": Target("x86", 32, 16),
    "arm": Target("arm", 16, 32),
}
MODELS = {"cpu": cpu_model(2, 2 << 20, 48 << 10, 16, 32), "cuda": gpu_model(132)}
BATCHES: dict[str, tuple[int, ...]] = {
    "mlp": (64, 784),
    "lenet": (32, 1, 28, 28),
    "alexnet": (2, 1, 224, 224),
    "gpt": (2, 128),
    "lstm": (4, 12),
}


def networks() -> Iterator[tuple[str, Graph]]:
    """A training step of each network, as its graph."""
    for name, shape in BATCHES.items():
        model = BUILD[name](tg.nn).to("null")
        optimizer = tg.optim.AdamW(model.parameters(), lr=1e-3)
        words = name in ("gpt", "lstm")
        x = tg.zeros(*shape, dtype=tg.int64 if words else tg.float32, device="null")
        labels = tg.zeros(shape[0] * shape[1] if words else shape[0], dtype=tg.int64, device="null")

        def step(x: Any, labels: Any, model: Any = model, optimizer: Any = optimizer) -> Any:
            scores = model(x)
            loss = F.cross_entropy(scores.reshape(-1, scores.shape[-1]), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        jitted = tg.jit(step)
        jitted(x, labels)
        for number, made in enumerate(jitted.programs):
            yield f"{name}.{number}", made.compiled.stages["graph"].artifact


def programs() -> Iterator[tuple[str, str, Program]]:
    """Every program, with the kind of target that it is for."""
    examples = ((f"op.{e.name}", e.graph()) for e in all_examples())
    for name, graph in chain(examples, networks()):
        for kind, model in MODELS.items():
            yield name, kind, run_stages(Job(graph, model)).program


def texts(kernel: Kernel, kind: str) -> dict[str, str]:
    """A kernel as it is generated for a kind of target."""
    found = {"tile": show_kernel(kernel)}
    if kind == "cpu":
        found |= {name: cpu.lower(kernel, processor) for name, processor in PROCESSORS.items()}
    else:
        found["sm_90a"] = cuda.lower(kernel, "sm_90a").text
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, help="a folder for the texts")
    parser.add_argument("--only", default="", help="programs whose names start with this")
    options = parser.parse_args()
    known: dict[tuple[str, str], dict[str, str]] = {}
    for name, kind, program in programs():
        if not name.startswith(options.only):
            continue
        found: dict[str, list[str]] = {"program": [str(program)]}
        for step in program.steps:
            if isinstance(step, Launch):
                key = step.kernel.digest(), kind
                known.setdefault(key, {})
                known[key] = known[key] or texts(step.kernel, kind)
                for form, text in known[key].items():
                    found.setdefault(form, []).append(text)
        for form, parts in found.items():
            text = "\n\n".join(parts)
            print(f"{name:32} {kind:5} {form:8} {hashlib.sha256(text.encode()).hexdigest()[:16]}", flush=True)
            if options.write:
                options.write.mkdir(parents=True, exist_ok=True)
                (options.write / f"{name}.{kind}.{form}".replace("/", "_")).write_text(text)


if __name__ == "__main__":
    main()
