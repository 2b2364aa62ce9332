"""The effects of launches on tensors, the choice of the kernel, and what a kernel reports afterwards."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
from tests.language.kernel_texts import made
from tests.language.test_tutorials import add
from tests.source import ROOT
from tilegrad.ir.tile_parser import parse
from tilegrad.language import Config, autotune, heuristics, kernel

FACTOR = 3


@kernel
def scaled(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


@kernel
def by_a_global(x, out):
    tl.store(out, tl.load(x) * FACTOR)


def test_what_was_recorded_before_sees_the_old_elements() -> None:
    x = tg.ones(100)
    later, detached, view = x + 1, x.detach().clone(), x.view(10, 10)
    for factor in (2.0, 3.0):
        scaled[(4,)](x, x, 100, factor, BLOCK=32)
    assert x.tolist() == [6.0] * 100
    assert later.tolist() == [2.0] * 100
    assert detached.tolist() == [1.0] * 100
    assert view[3, 4].item() == 6
    assert x._version == 2


def test_memory_of_ones_own_is_not_copied() -> None:
    x, out = tg.ones(400), tg.empty(400)  # what has few elements is computed at once
    scaled[(1,)](x, out, 400, 2.0, BLOCK=512)
    addresses = set()
    for _ in range(3):
        scaled[(1,)](x, out, 400, 2.0, BLOCK=512)
        addresses.add(out.data_ptr())
    assert len(addresses) == 1
    held = out.abs() + 1
    scaled[(1,)](x, out, 400, 3.0, BLOCK=512)
    assert out.data_ptr() not in addresses
    assert held.tolist() == [3.0] * 400


def test_a_detached_tensor_shares_the_write() -> None:
    x = tg.ones(10)
    shared = x.detach()
    scaled[(1,)](x, x, 10, 5.0, BLOCK=16)
    assert shared.tolist() == [5.0] * 10


def test_a_saved_value_that_a_kernel_changed_is_found_out() -> None:
    x = tg.ones(10, requires_grad=True)
    y = tg.ones(10)
    loss = (x * y).sum()
    scaled[(1,)](y, y, 10, 2.0, BLOCK=16)
    with pytest.raises(tg.errors.TilegradError, match="scaled"):
        loss.backward()


def test_lazy_arguments_are_computed_first() -> None:
    out = tg.empty(10)
    scaled[(1,)](tg.arange(10).float() * 2 + 1, out, 10, 1.0, BLOCK=16)
    assert (out + 1).tolist() == [2.0 * n + 2 for n in range(10)]


def test_views_are_written_where_they_are() -> None:
    whole = tg.zeros(6, 4)
    scaled[(1,)](tg.ones(4), whole[2], 4, 7.0, BLOCK=4)
    assert whole.sum(1).tolist() == [0, 0, 28, 0, 0, 0]
    k = made(
        "i, j = tl.arange(0, 4), tl.arange(0, 6)\n"
        "tl.store(out + i[:, None] * si + j[None, :] * sj, i[:, None] * 10 + j[None, :])",
        "out, si, sj",
    )
    turned = whole.t()
    k[(1,)](turned, turned.stride(0), turned.stride(1))
    assert turned.tolist() == [[10 * i + j for j in range(6)] for i in range(4)]


@pytest.mark.parametrize("dtype", [tg.float16, tg.bfloat16, tg.float64, tg.int8, tg.int64, tg.uint8])
def test_other_types(dtype: tg.DType) -> None:
    x = tg.arange(20).to(dtype)
    out = tg.empty(20, dtype=dtype)
    add[(2,)](x, x, out, 20, BLOCK=16)
    assert out.tolist() == (x + x).tolist()


def test_the_reference_device_runs_kernels() -> None:
    x, out = tg.ones(20, device="reference"), tg.empty(20, device="reference")
    add[(2,)](x, x, out, 20, BLOCK=16)
    assert out.tolist() == [2.0] * 20


def test_one_kernel_for_each_type_and_constant() -> None:
    k = made("tl.store(out + tl.arange(0, BLOCK) * stride, tl.load(x) + n)", "x, out, n, stride, BLOCK: tl.constexpr")
    x, out = tg.ones(8), tg.empty(16)
    for arguments in ((3, 1, 8), (4, 1, 8), (2**40, 1, 8), (3, 2, 8), (3, 1, 4), (1.5, 1, 8)):
        k[1](x, out, *arguments)
    assert len(k.known) == 5  # 3 and 4 have one
    assert "stride" not in str(k.ir)


def test_a_constant_from_outside_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    x, out = tg.ones(1), tg.empty(1)
    by_a_global[1](x, out)
    assert out.item() == 3
    monkeypatch.setitem(globals(), "FACTOR", 5)
    by_a_global[1](x, out)
    assert out.item() == 5


def test_grids() -> None:
    k = made("tl.atomic_add(out + tl.program_id(0) + 2 * tl.program_id(1) + 6 * tl.program_id(2), 1)", "out")
    out = tg.zeros(24, dtype=tg.int32)
    k[2, 3, 4](out)
    k[lambda meta: (2, 3, 4)](out)
    k[(2, 0)](out)
    assert out.tolist() == [2] * 24


def test_atomics_of_all_kinds() -> None:
    k = made(
        """i = tl.arange(0, 8)
