"""A linear layer four ways, forward and with all gradients: built in, in Python, in C++, in CUDA C++.

The last three are `tg.autograd.Function`s that differ in who computes. The sizes are those of the last layer of a
network for MNIST: 64 images from a layer of 128. `--compare` prints the four next to each other, forward and backward,
with their spread.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import tilegrad as tg
from examples.kernels.frame import Climb
from tilegrad.backend.cuda import nvrtc
from tilegrad.nn import functional as F


def operands(batch: int, inputs: int, outputs: int) -> tuple[tg.Tensor, ...]:
    """The data, weights, bias, and the upstream gradient."""
    return tg.randn(batch, inputs), tg.randn(outputs, inputs), tg.randn(outputs), tg.randn(batch, outputs)


def together(*parts: tg.Tensor) -> tg.Tensor:
    return tg.cat([part.reshape(-1) for part in parts])


climb = Climb(
    "linear layer",
    inputs=operands,
    expected=lambda x, w, b, u: together(x @ w.t() + b, u @ w, u.t() @ x, u.sum(0)),
    size={"batch": 64, "inputs": 128, "outputs": 10},
    tiny=[{"batch": 1, "inputs": 1, "outputs": 1}, {"batch": 3, "inputs": 5, "outputs": 4}],
    bytes=lambda batch, inputs, outputs: 8 * (batch * inputs + inputs * outputs + batch * outputs + outputs),
    operations=lambda batch, inputs, outputs: 6 * batch * inputs * outputs,
)

CPP = """
for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) {
        float total = b(j);
        for (int64_t l = 0; l < k; ++l) total += x(i, l) * w(j, l);
        out(i, j) = total;
    }
"""
CPP_GRADIENTS = """
for (int64_t i = 0; i < n; ++i)
    for (int64_t l = 0; l < k; ++l) gx(i, l) = 0;
for (int64_t j = 0; j < m; ++j) {
    for (int64_t l = 0; l < k; ++l) gw(j, l) = 0;
    gb(j) = 0;
}
for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < m; ++j) {
        float up = u(i, j);
        gb(j) += up;
        for (int64_t l = 0; l < k; ++l) {
            gx(i, l) += up * w(j, l);
            gw(j, l) += up * x(i, l);
        }
    }
"""
CUDA = """
int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
if (i >= n * m) return;
float total = b[i % m];
for (int64_t l = 0; l < k; ++l) total += x[i / m * k + l] * w[i % m * k + l];
out[i] = total;
"""
CUDA_GRADIENTS = """
int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;  // first those of x, then of w, then of b
float total = 0;
if (i < n * k) {
    for (int64_t j = 0; j < m; ++j) total += u[i / k * m + j] * w[j * k + i % k];
    gx[i] = total;
} else if ((i -= n * k) < m * k) {
    for (int64_t r = 0; r < n; ++r) total += u[r * m + i / k] * x[r * k + i % k];
    gw[i] = total;
} else if ((i -= m * k) < m) {
    for (int64_t r = 0; r < n; ++r) total += u[r * m + i];
    gb[i] = total;
}
"""
FORWARD = "forward(x: float[n, k], w: float[m, k], b: float[m]) -> float[n, m]"
BACKWARD = (
    "backward(u: float[n, m], x: float[n, k], w: float[m, k]) -> (gx: float[n, k], gw: float[m, k], gb: float[m])"
)


class InPython(tg.autograd.Function):
    """Tensor operations, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: tg.Tensor, w: tg.Tensor, b: tg.Tensor) -> tg.Tensor:
        ctx.save_for_backward(x, w)
        return x.mm(w.t()) + b

    @staticmethod
    def backward(ctx: Any, u: tg.Tensor) -> tuple[tg.Tensor, ...]:
        x, w = ctx.saved_tensors
        return u.mm(w), u.t().mm(x), u.sum(0)


def function_of(forward: Any, backward: Any) -> type[tg.autograd.Function]:
    """A function whose forward and backward are in another language."""

    class Foreign(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: tg.Tensor, w: tg.Tensor, b: tg.Tensor) -> tg.Tensor:
            ctx.save_for_backward(x, w)
            return forward(x, w, b)

        @staticmethod
        def backward(ctx: Any, u: tg.Tensor) -> tuple[tg.Tensor, ...]:
            return tuple(backward(u, *ctx.saved_tensors))

    return Foreign


_made: dict[str, type[tg.autograd.Function]] = {}


def in_cpp() -> type[tg.autograd.Function]:
    """Compiled when it is first used."""
    if "cpp" not in _made:
        _made["cpp"] = function_of(tg.cpp.inline(CPP, FORWARD), tg.cpp.inline(CPP_GRADIENTS, BACKWARD))
    return _made["cpp"]


