"""Device functions for matrix products: tensor cores, asynchronous copies, and barriers.

An operand in shared memory consists of lines of 128 bytes. The pieces of 16 bytes of a line are swizzled (`piece ^ line
% 8`), so that reading a column of pieces has no bank conflicts. Lines run either along k (one line per row), or along
the rows (panels of a line's length, with one line per k). Tensor cores read both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dot_specialised_warps import SpecialisedProduct

SHARED_MEMORY = """\
__device__ __forceinline__ uint32 shared_address(const void* p) { return uint32(__cvta_generic_to_shared(p)); }
// The offset of a 16-byte piece in an operand.
__device__ __forceinline__ int swizzled_offset(int line, int piece) { return line * 128 + ((piece ^ (line & 7)) << 4); }
__device__ __forceinline__ uint32 piece_address(uint32 operand, int line, int piece) {
  return operand + swizzled_offset(line, piece);
}
"""

COPIES = """\
__device__ __forceinline__ void copy_16(uint32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_8(uint32 to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_4(uint32 to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most `left` of the last groups of copies are in flight.
template <int left> __device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" :: "n"(left) : "memory");
}
"""

FRAGMENTS = """\
__device__ __forceinline__ void read_fragments(uint32 (&r)[4], uint32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
__device__ __forceinline__ void read_transposed_fragments(uint32 (&r)[4], uint32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}
"""

NUMBERS = """\
__device__ __forceinline__ uint32 load_shared(uint32 from) {
  uint32 x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
  return x;
}
// Reads 32-bit fragments of an operand whose lines run along the rows: two pieces and two quarters of k.
template <bool left>
__device__ __forceinline__ void read_words(uint32 (&r)[4], uint32 operand, int line, int piece, int lane) {
  #pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int far = left ? n % 2 : n / 2, late = left ? n / 2 : n % 2;
    const uint32 address = piece_address(operand, line + lane % 4 + 4 * late, piece + lane / 16 + 2 * far);
    r[n] = load_shared(address + lane / 4 % 4 * 4);
  }
}
// Rounds to nearest: tensor cores would truncate.
__device__ __forceinline__ void round_to_tf32(uint32 (&r)[4]) {
  #pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float x = __uint_as_float(r[n]);
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r[n]) : "f"(x));
  }
}
"""

BARRIERS = """\
struct alignas(64) TensorMap { uint64 words[16]; };
__device__ __forceinline__ void init_barrier(uint32 barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals));
}
__device__ __forceinline__ void arrive(uint32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_and_expect(uint32 barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wait(uint32 barrier, int phase) {
  asm volatile("{\\n.reg .pred done;\\nagain:\\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\\n"
    "@done bra over;\\nbra again;\\nover:\\n}" :: "r"(barrier), "r"(phase) : "memory");
}
__device__ __forceinline__ void copy_box(uint32 to, const TensorMap& map, int column, int line, uint32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%0], [%1, {%2, %3}], [%4];"
    :: "r"(to), "l"(&map), "r"(column), "r"(line), "r"(barrier) : "memory");
}
"""

BOXES = """\
// A box of a matrix that begins 16 * start bytes behind its parameter.
__device__ __forceinline__ void copy_box(
  uint32 to, const TensorMap& map, int column, int line, int start, uint32 barrier
) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%0], [%1, {%2, %3, %4}], [%5];"
    :: "r"(to), "l"(&map), "r"(column), "r"(line), "r"(start), "r"(barrier) : "memory");
}
"""

WARPGROUP = """\
// Prefetches the descriptor that the first copy of a box needs.
__device__ __forceinline__ void prefetch_map(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}
// The descriptor of an operand for a warpgroup: distances of panels and of eight lines, in bytes.
__device__ __forceinline__ uint64 operand_descriptor(uint32 address, int panel, int lines) {
  return uint64((address & 0x3FFFF) >> 4) | uint64(panel >> 4) << 16 | uint64(lines >> 4) << 32 | uint64(1) << 62;
}
__device__ __forceinline__ void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int left> __device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(left) : "memory");
}
// Products write accumulators asynchronously: other uses must not be moved across this.
template <int m, int n> __device__ __forceinline__ void fence_registers(float (&sums)[m][n][2]) {
  #pragma unroll
  for (int i = 0; i < m; ++i)
    #pragma unroll
    for (int j = 0; j < n; ++j) asm volatile("" : "+f"(sums[i][j][0]), "+f"(sums[i][j][1]) :: "memory");
}
// Waits for all products. The assembler moves register-only instructions across an adjacent wait, but not a loop:
// this one has a single iteration, which it cannot know.
template <int m, int n> __device__ __forceinline__ void finish_products(float (&sums)[m][n][2]) {
  uint32 iteration = 0;
  #pragma unroll 1
  do wait_for_products<0>(); while (++iteration < gridDim.z);
  fence_registers(sums);
}
"""

EXCHANGE = """\
// Transposes words over four neighbouring lanes: from a word of each of four 16-byte pieces to one piece per lane.
__device__ __forceinline__ void exchange_lanes(uint32 (&words)[4]) {
  const bool odd = threadIdx.x & 1, far = threadIdx.x & 2;
  #pragma unroll
  for (int n = 0; n < 4; n += 2) {
    const uint32 other = __shfl_xor_sync(0xFFFFFFFF, odd ? words[n] : words[n + 1], 1);
    if (odd) words[n] = other; else words[n + 1] = other;
  }
  #pragma unroll
  for (int n = 0; n < 2; ++n) {
    const uint32 other = __shfl_xor_sync(0xFFFFFFFF, far ? words[n] : words[n + 2], 2);
    if (far) words[n] = other; else words[n + 2] = other;
  }
}
__device__ __forceinline__ void write_words(void* to, const uint32 (&words)[4]) {
  *reinterpret_cast<Pack<uint32, 4>*>(to) = *reinterpret_cast<const Pack<uint32, 4>*>(words);
}
"""

WARP_SPECIALISATION = """\
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// A barrier of the consumers.
__device__ __forceinline__ void consumer_barrier(int threads) {
  asm volatile("bar.sync 1, %0;" :: "r"(threads) : "memory");
}
"""

ALL = "".join((SHARED_MEMORY, COPIES, FRAGMENTS, NUMBERS, BARRIERS, BOXES, WARPGROUP, EXCHANGE, WARP_SPECIALISATION))
PTX_TYPES = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "int8": "s8",
    "uint8": "u8",
    "float32": "tf32",
}
"""PTX names of the dtypes of operands on tensor cores."""


def depth_of(dtype: str) -> int:
    """Return the elements of k in 32 bytes.

    >>> [depth_of(name) for name in ("float32", "bfloat16", "float8_e5m2", "uint8")]
    [8, 16, 32, 32]
    """
    return 8 if dtype == "float32" else 32 if "8" in dtype else 16


def fragments(dtype: str) -> str:
    """Return the functions that read operands of tensor cores."""
    return FRAGMENTS + NUMBERS if dtype == "float32" else FRAGMENTS


def warp_product(dtype: str) -> str:
    """Return `c += a @ b` by one warp, for 16 x 8 sums and 32 bytes of k (mma.sync)."""
    word, depth = PTX_TYPES[dtype], depth_of(dtype)
    kind, sums, held = ("int", "s32", "r") if "int" in dtype else ("float", "f32", "f")
    return f"""\
