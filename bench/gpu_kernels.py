"""Measure generated CUDA kernels against PyTorch's on one GPU: element functions, rows, sums and transposes.

    python -m bench.gpu_kernels [names] [--out file.json]

The scheduler makes programs for a GPU; their kernels are launched one by one on PyTorch's memory and stream and
captured as CUDA graphs, as PyTorch's kernels are. Results are compared before anything is timed, gradients with
float64.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

import tilegrad as tg
from tilegrad.backend.cuda.build import CudaBinary, build_kernel
from tilegrad.backend.cuda.costs import gpu_model
from tilegrad.backend.null.device import NullDevice
from tilegrad.ir.program import Copy, Launch, Program, Step
from tilegrad.ir.size import known
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_access import accesses
from tilegrad.ir.tile_checker import check
from tilegrad.runtime.device import register
from tilegrad.runtime.target_model import TargetModel

REPEATS = 10
"""Runs in one CUDA graph."""


class Planned(NullDevice):
    """A GPU with a number of multiprocessors for which programs are made, but not run."""

    @property
    def target(self) -> TargetModel:
        return gpu_model(132)


register(Planned("planned"))


class CudaLauncher:
    """Load cubins and launch kernels through the driver, in PyTorch's context and on its stream."""

    def __init__(self, architecture: str) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.architecture = architecture
        self.functions: dict[str, tuple[ctypes.c_void_p, CudaBinary]] = {}

    @cached_property
    def multiprocessors(self) -> int:
        found = ctypes.c_int()
        self.checked(self.cuda.cuDeviceGetAttribute(ctypes.byref(found), 16, 0))
        return found.value

    def load(self, kernels: Sequence[Kernel]) -> None:
        new = {k.digest(): k for k in kernels if k.digest() not in self.functions}
        with ThreadPoolExecutor(12) as pool:
            binaries = pool.map(lambda k: build_kernel(k, self.architecture), new.values())
            for digest, made in zip(new, binaries, strict=True):
                self.functions[digest] = self._function(made), made

    def _function(self, made: CudaBinary) -> ctypes.c_void_p:
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.checked(self.cuda.cuModuleLoadData(ctypes.byref(module), made.image))
        self.checked(self.cuda.cuModuleGetFunction(ctypes.byref(function), module, made.name.encode()))
        if made.shared > 48 << 10:
            self.checked(self.cuda.cuFuncSetAttribute(function, 8, made.shared))
        return function

    def checked(self, result: int) -> None:
        if result:
            text = ctypes.c_char_p()
            self.cuda.cuGetErrorString(result, ctypes.byref(text))
            raise RuntimeError(f"CUDA: {(text.value or b'?').decode()}")

    def launch(self, kernel: Kernel, arguments: Sequence[Any], grid: Sequence[int], stream: int) -> None:
        """Launch a kernel on PyTorch's tensors and numbers."""
        function, made = self.functions[kernel.digest()]
        cells: list[Any] = []
        for p, a in zip(kernel.parameters, arguments, strict=True):
            if p.pointer:
                cells.append(ctypes.c_void_p(a.data_ptr()))
            else:
                data = np.array(a).astype(p.dtype.numpy).tobytes()
                cells.append((ctypes.c_char * len(data)).from_buffer_copy(data))
        extents = (*grid, 1, 1)[:3]
        cells += [ctypes.c_int(n) for n in extents]
        for map in made.maps:  # what the copy engine is told about tensors
            words = (ctypes.c_uint64 * 24)()
            place = -(-ctypes.addressof(words) // 64) * 64
            given = map.arguments(arguments[map.parameter].data_ptr())
            self.checked(self.cuda.cuTensorMapEncodeTiled(ctypes.c_void_p(place), *given))
            cells.append((ctypes.c_char * 128).from_buffer(words, place - ctypes.addressof(words)))
        pointers = (ctypes.c_void_p * len(cells))(*[ctypes.addressof(c) for c in cells])
        blocks = made.blocks(extents[0] * extents[1] * extents[2], self.multiprocessors)
        self.checked(
            self.cuda.cuLaunchKernel(
                function, blocks, 1, 1, made.threads, 1, 1, made.shared, ctypes.c_void_p(stream), pointers, None
            )
        )


class OnTorch:
    """A program whose buffers are PyTorch's tensors."""

    def __init__(self, torch: Any, launcher: CudaLauncher, program: Program, inputs: Sequence[Any]) -> None:
        self.torch, self.launcher, self.program = torch, launcher, program
        launcher.load([s.kernel for s in program.steps if isinstance(s, Launch)])
        self.memory = dict(zip(program.inputs, inputs, strict=True))
        for b in program.buffers:
            if b.name not in self.memory and not b.alias:
                dtype = getattr(torch, b.type.dtype.name)
                self.memory[b.name] = torch.full((known(b.type.count, {}),), 77, dtype=dtype, device="cuda")
        for b in program.buffers:
            if b.alias:
                self.memory[b.name] = self.memory[b.alias]

    def run(self) -> None:
        self._run(self.program.steps)

    def run_from(self, name: str) -> None:
        """Run only the kernels that depend on an input: the backward pass, with saved results of the forward pass."""
        reached, steps = {name}, []
        for step in self.program.steps:
            match step:
                case Launch(kernel, arguments):
                    pointers = {p.name: a for p, a in zip(kernel.parameters, arguments, strict=True) if p.pointer}
                    if reached.isdisjoint(pointers.values()):
                        continue
                    reached |= {pointers[p] for p in accesses(kernel, check(kernel)).stored}
                case Copy(source, target):
                    if source not in reached:
                        continue
                    reached.add(target)
            steps.append(step)
        self._run(steps)

    def _run(self, steps: Sequence[Step]) -> None:
        stream = self.torch.cuda.current_stream().cuda_stream
        for step in steps:
            match step:
                case Launch():
                    given = [self.memory[a] if isinstance(a, str) else known(a, {}) for a in step.arguments]
                    self.launcher.launch(step.kernel, given, [t.count({}) for t in step.grid], stream)
                case Copy(source, target):
                    self.memory[target].view(-1).copy_(self.memory[source].view(-1))

    def outputs(self) -> list[Any]:
        found = []
        for name in self.program.outputs:
            b = self.program.buffer(name)
            found.append(self.memory[name].view([known(d, {}) for d in b.type.shape]))
        return found

    def report(self) -> list[str]:
        """List threads, registers and spills of each kernel."""
        made = [self.launcher.functions[s.kernel.digest()][1] for s in self.program.steps if isinstance(s, Launch)]
        return [f"{m.name} {m.threads}x{m.registers}" + (f" spills {m.spills}" if m.spills else "") for m in made]


class Workload(NamedTuple):
    """The same work in both libraries; `passes` counts how often the elements of the first argument must move, at
    least.
    """

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    torch: Callable[[Any], Callable[..., Any]]
    passes: float
    dtype: str = "float32"
    backward: bool = False
    """Ours is the gradient; PyTorch's function takes the upstream gradient and the saved results too."""
    tolerance: float = 1e-4
    kept: Callable[..., Any] | None = None
    """Saved results that PyTorch's backward takes, computed from the inputs."""
    precision: str = "highest"
    """Precision of float32 products."""
    upstream: tuple[int, ...] = ()
    """The shape of the upstream gradient, if it differs from that of the first argument."""


def _rows(rows: int, columns: int) -> list[Workload]:
    f = tg.nn.functional
    one, row = ((rows, columns),), ((rows, columns), (columns,), (columns,))
    size = f"{rows}x{columns}"

    def ln(x: Any, w: Any, b: Any) -> Any:
        return f.layer_norm(x, (columns,), w, b)

    def theirs(t: Any) -> Any:
        return lambda x, w, b: t.nn.functional.layer_norm(x, (columns,), w, b)

    def softmax_back(t: Any) -> Any:
        return lambda x, dy, y: t.ops.aten._softmax_backward_data(dy, y, -1, x.dtype)

    def ln_back(t: Any) -> Any:
        return lambda x, w, b, dy, _, mean, scale: t.ops.aten.native_layer_norm_backward(
            dy, x, (columns,), mean, scale, w, b, [True, True, True]
        )

    return [
        Workload(f"softmax {size}", one, lambda x: tg.softmax(x, -1), lambda t: lambda x: t.softmax(x, -1), 2),
        Workload(
            f"softmax backward {size}",
            one,
            lambda x: tg.softmax(x, -1),
            softmax_back,
            3,
            backward=True,
            kept=lambda t, x: (t.softmax(x, -1),),
        ),
        Workload(f"layer_norm {size}", row, ln, theirs, 2),
        Workload(
            f"layer_norm backward {size}",
            row,
            ln,
            ln_back,
            3,
            backward=True,
            tolerance=1e-3,
            kept=lambda t, x, w, b: t.ops.aten.native_layer_norm(x, (columns,), w, b, 1e-5),
        ),
    ]


def workloads() -> list[Workload]:
    """List the workloads."""
    big = (16384, 16384)
    chain = ((8192, 8192),) * 4

    def element(x: Any, a: Any, b: Any, c: Any) -> Any:
        return tg.relu(x * a + b) * tg.sigmoid(x) + tg.tanh(c)

    def theirs(t: Any) -> Any:
        return lambda x, a, b, c: t.relu(x * a + b) * t.sigmoid(x) + t.tanh(c)

    found = [
        Workload("chain", chain, element, theirs, 5),
        Workload("chain bfloat16", chain, element, theirs, 5, "bfloat16", tolerance=5e-2),
        Workload("gelu", ((8192, 8192),), tg.nn.functional.gelu, lambda t: t.nn.functional.gelu, 2),
        Workload("sum over axis 0", (big,), lambda x: x.sum(0), lambda t: lambda x: x.sum(0), 1, tolerance=5e-3),
        Workload("sum over axis 1", (big,), lambda x: x.sum(1), lambda t: lambda x: x.sum(1), 1, tolerance=5e-3),
        Workload("sum of all", (big,), lambda x: x.sum(), lambda t: lambda x: x.sum(), 1, tolerance=5e-1),
        Workload("argmax over axis 1", (big,), lambda x: x.argmax(1), lambda t: lambda x: x.argmax(1), 1),
        Workload("transpose", (big,), lambda x: x.t().contiguous(), lambda t: lambda x: x.t().contiguous(), 2),
        Workload(
            "transpose bfloat16",
            (big,),
            lambda x: x.t().contiguous(),
            lambda t: lambda x: x.t().contiguous(),
            2,
            "bfloat16",
        ),
        Workload("cumsum", ((8192, 8192),), lambda x: x.cumsum(1), lambda t: lambda x: x.cumsum(1), 2, tolerance=1e-2),
        Workload("add bias", ((8192, 8192), (8192,)), lambda x, b: x + b, lambda t: lambda x, b: x + b, 2),
    ]
    for shape in ((8192, 8192), (4096, 512), (131072, 1024)):
        found += _rows(*shape)
    return [*found, _pooling()]


def _pooling() -> Workload:
    """The gradient of max-pooling with ReLU after AlexNet's first convolution."""
    f = tg.nn.functional

    def theirs(t: Any) -> Any:
        pooling, relu = t.ops.aten.max_pool2d_with_indices_backward, t.ops.aten.threshold_backward
        return lambda x, dy, y, places: relu(pooling(dy, y, [3, 3], [2, 2], [0, 0], [1, 1], False, places), y, 0)

    def kept(t: Any, x: Any) -> Any:
        y = t.relu(x)
        return y, t.nn.functional.max_pool2d(y, 3, 2, return_indices=True)[1]

    return Workload(
        "pooling gradient with relu bfloat16",
        ((128, 96, 54, 54),),
        lambda x: f.max_pool2d(tg.relu(x), 3, 2),
        theirs,
        2 + 0.23,
        "bfloat16",
        backward=True,
        tolerance=3e-2,
        kept=kept,
        upstream=(128, 96, 26, 26),
    )


def program(w: Workload) -> Program:
    """The program that is compiled for our side."""
    given = [tg.zeros(*s, dtype=getattr(tg, w.dtype), device="planned", requires_grad=w.backward) for s in w.shapes]
    if not w.backward:
        jitted = tg.jit(w.ours)
        jitted(*given)
    else:
        upstream = tg.zeros_like(w.ours(*given).detach())

        def backward(*args: Any) -> Any:
            *xs, dy = args
            return tg.autograd.grad(w.ours(*xs), xs, dy)

        jitted = tg.jit(backward)
        jitted(*given, upstream)
    (made,) = jitted.programs
    found: Program = made.compiled.program
    return found


def timed(torch: Any, run: Callable[[], Any]) -> float:
    """Measure the microseconds of a run: the median of replays of a graph of several runs."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            run()
    graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(9):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / REPEATS)
    return statistics.median(times)


def exact(torch: Any, w: Workload, inputs: Sequence[Any], more: Sequence[Any]) -> Any:
    """Compute all gradients in float64."""
    given, above = ([x.double() for x in xs] for xs in (inputs, more))
    return w.torch(torch)(*given, *above, *(w.kept(torch, *given) if w.kept is not None else ()))


def measured(torch: Any, launcher: CudaLauncher, w: Workload) -> dict[str, Any]:
    """Check and time one workload."""
    dtype = getattr(torch, w.dtype)
    torch.manual_seed(7)
    inputs = [torch.randn(*s, device="cuda").to(dtype) for s in w.shapes]
    theirs = w.torch(torch)
    more = [torch.randn(*(w.upstream or w.shapes[0]), device="cuda").to(dtype)] if w.backward else []
    kept = w.kept(torch, *inputs) if w.kept is not None else ()

    def reference() -> Any:
        return theirs(*inputs, *more, *kept)

    ours = OnTorch(torch, launcher, program(w), [*inputs, *more])
    ours.run()
    torch.cuda.synchronize()
    wanted = exact(torch, w, inputs, more) if w.backward else reference()
    for got, want in zip(ours.outputs(), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        far = got.double() - want.double()
        worst = float(far.norm() / want.double().norm() if w.backward else far.abs().max())
        assert worst <= w.tolerance, f"{w.name}: wrong by {worst}"
    moved = w.passes * inputs[0].numel() * inputs[0].element_size()
    own = ours.run if not kept else partial(ours.run_from, ours.program.inputs[-1])
    row = {"name": w.name, "us": timed(torch, own), "torch_us": timed(torch, reference), "kernels": ours.report()}
    return row | {"tb_s": moved / row["us"] / 1e6, "ratio": row["torch_us"] / row["us"]}


def main(arguments: list[str]) -> None:
    import torch

    launcher = CudaLauncher("sm_{}{}{}".format(*(c := torch.cuda.get_device_capability()), "a" if c >= (9, 0) else ""))
    x = torch.randn(1 << 28, device="cuda")
    y = torch.empty_like(x)
    copy = 8 * x.numel() / timed(torch, lambda: torch.add(x, 1.0, out=y)) / 1e6  # a copy in a graph is slower
    print(f"copy {copy:.2f} TB/s", flush=True)
    rows = []
    chosen = [a for a in arguments if not a.startswith("--") and not a.endswith(".json")]
    for w in workloads():
        if chosen and not any(name in w.name for name in chosen):
            continue
        try:
            row = measured(torch, launcher, w)
        except Exception as e:  # the others are measured all the same
            print(f"{w.name}: {type(e).__name__}: {str(e)[:400]}", flush=True)
            continue
        finally:
            torch.cuda.empty_cache()
        rows.append(row)
        print(
            f"{w.name:32} {row['us']:9.1f} us  {row['tb_s']:5.2f} TB/s = {row['tb_s'] / copy:4.2f} of copy  "
            f"x{row['ratio']:5.2f} of torch  {'; '.join(row['kernels'])}",
            flush=True,
        )
    for a in arguments:
        if a.endswith(".json"):
            with open(a, "w") as file:
                json.dump(
                    {
                        "date": datetime.date.today().isoformat(),
                        "device": torch.cuda.get_device_name(),
                        "torch": torch.__version__,
                        "copy_tb_s": copy,
                        "rows": rows,
                    },
                    file,
                    indent=1,
                )


if __name__ == "__main__":
    main(sys.argv[1:])
