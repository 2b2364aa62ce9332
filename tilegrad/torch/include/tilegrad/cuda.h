// The host's part of a .cu file: launches, dim3, and what a kernel is made of when it runs on the CPU.
//
// `kernel<<<grid, block>>>(...)` was rewritten to `tilegrad::Grid(grid, block).run(...)`. Python launches the kernel on
// the GPU, or says that this process only simulates one: then the threads run here, one after the other, or as fibers
// if the file has barriers.
#pragma once
#include <cmath>
#include <cstdio>
#include <cstring>

#include "host.h"
#if defined(TILEGRAD_BARRIERS)
#include <ucontext.h>
#endif

struct uint3 { unsigned x, y, z; };
struct dim3 {
    unsigned x, y, z;
    template <class X = int, class Y = int, class Z = int> dim3(X x = 1, Y y = 1, Z z = 1) : x(x), y(y), z(z) {}
};
typedef void* cudaStream_t;
typedef int cudaError_t;
constexpr cudaError_t cudaSuccess = 0;
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }
inline const char* cudaGetErrorName(cudaError_t) { return "cudaSuccess"; }
// A launch that fails raises at once, so there is nothing left to ask for.
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return tilegrad::checked(tilegrad::host->synchronize()), cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaDeviceSynchronize(); }
#define AT_CUDA_CHECK(call) do { if ((call) != cudaSuccess) throw c10::Error(#call " failed"); } while (0)
#define C10_CUDA_CHECK(call) AT_CUDA_CHECK(call)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() ((void)0)
#define CUDA_KERNEL_LOOP(i, n) \
    for (long i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (long)blockDim.x * gridDim.x)

namespace c10::cuda {
struct CUDAStream {
    cudaStream_t stream() const { return nullptr; }
    operator cudaStream_t() const { return nullptr; }
    void synchronize() const { cudaDeviceSynchronize(); }
};
inline CUDAStream getCurrentCUDAStream(int = -1) { return {}; }
struct CUDAGuard { template <class T> explicit CUDAGuard(const T&) {} };
struct OptionalCUDAGuard { template <class... T> explicit OptionalCUDAGuard(const T&...) {} };
}  // namespace c10::cuda
namespace at::cuda {
using namespace c10::cuda;
}