__device__ __forceinline__ void multiply({kind} (&c)[2], {kind} (&d)[2], const uint32 (&a)[4], uint32 b0, uint32 b1) {{
  asm("mma.sync.aligned.m16n8k{depth}.row.col.{sums}.{word}.{word}.{sums} "
    "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
    : "+{held}"(c[0]), "+{held}"(c[1]), "+{held}"(d[0]), "+{held}"(d[1])
    : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}}
"""


def warpgroup_helpers(dtype: str) -> str:
    """Return the helpers of warpgroup products; integers accumulate in integers."""
    return WARPGROUP.replace("float (&", "int (&").replace('"+f"', '"+r"') if "int" in dtype else WARPGROUP


def warpgroup_product(dtype: str, columns: int, transposed: tuple[bool, bool], swapped: bool = False) -> str:
    """Return `sums += x @ y` by one warpgroup, for 64 rows and 32 bytes of k (wgmma).

    An operand is transposed if its lines do not run along k; transposed 32-bit operands come from registers.
    """
    word, depth = PTX_TYPES[dtype], depth_of(dtype)
    kind, result, letter = ("int", "s32", "r") if "int" in dtype else ("float", "f32", "f")
    pairs = columns // 8
    names = ", ".join(f"%{n}" for n in range(4 * pairs))
    places = [(h, j, e) for j in range(pairs) for h in range(2) for e in range(2)]
    held = [
        f'"+{letter}"(sums[{j}][{h}][{e}])' if swapped else f'"+{letter}"(sums[{h}][{j}][{e}])' for h, j, e in places
    ]
    if dtype == "float32" and transposed[0]:
        return _product_from_registers(columns, held, swapped)
    lines = ",\n      ".join(", ".join(held[n : n + 8]) for n in range(0, len(held), 8))
    tail = "" if kind == "int" else ", 1, 1"  # scales of the operands, for floats only
    if depth == 16:
        tail += f", {int(transposed[0])}, {int(transposed[1])}"
    shape = f"[{pairs}][2][2]" if swapped else f"[2][{pairs}][2]"
    return f"""\
__device__ __forceinline__ void multiply({kind} (&sums){shape}, uint64 x, uint64 y) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{result}.{word}.{word} {{{names}}}, "
    "%{4 * pairs}, %{4 * pairs + 1}, 1{tail};"
    : {lines}
    : "l"(x), "l"(y));
}}
"""


def _product_from_registers(columns: int, held: list[str], swapped: bool) -> str:
    count = len(held)
    names = ", ".join(f"%{n}" for n in range(count))
    lines = ",\n      ".join(", ".join(held[n : n + 8]) for n in range(0, count, 8))
    shape = f"[{columns // 8}][2][2]" if swapped else f"[2][{columns // 8}][2]"
    return f"""\
