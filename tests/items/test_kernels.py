"""Kernels and launches, as the checklist asks for them: each scenario that failed elsewhere, by its number."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
import tilegrad.nn.functional as F
from tests.checklist import checklist
from tests.items import convolutions
from tilegrad import nn, simt
from tilegrad.backend.cuda import nvrtc
from tilegrad.simt import blockDim, blockIdx, gridDim, threadIdx

GLIBC = [0.840188, 0.394383, 0.783099, 0.798440, 0.911647, 0.197551, 0.335223, 0.768230, 0.277775, 0.553970]
"""The first of glibc's rand() / RAND_MAX for the seed 1."""


@simt.kernel
def multiply_in_place(n, x, alpha, y):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < n:
        x[i] = x[i] * alpha * y[i]


@tg.kernel
def multiply_tile(n, x, alpha, y, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, mask=at < n) * alpha * tl.load(y + at, mask=at < n), mask=at < n)


def by_threads(w: tg.Tensor) -> None:
    multiply_in_place[1, 32](4, w, 1.0, w)


def by_tiles(w: tg.Tensor) -> None:
    multiply_tile[(1,)](4, w, 1.0, w, BLOCK=4)


class Holder:
    """The places that a kernel is called from."""

    def __init__(self, call: Callable[[tg.Tensor], None]) -> None:
        self.call = call
        self.container = {"calls": [call]}

    def method(self, w: tg.Tensor) -> None:
        self.call(w)

    @staticmethod
    def by_threads(w: tg.Tensor) -> None:
        by_threads(w)

    @staticmethod
    def by_tiles(w: tg.Tensor) -> None:
        by_tiles(w)


@checklist(61)
@pytest.mark.parametrize("call", [by_threads, by_tiles], ids=["threads", "tiles"])
def test_a_kernel_does_the_same_from_every_place(call: Callable[[tg.Tensor], None]) -> None:
    holder = Holder(call)
    places = [call, getattr(Holder, call.__name__), holder.method, holder.container["calls"][0], lambda w: call(w)]
    for place in places:
        w = tg.tensor([5.0, 5.0, 4.0, 2.0])
        place(w)
        assert w.tolist() == [25, 25, 16, 4]


@checklist(65)
def test_tensors_that_are_dropped_while_kernels_use_them(no_leak: None) -> None:
    """10,000 launches on tensors that nobody holds any more; what they wrote is whole, and nothing stays."""
    rng = np.random.default_rng(0)
    kept: list[tuple[int, tg.Tensor]] = []
    for number, n in enumerate(rng.integers(1, 200, 10_000)):
        size = 4 * int(n > 100) + 4
        x = tg.tensor(np.full(size, number % 97, np.float32))
        multiply_tile[(1,)](size, x, 2.0, tg.tensor(np.ones(size, np.float32)), BLOCK=8)
        if number % 500 == 0:
            kept.append((2 * (number % 97), x))
        del x
    for value, x in kept:
        assert (x.numpy() == value).all()
    del kept, x
    gc.collect()


@simt.kernel
def relu(x, out, n):
    block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x
    thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x
    i = block * (blockDim.x * blockDim.y * blockDim.z) + thread
    if i < n:
        out[i] = max(x[i], 0.0)


@checklist(66)
@pytest.mark.parametrize("case", ["rand", "one", "ten", "greatest", "many axes"])
def test_relu_of_the_failing_suite(case: str) -> None:
    """Element 0 was always 0 there."""
    rng = np.random.default_rng(1)
    n = {"one": 1, "ten": 10}.get(case, 128)
    x = rng.uniform(-0.5, 0.5, n).astype(np.float32)
    x[: min(n, len(GLIBC))] = np.array(GLIBC[:n], np.float32) - np.float32(0.5)
    if case == "greatest":
        x = (rng.uniform(-0.5, 0.5, n) * np.finfo(np.float32).max).astype(np.float32)
    grid, block = ((2, 3, 4), (5, 6, 7)) if case == "many axes" else ((1, 1, 1), (128, 1, 1))
    out = tg.full((n,), -1.0)
    relu[grid, block](tg.tensor(x), out, n)
    np.testing.assert_array_equal(out.numpy(), np.maximum(x, 0))
    if case != "greatest":
        assert abs(out[0].item() - 0.340188) < 1e-6


# --- a network as a plain sequence of launches -----------------------------------------------------


