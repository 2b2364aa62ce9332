"""The CUDA C++ of kernels for threads: what it looks like, and that NVRTC takes it. No GPU is needed."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from examples.simt import grey, histogram, launches, matmul, reduction, saxpy, transpose, vector_add, window_sum
from tests.checklist import checklist
from tests.simt import small
from tests.simt.making import made
from tilegrad import simt
from tilegrad.backend.cuda import nvrtc
from tilegrad.errors import LaunchError
from tilegrad.simt.gpu_launch import compile_for

FLOATS, DOUBLES = tg.tensor(np.ones(8, np.float32)), tg.tensor(np.ones(8, np.float64))
INTS = tg.tensor(np.ones(8, np.int32))
SIDES: dict[str, Any] = {"TA": True, "TB": False, "X": 8, "Y": 8, "S": 4}
KERNELS: dict[str, Any] = {
    "halves": lambda: small.halves_twice.compiled(FLOATS.half(), FLOATS.bfloat16(), 8),
    "add": lambda: vector_add.add.compiled(FLOATS, FLOATS, FLOATS, 8),
    "saxpy": lambda: saxpy.saxpy_any_grid.compiled(8, 2.0, FLOATS, FLOATS),
    "window sum": lambda: window_sum.window_sum.compiled(DOUBLES, DOUBLES, 8, THREADS=4),
    "grey": lambda: grey.grey.compiled(FLOATS, FLOATS, 2, 1),
    "transpose": lambda: transpose.transpose_tiled.compiled(FLOATS, FLOATS, 2, 2, PAD=1),
    "reduction": lambda: reduction.sums.compiled(DOUBLES, DOUBLES, 8, THREADS=192),
    "shuffles": lambda: reduction.sum_by_warps.compiled(FLOATS, FLOATS, 8),
    "votes": lambda: small.counted.compiled(INTS, INTS),
    "histogram": lambda: histogram.histogram_shared.compiled(INTS, INTS, 8, BINS=16),
    "launches": lambda: launches.row_sums.compiled(FLOATS, INTS, FLOATS, 4),
    "dynamic tiles": lambda: matmul.tiled_dynamic.compiled(FLOATS, FLOATS, FLOATS, 2, 2, 2, 8),
    "buffered tiles": lambda: matmul.double_buffered.compiled(FLOATS, FLOATS, FLOATS, 2, 2, 2, **SIDES),
    "registers": lambda: matmul.in_registers.compiled(FLOATS, FLOATS, FLOATS, 2, 2, 2, **SIDES, R=4),
}
EVERYWHERE = ("add", "shuffles", "dynamic tiles")


def test_a_kernel_as_a_person_would_write_it() -> None:
    text = window_sum.window_sum.compiled(FLOATS, FLOATS, 8, THREADS=4).cuda()
    assert text.partition("\n")[2] == (
        'extern "C" __global__ void window_sum(const float* A, float* B, int n) {\n'
        "    __shared__ float part[10];\n"
        "    int first = blockIdx.x * 4;\n"
        "    int i = first + threadIdx.x;\n"
        "    for (int k = threadIdx.x; k < 10; k += 4) {\n"
        "        if (first + k < n + 6) {\n"
        "            part[k] = A[first + k];\n"
        "        }\n"
        "    }\n"
        "    __syncthreads();\n"
        "    if (i < n) {\n"
        "        float total = 0.0f;\n"
        "        for (int k = 0; k < 7; ++k) {\n"
        "            total += part[threadIdx.x + k];\n"
        "        }\n"
        "        B[i] = total;\n"
        "    }\n"
        "}\n"
    )
    assert text.startswith("// window_sum.py:")


LINES = {
    "y = x[i] if i < n else 0.0\nout[i] = int32(y)": "float y = i < n ? x[i] : 0.0f;",
    "if 0 <= i < n and (i > 3 or n == 2):\n    out[i] = 1": "if (0 <= i && i < n && (i > 3 || n == 2)) {",
    "out[i] = -(i - 2) * (n - (i - 1)) // 3": "out[i] = -(i - 2) * (n - (i - 1)) / 3;",
    "out[i] = (i << 2 | n) & 7": "out[i] = ((i << 2) | n) & 7;",
    "y = math.sqrt(x[i]) + max(x[i], 0.5) + abs(x[i])\nout[i] = int32(y)": "sqrtf(x[i]) + fmaxf(x[i], 0.5f) + fabsf",
    "double = i\nout[i] = double": "int double_ = i;",
    "if n > 2:\n    y = 1\nelse:\n    y = 2\nout[i] = y": "int y;",
    "out[i] = atomicCAS(out[0], 0, n)": "out[i] = atomicCAS(&out[0], 0, n);",
    "total = 0\nfor k in range(9, 0, -2):\n    total += k\nout[i] = total": "for (int k = 9; k > 0; k -= 2) {",
    "m = n\nfor k in range(m):\n    m = 3\nout[i] = m": "int k_stop = m;",
    "out[i] = twice(n)": "__device__ int twice(int x) {",
    "out[i] = int32(x[0] ** 2)": "out[i] = int(powf(x[0], 2.0f));",
    "if threadIdx.x - 1 >= 0:\n    out[i] = 1": "if (int(threadIdx.x) - 1 >= 0) {",
    "y: int64 = blockIdx.x\ny *= n\nout[i] = int32(y)": "y *= (long long)(n);",
    "assert n > 0, 'something'\nout[i] = 1": "if (!(n > 0)) __trap();  // something",
    "child[n, (8, 2)](x, n)\nout[i] = 1": "child<<<n, dim3(8, 2)>>>(x, n);",
}


@pytest.mark.parametrize("body", LINES)
def test_lines(body: str) -> None:
    text = made(f"i = threadIdx.x\n{body}").compiled(FLOATS, INTS, 8, N=4).cuda()
    assert LINES[body] in text, text


@checklist(123)
@pytest.mark.skipif(not nvrtc.is_available(), reason="NVRTC is not installed")
@pytest.mark.parametrize("name", KERNELS)
def test_nvrtc_takes_it(name: str) -> None:
    found = KERNELS[name]()
    for architecture in ("sm_80", "sm_90a", "sm_120") if name in EVERYWHERE else ("sm_90a",):
        code = compile_for(found, architecture)
        assert code.image
        assert code.registers > 0
        assert code.spills == 0


def test_limits() -> None:
    assert simt.gpu("nvidia H200").shared_per_block == 232448
    assert simt.gpu("4090").threads_per_multiprocessor == 1536
    with pytest.raises(LaunchError, match="2048 threads in a block"):
        simt.occupancy("T4", 2048)


@checklist(160)
def test_the_h200_of_the_table_is_the_one_that_was_asked() -> None:
    from tilegrad.backend.cuda.null import H200_ATTRIBUTES

    listed = simt.GPUS["H200"]
    asked = {
        "multiprocessors": listed.multiprocessors,
        "threads_multiprocessor": listed.threads_per_multiprocessor,
        "blocks_multiprocessor": listed.blocks_per_multiprocessor,
        "shared_optin": listed.shared_per_block,
        "shared_multiprocessor": listed.shared_per_multiprocessor,
        "registers_multiprocessor": listed.registers_per_multiprocessor,
        "l2": listed.l2,
    }
    assert asked == {name: H200_ATTRIBUTES[name] for name in asked}


OCCUPIED = [
    ("A100", 256, 40, 0, 6, "registers"),
    ("A100", 1024, 32, 0, 2, "threads"),
    ("H200", 128, 0, 100_000, 2, "shared memory"),
    ("T4", 32, 16, 0, 16, "blocks"),
    ("RTX 4090", 256, 128, 0, 2, "registers"),
    ("V100", 192, 64, 0, 5, "registers"),
]


@checklist(122)
@pytest.mark.parametrize(("name", "threads", "registers", "shared", "blocks", "limit"), OCCUPIED)
def test_occupancy(name: str, threads: int, registers: int, shared: int, blocks: int, limit: str) -> None:
    """Against the driver itself: tests/gpu/test_gpu_simt.py."""
    found = simt.occupancy(name, threads, registers, shared)
    assert (found.blocks, found.limit) == (blocks, limit)
