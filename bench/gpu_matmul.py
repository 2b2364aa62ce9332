"""Measure generated matrix products and convolutions against PyTorch's libraries on one GPU.

    python -m bench.gpu_matmul [names] [--out file.json]

Products are timed in bursts, alternating, with pauses between: under a steady load the clocks of the GPU fall, and
whoever is measured first wins. Results are compared before anything is timed (gradients with float64), on random
numbers, with poisoned outputs. There are two columns: the generated kernels alone, and the program as users get it,
which may call a library.
"""

from __future__ import annotations

import datetime
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tilegrad as tg
from bench.gpu_kernels import CudaLauncher, OnTorch, Workload, program
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.runtime.device import device

ROUNDS = 7
BURST_US = 3000.0
"""Approximate length of a burst, in microseconds."""
SIZES = (2048, 4096, 8192)


def products(size: int, dtype: str, tolerance: float) -> Iterator[Workload]:
    """A square product in all four layouts of its operands."""
    shapes = ((size, size), (size, size))
    orders: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
        ("x @ y", lambda x, y: x @ y),
        ("x.T @ y", lambda x, y: x.T @ y),
        ("x @ y.T", lambda x, y: x @ y.T),
        ("x.T @ y.T", lambda x, y: x.T @ y.T),
    )
    for name, fn in orders:
        yield Workload(
            f"{name} {size} {dtype}", shapes, fn, lambda t, fn=fn: fn, 2.0 * size**3, dtype, tolerance=tolerance
        )


def convolution(
    name: str, batch: int, shape: tuple[int, ...], weight: tuple[int, ...], padding: int
) -> Iterator[Workload]:
    """A convolution with ReLU in bfloat16, and its gradients."""
    side = shape[-1]
    operations = 2.0 * batch * side * side * weight[0] * weight[1] * weight[2] * weight[3]
    shapes = ((batch, *shape), weight)
    ours = lambda x, w: tg.relu(tg.nn.functional.conv2d(x, w, padding=padding))  # noqa: E731
    theirs = lambda t: lambda x, w: t.relu(t.nn.functional.conv2d(x, w, padding=padding))  # noqa: E731
    yield Workload(f"{name} bfloat16", shapes, ours, theirs, operations, "bfloat16", tolerance=2e-2)
    yield Workload(f"{name} gradients bfloat16", shapes, ours, theirs, 2 * operations, "bfloat16", True, 3e-2)


def first_convolution() -> Workload:
    """The first convolution of AlexNet, with bias and ReLU: one channel, windows four apart."""
    f = tg.nn.functional
    return Workload(
        "conv1 bias and relu bfloat16",
        ((128, 1, 224, 224), (96, 1, 11, 11), (96,)),
        lambda x, w, b: tg.relu(f.conv2d(x, w, b, 4)),
        lambda t: lambda x, w, b: t.relu(t.nn.functional.conv2d(x, w, b, 4)),
        2.0 * 128 * 54 * 54 * 96 * 121,
        "bfloat16",
        tolerance=2e-2,
    )


def first_weight() -> Workload:
    """The gradient for the weights of AlexNet's first convolution."""
    f = tg.nn.functional

    def ours(x: Any, w: Any, dy: Any) -> Any:
        w = w.detach().requires_grad_(True)
        return tg.autograd.grad(f.conv2d(x, w, None, 4), [w], dy)[0]

    def theirs(t: Any) -> Any:
        back = t.ops.aten.convolution_backward
        settings = (None, [4, 4], [0, 0], [1, 1], False, [0, 0], 1, [False, True, False])
        return lambda x, w, dy: back(dy, x, w, *settings)[1]

    shapes = ((128, 1, 224, 224), (96, 1, 11, 11), (128, 96, 54, 54))
    operations = 2.0 * 128 * 54 * 54 * 96 * 121
    return Workload("conv1 weight gradient bfloat16", shapes, ours, theirs, operations, "bfloat16", tolerance=2e-2)


