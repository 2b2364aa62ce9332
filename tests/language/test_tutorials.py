"""The kernels that everybody begins with, each against numpy: written as for Triton, with another import."""

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
from tilegrad.language import kernel


@kernel
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


@pytest.mark.parametrize("n", [0, 1, 127, 128, 1000])
def test_vector_add(n: int) -> None:
    x, y, out = tg.randn(n), tg.randn(n), tg.empty(n)
    add[lambda meta: (-(-n // meta["BLOCK"]),)](x, y, out, n, BLOCK=128, num_warps=4)
    np.testing.assert_array_equal(out.numpy(), x.numpy() + y.numpy())


@kernel
def softmax(out_ptr, in_ptr, in_stride, out_stride, rows, cols, BLOCK: tl.constexpr, num_stages: tl.constexpr):
    start, step = tl.program_id(0), tl.num_programs(0)
    for row in tl.range(start, rows, step, num_stages=num_stages):
        at = tl.arange(0, BLOCK)
        mask = at < cols
        x = tl.load(in_ptr + row * in_stride + at, mask=mask, other=-float("inf"))
        numerator = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_stride + at, numerator / tl.sum(numerator, axis=0), mask=mask)


def softmax_of(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_softmax() -> None:
    x = tg.randn(13, 781)
    out = tg.empty_like(x)
    softmax[(4,)](out, x, x.stride(0), out.stride(0), 13, 781, BLOCK=1024, num_stages=2)
    np.testing.assert_allclose(out.numpy(), softmax_of(x.numpy()), 1e-5, 1e-7)


@kernel
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@kernel
def matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    programs_m = tl.cdiv(M, BM)
    programs_n = tl.cdiv(N, BN)
    in_group = GROUP * programs_n
    first_m = pid // in_group * GROUP
    rows = min(programs_m - first_m, GROUP)
    pid_m = first_m + ((pid % in_group) % rows)
    pid_n = (pid % in_group) // rows
    tl.assume(pid_m >= 0)
    offs_am = (pid_m * BM + tl.arange(0, BM)) % M
    offs_bn = (pid_n * BN + tl.arange(0, BN)) % N
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        total = tl.dot(a, b, total)
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    if ACTIVATION == "leaky_relu":
        total = leaky_relu(total)
    c = total.to(c_ptr.dtype.element_ty)
    offs_cm = pid_m * BM + tl.arange(0, BM)
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@pytest.mark.defect(11)
@pytest.mark.checklist(124)
@pytest.mark.parametrize("dtype", [tg.float32, tg.float16])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("activation", ["", "leaky_relu"])
def test_matmul_in_groups(dtype: tg.DType, turned: bool, activation: str) -> None:
    """K is no multiple of the block, as in the defect of section 3, number 11."""
    M, N, K = 70, 50, 45
    a = tg.randn(M, K).to(dtype)
    b = tg.randn(N, K).to(dtype).t() if turned else tg.randn(K, N).to(dtype)
    c = tg.empty(M, N, dtype=dtype)
    grid = lambda meta: (-(-M // meta["BM"]) * -(-N // meta["BN"]),)  # noqa: E731
    strides = (a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1))
    launch = (a, b, c, M, N, K, *strides)
    matmul[grid](*launch, BM=32, BN=16, BK=16, GROUP=2, ACTIVATION=activation)
    expected = a.numpy().astype(np.float64) @ b.numpy().astype(np.float64)
    expected = np.where(expected >= 0, expected, 0.01 * expected) if activation else expected
    tolerance = 1e-2 if dtype is tg.float16 else 1e-4
    np.testing.assert_allclose(c.numpy(), expected, tolerance, tolerance)


@kernel
def grouped_order(out_ptr, size_m, size_n, GROUP: tl.constexpr):
    i, j = tl.swizzle2d(tl.program_id(0), tl.program_id(1), size_m, size_n, GROUP)
    tl.store(out_ptr + i * size_n + j, tl.program_id(0) * size_n + tl.program_id(1))


@pytest.mark.checklist(124)
def test_the_order_of_groups() -> None:
    out = tg.empty(5, 4, dtype=tg.int32)
    grouped_order[(5, 4)](out, 5, 4, GROUP=3)
    assert out.tolist() == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11], [12, 14, 16, 18], [13, 15, 17, 19]]


@kernel
def seeded_dropout(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


def test_dropout() -> None:
    x = tg.ones(5000)
    first, second, third = tg.empty(5000), tg.empty(5000), tg.empty(5000)
    for out, seed, block in ((first, 123, 512), (second, 123, 256), (third, 7, 512)):
        seeded_dropout[(-(-5000 // block),)](x, out, 5000, 0.25, seed, BLOCK=block)
    np.testing.assert_array_equal(first.numpy(), second.numpy())
    assert (first.numpy() != third.numpy()).any()
    assert abs((first.numpy() == 0).mean() - 0.25) < 0.03
    assert set(np.unique(first.numpy())) == {np.float32(0), np.float32(1 / 0.75)}


@kernel
def layer_norm(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    square = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        square += x * x
    rstd = 1 / tl.sqrt(tl.sum(square, axis=0) / N + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for off in range(0, N, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < N
        x_hat = (tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32) - mean) * rstd
        y = x_hat * tl.load(w_ptr + cols, mask=mask) + tl.load(b_ptr + cols, mask=mask)
        tl.store(y_ptr + cols, y, mask=mask)


@kernel
def layer_norm_dx(
    dx_ptr, dy_ptr, dw_ptr, db_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, lock_ptr, stride, N, GROUP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x_ptr += row * stride
    dy_ptr += row * stride
    dx_ptr += row * stride
    lock_id = row % GROUP
    lock_ptr += lock_id
    count_ptr = lock_ptr + GROUP
    dw_ptrs = dw_ptr + lock_id * N + cols
    db_ptrs = db_ptr + lock_id * N + cols
    x = tl.load(x_ptr + cols, mask=mask, other=0).to(tl.float32)
    dy = tl.load(dy_ptr + cols, mask=mask, other=0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    x_hat = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    w_dy = tl.where(mask, w * dy, 0.0)
    c1 = tl.sum(x_hat * w_dy, axis=0) / N
    c2 = tl.sum(w_dy, axis=0) / N
    tl.store(dx_ptr + cols, (w_dy - (x_hat * c1 + c2)) * rstd, mask=mask)
    partial_dw = (dy * x_hat).to(w.dtype)
    partial_db = dy.to(w.dtype)
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    count = tl.load(count_ptr)
    if count == 0:
        tl.atomic_xchg(count_ptr, 1)
    else:
        partial_dw += tl.load(dw_ptrs, mask=mask)
        partial_db += tl.load(db_ptrs, mask=mask)
    tl.store(dw_ptrs, partial_dw, mask=mask)
    tl.store(db_ptrs, partial_db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


def test_layer_norm_forwards_and_backwards() -> None:
    rows, N, group = 29, 97, 4
    x, w, b, dy = tg.randn(rows, N), tg.rand(N), tg.rand(N), tg.randn(rows, N)
    y, dx, mean, rstd = tg.empty_like(x), tg.empty_like(x), tg.empty(rows), tg.empty(rows)
    layer_norm[(rows,)](x, y, w, b, mean, rstd, x.stride(0), N, 1e-5, BLOCK=64)
    dw, db, locks = tg.zeros(group, N), tg.zeros(group, N), tg.zeros(2 * group, dtype=tg.int32)
    launch = (dx, dy, dw, db, x, w, mean, rstd, locks, x.stride(0), N)
    layer_norm_dx[(rows,)](*launch, GROUP=group, BLOCK=128)
    leaves = [t.clone().requires_grad_() for t in (x, w, b)]
    expected = tg.nn.functional.layer_norm(leaves[0], (N,), leaves[1], leaves[2])
    expected.backward(dy)
    np.testing.assert_allclose(y.numpy(), expected.detach().numpy(), 1e-4, 1e-4)
    for got, leaf in zip((dx, dw.sum(0), db.sum(0)), leaves, strict=True):
        np.testing.assert_allclose(got.numpy(), leaf.grad.numpy(), 1e-4, 1e-4)


@kernel
def attention_block(acc, l_i, m_i, q, k_ptrs, v_ptrs, start, row, scale, CAUSAL: tl.constexpr, BN: tl.constexpr):
    at = start + tl.arange(0, BN)
    k = tl.load(k_ptrs + start * q.shape[1])
    qk = tl.dot(q, tl.trans(k)) * scale
    if CAUSAL:
        qk = tl.where(row[:, None] >= at[None, :], qk, -1.0e6)
    m_new = tl.maximum(m_i, tl.max(qk, 1))
    p = tl.math.exp2(qk - m_new[:, None])
    alpha = tl.math.exp2(m_i - m_new)
    acc = acc * alpha[:, None]
    acc = tl.dot(p, tl.load(v_ptrs + start * q.shape[1]), acc)
    return acc, l_i * alpha + tl.sum(p, 1), m_new


@kernel
def attention(
    Q, K, V, Out, scale, heads_stride, N_CTX, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr
):  # fmt: skip
    start_m = tl.program_id(0)
    head = tl.program_id(1) * heads_stride
    row = start_m * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(Q + head + row[:, None] * D + d[None, :])
    inner = tl.arange(0, BN)[:, None] * D + d[None, :]
    m_i = tl.zeros([BM], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BM], dtype=tl.float32) + 1.0
    acc = tl.zeros([BM, D], dtype=tl.float32)
    last = (start_m + 1) * BM if CAUSAL else N_CTX
    for start in range(0, last, BN):
        start = tl.multiple_of(start, BN)
        acc, l_i, m_i = attention_block(
            acc, l_i, m_i, q, K + head + inner, V + head + inner, start, row, scale * 1.44269504, CAUSAL, BN
        )
    tl.store(Out + head + row[:, None] * D + d[None, :], acc / l_i[:, None])


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal: bool) -> None:
    heads, length, D = 3, 64, 16
    q, k, v = (tg.randn(heads, length, D) for _ in range(3))
    out = tg.empty_like(q)
    attention[(length // 16, heads)](q, k, v, out, D**-0.5, length * D, length, D=D, BM=16, BN=16, CAUSAL=causal)
    scores = q.numpy() @ k.numpy().swapaxes(1, 2) * D**-0.5
    scores = np.where(np.tri(length) > 0, scores, -np.inf) if causal else scores
    np.testing.assert_allclose(out.numpy(), softmax_of(scores) @ v.numpy(), 2e-3, 2e-3)
