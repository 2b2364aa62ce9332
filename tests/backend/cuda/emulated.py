"""Runs generated CUDA C++ without a GPU, if a C++ compiler is here: the threads of a block are fibers of one thread.

A fiber runs until it meets a barrier or a shuffle. In `reversed` order the last thread runs first: what depends on an
order that nobody promised, because a barrier is missing, comes out differently.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilegrad.backend.cuda.code.functions import MEMORY
from tilegrad.backend.cuda.code.lower import Source, lower
from tilegrad.ir.tile import Kernel

SHIM = r"""
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#define __device__ inline
#define __global__
#define __launch_bounds__(...)
#define __restrict__
#define __forceinline__
#define __align__(n)
struct Dim { int x; };
static thread_local Dim threadIdx, blockIdx;
static unsigned char* shared;

const int MOST = 1024, STACK = 65536;
static ucontext_t main_context, fibers[MOST];
static char* stacks[MOST];
static bool done[MOST];
static int block_size, waiting_at[MOST], current;
static unsigned exchange[MOST];

static void yield() { swapcontext(&fibers[current], &main_context); threadIdx.x = current; }

// Waits until the other threads of the group have come to their barrier of the same number.
static void meet(int first, int count) {
    int self = current, number = ++waiting_at[self];
    for (bool all = false; !all;) {
        yield();
        all = true;
        for (int t = first; t < first + count && t < block_size; ++t) all = all && (waiting_at[t] >= number || done[t]);
    }
}
static void __syncthreads() { meet(0, block_size); }
static unsigned __shfl_sync(unsigned, unsigned x, int lane) {
    int self = current, first = self / 32 * 32;
    exchange[self] = x;
    meet(first, 32);
    unsigned y = exchange[first + (lane & 31)];
    meet(first, 32);
    return y;
}
static unsigned __shfl_xor_sync(unsigned mask, unsigned x, int bits) {
    return __shfl_sync(mask, x, (current % 32) ^ bits);
}
static void (*body)(void**, int, int, int);
static void** given;
static int gx, gy, gz;
static void enter() { body(given, gx, gy, gz); done[current] = true; swapcontext(&fibers[current], &main_context); }

static void run_block(int threads, bool reversed) {
    block_size = threads;
    for (int t = 0; t < threads; ++t) {
        if (!stacks[t]) stacks[t] = (char*)malloc(STACK);
        getcontext(&fibers[t]);
        fibers[t].uc_stack.ss_sp = stacks[t];
        fibers[t].uc_stack.ss_size = STACK;
        fibers[t].uc_link = &main_context;
        makecontext(&fibers[t], enter, 0);
        done[t] = false;
        waiting_at[t] = 0;
    }
    for (int left = threads; left;) {
        left = 0;
        for (int n = 0; n < threads; ++n) {
            int t = reversed ? threads - 1 - n : n;
            if (done[t]) continue;
            current = threadIdx.x = t;
            swapcontext(&main_context, &fibers[t]);
            left += !done[t];
        }
    }
}

