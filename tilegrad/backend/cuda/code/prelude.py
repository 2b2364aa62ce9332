"""Device functions that generated kernels call; a source includes those that it uses.

No headers are needed: only types and functions built into NVRTC, and inline PTX where there is no function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .checked_indices import CHECKED_INDICES
from .eight_bits import EIGHT_BITS

_SNIPPETS = """
typedef signed char int8;
typedef unsigned char uint8;
typedef short int16;
typedef unsigned short uint16;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;

// half, bfloat16: 16-bit floats in memory; computed with as float.
struct half { uint16 bits; };
struct bfloat16 { uint16 bits; };

// infinity
template <class T> __device__ T infinity() { return T(__int_as_float(0x7f800000)); }

// not_a_number
template <class T> __device__ T not_a_number() { return T(__int_as_float(0x7fffffff)); }

// same_bits: the bits of one type read as another.
template <class To, class From> __device__ To same_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "types of one size");
    To y;
    memcpy(&y, &x, sizeof(y));
    return y;
}

// stored: a number as its memory type.
template <class M, class T> __device__ M stored(T x) { return M(x); }
template <> __device__ half stored<half, float>(float x) {
    half y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}
template <> __device__ bfloat16 stored<bfloat16, float>(float x) {
    bfloat16 y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
    return y;
}

// number: an element of memory as the type it is computed in.
template <class M> __device__ M number(M x) { return x; }
__device__ float number(half x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ float number(bfloat16 x) { return __uint_as_float(uint32(x.bits) << 16); }

// as_half, as_bfloat16: the nearest number of that type.
__device__ float as_half(float x) { return number(stored<half>(x)); }
__device__ float as_bfloat16(float x) {
    uint32 both;  // two numbers are rounded in a quarter of the time of one: this one, and a zero below it
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(x), "f"(0.0f));
    return __uint_as_float(both);
}

// whole: a float as an integer, saturating; NaN becomes 0.
template <class T, class F> __device__ T whole(F x);
template <> __device__ int whole<int, float>(float x) { return __float2int_rz(x); }
template <> __device__ int64 whole<int64, float>(float x) { return x != x ? 0 : __float2ll_rz(x); }
template <> __device__ uint64 whole<uint64, float>(float x) { return x != x ? 0 : __float2ull_rz(x); }
template <> __device__ int whole<int, double>(double x) { return x != x ? 0 : __double2int_rz(x); }
template <> __device__ int64 whole<int64, double>(double x) { return x != x ? 0 : __double2ll_rz(x); }
template <> __device__ uint64 whole<uint64, double>(double x) { return x != x ? 0 : __double2ull_rz(x); }

// quotient, rest: of a non-negative number, by unsigned division.
__device__ int quotient(int x, uint32 n) { return int(uint32(x) / n); }
__device__ int64 quotient(int64 x, uint32 n) { return int64(uint64(x) / n); }
__device__ int rest(int x, uint32 n) { return int(uint32(x) % n); }
__device__ int64 rest(int64 x, uint32 n) { return int64(uint64(x) % n); }

// plus, minus, times: wrapping integer arithmetic.
__device__ int plus(int x, int y) { return int(uint32(x) + uint32(y)); }
__device__ int64 plus(int64 x, int64 y) { return int64(uint64(x) + uint64(y)); }
__device__ int minus(int x, int y) { return int(uint32(x) - uint32(y)); }
__device__ int64 minus(int64 x, int64 y) { return int64(uint64(x) - uint64(y)); }
__device__ int times(int x, int y) { return int(uint32(x) * uint32(y)); }
__device__ int64 times(int64 x, int64 y) { return int64(uint64(x) * uint64(y)); }

// absolute
template <class T> __device__ T absolute(T x) { return x < 0 ? T(-uint64(x)) : x; }

// is_nan, is_infinite
template <class T> __device__ bool is_nan(T x) { return x != x; }
__device__ bool is_infinite(float x) { return fabsf(x) == infinity<float>(); }
__device__ bool is_infinite(double x) { return fabs(x) == infinity<double>(); }

// maximum, minimum: propagate NaN.
template <class T> __device__ T maximum(T x, T y) { return x > y || x != x ? x : y; }
template <class T> __device__ T minimum(T x, T y) { return x < y || x != x ? x : y; }
__device__ float maximum(float x, float y) {
    float z;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}
__device__ float minimum(float x, float y) {
    float z;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
}

// quotient: truncated; 0 if the divisor is 0.
template <class T> __device__ T quotient(T x, T y) {
    if (y == 0) return 0;
    if (T(-1) < T(0) && y == T(-1)) return T(-uint64(x));
    return x / y;
}

