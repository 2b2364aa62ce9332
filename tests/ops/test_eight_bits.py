"""Floats of 8 bits: converted as PyTorch does it, kept, moved, multiplied; not computed with. Products of int8."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import DTypeError, KernelError
from tilegrad.ir.tile_checker import check
from tilegrad.ir.tile_parser import parse

TYPES = (tg.float8_e4m3fn, tg.float8_e5m2)
ENDS = [1e9, -500, 448, 464, 465, np.inf, -np.inf, np.nan, 0, -0.0, 57344, 61439, 61440, -61441]
SMALL = [1e-4, 2**-9, 2**-10, 2**-10 * 1.01, 2**-10 + 2**-33, 2**-16, 2**-17, 2**-17 * 1.001, 1e-8, -1e-30, 1e-45]


def drawn() -> Any:
    random = np.random.default_rng(0)
    ordinary = random.standard_normal(3000) * np.exp(4 * random.standard_normal(3000))
    return np.concatenate([ENDS, SMALL, ordinary]).astype(np.float32)


@pytest.mark.parametrize("place", ["cpu", "reference"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_conversions_are_those_of_pytorch(dtype: tg.DType, place: str) -> None:
    torch = pytest.importorskip("torch")
    other = getattr(torch, dtype.name)
    if dtype is tg.float8_e4m3fn and torch.tensor(1e9).to(other).float().isnan():
        pytest.skip("this PyTorch makes NaN of what is too large, as before 2.13; since then, the largest number")
    x = drawn()
    short = tg.tensor(x, device=place).to(dtype)
    wanted = torch.tensor(x).to(other)
    np.testing.assert_array_equal(short.float().cpu().numpy(), wanted.float().numpy())
    np.testing.assert_array_equal(short.cpu().numpy().astype(np.float32), wanted.float().numpy())
    for source in ("float16", "bfloat16", "float64", "int32"):
        same = tg.tensor(x[14:], device=place).to(getattr(tg, source))
        theirs = torch.tensor(same.cpu().double().numpy()).to(getattr(torch, source)).to(other)
        np.testing.assert_array_equal(same.to(dtype).float().cpu().numpy(), theirs.float().numpy(), source)
    every = np.arange(256, dtype=np.uint8)
    found = tg.tensor(every.view(dtype.numpy), device=place)
    for target in ("float32", "float16", "bfloat16", "float64", "bool"):
        theirs = torch.tensor(every).view(other).to(getattr(torch, target))
        ours = found.to(getattr(tg, target))
        np.testing.assert_array_equal(ours.cpu().double().numpy(), theirs.double().numpy(), target)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_what_it_holds(dtype: tg.DType) -> None:
    torch = pytest.importorskip("torch")
    ours, theirs = tg.finfo(dtype), torch.finfo(getattr(torch, dtype.name))
    for name in ("bits", "min", "max", "eps", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert (dtype.itemsize, dtype.is_floating_point) == (1, True)
    assert str(tg.full((2,), 3, dtype=dtype)) == f"tensor([3., 3.], dtype=tilegrad.{dtype.name})"


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_elements_are_moved(dtype: tg.DType) -> None:
    numbers = np.arange(12.0).reshape(3, 4) % 8
    x = tg.tensor(numbers).to(dtype)
    made = tg.cat([x.T[1:], tg.zeros(1, 3, dtype=dtype)]).flip(0)
    assert made.dtype is dtype
    np.testing.assert_array_equal(made.float().numpy(), np.r_[numbers.T[1:], [[0, 0, 0]]][::-1])
    assert tg.where(x.float() > 5, x, 0).float().sum() == 6 + 7


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_gradients_pass(dtype: tg.DType) -> None:
    x = tg.tensor([0.3, 5.0], requires_grad=True)
    (x.to(dtype).float() * tg.tensor([2.0, 3.0])).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_what_computes_says_that_they_must_be_converted(dtype: tg.DType) -> None:
    x = tg.ones(4, 4).to(dtype)
    wrong = (lambda: x + 1, lambda: x * x, lambda: x.sum(), lambda: x @ x, lambda: x == x, lambda: x.exp(), lambda: -x,
             lambda: x.max(), lambda: x.cumsum(0), lambda: tg.relu(x))  # fmt: skip
    for use in wrong:
        with pytest.raises(DTypeError, match=f"{dtype.name}; convert"):
            use()
    with pytest.raises(DTypeError, match=rf"{dtype.name} does not meet float32: convert it, as in x.to\(float32\)"):
        x + tg.ones(4)
    with pytest.raises(KernelError, match=r"convert it with \.to"):
        check(
            parse(f"""
            def twice(x: "*{dtype}"):
                i = tl.arange(0, 16)
                tl.store(x + i, tl.load(x + i) + tl.load(x + i))
        """)
        )


@pytest.mark.parametrize("dtype", [*TYPES, tg.int8, tg.uint8], ids=str)
@pytest.mark.parametrize("shape", [(5, 7, 3), (64, 96, 33), (100, 1, 2), (130, 300, 70)])
def test_products(dtype: tg.DType, shape: tuple[int, int, int]) -> None:
    """Sums are float32 or int32, and exact where integers are."""
    m, k, n = shape
    random = np.random.default_rng(k)
    if dtype.is_float:
        x, y = (tg.tensor(random.standard_normal(s).astype(np.float32)).to(dtype) for s in ((m, k), (k, n)))
    else:
        x, y = (tg.tensor(random.integers(dtype.min, dtype.max + 1, s).astype(dtype.numpy)) for s in ((m, k), (k, n)))
    exact = x.double().numpy() @ y.double().numpy()
    for turned in (False, True):
        right = y.T.contiguous() if turned else y
        wide = tg.float32 if dtype.is_float else tg.int32
        found = tg.jit(lambda x, y, wide=wide, t=turned: x.to(wide) @ (y.T if t else y).to(wide))(x, right)
        assert found.dtype is wide
        np.testing.assert_allclose(found.numpy(), exact, rtol=1e-5 if dtype.is_float else 0, atol=1e-4 * dtype.is_float)


@tg.kernel
def multiplied(x: Any, y: Any, out: Any, SIDE: tg.language.constexpr) -> None:
    i = tg.language.arange(0, SIDE)
    at = i[:, None] * SIDE + i[None, :]
    tg.language.store(out + at, tg.language.dot(tg.language.load(x + at), tg.language.load(y + at)))


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_kernels_of_users(dtype: tg.DType) -> None:
    x, y = (tg.randn(16, 16).to(dtype) for _ in range(2))
    out = tg.empty(16, 16)
    multiplied[(1,)](x, y, out, SIDE=16)
    np.testing.assert_allclose(out.numpy(), x.float().numpy() @ y.float().numpy(), rtol=1e-5, atol=1e-4)


def test_files(tmp_path: Any) -> None:
    """Safetensors, and checkpoints as PyTorch writes them."""
    torch = pytest.importorskip("torch")
    for dtype in TYPES:
        x = tg.randn(5, 6).to(dtype)
        path = str(tmp_path / f"{dtype.name}.safetensors")
        tg.save_safetensors({"x": x}, path)
        assert tg.load_safetensors(path)["x"].dtype is dtype
        np.testing.assert_array_equal(tg.load_safetensors(path)["x"].float().numpy(), x.float().numpy())
        theirs = tmp_path / f"{dtype.name}.pt"
        torch.save({"x": torch.tensor(x.float().numpy()).to(getattr(torch, dtype.name))}, theirs)
        np.testing.assert_array_equal(tg.load(str(theirs))["x"].float().numpy(), x.float().numpy())
        tg.save({"x": x}, str(theirs))
        np.testing.assert_array_equal(torch.load(theirs)["x"].float().numpy(), x.float().numpy())