tl.atomic_add(f, 0.5)
tl.atomic_max(f + 1 + i * 0, i.to(tl.float32), mask=i < 5)
tl.atomic_min(n + i * 0, i - 3)
tl.atomic_and(n + 1, 6)
tl.atomic_or(n + 2 + i * 0, i)
tl.atomic_xor(n + 3, 5)
old = tl.atomic_xchg(n + 4, 9)
tl.store(n + 5, old)
tl.atomic_cas(n + 6, 0, 7)
tl.atomic_cas(n + 6, 1, 8)""",
        "f, n",
    )
    f, n = tg.zeros(2), tg.tensor([0, 7, 0, 0, 4, 0, 0], dtype=tg.int32)
    for run in (k, k.check):
        run[(1,)](f, n)
    assert f.tolist() == [1.0, 4.0]
    assert n.tolist() == [-3, 6, 7, 0, 9, 9, 7]


def test_autotune_and_heuristics() -> None:
    seen: list[object] = []

    @autotune([Config({"BLOCK": 16}, num_warps=2), Config({"BLOCK": 64}, pre_hook=seen.append)], key=["n"])
    @heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
    @kernel
    def grown(x, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        if EVEN:
            tl.store(x + i, tl.load(x + i) + 1)
        else:
            tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)

    x = tg.zeros(100)
    for turn in (1, 2):
        grown[lambda meta: (-(-meta["n"] // meta["BLOCK"]),)](x, 100)
        assert x.tolist() == [float(turn)] * 100  # what was measured has been put back
    assert grown.best_config is not None
    assert grown.best_config.kwargs["BLOCK"] in (16, 64)
    assert len(grown.cache) == 1
    grown.check[lambda meta: (-(-meta["n"] // meta["BLOCK"]),)](x, 100)
    assert "grown" in str(grown.ir)
    with pytest.raises(tg.errors.KernelError, match="has no parameter `m`"):
        autotune([Config({"BLOCK": 1})], key=["m"])(grown.kernel)
    with pytest.raises(tg.errors.KernelLaunchError, match="is chosen by autotune"):
        grown[(1,)](x, 100, BLOCK=16)


def test_what_a_kernel_became() -> None:
    x, out = tg.ones(1000), tg.empty(1000)
    add[(8,)](x, x, out, 1000, BLOCK=128)
    assert str(add.ir).startswith("# test_tutorials.py:")
    assert "define void @add" in add.source("llvm")
    assert "ret" in add.asm()
    report = add.report()
    assert (report.programs, report.loaded, report.stored, report.operations) == (8, 8192, 4096, 1024)
    with pytest.raises(tg.errors.KernelError, match="'tile', 'llvm' or 'cuda'"):
        add.source("c")


def test_kernels_are_printed_as_they_are_read() -> None:
    """Kernels are printed in the notation of the tile language, which its parser reads back."""
    x, out = tg.ones(16), tg.empty(16)
    for body in (CONTROL, "tl.store(x, tl.reduce(tl.load(x + tl.arange(0, 5)), 0, better) if K < 0 else 0.0)"):
        k = made(body, "x, out, n, K: tl.constexpr")
        k[(1,)](x, out, 6, K=3)
        assert parse(str(k.ir)) == k.ir
        assert parse(str(k.latest().fast)) == k.latest().fast


def test_the_cuda_source_needs_no_gpu() -> None:
    x, out = tg.ones(100), tg.empty(100)
    add[(1,)](x, x, out, 100, BLOCK=128)
    assert "__global__" in add.source("cuda")


def test_print(capfd: pytest.CaptureFixture[str]) -> None:
    k = made("tl.static_print('reading', N)\nprint('x', tl.load(x + tl.arange(0, 2)))", "x, N: tl.constexpr")
    for run in (k, k.check):
        run[(2,)](tg.tensor([1.5, 2.5]), 7)
        gc.collect()
    __import__("ctypes").CDLL(None).fflush(None)
    printed = capfd.readouterr().out
    assert printed.count("reading 7") == 1
    for line in ("pid (0, 0, 0) idx (0) x: 1.5", "pid (1, 0, 0) idx (1) x: 2.5"):
        assert printed.count(line) == 2


CONTROL = """pid = tl.program_id(0)
if pid >= n:
    return