// remainder_of: of truncated division.
template <class T> __device__ T remainder_of(T x, T y) {
    return y == 0 || (T(-1) < T(0) && y == T(-1)) ? T(0) : T(x % y);
}

// floor_divide: rounded down; of integers 0 where the divisor is 0.
template <class T> __device__ T floor_divide(T x, T y) {
    T q = quotient(x, y);
    return remainder_of(x, y) != 0 && (x < 0) != (y < 0) ? T(q - 1) : q;
}
__device__ float floor_divide(float x, float y) {
    if (y == 0.0f) return x / y;
    float rest = fmodf(x, y), q = (x - rest) / y;
    if (rest != 0.0f && (rest < 0.0f) != (y < 0.0f)) q -= 1.0f;
    if (q == 0.0f) return copysignf(0.0f, x / y);
    float down = floorf(q);
    return q - down > 0.5f ? down + 1.0f : down;
}
__device__ double floor_divide(double x, double y) {
    if (y == 0.0) return x / y;
    double rest = fmod(x, y), q = (x - rest) / y;
    if (rest != 0.0 && (rest < 0.0) != (y < 0.0)) q -= 1.0;
    if (q == 0.0) return copysign(0.0, x / y);
    double down = floor(q);
    return q - down > 0.5 ? down + 1.0 : down;
}

// modulo: has the sign of the divisor; integers modulo 0 are 0.
template <class T> __device__ T modulo(T x, T y) {
    T rest = remainder_of(x, y);
    return rest != 0 && (rest < 0) != (y < 0) ? T(rest + y) : rest;
}
__device__ float modulo(float x, float y) {
    float rest = fmodf(x, y);
    return rest == 0.0f ? copysignf(0.0f, y) : (rest < 0.0f) != (y < 0.0f) ? rest + y : rest;
}
__device__ double modulo(double x, double y) {
    double rest = fmod(x, y);
    return rest == 0.0 ? copysign(0.0, y) : (rest < 0.0) != (y < 0.0) ? rest + y : rest;
}

// power: of integers, wrapping; negative exponents truncate towards 0.
template <class T> __device__ T power(T x, T y) {
    if (y < 0) return x == 1 ? T(1) : T(-1) < T(0) && x == T(-1) ? (y & 1 ? T(-1) : T(1)) : T(0);
    uint64 result = 1, base = uint64(x);
    for (; y > 0; y >>= 1, base *= base)
        if (y & 1) result *= base;
    return T(result);
}

// shift_left, shift_right: shifts by the width or more give 0 or the sign.
template <class T> __device__ T shift_left(T x, T y) {
    return y >= 0 && y < T(8 * sizeof(T)) ? T(uint64(x) << y) : T(0);
}
template <class T> __device__ T shift_right(T x, T y) {
    bool inside = y >= 0 && y < T(8 * sizeof(T));
    if (T(-1) > T(0)) return inside ? T(x >> y) : T(0);
    return x >> (inside ? y : T(8 * sizeof(T) - 1));
}

// inverse_root
__device__ float inverse_root(float x) { return rsqrtf(x); }
__device__ double inverse_root(double x) { return rsqrt(x); }

// sigmoid, half_precision_sigmoid: the latter is accurate to 16-bit floats.
__device__ float sigmoid(float x) {
    float e = expf(-fabsf(x));
    return (x >= 0.0f ? 1.0f : e) / (1.0f + e);
}
__device__ float half_precision_sigmoid(float x) {
    float e = __expf(-fabsf(x));
    return __fdividef(x >= 0.0f ? 1.0f : e, 1.0f + e);
}
__device__ double sigmoid(double x) {
    double e = exp(-fabs(x));
    return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
}

// half_precision_tanh: accurate to the 8 bits of a bfloat16.
__device__ float half_precision_tanh(float x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// half_precision_erf: a polynomial with a relative error of at most 2^-14.8, constant beyond 3.
__device__ float half_precision_erf(float x) {
    const float y = x > 3.0f ? 3.0f : x < -3.0f ? -3.0f : x, t = y * y;
    float sum = 4.52114115e-08f;
    sum = fmaf(sum, t, -2.12038003e-06f);
    sum = fmaf(sum, t, 4.39140349e-05f);
    sum = fmaf(sum, t, -5.35805884e-04f);
    sum = fmaf(sum, t, 4.3589389e-03f);
    sum = fmaf(sum, t, -2.54564807e-02f);
    sum = fmaf(sum, t, 1.11625768e-01f);
    sum = fmaf(sum, t, -3.75704557e-01f);
    return fmaf(sum, t, 1.12835348f) * y;
}

// approximate_exp, approximate_erf: relative errors of some millionths; subnormal results are 0.
__device__ float approximate_exp(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.442695041f));
    return y;
}
__device__ float approximate_erf(float x) {
    const float y = fabsf(x);
    float t;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(0.3275911f, y, 1.0f)));
    float sum = fmaf(1.061405429f, t, -1.453152027f);
    sum = fmaf(sum, t, 1.421413741f);
    sum = fmaf(sum, t, -0.284496736f);
    sum = fmaf(sum, t, 0.254829592f);
    return copysignf(fmaf(-sum * t, approximate_exp(-y * y), 1.0f), x);
}

