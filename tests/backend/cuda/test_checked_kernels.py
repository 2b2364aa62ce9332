"""`check` and `race` of kernels on GPU tensors: they run on copies and restore what was stored."""

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.errors import KernelFault


@tg.kernel
def doubled(x, out, n: int, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2.0, mask=i < n)


@tg.kernel
def beyond(x, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i))


@tg.kernel
def last(out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    tl.store(out + tl.arange(0, BLOCK), tl.program_id(0) * 1.0)


@pytest.mark.parametrize("way", ["check", "race"])
def test_what_is_stored_is_on_the_gpu(gpu: CudaDevice, way: str) -> None:
    x = tg.arange(100.0).to(gpu.name)
    out = tg.zeros(100).to(gpu.name)
    getattr(doubled, way)[(2,)](x, out, 100, BLOCK=64)
    np.testing.assert_array_equal(out.cpu().numpy(), 2 * np.arange(100.0))
    getattr(doubled, way)[(2,)](out, out, 100, BLOCK=64)
    np.testing.assert_array_equal(out.cpu().numpy(), 4 * np.arange(100.0), "one memory stays one")


def test_invalid_access_is_reported_before_any_store(gpu: CudaDevice) -> None:
    x, out = tg.ones(100).to(gpu.name), tg.zeros(100).to(gpu.name)
    with pytest.raises(KernelFault, match="outside"):
        beyond.check[(2,)](x, out, BLOCK=64)
    assert out.cpu().tolist() == [0.0] * 100
    with pytest.raises(KernelFault):
        last.race[(2,)](out, BLOCK=64)
    assert out.cpu().tolist() == [0.0] * 100