total, i = 0.0, 0
while i < pid:
    total += tl.load(x + i)
    i += 1
if pid % 2 == 0:
    y = total * 2
elif pid == 3:
    y = -total
else:
    y = total
for k in range(K, 0, -1):
    y += k
a, b = 1.0, 2.0
for _ in range(pid):
    a, b = b, a + b
z = tl.load(x + 1) if pid > 1 else 7.0
tl.store(out + pid, y + a + z)"""


def test_control_flow() -> None:
    k = made(CONTROL, "x, out, n, K: tl.constexpr")
    expected = []
    for pid in range(6):
        total = float(sum(range(pid)))
        y = total * 2 if pid % 2 == 0 else -total if pid == 3 else total
        a, b = 1.0, 2.0
        for _ in range(pid):
            a, b = b, a + b
        expected.append(y + 6 + a + (1.0 if pid > 1 else 7.0))
    for run in (k, k.check, k.race):
        out = tg.zeros(8)
        run[(8,)](tg.arange(8).float(), out, 6, K=3)
        assert out.tolist() == [*expected, 0.0, 0.0]


def test_block_pointers_and_descriptors() -> None:
    k = made(
        """p = tl.make_block_ptr(x, (M, N), (N, 1), (0, 0), (4, 8), (1, 0))
total = tl.zeros((4, 8), tl.float32)
for _ in range(tl.cdiv(N, 8)):
    total += tl.load(p, boundary_check=(0, 1), padding_option="zero")
    p = tl.advance(p, (0, 8))
