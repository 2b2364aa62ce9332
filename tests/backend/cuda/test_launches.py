"""Repeated launches of users' kernels on a simulated GPU."""

import pytest

import tilegrad as tg
import tilegrad.language as tl
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.language.kernel import KernelFunction


@tl.kernel
def scaled(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * factor, mask=i < n)


def test_a_repeated_launch(gpu: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    x = (tg.arange(20).float() + 1).to(gpu.name)
    out = tg.empty(20, device=gpu.name)
    for factor in (2.0, 3.0):
        scaled[(2,)](x, out, 20, factor, BLOCK=16)
        assert out.tolist() == [factor * (n + 1) for n in range(20)]
    monkeypatch.delattr(KernelFunction, "launch_anew")
    for factor in (4.0, 5.0):
        scaled[(2,)](x, out, 20, factor, BLOCK=16)
        assert out.tolist() == [factor * (n + 1) for n in range(20)]
    assert out._version == 4