@tg.kernel
def convolve(x, w, b, out, C, H, W, K, OH, OW, STRIDE, PAD, BLOCK: tl.constexpr):
    """A program for each output channel and line; relu at the end."""
    channel, line = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(C):
        for i in range(K):
            for j in range(K):
                y, z = line * STRIDE + i - PAD, at * STRIDE + j - PAD
                inside = (y >= 0) & (y < H) & (z >= 0) & (z < W) & (at < OW)
                weight = tl.load(w + ((channel * C + c) * K + i) * K + j)
                total += weight * tl.load(x + (c * H + y) * W + z, mask=inside, other=0.0)
    total = tl.maximum(total + tl.load(b + channel), 0.0)
    tl.store(out + (channel * OH + line) * OW + at, total, mask=at < OW)


@tg.kernel
def pool(x, out, H, W, OH, OW, BLOCK: tl.constexpr):
    """The greatest of 3 by 3, every second one."""
    channel, line = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for i in range(3):
        for j in range(3):
            place = x + (channel * H + line * 2 + i) * W + at * 2 + j
            best = tl.maximum(best, tl.load(place, mask=at < OW, other=0.0))
    tl.store(out + (channel * OH + line) * OW + at, best, mask=at < OW)


@tg.kernel
def connect(x, w, b, out, N, RELU: tl.constexpr, BLOCK: tl.constexpr):
    """A program for each output."""
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x + at, mask=at < N, other=0.0) * tl.load(w + row * N + at, mask=at < N, other=0.0))
    total += tl.load(b + row)
    tl.store(out + row, tl.maximum(total, 0.0) if RELU else total)