def in_cuda() -> type[tg.autograd.Function]:
    """Compiled when it is first used."""
    if "cuda" not in _made:
        forward = tg.cuda.inline(CUDA, FORWARD)
        backward = tg.cuda.inline(
            CUDA_GRADIENTS, BACKWARD, grid=lambda n, m, k: tg.cdiv((n + m) * k + m, 256), block=256
        )
        _made["cuda"] = function_of(forward, backward)
    return _made["cuda"]


def differentiated(layer: Any, x: tg.Tensor, w: tg.Tensor, b: tg.Tensor, u: tg.Tensor) -> tg.Tensor:
    """The result of a layer and its three gradients."""
    leaves = [part.detach().requires_grad_() for part in (x, w, b)]
    y = layer(*leaves)
    y.backward(u)
    return together(y.detach(), *(leaf.grad for leaf in leaves)).realize()


@climb.step
def python(x: tg.Tensor, w: tg.Tensor, b: tg.Tensor, u: tg.Tensor) -> tg.Tensor:
    """a Function in Python: tensor operations"""
    return differentiated(InPython.apply, x, w, b, u)


if tg.cpp.is_available():

    @climb.step(on="cpu")
    def cpp(x: tg.Tensor, w: tg.Tensor, b: tg.Tensor, u: tg.Tensor) -> tg.Tensor:
        """a Function in C++: plain loops"""
        return differentiated(in_cpp().apply, x, w, b, u)


@climb.step(on="cuda")
def cuda(x: tg.Tensor, w: tg.Tensor, b: tg.Tensor, u: tg.Tensor) -> tg.Tensor:
    """a Function in CUDA C++: a thread for each result"""
    return differentiated(in_cuda().apply, x, w, b, u)


@climb.step
def built_in(x: tg.Tensor, w: tg.Tensor, b: tg.Tensor, u: tg.Tensor) -> tg.Tensor:
    """built in: `nn.functional.linear`"""
    return differentiated(F.linear, x, w, b, u)


# --- the ways side by side -------------------------------------------------------------------------

BUILT_IN, IN_CPP, IN_CUDA = "built in", "a Function in C++", "a Function in CUDA C++"
WAYS: dict[str, tuple[Callable[[], Any], str]] = {
    BUILT_IN: (lambda: F.linear, "one program for each way, forwards and back"),
    "a Function in Python": (lambda: InPython.apply, "the same kernels, and the Python of a Function"),
    IN_CPP: (lambda: in_cpp().apply, "plain loops, called at once: nothing is recorded, fused or cut into tiles"),
    IN_CUDA: (lambda: in_cuda().apply, "a thread for each result, two launches"),
}
"""Each variant, and the reason for its time."""


def in_turns(calls: dict[str, Callable[[], Any]], device: str, runs: int) -> dict[str, list[float]]:
    """Time each call, interleaved with the others; the first two rounds do not count."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(runs + 2):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if device != "cpu":
                tg.cuda.synchronize()
            found[name] += [time.perf_counter() - start] if turn > 1 else []
    return found


def compared(device: str = "cpu", runs: int = 100, **size: int) -> list[list[str]]:
    """The rows of the table: a variant, its forward and its whole step in microseconds, its time relative to the
    built-in's, and why. Without a GPU the last variant is compiled, its launches are checked, and it has no time.
    """
    x, w, b, u = climb.given(device, size or climb.size)
    possible = [way for way in WAYS if tg.cpp.is_available() or way != IN_CPP]
    timed = {way: WAYS[way][0]() for way in possible if way != (IN_CUDA if device == "cpu" else IN_CPP)}
    forward = in_turns({way: lambda f=f: f(x, w, b).realize() for way, f in timed.items()}, device, runs)
    whole = in_turns({way: lambda f=f: differentiated(f, x, w, b, u) for way, f in timed.items()}, device, runs)
    least = statistics.median(whole[BUILT_IN])
    rows = []
    for way in possible:
        if way in timed:
            part = f"{statistics.median(whole[way]) / least:.2f}"
            rows.append([way, _spread(forward[way]), _spread(whole[way]), part, WAYS[way][1]])
        elif way == IN_CUDA:
            launch = tg.cuda.inline(CUDA, FORWARD).launch(x, w, b) if nvrtc.is_available() else "no compiler for it"
            rows.append([way, "needs a GPU", "needs a GPU", "-", str(launch)])
    return rows


def _spread(times: list[float]) -> str:
    low, middle, high = (1e6 * t for t in statistics.quantiles(times, n=4))
    return f"{middle:.0f} [{low:.0f}, {high:.0f}]"


def comparison(device: str = "cpu", runs: int = 100) -> str:
    """The table, with the medians and quartiles of the times."""
    head = ["way", "forward, us", "forward and gradients, us", "of built in", "why"]
    rows = [head, ["---"] * len(head), *compared(device, runs)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    if "--compare" in sys.argv:
        print(comparison("cuda" if "cuda" in sys.argv else "cpu"))
    else:
        climb.main()