static int min(int x, int y) { return x < y ? x : y; }
static int max(int x, int y) { return x > y ? x : y; }
template <class To, class From> static To bits_as(From x) { To y; memcpy(&y, &x, sizeof(y)); return y; }
static float __int_as_float(int x) { return bits_as<float>(x); }
static float __uint_as_float(unsigned x) { return bits_as<float>(x); }
static unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
template <class T> static T atomicAdd(T* p, T x) { T old = *p; *p += x; return old; }
template <class T> static T atomicCAS(T* p, T x, T y) { T old = *p; if (old == x) *p = y; return old; }
static void __threadfence() {}
static unsigned __umulhi(unsigned x, unsigned y) { return (unsigned long long)x * y >> 32; }
template <class T, class F> static T saturated(F x) {
    const F least = (F)(T)((T)-1 < 0 ? (T)1 << (8 * sizeof(T) - 1) : 0);
    const F above = (T)-1 < 0 ? -least : ldexp(1.0, 8 * sizeof(T));
    if (x != x) return 0;
    return x < least ? (T)least : x >= above ? (T)~(T)least : (T)x;
}
static int __float2int_rz(float x) { return saturated<int>(x); }
static long long __float2ll_rz(float x) { return saturated<long long>(x); }
static unsigned long long __float2ull_rz(float x) { return saturated<unsigned long long>(x); }
static int __double2int_rz(double x) { return saturated<int>(x); }
static long long __double2ll_rz(double x) { return saturated<long long>(x); }
static unsigned long long __double2ull_rz(double x) { return saturated<unsigned long long>(x); }
#define __expf expf
static float __fdividef(float x, float y) { return x / y; }
static float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static double rsqrt(double x) { return 1.0 / sqrt(x); }
static unsigned short as_f16(float x) { _Float16 y = x; return bits_as<unsigned short>(y); }
static float from_f16(unsigned short x) { return bits_as<_Float16>(x); }
static unsigned short as_bf16(float x) {
    unsigned bits = bits_as<unsigned>(x);
    return x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static unsigned __cvta_generic_to_shared(const void* p) { return (const unsigned char*)p - shared; }
static void copied(unsigned to, const void* from, int bytes) { memcpy(shared + to, from, bytes); }

// Four 8 x 8 matrices of 16-bit elements, the addresses of whose rows the lanes have.
static void matrices(unsigned (&r)[4], unsigned from, bool turned) {
    int self = current, first = self / 32 * 32, lane = self % 32;
    exchange[self] = from;
    meet(first, 32);
    for (int i = 0; i < 4; ++i) {
        r[i] = 0;
        for (int e = 0; e < 2; ++e) {
            int row = turned ? lane % 4 * 2 + e : lane / 4, column = turned ? lane / 4 : lane % 4 * 2 + e;
            r[i] |= *(unsigned short*)(shared + exchange[first + 8 * i + row] + 2 * column) << 16 * e;
        }
    }
    meet(first, 32);
}
static float element_bf16(unsigned bits) { return bits_as<float>(bits << 16); }
static float element_tf32(unsigned bits) { return bits_as<float>(bits); }
static unsigned as_tf32(float x) {
    unsigned bits = bits_as<unsigned>(x);
    return x - x != 0 ? bits : (bits + 0x1000) & ~0x1fffu;
}
static float element_f16(unsigned bits) { return from_f16(bits); }
static int element_s8(unsigned bits) { return (signed char)bits; }
static int element_u8(unsigned bits) { return bits; }
static unsigned fragments[MOST][6];
// 16 x 8 sums of products of 32 bytes along k: elements of `bits` bits, each lane with its part of both operands.
template <int bits, class T, class E>
static void warp_product(T (&c)[2], T (&d)[2], const unsigned (&a)[4], unsigned b0, unsigned b1, E element) {
    int self = current, first = self / 32 * 32, lane = self % 32;
    unsigned own[6] = {a[0], a[1], a[2], a[3], b0, b1};
    memcpy(fragments[self], own, sizeof(own));
    meet(first, 32);
    const int per_word = 32 / bits;
    for (int h = 0; h < 2; ++h)
        for (int e = 0; e < 2; ++e) {
            T& sum = h ? d[e] : c[e];
            for (int k = 0; k < 8 * per_word; ++k) {
                int word = k / per_word, shift = k % per_word * bits;
                unsigned x = fragments[first + lane / 4 * 4 + word % 4][h + word / 4 * 2] >> shift;
                unsigned y = fragments[first + (lane % 4 * 2 + e) * 4 + word % 4][4 + word / 4] >> shift;
                unsigned mask = ~0u >> (32 - bits);
                sum += element(x & mask) * element(y & mask);
            }
        }
    meet(first, 32);
}
static float greatest(float x, float y) { return x != x || y != y ? NAN : x > y ? x : y; }
static float least(float x, float y) { return x != x || y != y ? NAN : x < y ? x : y; }
"""
ASM = {
    f'asm volatile("cp.async.{way}.shared.global [%0], [%1], {bytes};" :: "r"(to), "l"(from) : "memory");': (
        f"copied(to, from, {bytes});"
    )
    for way, bytes in (("cg", 16), ("ca", 8), ("ca", 4))
} | {
    'asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));': "y.bits = as_f16(x);",
    'asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));': "y.bits = as_bf16(x);",
    'asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(x), "f"(0.0f));': "both = unsigned(as_bf16(x)) << 16;",
    'asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));': "y = from_f16(x.bits);",
    'asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");': "x = *(uint32*)(shared + from);",
    'asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[n]) : "f"(x));': "r[n] = as_tf32(x);",
    'asm volatile("prefetch.global.L2 [%0];" :: "l"(p));': "",
    'asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));': "y = tanhf(x);",
    'asm volatile("cp.async.commit_group;" ::: "memory");': "",
    'asm volatile("" : "+f"(x) :: "memory");': "",
    'asm volatile("" : "+r"(x) :: "memory");': "",
    'asm volatile("cp.async.wait_group %0;" :: "n"(left) : "memory");': "",
    'asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));': "z = greatest(x, y);",
    'asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));': "z = least(x, y);",
}
"""PTX of the prelude, and what it does."""
WARPS = {
    r'asm volatile\("ldmatrix[^"]*x4\.shared.*?: "memory"\);': "matrices(r, from, false);",
    r'asm volatile\("ldmatrix[^"]*x4\.trans\.shared.*?: "memory"\);': "matrices(r, from, true);",
    r'asm\("mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.(\w+)\..*?"r"\(b1\)\);': (
        r"warp_product<16>(c, d, a, b0, b1, element_\1);"
    ),
    r'asm\("mma\.sync\.aligned\.m16n8k8\.row\.col\.f32\.tf32\..*?"r"\(b1\)\);': (
        r"warp_product<32>(c, d, a, b0, b1, element_tf32);"
    ),
    r'asm\("mma\.sync\.aligned\.m16n8k32\.row\.col\.s32\.(\w+)\..*?"r"\(b1\)\);': (
        r"warp_product<8>(c, d, a, b0, b1, element_\1);"
    ),
}
"""What a warp does together: PTX of products, and functions of the shim."""


def has_compiler() -> bool:
    return shutil.which("g++") is not None


def translated(source: Source, kernel: Kernel, number: int) -> str:
    """A kernel as C++ for the host, in a namespace of its own, with a function that runs a grid of it."""
    text = source.text
    for asm, plain in ASM.items():
        text = text.replace(asm, plain)
    for pattern, plain in WARPS.items():
        text = re.sub(pattern, plain, text, flags=re.DOTALL)
    text = text.replace("extern __shared__ __align__(1024) unsigned char shared[];", "").replace('extern "C" ', "")
    arguments = ", ".join([f"*({_type(p)}*)a[{n}]" for n, p in enumerate(kernel.parameters)] + ["gx", "gy", "gz"])
    return f"""
namespace k{number} {{
{text}
static void call(void** a, int gx, int gy, int gz) {{ {source.name}({arguments}); }}
}}
extern "C" void run_{number}(void** a, int x, int y, int z, int reversed) {{
    body = k{number}::call; given = a; gx = x; gy = y; gz = z;
    shared = (unsigned char*)aligned_alloc(1024, {-(-max(1, source.shared) // 1024) * 1024});
    for (int n = 0; n < x * y * z; ++n) {{
        memset(shared, 0xcd, {source.shared});
        blockIdx.x = n;
        run_block({source.threads}, reversed);
    }}
    free(shared);
}}
"""


def _type(p: Any) -> str:
    return f"{MEMORY[p.dtype.name]}{'*' if p.pointer else ''}"


class Emulated:
    """Some kernels, compiled together. Groups of four warps and the copy engine (sm_90a) are not emulated."""

    def __init__(self, kernels: Sequence[Kernel], architecture: str = "sm_70") -> None:
        self.kernels = list(kernels)
        self.sources = [lower(k, architecture) for k in kernels]
        text = SHIM + "".join(map(translated, self.sources, self.kernels, range(len(kernels))))
        folder = Path(tempfile.gettempdir()) / "tilegrad-emulated"
        folder.mkdir(exist_ok=True)
        stem = folder / hashlib.sha256(text.encode()).hexdigest()[:24]
        if not stem.with_suffix(".so").exists():
            stem.with_suffix(".cpp").write_text(text)
            command = [
                "g++",
                "-std=c++17",
                "-O1",
                "-w",
                "-fno-strict-aliasing",
                "-ffp-contract=off",
                "-fwrapv",
                "-shared",
                "-fPIC",
            ]
            made = subprocess.run([*command, "-o", f"{stem}.aside", f"{stem}.cpp"], capture_output=True, text=True)
            if made.returncode:
                raise AssertionError(made.stderr[:4000])
            Path(f"{stem}.aside").rename(stem.with_suffix(".so"))
        self.code = ctypes.CDLL(str(stem.with_suffix(".so")))

    def run(self, number: int, arguments: Sequence[Any], grid: Sequence[int], reversed: bool = False) -> None:
        """What is stored is then in the arrays among the arguments."""
        kernel = self.kernels[number]
        held, pointers = [], []
        for p, a in zip(kernel.parameters, arguments, strict=True):
            if p.pointer:
                cell: Any = ctypes.c_void_p(a.__array_interface__["data"][0])
            else:
                array = np.array(a).astype(p.dtype.numpy)
                cell = (ctypes.c_char * array.itemsize).from_buffer_copy(array.tobytes())
            held.append(cell)
            pointers.append(ctypes.addressof(cell))
        extents = (*grid, 1, 1)[:3]
        getattr(self.code, f"run_{number}")((ctypes.c_void_p * len(pointers))(*pointers), *extents, int(reversed))
