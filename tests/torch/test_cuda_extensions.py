"""Extensions in CUDA: taken apart, compiled for GPUs that are not here, run on the CPU."""

from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad import errors
from tilegrad.backend.cuda import nvrtc
from tilegrad.foreign import compilers
from tilegrad.torch import kernels, simulated
from tilegrad.torch.cpp_extension import load_inline
from tilegrad.torch.cuda_source import split_source

SQUARE = r"""
__global__ void square_kernel(const float* matrix, float* result, int width, int height) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < height && column < width) {
        int i = row * width + column;
        result[i] = matrix[i] * matrix[i];
    }
}
torch::Tensor square_matrix(torch::Tensor matrix) {
    const auto height = matrix.size(0), width = matrix.size(1);
    auto result = torch::empty_like(matrix);
    dim3 threads(16, 16);
    dim3 blocks((width + threads.x - 1) / threads.x, (height + threads.y - 1) / threads.y);
    square_kernel<<<blocks, threads>>>(matrix.data_ptr<float>(), result.data_ptr<float>(), width, height);
    return result;
}

template <typename scalar_t, int N>
__global__ void sums(const torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x, scalar_t* out) {
    extern __shared__ char memory[];
    scalar_t* part = (scalar_t*)memory;
    scalar_t own = 0;
    for (int i = threadIdx.x; i < x.size(1); i += N) own += x[blockIdx.x][i];
    part[threadIdx.x] = own;
    __syncthreads();
    for (int half = N / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
torch::Tensor row_sums(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    auto out = torch::zeros({x.size(0)}, x.options());
    AT_DISPATCH_FLOATING_TYPES(x.type(), "row_sums", ([&] {
        sums<scalar_t, 32><<<x.size(0), 32, 32 * sizeof(scalar_t), at::cuda::getCurrentCUDAStream()>>>(
            x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(), out.data_ptr<scalar_t>());
    }));
    AT_CUDA_CHECK(cudaGetLastError());
    return out;
}
void launch(torch::Tensor x, int64_t threads, int64_t z, int64_t grid, int64_t shared) {
    square_kernel<<<grid, dim3(threads, 1, z), shared>>>(x.data_ptr<float>(), x.data_ptr<float>(), 0, 0);
}
"""
DECLARED = """
torch::Tensor square_matrix(torch::Tensor matrix);
torch::Tensor row_sums(torch::Tensor x);
void launch(torch::Tensor x, int64_t threads, int64_t z, int64_t grid, int64_t shared);
"""


@checklist(15)
def test_a_file_is_taken_apart() -> None:
    parts = split_source("#include <torch/extension.h>\n#define TWO 2\n" + SQUARE, "square.cu")
    assert parts.kernels == ("square_kernel",), "a template is compiled when it is launched"
    assert parts.barriers
    assert "torch::Tensor" not in parts.device
    assert "#define TWO 2" in parts.device
    assert "#include" not in parts.device
    assert parts.device.count("\n") == parts.host.count("\n") == SQUARE.count("\n") + 2
    assert "<<<" not in parts.host
    assert "scalar_t* part" in parts.host
    assert "char* memory = (char*)::tilegrad::dynamic_shared();" in parts.host


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("void f() { k<<<1, 2(); }", "k.cu:1: <<< without >>>"),
        ("\nvoid f() { k<<<1, 2>>>; }", "k.cu:2: after >>> come the arguments"),
        ("__global__ void k() {", "line 1: this { is never closed"),
    ],
)
def test_wrong_launches_in_the_text(source: str, message: str) -> None:
    with pytest.raises(errors.CompileError, match=message):
        split_source(source, "k.cu")


def test_what_is_in_quotes_and_comments_is_left_alone() -> None:
    text = 'void f() { g("<<<"); /* k<<<1, 1>>>() */ }\n__device__ int x; namespace { struct S { int y; }; }\nint h();'
    parts = split_source(text)
    assert parts.host == text
    assert parts.device.split() == "__device__ int x; namespace { struct S { int y; }; }".split()


needs_compiler = pytest.mark.skipif(not compilers.is_available(), reason="there is no C++ compiler")