def workloads() -> Iterator[Workload]:
    for size in SIZES:
        yield from (*products(size, "bfloat16", 1e-2), *products(size, "float16", 2e-3))
    for size in SIZES[:2]:
        yield from products(size, "float32", 1e-5)
        yield from tf32(size)
    for shape in ((4, 16, 4096, 128), (16, 12, 1024, 64)):
        yield from attention(shape)
    for size in (1000, 1024, 4000):
        shapes = ((size, size), (size, size))
        yield Workload(
            f"x @ y {size} bfloat16",
            shapes,
            lambda x, y: x @ y,
            lambda t: lambda x, y: x @ y,
            2.0 * size**3,
            "bfloat16",
            tolerance=1e-2,
        )
    yield from with_more()
    yield first_convolution()
    yield first_weight()
    yield from convolution("conv2", 128, (64, 27, 27), (192, 64, 5, 5), 2)
    yield from convolution("conv3", 128, (192, 13, 13), (384, 192, 3, 3), 1)


def with_more() -> Iterator[Workload]:
    """Products with an epilogue, and batches of small products."""
    f = tg.nn.functional
    linear = ((16384, 768), (3072, 768), (3072,))
    yield Workload(
        "linear and gelu bfloat16",
        linear,
        lambda x, w, b: f.gelu(x @ w.T + b),
        lambda t: lambda x, w, b: t.nn.functional.gelu(t.nn.functional.linear(x, w, b)),
        2.0 * 16384 * 768 * 3072,
        "bfloat16",
        tolerance=2e-2,
    )
    yield Workload(
        "linear and relu bfloat16",
        ((4096, 4096), (4096, 4096), (4096,)),
        lambda x, w, b: tg.relu(x @ w.T + b),
        lambda t: lambda x, w, b: t.relu(t.nn.functional.linear(x, w, b)),
        2.0 * 4096**3,
        "bfloat16",
        tolerance=2e-2,
    )
    yield Workload(
        "batched bfloat16",
        ((192, 1024, 64), (192, 1024, 64)),
        lambda x, y: x @ y.transpose(1, 2),
        lambda t: lambda x, y: x @ y.transpose(1, 2),
        2.0 * 192 * 1024 * 1024 * 64,
        "bfloat16",
        tolerance=1e-2,
    )


def tf32(size: int) -> Iterator[Workload]:
    """Products of float32 matrices at `high`."""
    orders: tuple[tuple[str, Callable[[Any, Any], tuple[Any, Any]]], ...] = (
        ("x @ y", lambda x, y: (x, y)),
        ("x.T @ y", lambda x, y: (x.T, y)),
        ("x @ y.T", lambda x, y: (x, y.T)),
        ("x.T @ y.T", lambda x, y: (x.T, y.T)),
    )
    for name, turned in orders:
        yield Workload(
            f"{name} {size} tf32",
            ((size, size), (size, size)),
            lambda x, y, turned=turned: tg.matmul(*turned(x, y), precision="high"),
            lambda t, turned=turned: lambda x, y: t.matmul(*turned(x, y)),
            2.0 * size**3,
            tolerance=2e-3,
            precision="high",
        )


def attention(shape: tuple[int, ...]) -> Iterator[Workload]:
    """Causal attention in bfloat16, forward and with gradients."""
    batch, heads, length, width = shape
    operations = 2.0 * batch * heads * length * length * width  # half of the pairs, two products
    ours = lambda q, k, v: tg.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    theirs = lambda t: lambda *x: t.nn.functional.scaled_dot_product_attention(*x, is_causal=True)  # noqa: E731
    name = f"attention {'x'.join(map(str, shape))} bfloat16"
    yield Workload(name, (shape,) * 3, ours, theirs, operations, "bfloat16", tolerance=2e-2)
    yield Workload(f"{name} with gradients", (shape,) * 3, ours, theirs, 3.5 * operations, "bfloat16", True, 2e-2)


class Repeated:
    """Several runs, one after the other."""

    def __init__(self, run: Callable[[], Any], count: int) -> None:
        self.run, self.count = run, count

    def replay(self) -> None:
        for _ in range(self.count):
            self.run()


