// tilegrad.cuh: what kernels for NVIDIA GPUs find before their first line; no header of CUDA is needed.
//
//   tg::View<const float, 2> x    a dense tensor of two axes: x[i] (all elements in order), x(i, j), x.size(), x.size(1), x.data
//   tg::half, tg::bfloat16        numbers of 16 bits, which compute as float

#ifndef TILEGRAD_CUH
#define TILEGRAD_CUH

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;

namespace tg {

struct bfloat16 {
    uint16_t bits;
    bfloat16() = default;
    __device__ bfloat16(float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    __device__ operator float() const { return __uint_as_float(uint32_t(bits) << 16); }
};

struct half {
    uint16_t bits;
    half() = default;
    __device__ half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    __device__ operator float() const {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
    }
};

template <class T, int axes> struct View {
    T *data;
    int64_t shape[axes ? axes : 1];

    __device__ operator T *() const { return data; }
    __device__ int64_t size(int axis) const { return shape[axis < 0 ? axis + axes : axis]; }
    __device__ int64_t size() const {
        int64_t count = 1;
        for (int n = 0; n < axes; ++n) count *= shape[n];
        return count;
    }
    template <class I> __device__ T &operator[](I i) const { return data[i]; }
    template <class... I> __device__ T &operator()(I... indices) const {
        static_assert(sizeof...(indices) == axes, "an index for each axis");
        const int64_t all[] = {int64_t(indices)..., 0};
        int64_t offset = 0;
        for (int n = 0; n < axes; ++n) offset = offset * shape[n] + all[n];
        return data[offset];
    }
};

} // namespace tg

#endif
