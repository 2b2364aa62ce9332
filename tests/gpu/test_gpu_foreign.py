"""CUDA kernels from source text on a GPU: results, streams, rejected launches, and 16-bit arithmetic."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.foreign.kernels import SIGNATURE, SQUARE, product_of_the_lab, square_2d
from tests.items import convolutions
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.errors import LaunchError

SIZES = (1, 31, 32, 33, 1000)


@checklist(117)
def test_a_body(gpu: CudaDevice) -> None:
    square = tg.cuda.inline(SQUARE, SIGNATURE)
    for shape in ((), (1,), (3, 5), (1000, 1001), (0, 4)):
        x = tg.rand(*shape)
        assert np.array_equal(square(x.cuda()).cpu().numpy(), x.numpy() ** 2)


@checklist(119)
def test_two_axes(gpu: CudaDevice) -> None:
    square = square_2d()
    for shape in ((1, 1), (16, 16), (17, 33), (100, 5)):
        x = tg.rand(*shape)
        assert np.array_equal(square(x.cuda()).cpu().numpy(), x.numpy() ** 2)


@checklist(15)
@pytest.mark.parametrize("dtype", [tg.float32, tg.float64], ids=str)
def test_the_product_of_the_lab(gpu: CudaDevice, dtype: Any) -> None:
    matmul = product_of_the_lab()
    random = np.random.default_rng(0)
    for size in SIZES:
        m, k, n = size, max(1, size - 1), size + 2
        a, b = random.standard_normal((m, k)), random.standard_normal((k, n))
        for trans_a in (0, 1):
            for trans_b in (0, 1):
                x = tg.tensor((a.T if trans_a else a).copy(), dtype=dtype).cuda()
                y = tg.tensor((b.T if trans_b else b).copy(), dtype=dtype).cuda()
                found = matmul(x, y, m, k, n, trans_a, trans_b).cpu().numpy()
                assert np.allclose(found, a @ b, rtol=1e-5, atol=1e-3 if dtype is tg.float32 else 1e-9)


def test_shared_memory_beyond_48_kib(gpu: CudaDevice) -> None:
    reverse = tg.cuda.inline(
        """
extern __shared__ float kept[];
__global__ void reverse(const float *x, float *out, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = kept[n - 1 - i];
}
""",
        "reverse(x: float[n]) -> float[n]",
        grid=1,
        shared=lambda n: 4 * n,
    )
    for n in (10, 20_000, 50_000):
        assert reverse(tg.arange(n).float().cuda()).tolist() == list(range(n))[::-1]


def test_sixteen_bits(gpu: CudaDevice) -> None:
    twice = tg.cuda.inline("out[threadIdx.x] = T(float(x[threadIdx.x]) * 2.0f);", "twice(x: T[n]) -> T[n]")
    for dtype in (tg.float16, tg.bfloat16):
        x = tg.randn(256).to(dtype)
        assert np.array_equal(twice(x.cuda()).cpu().float().numpy(), (x.float() * 2).to(dtype).float().numpy())


def test_equal_names_and_many_calls(gpu: CudaDevice) -> None:
    made = [
        tg.cuda.inline(
            f"__device__ float helper(float x) {{ return {n}.0f * x; }}\n"
            "__global__ void kernel(const float *x, float *out) { out[threadIdx.x] = helper(x[threadIdx.x]); }",
            "kernel(x: float[64]) -> float[64]",
            grid=1,
            block=64,
        )
        for n in (2, 3, 5)
    ]
    x = tg.ones(64).cuda()
    before = tg.cuda.memory_allocated()
    for _ in range(300):
        for f in made:
            y = f(x)
    assert y.tolist() == [5.0] * 64
    assert made[0](made[1](made[2](x))).sum().item() == 30 * 64
    del y
    assert tg.cuda.memory_allocated() - before < 1 << 20


def test_on_streams(gpu: CudaDevice) -> None:
    square = tg.cuda.inline(SQUARE, SIGNATURE)
    x = tg.rand(1 << 20).cuda()
    stream = tg.cuda.Stream()
    with tg.cuda.stream(stream):
        y = square(x)
        for _ in range(20):
            y = square(y)
    z = square(y)  # on the other stream: it waits
    expected = x.cpu().numpy().astype(np.float32)
    for _ in range(22):
        expected = expected * expected
    assert np.array_equal(z.cpu().numpy(), expected)


@checklist(60)
@pytest.mark.parametrize(
    "options", [{"block": 1025}, {"block": (1, 1, 65)}, {"block": 0}, {"shared": 300_000}], ids=str
)
def test_refused_launches(gpu: CudaDevice, options: dict[str, Any]) -> None:
    f = tg.cuda.inline("out[0] = x[0];", "f(x: float[n]) -> float[n]", **options)
    with pytest.raises(LaunchError, match="allows"):
        f(tg.ones(4).cuda())
    assert tg.ones(3).cuda().sum().item() == 3, "the device goes on"


def test_numbers_and_extents(gpu: CudaDevice) -> None:
    affine = tg.cuda.inline(
        "int64_t i = blockIdx.x * 256 + threadIdx.x; if (i < n) out[i] = alpha * x[i] + shift + n;",
        "affine(x: double[n], alpha: float, shift: int) -> double[n]",
    )
    x = tg.arange(1000).double()
    assert np.array_equal(affine(x.cuda(), 0.5, -7).cpu().numpy(), 0.5 * x.numpy() - 7 + 1000)


@checklist(49)
def test_users_convolutions(gpu: CudaDevice) -> None:
    """Small ones with both gradients, then those of AlexNet."""
    conv = convolutions.function_of(convolutions.in_cuda())
    small = [((2, 3, 7, 9), (4, 3, 3, 3), 2, 1), ((1, 2, 5, 5), (3, 2, 5, 5), 1, 2)]
    for shapes in [*small, *convolutions.ALEXNET.values()]:
        pairs = zip(
            convolutions.results(conv, shapes, "cuda"), convolutions.results(convolutions.built_in, shapes), strict=True
        )
        for ours, known in pairs:
            scale = float(known.abs().max().item())
            np.testing.assert_allclose(ours.cpu().numpy(), known.numpy(), rtol=1e-3, atol=2e-4 * scale)
