"""Kernels on tensors of PyTorch and numpy: in their memory, without a copy."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.language as tl
from tilegrad import errors


@tg.kernel
def doubled(x, y, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def test_in_place_of_a_torch_tensor() -> None:
    torch: Any = pytest.importorskip("torch")
    x, y = torch.arange(100.0), torch.zeros(100)
    address = y.data_ptr()
    doubled.as_torch()[(1,)](x, y, n=100, BLOCK=128)
    assert torch.equal(y, 2 * torch.arange(100.0))
    assert y.data_ptr() == address
    doubled.as_torch()[(1,)](y, x, n=100, BLOCK=128)
    assert x[3].item() == 12
    with pytest.raises(
        errors.KernelLaunchError, match=r"argument 0 \(torch.Tensor of shape \[3\]\) requires gradients"
    ):
        doubled.as_torch()[(1,)](torch.ones(3, requires_grad=True), y, n=3, BLOCK=4)
    with pytest.raises(errors.KernelLaunchError, match="give x.contiguous()"):
        doubled.as_torch()[(1,)](x, torch.zeros(4, 4).t(), n=3, BLOCK=4)


def test_in_place_of_a_numpy_array() -> None:
    x, y = np.arange(100, dtype=np.float32), np.zeros(100, np.float32)
    doubled.as_torch()[(1,)](tg.tensor(x), y, n=100, BLOCK=128)
    np.testing.assert_array_equal(y, 2 * x)
