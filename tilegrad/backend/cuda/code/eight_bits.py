"""8-bit floats in CUDA C++: converted by instructions from sm_89 on, in software before."""

EIGHT_BITS = """
// eight_bits: the magnitude of a float rounded to fewer digits; infinity follows the largest.
template <int digits, int bias> __device__ uint32 eight_bits(float x) {
    const int fewer = 23 - digits;
    uint32 size = __float_as_uint(x) & 0x7fffffff;
    if (size < uint32(128 - bias) << 23) {  // this sum has the digits that are left here
        const uint32 above = uint32(151 - digits - bias) << 23;
        return __float_as_uint(__uint_as_float(size) + __uint_as_float(above)) - above;
    }
    return (size + (1u << (fewer - 1)) - 1 + (size >> fewer & 1) - (uint32(127 - bias) << 23)) >> fewer;
}

// float8_e4m3, as_float8_e4m3: 4 bits of exponent, 3 digits, no infinities: saturates at 448.
struct float8_e4m3 { uint8 bits; };
template <> __device__ float8_e4m3 stored<float8_e4m3, float>(float x) {
#if __CUDA_ARCH__ >= 890
    uint16 two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(0.0f), "f"(x));
    return {uint8(two)};
#else
    uint32 size = x != x ? 0x7f : min(eight_bits<3, 7>(x), 0x7eu);
    return {uint8(size | (__float_as_uint(x) >> 24 & 0x80))};
#endif
}
__device__ float number(float8_e4m3 x) {
#if __CUDA_ARCH__ >= 890
    uint32 two;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(two) : "h"(uint16(x.bits)));
    return number(half{uint16(two)});
#else
    uint32 size = x.bits & 0x7f;
    float y = size == 0x7f ? not_a_number<float>() : __uint_as_float(size << 20) * __uint_as_float(247u << 23);
    return x.bits & 0x80 ? -y : y;
#endif
}
__device__ float as_float8_e4m3(float x) { return number(stored<float8_e4m3>(x)); }

// float8_e5m2, as_float8_e5m2: 5 bits of exponent, 2 digits: the upper half of a half.
struct float8_e5m2 { uint8 bits; };
template <> __device__ float8_e5m2 stored<float8_e5m2, float>(float x) {
    uint32 size = x != x ? 0x7f : min(eight_bits<2, 15>(x), 0x7cu);
    return {uint8(size | (__float_as_uint(x) >> 24 & 0x80))};
}
__device__ float number(float8_e5m2 x) { return number(half{uint16(x.bits << 8)}); }
__device__ float as_float8_e5m2(float x) { return number(stored<float8_e5m2>(x)); }
"""