// Pack, piece: vectors of at most 16 bytes.
template <class M, int n> struct alignas(sizeof(M) * n) Pack { M x[n]; };
template <class M> __device__ constexpr int piece(int n) { return n * sizeof(M) > 16 ? 16 / sizeof(M) : n; }

// read: contiguous elements, aligned to their size (at most 16 bytes).
template <class T, class M, int n> __device__ void read(T (&x)[n], const M* from) {
    constexpr int k = piece<M>(n);
    for (int p = 0; p < n; p += k) {
        Pack<M, k> pack = *reinterpret_cast<const Pack<M, k>*>(from + p);
        for (int v = 0; v < k; ++v) x[p + v] = T(number(pack.x[v]));
    }
}

// prefetch_l2: prefetches memory to the L2 cache.
template <class M> __device__ void prefetch_l2(const M* p) { asm volatile("prefetch.global.L2 [%0];" :: "l"(p)); }

// subarray: consecutive elements of an array as an array.
template <int n, class T> __device__ T (&subarray(T* x))[n] { return *reinterpret_cast<T (*)[n]>(x); }

// write: contiguous elements, aligned to their size (at most 16 bytes).
template <class T, class M, int n> __device__ void write(M* to, const T (&x)[n]) {
    constexpr int k = piece<M>(n);
    for (int p = 0; p < n; p += k) {
        Pack<M, k> pack;
        for (int v = 0; v < k; ++v) pack.x[v] = stored<M>(x[p + v]);
        *reinterpret_cast<Pack<M, k>*>(to + p) = pack;
    }
}

// aligned: whether n elements can be accessed as vectors.
template <int n, class M> __device__ bool aligned(const M* p) {
    return reinterpret_cast<uint64>(p) % (sizeof(M) * piece<M>(n)) == 0;
}

// read_unaligned, write_unaligned: contiguous elements with any alignment.
template <class T, class M, int n> __device__ void read_unaligned(T (&x)[n], const M* from) {
    if (aligned<n>(from)) read(x, from);
    else for (int v = 0; v < n; ++v) x[v] = T(number(from[v]));
}
template <class T, class M, int n> __device__ void write_unaligned(M* to, const T (&x)[n]) {
    if (aligned<n>(to)) write(to, x);
    else for (int v = 0; v < n; ++v) to[v] = stored<M>(x[v]);
}

// all_of
template <int n> __device__ bool all_of(const bool (&mask)[n]) {
    bool all = true;
    for (int v = 0; v < n; ++v) all = all && mask[v];
    return all;
}

// read_masked, write_masked: contiguous elements whose mask is true; x keeps the others.
template <class T, class M, int n> __device__ void read_masked(T (&x)[n], const M* from, const bool (&mask)[n]) {
    if (all_of(mask) && aligned<n>(from)) return read(x, from);
    int first = -1;
    for (int v = n - 1; v >= 0; --v) first = mask[v] ? v : first;
    if (first < 0) return;
    M held[n];  // reads all elements, from valid addresses: keeps all loads in flight
    for (int v = 0; v < n; ++v) held[v] = from[mask[v] ? v : first];
    for (int v = 0; v < n; ++v) x[v] = mask[v] ? T(number(held[v])) : x[v];
}
template <class T, class M, int n> __device__ void write_masked(M* to, const T (&x)[n], const bool (&mask)[n]) {
    if (all_of(mask) && aligned<n>(to)) write(to, x);
    else for (int v = 0; v < n; ++v) if (mask[v]) to[v] = stored<M>(x[v]);
}

// fill: assigns one number to all elements.
template <class T, int n> __device__ void fill(T (&x)[n], T value) {
    for (int v = 0; v < n; ++v) x[v] = value;
}

// force_loads: completes loads to registers before anything that follows; the compiler would delay them.
template <class T> __device__ void force_loads(T&) {}
__device__ void force_loads(float& x) { asm volatile("" : "+f"(x) :: "memory"); }
__device__ void force_loads(int& x) { asm volatile("" : "+r"(x) :: "memory"); }
template <class T, int n> __device__ void force_loads(T (&x)[n]) {
    #pragma unroll
    for (int v = 0; v < n; ++v) force_loads(x[v]);
}