def repeated(torch: Any, run: Callable[[], Any], count: int, captured: bool) -> Any:
    """Repeat a run as a CUDA graph, if it can be captured, so that no time is lost between runs."""
    if not captured:
        return Repeated(run, count)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            run()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def burst(torch: Any, graph: Any, count: int) -> float:
    """Measure the microseconds of one run in a graph, after a pause."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    time.sleep(0.01)
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / count


class AsUsed:
    """The product as users run it, libraries allowed: the contender is chosen when it is compiled."""

    def __init__(self, w: Workload, given: list[Any]) -> None:
        gpu = device("cuda:0")
        assert isinstance(gpu, CudaDevice)
        gpu.start()
        before = set(gpu.choices.made)
        self.inputs = [tg.tensor(x.float().cpu().numpy()).to(getattr(tg, w.dtype)).cuda() for x in given]
        self.quick = tg.jit(lambda *x: w.ours(*x))
        for _ in range(3):
            self.made = self.quick(*self.inputs)
        chosen = [choice for known, choice in gpu.choices.made.items() if known not in before]
        self.by = "cuBLASLt" if any(choice.algorithm for choice in chosen) else "own"
        pairs = [(choice.kernel_us, choice.library_us) for choice in chosen]
        self.compared = [[us if math.isfinite(us) else None for us in pair] for pair in pairs]
        """Microseconds of kernel and library, as compared at compile time; None if the library had no correct
        algorithm.
        """

    def error(self, torch: Any, wanted: Any) -> float:
        got = torch.tensor(self.made.float().cpu().numpy(), device="cuda").double()
        return float((got - wanted.double()).norm() / wanted.double().norm())

    def repeat(self, count: int) -> None:
        """Make one graph of several runs, as for PyTorch: a program of one kernel is launched without a graph, and
        Python starts such a run more slowly than some kernels finish.
        """
        gpu = device("cuda:0")
        assert isinstance(gpu, CudaDevice)
        (program,) = self.quick.programs
        runner = program.compiled.executable.bound()
        driver, graph, last = gpu.driver, gpu.driver.new_graph(), list[int]()
        for step in runner.plan.steps * count:
            last = [driver.add_node(graph, step.call, last, gpu.context)]
        executable, self.count = driver.instantiate(graph), count
        self.replay = lambda: driver.launch_graph(executable, gpu.queue.handle)
        self.burst()

    def burst(self) -> float:
        """Measure the microseconds of a run, after a pause."""
        start, end = (tg.cuda.Event(enable_timing=True) for _ in range(2))
        tg.cuda.synchronize()
        time.sleep(0.01)
        start.record()
        self.replay()
        end.record()
        tg.cuda.synchronize()
        return 1e3 * float(start.elapsed_time(end)) / self.count

    def record(self, us: float) -> dict[str, Any]:
        """The fields that go into the record."""
        return {"used_us": us, "by": self.by, "compared_us": self.compared, "host_us": self.host()}

    def host(self, count: int = 200) -> float:
        """Measure the microseconds that Python takes to start a run."""
        tg.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            self.quick(*self.inputs)
        taken = time.perf_counter() - begin
        tg.cuda.synchronize()
        return 1e6 * taken / count


def exact(torch: Any, w: Workload, inputs: Sequence[Any], upstream: Sequence[Any]) -> Any:
    """Compute all gradients in float64."""
    given, theirs = [x.detach().double() for x in inputs], w.torch(torch)
    if not w.backward:
        return theirs(*given)
    given = [x.requires_grad_(True) for x in given]
    return torch.autograd.grad(theirs(*given), given, [y.double() for y in upstream])


def measured(torch: Any, launcher: CudaLauncher, w: Workload) -> dict[str, Any]:
    """Check one row, then time it interleaved."""
    torch.manual_seed(7)
    torch.backends.cuda.matmul.allow_tf32 = w.precision == "high"
    inputs = [torch.randn(*s, device="cuda").to(getattr(torch, w.dtype)) for s in w.shapes]
    if w.name.startswith("conv"):
        inputs[1] /= 20.0
    given, theirs, upstream = inputs, w.torch(torch), []
    if w.name.startswith("conv"):  # what suits the library best
        given = [x.to(memory_format=torch.channels_last) if x.ndim == 4 else x for x in inputs]
    run = lambda: theirs(*given)  # noqa: E731
    if w.backward:
        given = [x.requires_grad_(True) for x in given]
        y = theirs(*given)
        upstream = [torch.randn(*y.shape, device="cuda").to(y.dtype)]
        if w.name.startswith("attention"):  # ours needs the forward pass for its gradients, and has it
            run = lambda: torch.autograd.grad(theirs(*given), given, upstream)  # noqa: E731
        else:
            above = upstream[0].to(memory_format=torch.channels_last)
            run = lambda: torch.autograd.grad(y, given, above, retain_graph=True)  # noqa: E731
    ours = OnTorch(torch, launcher, program(w), [x.detach() for x in (*inputs, *upstream)])
    ours.run()
    wanted = exact(torch, w, inputs, upstream) if w.backward or "gradient" in w.name else run()
    worst = 0.0
    for got, want in zip(ours.outputs(), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        worst = max(worst, float((got.double() - want.double()).norm() / want.double().norm()))
    assert worst <= w.tolerance, f"{w.name}: wrong by {worst}"
    captured = not w.name.startswith("conv") and not w.backward  # PyTorch's gradients run on a stream of their own
    both = ((ours.run, True), (run, captured))
    once = min(burst(torch, repeated(torch, fn, 2, kept), 2) for fn, kept in both)
    count = max(2, min(50, int(BURST_US / once)))
    graphs = [repeated(torch, fn, count, kept) for fn, kept in both]
    used = None if w.backward else AsUsed(w, [x.detach() for x in inputs])
    if used is not None:
        assert used.error(torch, wanted) <= w.tolerance, f"{w.name}, as users run it: wrong"
        used.repeat(count)
    times = []
    for _ in range(ROUNDS):
        pair = [burst(torch, graph, count) for graph in graphs]
        times.append([*pair, used.burst() if used is not None else 0.0])
    mine, peer, third = (statistics.median(t) for t in zip(*times, strict=True))
    return ({} if used is None else used.record(third)) | {
        "name": w.name,
        "us": mine,
        "torch_us": peer,
        "ratio": peer / mine,
        "tflops": w.passes / mine / 1e6,
        "error": worst,
        "kernels": ours.report(),
    }


def used_as(row: dict[str, Any]) -> str:
    """Measure the second column."""
    if "used_us" not in row:
        return ""
    found = ", ".join(" and ".join("none" if us is None else f"{us:.1f}" for us in pair) for pair in row["compared_us"])
    return (
        f"as used {row['used_us']:.1f} us by {row['by']}: {row['torch_us'] / row['used_us']:.3f} (compared: {found}; "
        f"host {row['host_us']:.1f})  "
    )


def driver() -> str:
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip().split("\n")[0]


def main(arguments: list[str]) -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    major, minor = torch.cuda.get_device_capability()
    launcher = CudaLauncher(f"sm_{major}{minor}{'a' if major >= 9 else ''}")
    chosen = [a for a in arguments if not a.startswith("--") and not a.endswith(".json")]
    rows = []
    for w in workloads():
        if chosen and not any(name in w.name for name in chosen):
            continue
        try:
            row = measured(torch, launcher, w)
        except Exception as e:  # the others are measured all the same
            row = {"name": w.name, "failed": f"{type(e).__name__}: {str(e)[:300]}"}
            print(f"{w.name}: {row['failed']}", flush=True)
        else:
            print(
                f"{w.name:30} {row['us']:9.1f} us {row['tflops']:6.1f} TFLOP/s  {row['ratio']:6.3f} of torch "
                f"({row['torch_us']:.1f} us)  {used_as(row)}wrong by {row['error']:.0e}  {'; '.join(row['kernels'])}",
                flush=True,
            )
        rows.append(row)
        torch.cuda.empty_cache()
    record = {"date": datetime.date.today().isoformat(), "device": torch.cuda.get_device_name(), "driver": driver()}
    record |= {"torch": torch.__version__, "rows": rows}
    for a in arguments:
        if a.endswith(".json"):
            with open(a, "w") as file:
                json.dump(record, file, indent=1)
                file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
