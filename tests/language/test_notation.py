"""Triton's notation beyond the core: all of these kernels run after changing the import."""

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
from tests.language.kernel_texts import made
from tilegrad.backend.cuda import nvrtc
from tilegrad.language import TensorDescriptor, libdevice
from tilegrad.language.extra import libdevice as named_so_too

X = np.random.default_rng(7).standard_normal(8).astype(np.float32)
WHOLE = np.array([-(2**31), -7, -1, 0, 1, 6, 255, 2**31 - 1], np.int32)


@tg.kernel
def scores(total, q, k_window, v_window, steps, rows, columns: tl.constexpr, B: tl.constexpr):
    """`columns` is a tile, though it is marked as a constant: so it stands in a much-read tutorial."""
    for start in tl.range(0, steps, B, num_stages=2, warp_specialize=False):
        start = tl.multiple_of(start, B)
        seen = rows[:, None] >= start + columns[None, :]  # type: ignore[index]
        p = tl.where(seen, tl.dot(q, tl.load(k_window)), 0.0)
        total = tl.dot(p, tl.load(v_window), total)
        k_window = tl.advance(k_window, (0, B))
        v_window = tl.advance(v_window, (B, 0))
    return total


@tg.kernel
def linear_attention(Q, K, V, out, N, D: tl.constexpr, B: tl.constexpr):
    at = tl.program_id(0) * B
    order: tl.constexpr = (0, 1) if V.dtype.element_ty == tl.float8e5 else (1, 0)
    q = tl.load(tl.make_block_ptr(Q, (N, D), (D, 1), (at, 0), (B, D), (1, 0)))
    k = tl.make_block_ptr(base=K, shape=(D, N), strides=(1, D), offsets=(0, 0), block_shape=(D, B), order=(0, 1))
    v = tl.make_block_ptr(base=V, shape=(N, D), strides=(D, 1), offsets=(0, 0), block_shape=(B, D), order=order)
    total = tl.zeros([B, D], tl.float32)
    total = scores(total, q, k, v, at + B, at + tl.arange(0, B), tl.arange(0, B), B)
    place = tl.make_block_ptr(out, (N, D), (D, 1), (at, 0), (B, D), (1, 0))
    tl.store(place, total.to(out.type.element_ty))


def test_attention_with_block_pointers() -> None:
    q, k, v = (tg.randn(64, 16) for _ in range(3))
    out = tg.empty(64, 16)
    linear_attention[(4, 1, 1)](q, k, v, out, 64, D=16, B=16, num_warps=4)
    assert tg.allclose(out, tg.tril(q @ k.T) @ v, atol=1e-3)


@tg.kernel
def grouped(a_at, b_at, c_at, sizes, count, BLOCK: tl.constexpr):
    turn = tl.program_id(0)
    end = 0
    for g in range(count):
        M, N, K = tl.load(sizes + g * 3), tl.load(sizes + g * 3 + 1), tl.load(sizes + g * 3 + 2)
        blocks = tl.cdiv(M, BLOCK) * tl.cdiv(N, BLOCK)
        while turn >= end and turn < end + blocks:
            a = tl.load(a_at + g).to(tl.pointer_type(tl.float16))
            b = tl.load(b_at + g).to(tl.pointer_type(tl.float16))
            c = tl.load(c_at + g).to(tl.pointer_type(tl.float16))
            rows = (turn - end) // tl.cdiv(N, BLOCK) * BLOCK + tl.arange(0, BLOCK)
            columns = (turn - end) % tl.cdiv(N, BLOCK) * BLOCK + tl.arange(0, BLOCK)
            k = tl.arange(0, BLOCK)
            total = tl.zeros((BLOCK, BLOCK), tl.float32)
            for start in range(0, K, BLOCK):
                left = tl.load(a + rows[:, None] * K + (start + k)[None, :])
                total += tl.dot(left, tl.load(b + (start + k)[:, None] * N + columns[None, :]))
            tl.store(c + rows[:, None] * N + columns[None, :], total.to(tl.float16))
            turn += tl.num_programs(0)
        end = end + blocks


def test_grouped_products_through_addresses() -> None:
    shapes = [(32, 16, 48), (16, 16, 16), (64, 32, 16)]
    a = [tg.randn(m, k).half() for m, _, k in shapes]
    b = [tg.randn(k, n).half() for _, n, k in shapes]
    c = [tg.empty(m, n, dtype=tg.float16) for m, n, _ in shapes]
    addresses = [tg.tensor([x.data_ptr() for x in group], dtype=tg.int64) for group in (a, b, c)]
    sizes = tg.tensor([n for shape in shapes for n in shape], dtype=tg.int32)
    grouped[(3,)](*addresses, sizes, len(shapes), BLOCK=16)
    for x, y, z in zip(a, b, c, strict=True):
        assert tg.allclose(z.float(), x.float() @ y.float(), atol=0.05)
    assert grouped.report().programs == 3
    assert "memory" in grouped.source("cuda")
    with pytest.raises(tg.errors.KernelLaunchError, match="in `check` it must be known which tensors"):
        grouped.check[(3,)](*addresses, sizes, len(shapes), BLOCK=16)
    with pytest.raises(tg.errors.KernelLaunchError, match="within jit, vmap and operators it must be known"):
        tg.jit(lambda *x: grouped[(3,)](*x, len(shapes), BLOCK=16))(*addresses, sizes)