// exchanged: x of the lane whose number differs in these bits; from_lane: x of a lane.
template <class T> __device__ T from_lane(T x, int lane) {
    uint32 words[(sizeof(T) + 3) / 4] = {};
    memcpy(words, &x, sizeof(T));
    for (uint32& word : words) word = __shfl_sync(0xffffffff, word, lane);
    memcpy(&x, words, sizeof(T));
    return x;
}
template <class T> __device__ T exchanged(T x, int bits) {
    uint32 words[(sizeof(T) + 3) / 4] = {};
    memcpy(words, &x, sizeof(T));
    for (uint32& word : words) word = __shfl_xor_sync(0xffffffff, word, bits);
    memcpy(&x, words, sizeof(T));
    return x;
}

// Add, Multiply, Maximum, Minimum, And, Or, Xor, Replace: operations of reductions, scans and atomics.
struct Add {
    template <class T> static __device__ T of(T x, T y) { return x + y; }
    static __device__ int of(int x, int y) { return int(uint32(x) + uint32(y)); }
    static __device__ int64 of(int64 x, int64 y) { return int64(uint64(x) + uint64(y)); }
};
struct Multiply {
    template <class T> static __device__ T of(T x, T y) { return x * y; }
    static __device__ int of(int x, int y) { return int(uint32(x) * uint32(y)); }
    static __device__ int64 of(int64 x, int64 y) { return int64(uint64(x) * uint64(y)); }
};
struct Maximum { template <class T> static __device__ T of(T x, T y) { return maximum(x, y); } };
struct Minimum { template <class T> static __device__ T of(T x, T y) { return minimum(x, y); } };
struct And { template <class T> static __device__ T of(T x, T y) { return x & y; } };
struct Xor { template <class T> static __device__ T of(T x, T y) { return x ^ y; } };
struct Replace { template <class T> static __device__ T of(T x, T y) { return y; } };
struct Or { template <class T> static __device__ T of(T x, T y) { return x | y; } };

// Place: an element and its index; Greatest, Least: the first index of the extreme, or of the first NaN.
template <class T> struct Place { T value; int at; };
template <bool greatest> struct Extreme {
    // Whether an element beats an earlier one.
    template <class T> static __device__ bool beats(T x, T y) { return greatest ? x > y : x < y; }
    static __device__ bool beats(float x, float y) { return !(greatest ? x <= y : x >= y) && y == y; }
    static __device__ bool beats(double x, double y) { return !(greatest ? x <= y : x >= y) && y == y; }
    template <class T> static __device__ Place<T> of(Place<T> x, Place<T> y) {
        bool x_nan = x.value != x.value, y_nan = y.value != y.value;
        bool same = x_nan == y_nan && (x_nan || x.value == y.value);
        bool better = x_nan || y_nan ? x_nan : greatest ? x.value > y.value : x.value < y.value;
        return (same ? x.at < y.at : better) ? x : y;
    }
};
typedef Extreme<true> Greatest;
typedef Extreme<false> Least;

// swapped: compare and swap; returns the old bits.
__device__ uint16 swapped(uint16* p, uint16 x, uint16 y) { return atomicCAS(p, x, y); }
__device__ uint32 swapped(uint32* p, uint32 x, uint32 y) { return atomicCAS(p, x, y); }
__device__ uint64 swapped(uint64* p, uint64 x, uint64 y) { return atomicCAS(p, x, y); }
__device__ uint8 swapped(uint8* p, uint8 x, uint8 y) {
    uint32* word = reinterpret_cast<uint32*>(reinterpret_cast<uint64>(p) & ~3ull);
    int shift = 8 * (reinterpret_cast<uint64>(p) & 3);
    for (uint32 all = *reinterpret_cast<volatile uint32*>(word);;) {
        uint8 now = all >> shift;
        if (now != x) return now;
        uint32 before = atomicCAS(word, all, (all & ~(0xffu << shift)) | uint32(y) << shift);
        if (before == all) return now;
        all = before;
    }
}

// Bits: the unsigned integer of a size.
template <int bytes> struct Bits;
template <> struct Bits<1> { typedef uint8 type; };
template <> struct Bits<2> { typedef uint16 type; };
template <> struct Bits<4> { typedef uint32 type; };
template <> struct Bits<8> { typedef uint64 type; };