@pytest.fixture(scope="module")
def gpu() -> Iterator[None]:
    if tg.cuda.is_available():
        pytest.skip("there is a GPU: nothing is simulated")
    simulated.simulate()
    yield
    simulated.end()
    tg.manual_seed(0)  # looks for no device that is there no more


@pytest.fixture(scope="module")
def made(gpu: None) -> ModuleType:
    names = ["square_matrix", "row_sums", "launch"]
    options = {"with_cuda": True, "extra_cuda_cflags": ["-O2"]}
    return load_inline("squares_for_tests", DECLARED, SQUARE, functions=names, **options)


@needs_compiler
@checklist(118, 119)
def test_the_square_of_a_matrix(made: ModuleType) -> None:
    x = tg.tensor([[1.0, 2, 3], [4, 5, 6]], device="cuda")
    result = made.square_matrix(x)
    assert result.tolist() == [[1, 4, 9], [16, 25, 36]]
    assert (str(result.device.name), result.is_cuda) == ("cuda:0", True)
    assert tg.torch.cuda.is_available()  # type: ignore[attr-defined]
    odd = tg.randn(33, 17, device="cuda")
    np.testing.assert_array_equal(made.square_matrix(odd).cpu().numpy(), (odd * odd).cpu().numpy())


@pytest.mark.defect(4)
@needs_compiler
@checklist(16)
@pytest.mark.parametrize("dtype", [tg.float32, tg.float64])
def test_barriers_shared_memory_and_templates(made: ModuleType, dtype: tg.DType) -> None:
    x = tg.randn(3, 70, dtype=dtype, device="cuda")
    before = simulated.simulated().launches  # type: ignore[attr-defined, union-attr]
    np.testing.assert_allclose(made.row_sums(x).cpu().numpy(), x.sum(1).cpu().numpy(), rtol=1e-5, atol=1e-5)
    assert simulated.simulated().launches == before + 1  # type: ignore[attr-defined, union-attr]


LAUNCHES = {
    (1025, 1, 1, 0): r"blocks of \(1025, 1, 1\) threads, and at most \(1024, 1024, 64\)",
    (1, 65, 1, 0): r"blocks of \(1, 1, 65\) threads, and at most \(1024, 1024, 64\)",
    (64, 32, 1, 0): r"\(64, 1, 32\) are 2048 threads a block, and at most 1024",
    (0, 1, 1, 0): r"blocks of \(0, 1, 1\) threads: every extent is at least 1",
    (1, 1, 0, 0): r"a grid of \(0, 1, 1\) blocks",
    (1, 1, 1, 300000): "300000 bytes of shared memory, and no GPU has more than 232448",
}


@pytest.mark.defect(4)
@needs_compiler
@checklist(60, 80)
@pytest.mark.parametrize("launch", LAUNCHES)
def test_wrong_launches(made: ModuleType, launch: tuple[int, int, int, int]) -> None:
    with pytest.raises(errors.LaunchError, match=LAUNCHES[launch]) as found:
        made.launch(tg.zeros(4, device="cuda"), *launch)
    assert "kernel square_kernel, squares_for_tests.cu:" in str(found.value)


@needs_compiler
@checklist(17)
def test_a_tensor_of_the_cpu_is_refused(made: ModuleType) -> None:
    with pytest.raises(errors.ForeignError, match="x must be a CUDA tensor"):
        made.row_sums(tg.zeros(2, 2))


@pytest.mark.skipif(not nvrtc.is_available(), reason="there is no NVRTC")
@checklist(26)
def test_a_kernel_that_does_not_compile_for_a_gpu() -> None:
    source = "__global__ void k(float* x) {\n    x[0] = __nanosleep;\n}"
    with pytest.raises(errors.CompileError, match=r"(?s)kernel k, wrong.cu.*kernel.cu\(2\)"):
        load_inline("wrong", "void f();", source, functions=["f"])


def test_names_of_kernels_and_types() -> None:
    pretty = "const char* tilegrad::kernel_name() [with auto Kernel = {anonymous}::product<float, 16>]"
    assert kernels.kernel_name(pretty) == "product<float, 16>"
    assert kernels.kernel_name("const char *tilegrad::kernel_name() [Kernel = &product<float>]") == "product<float>"
    assert kernels.type_name("const char* tilegrad::type_name() [with T = long int]") == "long"
