"""Measure each kernel of a training step alone, on one GPU.

    python -m bench.gpu_steps alexnet 128 [bfloat16] [--short] [--built]

Kernels are launched one by one, several times in a row, as CUDA graphs on PyTorch's memory; the contents of their
operands hardly matter here (`bench.gpu_networks` compares results). `--built` only compiles them, on any machine.
"""

from __future__ import annotations

import statistics
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import tilegrad as tg
from bench import networks
from bench.gpu_kernels import CudaLauncher, OnTorch
from tilegrad.backend.cuda.build import build_kernel
from tilegrad.ir.program import Launch, Program
from tilegrad.ir.size import known

COUNT = 10
"""Launches in a row."""


def program(network: str, size: tuple[int, ...], low: bool) -> Program:
    """The step as it is planned for a GPU."""
    jitted: list[Any] = []

    def ready(fn: Any) -> Any:
        jitted.append(tg.jit(fn))
        return jitted[-1]

    networks.Training(tg, network, networks.batch(network, size), ready, low, "planned")()
    (made,) = jitted[0].programs
    found: Program = made.compiled.program
    return found


def kernel_times(torch: Any, run: OnTorch, steps: list[Launch]) -> list[float]:
    """Measure the microseconds of each kernel."""
    found = []
    for step in steps:
        given = [run.memory[a] if isinstance(a, str) else known(a, {}) for a in step.arguments]
        grid = [t.count({}) for t in step.grid]

        def launch(step: Launch = step, given: Any = given, grid: Any = grid) -> None:
            for _ in range(COUNT):
                run.launcher.launch(step.kernel, given, grid, torch.cuda.current_stream().cuda_stream)

        graph = torch.cuda.CUDAGraph()
        launch()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            launch()
        times = []
        for _ in range(4):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end) * 1e3 / COUNT)
        found.append(statistics.median(times[1:]))
    return found


def described(step: Launch, made: Any) -> str:
    blocks = 1
    for t in step.grid:
        blocks *= t.count({})
    spills = f" spills {made.spills}" if made.spills else ""
    shared = f" shared {made.shared >> 10}K" if made.shared > 48 << 10 else ""
    return f"{made.name:34} {blocks:7} x {made.threads:4} regs {made.registers}{spills}{shared}"


def main(arguments: list[str]) -> None:
    network = next(a for a in arguments if a in networks.BUILD)
    size = tuple([int(a) for a in arguments if a.isdigit()])
    tg.set_float32_matmul_precision("high")
    found = program(network, size, "bfloat16" in arguments)
    steps = [s for s in found.steps if isinstance(s, Launch)]
    if "--built" in arguments:
        kernels = {s.kernel.digest(): s.kernel for s in steps}
        with ThreadPoolExecutor(2) as pool:
            made = dict(zip(kernels, pool.map(lambda k: build_kernel(k, "sm_90a"), kernels.values()), strict=True))
        for s in steps:
            print(described(s, made[s.kernel.digest()]))
        return
    import torch

    launcher = CudaLauncher("sm_{}{}a".format(*torch.cuda.get_device_capability()))
    inputs = []
    drawn = {x.shape: x for x in networks.batch(network, size).values()}
    for name in found.inputs:
        t = found.buffer(name).type
        dtype, shape = getattr(torch, t.dtype.name), [int(str(d)) for d in t.shape]
        filled = torch.ones(shape, dtype=dtype, device="cuda")
        if not dtype.is_floating_point and tuple(shape) in drawn:  # many equal letters would meet in one row
            filled = torch.from_numpy(drawn[tuple(shape)]).to(dtype).cuda()
        inputs.append(filled.uniform_(-1, 1) if dtype.is_floating_point else filled)
    run = OnTorch(torch, launcher, found, inputs)
    times = kernel_times(torch, run, steps)
    kind = "bfloat16" if "bfloat16" in arguments else "tf32"
    print(f"{network} {size} {kind}: {sum(times):.0f} us in {len(times)} kernels")
    order = sorted(range(len(steps)), key=lambda n: -times[n])
    for n in order[: 22 if "--short" in arguments else None]:
        s = steps[n]
        about = described(s, launcher.functions[s.kernel.digest()][1])
        print(f"{times[n]:8.1f} us  #{n:3} {about}  {s.kernel.origin[:60]}")


if __name__ == "__main__":
    main(sys.argv[1:])
