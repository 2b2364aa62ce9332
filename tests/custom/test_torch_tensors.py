"""Kernels and operators on PyTorch's tensors: the same memory, and gradients that PyTorch follows."""

import numpy as np
import pytest

import tilegrad as tg
from tests.custom.operators import linear, moments, scale, scale_kernel

torch = pytest.importorskip("torch")


def test_a_kernel_writes_where_the_tensors_are() -> None:
    x, out = torch.randn(100), torch.empty(100)
    place = out.data_ptr()
    scale_kernel.as_torch()[(2,)](x, out, 100, 3.0, BLOCK=64)
    assert out.data_ptr() == place
    assert torch.equal(out, x * 3)
    scale_kernel.as_torch()[lambda meta: (tg.cdiv(100, meta["BLOCK"]),)](out, out, n=100, alpha=2.0, BLOCK=32)
    torch.testing.assert_close(out, x * 6)


def test_operators() -> None:
    x = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    w = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(scale.as_torch(), (x, 3.0))
    assert torch.autograd.gradcheck(moments.as_torch(), (x,))
    assert torch.autograd.gradcheck(lambda x, w: linear.as_torch()(x, w, None), (x, w))
    y = linear.as_torch()(x.detach(), w=w.detach(), b=None)
    torch.testing.assert_close(y, x.detach() @ w.detach().mT)
    np.testing.assert_allclose(scale.as_torch()(x.detach().T, 2.0).numpy(), x.detach().T.numpy() * 2)
