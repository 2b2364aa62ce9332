"""A convolution of one's own in C++ and in CUDA C++, with a stride and padding, and both gradients (checklist 49)."""

from __future__ import annotations

from typing import Any

import tilegrad as tg

OUTPUT = "(h + 2 * pad - k) // stride + 1, (v + 2 * pad - k) // stride + 1"
FORWARD = f"forward(x: float[n, c, h, v], w: float[o, c, k, k], stride: int, pad: int) -> float[n, o, {OUTPUT}]"
BACKWARD = (
    "backward(u: float[n, o, p, q], x: float[n, c, h, v], w: float[o, c, k, k], stride: int, pad: int) "
    "-> (gx: float[n, c, h, v], gw: float[o, c, k, k])"
)
CPP = """
for (int64_t a = 0; a < n; ++a) for (int64_t b = 0; b < o; ++b)
    for (int64_t i = 0; i < out.size(2); ++i) for (int64_t j = 0; j < out.size(3); ++j) {
        float total = 0;
        for (int64_t d = 0; d < c; ++d) for (int64_t y = 0; y < k; ++y) for (int64_t z = 0; z < k; ++z) {
            int64_t row = i * stride + y - pad, column = j * stride + z - pad;
            if (row >= 0 && row < h && column >= 0 && column < v) total += x(a, d, row, column) * w(b, d, y, z);
        }
        out(a, b, i, j) = total;
    }
"""
CPP_GRADIENTS = """
for (int64_t i = 0; i < gx.size(); ++i) gx.data()[i] = 0;
for (int64_t i = 0; i < gw.size(); ++i) gw.data()[i] = 0;
for (int64_t a = 0; a < n; ++a) for (int64_t b = 0; b < o; ++b)
    for (int64_t i = 0; i < p; ++i) for (int64_t j = 0; j < q; ++j)
        for (int64_t d = 0; d < c; ++d) for (int64_t y = 0; y < k; ++y) for (int64_t z = 0; z < k; ++z) {
            int64_t row = i * stride + y - pad, column = j * stride + z - pad;
            if (row < 0 || row >= h || column < 0 || column >= v) continue;
            gx(a, d, row, column) += u(a, b, i, j) * w(b, d, y, z);
            gw(b, d, y, z) += u(a, b, i, j) * x(a, d, row, column);
        }
"""
CUDA = """
int64_t t = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, p = out.size(2), q = out.size(3);
if (t >= out.size()) return;
int64_t a = t / (o * p * q), b = t / (p * q) % o, i = t / q % p * stride - pad, j = t % q * stride - pad;
float total = 0;
for (int64_t d = 0; d < c; ++d) for (int64_t y = 0; y < k; ++y) for (int64_t z = 0; z < k; ++z)
    if (i + y >= 0 && i + y < h && j + z >= 0 && j + z < v)
        total += x[((a * c + d) * h + i + y) * v + j + z] * w[((b * c + d) * k + y) * k + z];
out[t] = total;
"""
CUDA_GRADIENTS = """
int64_t t = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, all = n * c * h * v;  // first those of x, then of w
float total = 0;
if (t < all) {
    int64_t a = t / (c * h * v), d = t / (h * v) % c, row = t / v % h, column = t % v;
    for (int64_t b = 0; b < o; ++b) for (int64_t y = 0; y < k; ++y) for (int64_t z = 0; z < k; ++z) {
        int64_t i = row + pad - y, j = column + pad - z;
        if (i < 0 || j < 0 || i % stride || j % stride || i / stride >= p || j / stride >= q) continue;
        total += u[((a * o + b) * p + i / stride) * q + j / stride] * w[((b * c + d) * k + y) * k + z];
    }
    gx[t] = total;
} else if ((t -= all) < o * c * k * k) {
    int64_t b = t / (c * k * k), d = t / (k * k) % c, y = t / k % k, z = t % k;
    for (int64_t a = 0; a < n; ++a) for (int64_t i = 0; i < p; ++i) for (int64_t j = 0; j < q; ++j) {
        int64_t row = i * stride + y - pad, column = j * stride + z - pad;
        if (row >= 0 && row < h && column >= 0 && column < v)
            total += u[((a * o + b) * p + i) * q + j] * x[((a * c + d) * h + row) * v + column];
    }
    gw[t] = total;
}
"""
ALEXNET = {  # the input, the weights, stride and padding of each convolution of AlexNet
    "first": ((1, 1, 224, 224), (96, 1, 11, 11), 4, 0),
    "second": ((1, 96, 26, 26), (256, 96, 5, 5), 1, 2),
    "third": ((1, 256, 12, 12), (384, 256, 3, 3), 1, 1),
    "fourth": ((1, 384, 12, 12), (384, 384, 3, 3), 1, 1),
    "fifth": ((1, 384, 12, 12), (256, 384, 3, 3), 1, 1),
}
OUTPUTS = {"first": (96, 54, 54), "second": (256, 26, 26), "third": (384, 12, 12)}


def in_cpp() -> tuple[Any, Any]:
    """Forwards and backwards in C++."""
    return tg.cpp.inline(CPP, FORWARD), tg.cpp.inline(CPP_GRADIENTS, BACKWARD)


def in_cuda() -> tuple[Any, Any]:
    """The same in CUDA C++: a thread for each output, or for each gradient."""
    threads = lambda n, c, h, v, o, k: tg.cdiv(n * c * h * v + o * c * k * k, 256)  # noqa: E731
    return tg.cuda.inline(CUDA, FORWARD), tg.cuda.inline(CUDA_GRADIENTS, BACKWARD, grid=threads, block=256)


def function_of(ways: tuple[Any, Any]) -> Any:
    """A convolution whose two directions are these."""
    forward, backward = ways

    class Convolution(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: tg.Tensor, w: tg.Tensor, stride: int, pad: int) -> tg.Tensor:
            ctx.save_for_backward(x, w)
            ctx.geometry = stride, pad
            return forward(x, w, stride, pad)  # type: ignore[no-any-return]

        @staticmethod
        def backward(ctx: Any, upstream: tg.Tensor) -> tuple[Any, ...]:
            return (*backward(upstream.contiguous(), *ctx.saved_tensors, *ctx.geometry), None, None)

    return Convolution.apply


def results(conv: Any, shapes: tuple[Any, ...], device: str = "cpu") -> list[tg.Tensor]:
    """The output and both gradients for some geometry."""
    tg.manual_seed(0)
    x, w = (tg.randn(*shape).to(device).requires_grad_() for shape in shapes[:2])
    y = conv(x, w, *shapes[2:])
    (y * y).sum().backward()
    return [y.detach(), x.grad, w.grad]


def built_in(x: tg.Tensor, w: tg.Tensor, stride: int, pad: int) -> tg.Tensor:
    """The built-in operations to compare with."""
    return tg.nn.functional.conv2d(x, w, stride=stride, padding=pad)