def launched(net: Any, x: tg.Tensor) -> tg.Tensor:
    """The network from the host, one launch after the other: no graph."""
    for layer in net:
        match layer:
            case nn.Conv2d():
                (c, h, w), k, stride, pad = x.shape, layer.kernel_size[0], layer.stride[0], layer.padding[0]
                oh, ow = ((e + 2 * pad - k) // stride + 1 for e in (h, w))
                out = tg.empty(layer.out_channels, oh, ow)
                sizes = (c, h, w, k, oh, ow, stride, pad)
                convolve[layer.out_channels, oh](x, layer.weight.data, layer.bias.data, out, *sizes, BLOCK=64)
                x = out
            case nn.MaxPool2d():
                c, h, w = x.shape
                out = tg.empty(c, (h - 3) // 2 + 1, (w - 3) // 2 + 1)
                pool[c, out.shape[1]](x, out, h, w, *out.shape[1:], BLOCK=32)
                x = out
            case nn.Linear():
                out = tg.empty(layer.out_features)
                last = layer is net[-1]
                connect[(layer.out_features,)](
                    x, layer.weight.data, layer.bias.data, out, x.numel(), RELU=not last, BLOCK=128
                )
                x = out
    return x


@checklist(68)
def test_alexnet_by_launches_equals_the_graph() -> None:
    """The layers of AlexNet, with an eighth of its channels, on a picture of 95 by 95."""
    tg.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(1, 12, 11, 4), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(12, 32, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(32, 48, 3, 1, 1), nn.ReLU(), nn.Conv2d(48, 48, 3, 1, 1), nn.ReLU()),
        *(nn.Conv2d(48, 32, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten()),
        *(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    x = tg.randn(1, 1, 95, 95)
    with tg.no_grad():
        wanted = net(x)[0].numpy()
        np.testing.assert_allclose(launched(net, x[0].contiguous()).numpy(), wanted, rtol=1e-4, atol=1e-5)


# --- a custom convolution, four ways ---------------------------------------------------------------

IN_CPP = """
void forward(const float *x, const float *w, float *out, int64_t n, int64_t c, int64_t h, int64_t v,
             int64_t o, int64_t k, int64_t l) {
    const int64_t oh = h - k + 1, ow = v - l + 1;
    for (int64_t a = 0; a < n * o; ++a)
        for (int64_t i = 0; i < oh; ++i) for (int64_t j = 0; j < ow; ++j) {
            float total = 0;
            for (int64_t b = 0; b < c; ++b) for (int64_t y = 0; y < k; ++y) for (int64_t z = 0; z < l; ++z)
                total += x[(((a / o) * c + b) * h + i + y) * v + j + z] * w[(((a % o) * c + b) * k + y) * l + z];
            out[(a * oh + i) * ow + j] = total;
        }
}
"""


@simt.kernel
def convolve_by_threads(x, w, out, count, c, h, v, o, k, oh, ow):
    i = blockIdx.x * blockDim.x + threadIdx.x
    if i < count:
        total = 0.0
        for b in range(c):
            for y in range(k):
                for z in range(k):
                    row = i // ow % oh + y
                    total += (
                        x[((i // (ow * oh * o) * c + b) * h + row) * v + i % ow + z]
                        * w[((i // (ow * oh) % o * c + b) * k + y) * k + z]
                    )
        out[i] = total


def in_threads(x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
    (n, c, h, v), (o, _, k, _) = x.shape, w.shape
    oh, ow = h - k + 1, v - k + 1
    out = tg.empty(n * o * oh * ow)
    grid = tg.cdiv(out.numel(), 64)
    convolve_by_threads[grid, 64](x.reshape(-1), w.reshape(-1), out, out.numel(), c, h, v, o, k, oh, ow)
    return out.reshape(n, o, oh, ow)


def custom(forward: Callable[[tg.Tensor, tg.Tensor], tg.Tensor]) -> Any:
    """The convolution as a function of its own: its gradients are convolutions of the same kind."""

    class Convolution(tg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: tg.Tensor, w: tg.Tensor) -> tg.Tensor:
            ctx.save_for_backward(x, w)
            return forward(x.contiguous(), w.contiguous())

        @staticmethod
        def backward(ctx: Any, upstream: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor]:
            x, w = ctx.saved_tensors
            edge = w.shape[2] - 1
            wide = F.pad(upstream, (edge, edge, edge, edge))
            turned = w.flip(2, 3).permute(1, 0, 2, 3)
            grad_x = forward(wide.contiguous(), turned.contiguous())
            grad_w = forward(x.permute(1, 0, 2, 3).contiguous(), upstream.permute(1, 0, 2, 3).contiguous())
            return grad_x, grad_w.permute(1, 0, 2, 3)

    return Convolution.apply


@checklist(49)
@pytest.mark.parametrize("way", ["python", "c++", "threads"])
def test_a_convolution_of_ones_own(way: str, request: pytest.FixtureRequest) -> None:
    ways: dict[str, Callable[[], Any]] = {
        "python": lambda: F.conv2d,
        "c++": lambda: tg.cpp.inline(
            IN_CPP, "forward(x: float[n, c, h, v], w: float[o, c, k, l]) -> float[n, o, h - k + 1, v - l + 1]"
        ),
        "threads": lambda: in_threads,
    }
    fn = custom(ways[way]())
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 3, 6, 6), (4, 3, 3, 3)))
    results = []
    for conv in (fn, F.conv2d):
        a, b = tg.tensor(x, requires_grad=True), tg.tensor(w, requires_grad=True)
        y = conv(a, b)
        (y * y).sum().backward()
        results.append((y, a.grad, b.grad))
    for ours, built_in in zip(*results, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), built_in.detach().numpy(), rtol=1e-4, atol=1e-4)


@checklist(49)
def test_a_convolution_in_cpp_with_gradients() -> None:
    conv = convolutions.function_of(convolutions.in_cpp())
    for shapes in (((2, 3, 7, 9), (4, 3, 3, 3), 2, 1), ((1, 2, 5, 5), (3, 2, 5, 5), 1, 2)):
        pairs = zip(*(convolutions.results(f, shapes) for f in (conv, convolutions.built_in)), strict=True)
        for ours, known in pairs:
            np.testing.assert_allclose(ours.numpy(), known.numpy(), rtol=1e-4, atol=1e-3)


@checklist(49)
@pytest.mark.parametrize("which", convolutions.OUTPUTS)
def test_convolutions_of_alexnet(which: str, request: pytest.FixtureRequest) -> None:
    """Runs in C++; CUDA C++ is compiled and its launches are checked, as far as that goes without a GPU."""
    *shapes, stride, pad = convolutions.ALEXNET[which]
    x, w = (tg.randn(*shape) * 0.1 for shape in shapes)
    forward, _ = convolutions.in_cpp()
    y = forward(x, w, stride, pad)
    assert y.shape[1:] == convolutions.OUTPUTS[which]
    np.testing.assert_allclose(y.numpy(), convolutions.built_in(x, w, stride, pad).numpy(), rtol=1e-3, atol=1e-3)
    if nvrtc.is_available():
        ahead, back = convolutions.in_cuda()
        assert ahead.launch(x, w, stride, pad).grid == (tg.cdiv(y.numel(), 256), 1, 1)
        assert back.launch(y, x, w, stride, pad).grid == (tg.cdiv(x.numel() + w.numel(), 256), 1, 1)
