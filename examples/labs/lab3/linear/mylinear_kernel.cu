// c = a b + bias, each of a and b transposed or not: 16 x 16 tiles through shared memory.
//
// Neighbouring threads have neighbouring columns, so that they read and write neighbouring memory; the results have the
// type of the operands; a launch that fails is an error at once.
#include <torch/extension.h>

#include <cuda.h>
#include <cuda_runtime.h>

#include <vector>

constexpr int TILE = 16;

template <typename scalar_t>
__global__ void product(const scalar_t* a, const scalar_t* b, const scalar_t* bias, scalar_t* c, const int M, const int K,
                        const int N, const bool a_turned, const bool b_turned) {
    __shared__ scalar_t of_a[TILE][TILE], of_b[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    scalar_t sum = bias && column < N ? bias[column] : scalar_t(0);
    for (int k0 = 0; k0 < K; k0 += TILE) {
        const int ka = k0 + threadIdx.x, kb = k0 + threadIdx.y;
        of_a[threadIdx.y][threadIdx.x] = row < M && ka < K ? a[a_turned ? ka * M + row : row * K + ka] : scalar_t(0);
        of_b[threadIdx.y][threadIdx.x] = kb < K && column < N ? b[b_turned ? column * K + kb : kb * N + column] : scalar_t(0);
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += of_a[threadIdx.y][k] * of_b[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && column < N) c[row * N + column] = sum;
}

static torch::Tensor multiplied(torch::Tensor a, torch::Tensor b, const torch::Tensor* bias, int M, int K, int N,
                                bool a_turned, bool b_turned) {
    auto c = torch::empty({M, N}, a.options());
    const dim3 block(TILE, TILE), grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "product", ([&] {
        product<scalar_t><<<grid, block>>>(
            a.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(), bias ? bias->data_ptr<scalar_t>() : nullptr,
            c.data_ptr<scalar_t>(), M, K, N, a_turned, b_turned);
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return c;
}

std::vector<torch::Tensor> cuda_forward(torch::Tensor input, torch::Tensor weight, torch::Tensor bias) {
    return {multiplied(input, weight, &bias, input.size(0), input.size(1), weight.size(0), false, true)};
}

std::vector<torch::Tensor> cuda_backward(torch::Tensor grad_output, torch::Tensor input, torch::Tensor weight) {
    const int M = grad_output.size(0), N = grad_output.size(1), K = weight.size(1);
    return {
        multiplied(grad_output, weight, nullptr, M, N, K, false, false),
        multiplied(grad_output, input, nullptr, N, M, K, true, false),
        grad_output.sum(0),
    };
}