// compare_and_swap: returns the old element.
template <class M, class T> __device__ T compare_and_swap(M* p, T expected, T value) {
    typedef typename Bits<sizeof(M)>::type B;
    B x = same_bits<B>(stored<M>(expected)), y = same_bits<B>(stored<M>(value));
    return T(number(same_bits<M>(swapped(reinterpret_cast<B*>(p), x, y))));
}

// Atomic: updates an element; returns the old one.
template <class Fn> struct Atomic {
    template <class M, class T> static __device__ T of(M* p, T value) {
        typedef typename Bits<sizeof(M)>::type B;
        for (B now = *reinterpret_cast<volatile B*>(p);;) {
            T old = T(number(same_bits<M>(now)));
            B before = swapped(reinterpret_cast<B*>(p), now, same_bits<B>(stored<M>(Fn::of(old, value))));
            if (before == now) return old;
            now = before;
        }
    }
};
template <> struct Atomic<Add> {
    static __device__ int of(int* p, int value) { return atomicAdd(p, value); }
    static __device__ uint32 of(uint32* p, uint32 value) { return atomicAdd(p, value); }
    static __device__ uint64 of(uint64* p, uint64 value) { return atomicAdd(p, value); }
    static __device__ float of(float* p, float value) { return atomicAdd(p, value); }
    static __device__ double of(double* p, double value) { return atomicAdd(p, value); }
    static __device__ int64 of(int64* p, int64 value) {
        return int64(atomicAdd(reinterpret_cast<uint64*>(p), uint64(value)));
    }
    template <class M, class T> static __device__ T of(M* p, T value) {
        typedef typename Bits<sizeof(M)>::type B;
        for (B now = *reinterpret_cast<volatile B*>(p);;) {
            T old = T(number(same_bits<M>(now)));
            B before = swapped(reinterpret_cast<B*>(p), now, same_bits<B>(stored<M>(Add::of(old, value))));
            if (before == now) return old;
            now = before;
        }
    }
};

// over_lanes: combines the values of lanes that differ in a digit of `count` values.
template <class Fn, int stride, int count, class T> __device__ T over_lanes(T x) {
    for (int bits = stride; bits < stride * count; bits *= 2) x = Fn::of(x, exchanged(x, bits));
    return x;
}

// over_warps: combines `count` numbers `stride` apart in shared memory, in order.
template <class Fn, int stride, int count, class T> __device__ T over_warps(const T* parts) {
    T x = parts[0];
    for (int n = 1; n < count; ++n) x = Fn::of(x, parts[n * stride]);
    return x;
}

// scan_lanes: scans the lanes that differ in a digit.
template <class Fn, int stride, int count, class T> __device__ T scan_lanes(T x, int thread) {
    for (int n = 1; n < count; n *= 2) {
        T below = from_lane(x, thread - n * stride);
        if (thread / stride % count >= n) x = Fn::of(below, x);
    }
    return x;
}

// scan_warps: combines the first `done` of `count` numbers `stride` apart in shared memory with x.
template <class Fn, int stride, int count, class T> __device__ T scan_warps(T x, const T* parts, int done) {
    for (int n = 0; n < count; ++n) if (n < done) x = Fn::of(x, parts[n * stride]);
    return x;
}
"""


def _defined(snippet: str) -> list[str]:
    """Return the names that a snippet defines."""
    if snippet.startswith("typedef signed"):
        return re.findall(r"(\w+);", snippet)
    head = snippet.split("\n")[0]
    named = [part.split(":")[0] for part in head.split(";") if ":" in part] or [head]
    return [word for part in named for word in re.findall(r"\w+", part)]


SNIPPETS: tuple[tuple[tuple[str, ...], str], ...] = tuple(
    (tuple(_defined(text)), text) for text in (_SNIPPETS + EIGHT_BITS + CHECKED_INDICES).strip().split("\n\n")
)
NAMES = frozenset(name for names, _ in SNIPPETS for name in names)
"""Names that variables of a kernel must not have."""

_OWNER = {name: n for n, (names, _) in enumerate(SNIPPETS) for name in names}


def prelude(body: str, more: Iterable[str] = ()) -> str:
    """Return the functions that a text uses, with their dependencies.

    >>> [name in prelude("y = as_half(x);") for name in ("as_half", "stored", "number", "sigmoid")]
    [True, True, True, False]
    """
    found: set[int] = set()
    waiting = [body, *more]
    while waiting:
        for word in set(re.findall(r"[A-Za-z_]\w*", waiting.pop())):
            n = _OWNER.get(word)
            if n is not None and n not in found:
                found.add(n)
                waiting.append(SNIPPETS[n][1])
    return "\n\n".join(SNIPPETS[n][1] for n in sorted(found))