@tg.kernel
def doubled(source, target, B: tl.constexpr):
    at = tl.program_id(0) * B
    target.store([at, 0], source.load([at, 0]) * 2)


def test_descriptors_made_outside() -> None:
    x, out = tg.randn(20, 6), tg.zeros(20, 6)
    for run in (doubled, doubled.check, tg.autotune([tg.Config({"B": 8})], key=[])(doubled)):
        fixed = {} if run.__class__.__name__ == "Autotuned" else {"B": 8}
        out.zero_()
        run[(3,)](TensorDescriptor(x, x.shape, x.stride(), [8, 8]), TensorDescriptor.from_tensor(out, [8, 8]), **fixed)
        assert tg.equal(out, x * 2)
    assert doubled.report(measure=True).seconds
    jitted = tg.jit(lambda x: _doubled(x))
    assert tg.equal(jitted(x), x * 2)
    with pytest.raises(tg.errors.KernelLaunchError, match="one entry for each axis"):
        TensorDescriptor(x, [20], x.stride(), [8, 8])


def _doubled(x: tg.Tensor) -> tg.Tensor:
    out = tg.empty(20, 6)
    doubled[(3,)](TensorDescriptor.from_tensor(x, [8, 8]), TensorDescriptor.from_tensor(out, [8, 8]), B=8)
    return out


def test_tuples_of_tensors() -> None:
    k = made("i = tl.arange(0, 4)\ntl.store(all[1][0] + i, tl.load(all[0] + i) * all[2] + len(all))", "all")
    x, y = tg.arange(4).float(), tg.zeros(4)
    for run in (k, k.check, k.race):
        run[(1,)]((x, (y, None), 2.5))
        assert y.tolist() == [3.0, 5.5, 8.0, 10.5]
    k[(1,)]((y, (y, None), 0))
    assert y.tolist() == [3.0] * 4


FUNCTIONS = {
    "hypot(x, x + 1)": lambda x: np.hypot(x, x + 1),
    "hypot(x * 0, x * 0)": lambda x: x * 0,
    "rhypot(x, 2.0 * x)": lambda x: 1 / np.hypot(x, 2 * x),
    "cbrt(x)": np.cbrt,
    "rcbrt(x)": lambda x: 1 / np.cbrt(x),
    "exp10(x)": lambda x: 10.0**x,
    "sinpi(x)": lambda x: np.sin(np.pi * x),
    "cospi(x)": lambda x: np.cos(np.pi * x),
    "normcdf(x)": lambda x: np.array([0.5 * (1 + __import__("math").erf(v / 2**0.5)) for v in x]),
    "fmax(x, tl.where(x > 0, float('nan'), 0.0))": lambda x: np.maximum(x, 0),
    "fmin(x, tl.where(x < 0, float('nan'), 0.0))": lambda x: np.minimum(x, 0),
    "fdim(x, 0.25)": lambda x: np.maximum(x - 0.25, 0),
    "remainder(x, 0.75)": lambda x: x - 0.75 * np.rint(x / 0.75),
    "saturatef(x)": lambda x: np.clip(x, 0, 1),
    "signbit(-x * 0.0)": lambda x: np.signbit(-x * 0).astype(int),
    "isfinited(x / 0.0)": lambda x: x * 0,
    "fast_expf(x)": np.exp,
    "fast_dividef(x, x + 9)": lambda x: x / (x + 9),
    "llrint(x)": np.rint,
    "popc(n)": lambda n: np.array([bin(v & 0xFFFFFFFF).count("1") for v in n.tolist()]),
    "clz(n)": lambda n: np.array([32 - (v & 0xFFFFFFFF).bit_length() for v in n.tolist()]),
    "ffs(n)": lambda n: np.array([(v & -v).bit_length() for v in n.tolist()]),
    "brev(n)": lambda n: np.uint32([int(f"{v & 0xFFFFFFFF:032b}"[::-1], 2) for v in n.tolist()]).view(np.int32),
    "mulhi(n, n + 1)": lambda n: (n.astype(np.int64) * (n + 1)) >> 32,
}  # fmt: skip