q = tl.make_tensor_descriptor(out, shape=[M, 8], strides=[8, 1], block_shape=[4, 8])
q.store([0, 0], total + q.load([0, 0]) * 0)""",
        "x, out, M, N",
    )
    x = tg.randn(3, 20)
    padded = np.zeros((3, 24), np.float32)
    padded[:, :20] = x.numpy()
    for run in (k, k.check):
        out = tg.zeros(3, 8)
        run[(1,)](x, out, 3, 20)
        np.testing.assert_allclose(out.numpy(), padded.reshape(3, 3, 8).sum(1), 1e-6)


def test_a_script_as_for_triton(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import tilegrad as triton\nimport tilegrad.language as tl\nimport tilegrad as torch\n"
        "@triton.autotune(configs=[triton.Config({'B': 64}, num_warps=4)], key=['n'])\n"
        "@triton.jit\ndef k(x, n, B: tl.constexpr):\n    i = tl.program_id(0) * B + tl.arange(0, B)\n"
        "    tl.store(x + i, same(i), mask=i < n)\n@triton.jit\ndef same(i):\n    return i\n"
        "@triton.heuristics({'B': lambda given: 8})\n@triton.jit\ndef ones(x, B: tl.constexpr):\n"
        "    tl.store(x + tl.arange(0, B), 1.0)\n"
        "x = torch.zeros(100)\nk[lambda meta: (triton.cdiv(100, meta['B']),)](x, 100)\n"
        "print(int(x.sum().item()), triton.next_power_of_2(100))\n"
        "ones[(1,)](x)\nsame.warmup\nprint(int(x[:8].sum().item()), 'def k' in str(k.ir))\n"
    )
    found = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, str(script)], env=found, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["4950", "128", "8", "True"], done.stderr


@pytest.mark.checklist(124)
@pytest.mark.parametrize("tracing", [tg.jit, lambda f: lambda x: tg.vmap(f)(x[None])[0]], ids=["jit", "vmap"])
def test_autotune_while_a_function_is_traced(tracing: Any) -> None:
    """Candidates are measured on other tensors of the same types, views included; the user's tensors do not change."""

    @autotune([Config({"BLOCK": 16}), Config({"BLOCK": 64})], key=["n"])
    @kernel
    def shifted(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) + 1, mask=at < n)

    def fn(x: tg.Tensor) -> tg.Tensor:
        out = tg.empty(x.shape[0] - 2)
        n = x.shape[0] - 2
        shifted[lambda meta: (tg.cdiv(n, meta["BLOCK"]),)](x[2:], out, n)
        return out * 2

    traced = tracing(fn)
    for n in (5, 70):
        assert traced(tg.arange(n).float()).tolist() == [2.0 * (k + 3) for k in range(n - 2)]
    assert len(shifted.cache) == 2


def test_a_bare_kernel_has_no_gradient() -> None:
    """`grad` and its like refuse it, `backward` says why there is nothing to walk back."""

    def loss(x: tg.Tensor) -> tg.Tensor:
        out = tg.empty_like(x)
        scaled[(1,)](x * 2, out, 8, 2.0, BLOCK=8)
        return (out * x).sum()

    def apart(x: tg.Tensor) -> tg.Tensor:
        out = tg.empty_like(x)
        scaled[(1,)](x.detach(), out, 8, 2.0, BLOCK=8)
        return (out * x).sum()

    x = tg.ones(8)
    told = "kernel scaled reads `x`, which is differentiated by, and a kernel has no derivative: give it one with tileg"
    for call in (tg.grad(loss), tg.jit(tg.grad(loss)), tg.hessian(loss), lambda x: tg.vjp(loss, x)):
        with pytest.raises(tg.errors.GradientError, match=told):
            call(x)
    with pytest.raises(tg.errors.GradientError, match="jvp: kernel scaled reads"):
        tg.jvp(loss, (x,), (x,))
    assert tg.grad(apart)(x).tolist() == tg.jit(tg.grad(apart))(x).tolist() == [2.0] * 8
    weight, out = tg.ones(8, requires_grad=True), tg.empty(8)
    scaled[(1,)](weight, out, 8, 2.0, BLOCK=8)
    scaled[(1,)](weight, out, 8, 3.0, BLOCK=8)
    with pytest.raises(tg.errors.GradientError, match="was computed from what kernel scaled stored, and a kernel has"):
        (out + 1).sum().backward()
    assert tg.grad(lambda x: (x * out).sum())(x).tolist() == [3.0] * 8


def test_what_is_jitted_and_no_kernel() -> None:
    """Whoever asks whether a jitted function has something is answered, and a launch says what is wrong."""
    jitted: Any = tg.jit(lambda x: x + 1)
    assert not hasattr(jitted, "report")
    assert not hasattr(jitted, "nothing")
    with pytest.raises(tg.errors.KernelError, match="a kernel is a function defined by def, and not a lambda"):
        jitted[(1,)](tg.ones(3))
    assert jitted(tg.ones(3)).tolist() == [2.0] * 3