// --- what kernels are written with ---------------------------------------------------------------
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace tilegrad {
inline std::vector<double> dynamic_memory;
inline void* dynamic_shared() { return dynamic_memory.data(); }

#if defined(TILEGRAD_BARRIERS)
struct Fibers {
    static constexpr int STACK = 65536;
    ucontext_t outside;
    std::vector<ucontext_t> contexts;
    std::vector<std::vector<char>> stacks;
    std::vector<char> done;
    std::vector<int> met;
    std::vector<uint64_t> exchanged;
    int current = 0;
    void (*body)(const void*);
    const void* given;
};
inline Fibers fibers;
inline void place(int t) {
    fibers.current = t;
    threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
}
inline void enter() {
    fibers.body(fibers.given);
    fibers.done[fibers.current] = 1;
    swapcontext(&fibers.contexts[fibers.current], &fibers.outside);
}
inline void leave() {
    int self = fibers.current;
    swapcontext(&fibers.contexts[self], &fibers.outside);
    place(self);
}
// Waits until the other threads of a group have come to their barrier of the same number, or have ended.
inline void meet(int first, int count) {
    int self = fibers.current, number = ++fibers.met[self], all = (int)fibers.done.size();
    for (bool there = false; !there;) {
        leave();
        there = true;
        for (int t = first; t < first + count && t < all; ++t) there = there && (fibers.met[t] >= number || fibers.done[t]);
    }
}
template <class F> void run_block(int threads, const F& body) {
    fibers.contexts.resize(threads);
    fibers.done.assign(threads, 0), fibers.met.assign(threads, 0), fibers.exchanged.assign(threads, 0);
    while ((int)fibers.stacks.size() < threads) fibers.stacks.emplace_back(Fibers::STACK);
    fibers.body = [](const void* f) { (*(const F*)f)(); };
    fibers.given = &body;
    for (int t = 0; t < threads; ++t) {
        getcontext(&fibers.contexts[t]);
        fibers.contexts[t].uc_stack = {fibers.stacks[t].data(), 0, (size_t)Fibers::STACK};
        fibers.contexts[t].uc_link = &fibers.outside;
        makecontext(&fibers.contexts[t], enter, 0);
    }
    for (int left = threads; left;) {
        left = 0;
        for (int t = 0; t < threads; ++t)
            if (!fibers.done[t]) {
                place(t);
                swapcontext(&fibers.outside, &fibers.contexts[t]);
                left += !fibers.done[t];
            }
    }
}
template <class T> T shuffled(T x, int lane) {
    int self = fibers.current, first = self / 32 * 32;
    memcpy(&fibers.exchanged[self], &x, sizeof(T));
    meet(first, 32);
    int from = first + (lane & 31);
    T y = x;
    if (from < (int)fibers.exchanged.size()) memcpy(&y, &fibers.exchanged[from], sizeof(T));
    meet(first, 32);
    return y;
}
#else
template <class F> void run_block(int, const F& body) {
    for (unsigned z = 0; z < blockDim.z; ++z)
        for (unsigned y = 0; y < blockDim.y; ++y)
            for (unsigned x = 0; x < blockDim.x; ++x) threadIdx = {x, y, z}, body();
}
#endif

template <auto Kernel> const char* kernel_name() { return __PRETTY_FUNCTION__; }
template <class T> const char* type_name() { return __PRETTY_FUNCTION__; }

class Grid {
    Launch launch;

public:
    Grid(const char* source, const char* file, int line, dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr)
        : launch{nullptr, nullptr, source, file, line, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z},
                 (int64_t)shared, 0, 0, nullptr, nullptr} {
        gridDim = grid, blockDim = block;
    }
    template <class F, class... A> void run(const char* kernel, const F& body, A... arguments) {
        void* addresses[] = {(void*)&arguments..., nullptr};
        int64_t written[] = {std::is_pointer_v<A> && !std::is_const_v<std::remove_pointer_t<A>>..., 0};
        std::string types;
        ((types += type_name<A>(), types += '\n'), ...);
        launch.kernel = kernel, launch.parameters = types.c_str(), launch.count = sizeof...(A);
        launch.arguments = addresses, launch.written = written;
        int64_t emulate = 0;
        checked(host->launch(&launch, &emulate));
        if (!emulate) return;
        dynamic_memory.assign(launch.shared / 8 + 1, 0);
        auto thread = [&] { body(arguments...); };
        int threads = (int)(launch.block[0] * launch.block[1] * launch.block[2]);
        for (unsigned z = 0; z < gridDim.z; ++z)
            for (unsigned y = 0; y < gridDim.y; ++y)
                for (unsigned x = 0; x < gridDim.x; ++x) blockIdx = {x, y, z}, run_block(threads, thread);
    }
};
}  // namespace tilegrad

#if defined(TILEGRAD_BARRIERS)
inline void __syncthreads() { tilegrad::meet(0, (int)tilegrad::fibers.done.size()); }
inline void __syncwarp(unsigned = ~0u) { tilegrad::meet(tilegrad::fibers.current / 32 * 32, 32); }
template <class T> T __shfl_sync(unsigned, T x, int lane, int = 32) { return tilegrad::shuffled(x, lane); }
template <class T> T __shfl_xor_sync(unsigned, T x, int bits, int = 32) {
    return tilegrad::shuffled(x, (tilegrad::fibers.current & 31) ^ bits);
}
template <class T> T __shfl_down_sync(unsigned, T x, int by, int = 32) {
    int lane = tilegrad::fibers.current & 31;
    return tilegrad::shuffled(x, lane + by < 32 ? lane + by : lane);
}
template <class T> T __shfl_up_sync(unsigned, T x, int by, int = 32) {
    int lane = tilegrad::fibers.current & 31;
    return tilegrad::shuffled(x, lane >= by ? lane - by : lane);
}
#endif
inline void __threadfence() {}
inline void __threadfence_block() {}
template <class T> T __ldg(const T* p) { return *p; }
template <class T> T atomicAdd(T* p, T x) { T old = *p; *p += x; return old; }
template <class T> T atomicMax(T* p, T x) { T old = *p; if (x > old) *p = x; return old; }
template <class T> T atomicMin(T* p, T x) { T old = *p; if (x < old) *p = x; return old; }
template <class T> T atomicExch(T* p, T x) { T old = *p; *p = x; return old; }
template <class T> T atomicCAS(T* p, T expected, T x) { T old = *p; if (old == expected) *p = x; return old; }
template <class T, class U> std::common_type_t<T, U> max(T x, U y) { return x > y ? x : y; }
template <class T, class U> std::common_type_t<T, U> min(T x, U y) { return x < y ? x : y; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
using std::exp; using std::log; using std::sqrt; using std::tanh; using std::abs; using std::pow; using std::sin;
using std::cos; using std::floor; using std::ceil;
#define __expf(x) expf(x)
#define __logf(x) logf(x)