def test_functions_of_libdevice() -> None:
    assert libdevice is named_so_too
    lines = [f"tl.store(out + {8 * k} + i, tl.libdevice.{text})" for k, text in enumerate(FUNCTIONS)]
    k = made("i = tl.arange(0, 8)\nx, n = tl.load(x + i), tl.load(n + i)\n" + "\n".join(lines), "x, n, out")
    out = tg.zeros(len(FUNCTIONS), 8, dtype=tg.float64)
    k[(1,)](tg.tensor(X), tg.tensor(WHOLE), out)
    with np.errstate(all="ignore"):
        for text, row in zip(FUNCTIONS, out.numpy(), strict=True):
            expected = FUNCTIONS[text](WHOLE if "n" in text.split("(")[1] and "x" not in text.split("(")[1] else X)
            np.testing.assert_allclose(row, expected.astype(np.float64), 2e-6, 2e-7, err_msg=text)


def test_the_largest_elements() -> None:
    k = made("i, j = tl.arange(0, 4), tl.arange(0, 2)\nx = tl.load(x + i[:, None] * 8 + tl.arange(0, 8)[None, :])\n"
             "tl.store(out + i[:, None] * 2 + j[None, :], tl.topk(x, 2))", "x, out")  # fmt: skip
    x, out = tg.randn(4, 8), tg.zeros(4, 2)
    k[(1,)](x, out)
    assert tg.equal(out, tg.topk(x, 2)[0])


@pytest.mark.parametrize("dtype", [tg.float32, tg.float16, tg.int8], ids=str)
def test_several_products_at_once(dtype: tg.DType) -> None:
    k = made(
        """b, i, j = tl.arange(0, 3)[:, None, None], tl.arange(0, 4)[None, :, None], tl.arange(0, 4)[None, None, :]
x = tl.load(x + b * 16 + i * 4 + j)
y = tl.dot(x, tl.permute(x, (0, 2, 1)))
tl.store(out + b * 16 + i * 4 + j, tl.dot(x, x, acc=y))""",
        "x, out",
    )
    x = (tg.randn(3, 4, 4) * 3).to(dtype)
    out = tg.zeros(3, 4, 4)
    k[(1,)](x, out)
    wide = x.double()
    assert tg.allclose(out.double(), wide @ wide.transpose(1, 2) + wide @ wide, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("seed", [0, 7, 2**40 + 3, -5])
def test_seeds_that_are_constants(seed: int) -> None:
    outs = []
    for mark in ("", ": tl.constexpr"):
        k = made("i = tl.arange(0, 16)\ntl.store(out + i, tl.rand(seed, i))", f"out, seed{mark}")
        out = tg.zeros(16)
        k[(1,)](out, seed)
        outs.append(out.tolist())
    assert outs[0] == outs[1]
    assert len(set(outs[0])) == 16


def test_a_kernel_that_is_compiled_first() -> None:
    k = made("tl.store(out, tl.load(x) + n)", "x: tl.const, out, n")
    x, out = tg.ones(1), tg.zeros(1)
    compiled = k.warmup(x, out, 3, grid=(1,), num_warps=8)
    compiled[(1, 1, 1)](x, out, 3)
    assert out.item() == 4


def test_views_of_what_is_not_computed_yet() -> None:
    """Within `Function.forward`, where no gradients are wanted, of a tensor that has them."""
    k = made("i = tl.arange(0, 8)\ntl.store(out + i, tl.load(x + i))", "x, out")
    x = (tg.arange(8).float() + 1).requires_grad_()
    out = tg.zeros(8)
    with tg.no_grad():
        k[(1,)]((x * 2).reshape(2, 4), out)
    assert out.tolist() == [2.0 * n for n in range(1, 9)]
    with tg.no_grad():
        k[(1,)](x.reshape(2, 4), out)
    assert out.tolist() == x.tolist()


def test_pointers_that_move_are_those_of_cuda_too() -> None:
    """A tile of pointers that a loop moves by a number that is computed, read by two loops, and one that is written."""
    k = made(
        """i, d = tl.arange(0, 16), tl.arange(0, 32)
x += tl.program_id(0) * 16 * s
p = x + i[None, :] * s + d[:, None]
q = out + i[None, :] * 32 + d[:, None]
total = tl.zeros((32, 16), tl.float32)
for _ in range(steps // 2):
    total += tl.load(p)
    p += 16 * s
n = steps // 2
for _ in range(n, steps):
    tl.store(q, total + tl.load(p))
    p += 16 * s
    q += 16 * s""",
        "x, out, s, steps",
    )
    x, out = tg.randn(64, 32), tg.zeros(32, 32)
    for run in (k, k.check):
        run[(1,)](x, out, 32, 3)
    assert tg.allclose(out, tg.cat([x[:16] + x[16:32], x[:16] + x[32:48]]), atol=1e-6)
    if nvrtc.is_available():
        assert "ld.global" in k.asm("ptx")
