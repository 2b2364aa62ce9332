"""Measure calls of C++ operators on realised tensors against PyTorch's: processor time, interleaved, as ratios.

python -m bench.calls            prints the table of docs/foreign.md
"""

import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["TILEGRAD_THREADS"] = "1"

import tilegrad as tg

BACK = "for (long i = 0; i < n; ++i) out[i] = u[i] * 2.0f;"
BODY = "for (long i = 0; i < n; ++i) out[i] = x[i] * 2.0f + y[i];"
SIGNATURE = "twice_and(x: float[n], y: float[n]) -> float[n]"
PLAIN = f"""extern "C" void twice_and(const float *x, const float *y, float *out, long n) {{ {BODY} }}
extern "C" void twice(const float *u, float *out, long n) {{ {BACK} }}"""
WITH_GRADIENT = ", and its gradient"
THEIRS = "`torch.ops`, of a `custom_op`"
ROUNDS, CALLS = 60, 200


def ours(x: Any, y: Any) -> dict[str, Callable[[], Any]]:
    """A C++ function, and an operator with it as its kernel."""
    function = tg.cpp.inline(BODY, SIGNATURE)

    @tg.op("bench::" + SIGNATURE)
    def operator(x: Any, y: Any) -> Any:
        return x * 2 + y

    operator.kernel("cpu", lambda x, y: function(x, y))
    return {"`tg.cpp.inline`": lambda: function(x, y), "`tg.op` of it": lambda: operator(x, y).realize()}


def ours_back(x: Any, y: Any) -> dict[str, Callable[[], Any]]:
    """The same with a gradient in C++: forward, then back to x."""
    function, back = tg.cpp.inline(BODY, SIGNATURE), tg.cpp.inline(BACK, "twice(u: float[n]) -> float[n]")
    x, upstream = x.clone().requires_grad_(), tg.ones(16).realize()

    @tg.op("bench_back::" + SIGNATURE)
    def operator(x: Any, y: Any) -> Any:
        return x * 2 + y

    operator.kernel("cpu", lambda x, y: function(x, y))
    operator.gradient(lambda upstream: (back(upstream), upstream))

    class Own(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return function(x, y)

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            return back(upstream), upstream

    def walked(call: Callable[..., Any]) -> Any:
        x.grad = None
        call(x, y).backward(upstream)
        return x.grad.realize()

    return {
        "`tg.autograd.Function`" + WITH_GRADIENT: lambda: walked(Own.apply),
        "`tg.op`" + WITH_GRADIENT: lambda: walked(operator),
    }


def theirs(x: Any, y: Any, folder: str) -> dict[str, Callable[[], Any]]:
    """The same function behind `torch.library.custom_op`."""
    import torch

    source, library = Path(folder, "plain.cpp"), Path(folder, "plain.so")
    source.write_text(PLAIN)
    subprocess.run(["c++", "-O3", "-march=native", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    plain = ctypes.CDLL(str(library)).twice_and
    plain.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_long]

    def call(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        plain(x.data_ptr(), y.data_ptr(), out.data_ptr(), x.numel())
        return out

    custom = torch.library.custom_op("bench::twice_and", call, mutates_args=())
    a, b = torch.tensor(x.tolist()), torch.tensor(y.tolist())
    custom(a, b)
    operator = torch.ops.bench.twice_and
    double = ctypes.CDLL(str(library)).twice
    double.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_long]

    def call_back(u: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(u)
        double(u.data_ptr(), out.data_ptr(), u.numel())
        return out

    torch.library.custom_op("bench::twice", call_back, mutates_args=())
    custom.register_autograd(lambda ctx, u: (torch.ops.bench.twice(u), u))
    c, upstream = a.clone().requires_grad_(), torch.ones(16)

    def walked() -> Any:
        c.grad = None
        operator(c, b).backward(upstream)
        return c.grad

    return {THEIRS: lambda: operator(a, b), THEIRS + WITH_GRADIENT: walked}


def measured(runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Measure the least processor time of a call of each contender, interleaved."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(ROUNDS):
        for title, run in runs.items():
            start = time.process_time()
            for _ in range(CALLS):
                run()
            best[title] = min(best[title], (time.process_time() - start) / CALLS)
    return best


def main() -> None:
    x, y = tg.rand(16).realize(), tg.rand(16).realize()
    with tempfile.TemporaryDirectory() as folder:
        runs = {**ours(x, y), **ours_back(x, y), **theirs(x, y, folder)}
        for title, run in runs.items():
            wanted = 2.0 if WITH_GRADIENT in title else (x * 2 + y)[3].item()
            assert abs(run()[3].item() - wanted) < 1e-6
        found = measured(runs)
    print("| a call on 16 elements in memory | times faster |", "| --- | --- |", sep="\n")
    for title, seconds in found.items():
        peer = found[THEIRS + WITH_GRADIENT if WITH_GRADIENT in title else THEIRS]
        print(f"| {title} | {peer / seconds:.1f} |")


if __name__ == "__main__":
    main()
