// What generated CUDA C++ finds where a host compiler compiles it: names of the language, and instructions by what they
// do. `host.cpp` has what is not known while compiling a kernel. Threads of a block are fibers of one thread.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define __device__ inline
#define __global__
#define __launch_bounds__(...)
#define __restrict__
#define __forceinline__
#define __align__(n)
#define __grid_constant__

struct Extents { int x, y, z; };
extern Extents threadIdx, blockIdx, gridDim, blockDim;
extern unsigned char* shared;

// --- fibers: each of these may let others run first ---------------------------------------------
void meet_block();
void consumer_barrier(int threads);
void meet_warp();
unsigned shuffled(unsigned x, int lane);

// --- barriers in shared memory --------------------------------------------------------------------
void barrier_start(unsigned barrier, int arrivals);
void barrier_expect(unsigned barrier, int bytes);
void barrier_arrive(unsigned barrier);
void barrier_wait(unsigned barrier, int phase);

// --- copies: late ones are done when somebody waits for them --------------------------------------
void copy_later(unsigned to, const void* from, int bytes);
void commit_copies();
void wait_copies(int left);
void copy_box(int rank, unsigned to, const void* map, int column, int line, int start, unsigned barrier);

// --- matrix units -------------------------------------------------------------------------------
enum Kind { F16, BF16, TF32, E4M3, E5M2, S8, U8 };
void matrices(unsigned (&r)[4], unsigned from, bool turned);
void warp_product(Kind kind, void* const (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
void fence_products();
void group_product(Kind kind, int columns, void* const* sums, const unsigned* registers, uint64_t x, uint64_t y,
                   bool more, bool x_turned, bool y_turned);
void commit_products();
void wait_products(int left);

// --- numbers --------------------------------------------------------------------------------------
template <class To, class From> static inline To bits_as(From x) { To y; memcpy(&y, &x, sizeof(y)); return y; }
static inline unsigned short as_f16(float x) { _Float16 y = x; return bits_as<unsigned short>(y); }
static inline float from_f16(unsigned short x) { return bits_as<_Float16>(x); }
static inline unsigned short as_bf16(float x) {
    unsigned bits = bits_as<unsigned>(x);
    return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static inline unsigned as_tf32(float x) {
    unsigned bits = bits_as<unsigned>(x);
    return x - x != 0 ? bits : (bits + 0x1000) & ~0x1fffu;
}
float from_e4m3(unsigned bits);
float from_e5m2(unsigned bits);
static inline float max_of(float x, float y) { return x != x || y != y ? NAN : x > y ? x : y; }
static inline float min_of(float x, float y) { return x != x || y != y ? NAN : x < y ? x : y; }

// --- functions of CUDA ------------------------------------------------------------------------------
static inline void __syncthreads() { meet_block(); }
static inline void __syncwarp(unsigned = 0) { meet_warp(); }
static inline void __threadfence() {}
static inline unsigned __shfl_sync(unsigned, unsigned x, int lane) { return shuffled(x, lane & 31); }
static inline unsigned __shfl_xor_sync(unsigned, unsigned x, int bits) { return shuffled(x, threadIdx.x % 32 ^ bits); }
static inline int min(int x, int y) { return x < y ? x : y; }
static inline int max(int x, int y) { return x > y ? x : y; }
static inline float __int_as_float(int x) { return bits_as<float>(x); }
static inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
static inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
template <class T> static T atomicAdd(T* p, T x) { T old = *p; *p += x; return old; }
template <class T> static T atomicCAS(T* p, T x, T y) { T old = *p; if (old == x) *p = y; return old; }
static inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned long long)x * y >> 32; }
template <class T, class F> static T saturated(F x) {
    const F least = (F)(T)((T)-1 < 0 ? (T)1 << (8 * sizeof(T) - 1) : 0);
    const F above = (T)-1 < 0 ? -least : ldexp(1.0, 8 * sizeof(T));
    if (x != x) return 0;
    return x < least ? (T)least : x >= above ? (T)~(T)least : (T)x;
}
static inline int __float2int_rz(float x) { return saturated<int>(x); }
static inline long long __float2ll_rz(float x) { return saturated<long long>(x); }
static inline unsigned long long __float2ull_rz(float x) { return saturated<unsigned long long>(x); }
static inline int __double2int_rz(double x) { return saturated<int>(x); }
static inline long long __double2ll_rz(double x) { return saturated<long long>(x); }
static inline unsigned long long __double2ull_rz(double x) { return saturated<unsigned long long>(x); }
#define __expf expf
static inline float __fdividef(float x, float y) { return x / y; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline unsigned __cvta_generic_to_shared(const void* p) { return (const unsigned char*)p - shared; }

// --- running a grid -----------------------------------------------------------------------------------
struct Grid {
    int blocks, threads, shared;
    int reversed;  // whether the last thread runs first
    int late;      // whether what is asynchronous is done as late as it may be
};
// 0, or what went wrong in `problem()`.
extern "C" int run_grid(const Grid* grid, void (*kernel)(void**), void** arguments);
extern "C" const char* problem();