__device__ __forceinline__ void multiply(float (&sums){shape}, const uint32 (&x)[4], uint64 y) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k8.f32.tf32.tf32 {{{names}}}, "
    "{{%{count}, %{count + 1}, %{count + 2}, %{count + 3}}}, %{count + 4}, 1, 1, 1;"
    : {lines}
    : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "l"(y));
}}
"""


def specialised_product(product: SpecialisedProduct) -> str:
    """Return a warpgroup step of depth 16 with the left operand in shared memory or registers; `more`: accumulate."""
    word, n = PTX_TYPES[product.dtype.name], product.tiling.n
    pairs = n // 8
    count = 4 * pairs
    held = [f'"+f"(sums[{h}][{j}][{e}])' for j in range(pairs) for h in range(2) for e in range(2)]
    lines = ",\n      ".join(", ".join(held[at : at + 8]) for at in range(0, count, 8))
    if isinstance(product.left, str):
        x, given, transposed = "const uint32 (&x)[4]", '"r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])', ""
        places = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
        last = count + 4
    else:
        x, given, transposed = "uint64 x", '"l"(x)', f", {int(product.left.transposed)}"
        places, last = f"%{count}", count + 1
    names = ", ".join(f"%{i}" for i in range(count))
    return f"""\
__device__ __forceinline__ void {product.function}(float (&sums)[2][{pairs}][2], {x}, uint64 y, int more) {{
  asm volatile("{{\\n.reg .pred more;\\nsetp.ne.b32 more, %{last + 1}, 0;\\n"
    "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{word}.{word} {{{names}}}, "
    "{places}, %{last}, more, 1, 1{transposed}, {int(product.right.transposed)};\\n}}"
    : {lines}
    : {given}, "l"(y), "r"(more));
}}
"""


def rounding_pairs(dtype: str) -> str:
    """Return the function that rounds two numbers into one register."""
    return f"""\
__device__ __forceinline__ uint32 packed_pair(float first, float second) {{
  uint32 both;
  asm("cvt.rn.{PTX_TYPES[dtype]}x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  return both;
}}
"""


PACK = """\
template <int steps> __device__ __forceinline__ void pack(uint32 (&to)[steps][4], float (&from)[2][2 * steps][2]) {
  #pragma unroll
  for (int step = 0; step < steps; ++step)
    #pragma unroll
    for (int n = 0; n < 4; ++n)
      to[step][n] = packed_pair(from[n % 2][2 * step + n / 2][0], from[n % 2][2 * step + n / 2][1]);
}
"""


def packing(dtype: str) -> str:
    """Return the functions that pack accumulators into left operands: rounded pairs in registers."""
    return rounding_pairs(dtype) + PACK
