"""Out-of-bounds indices within `jit`, and elementwise functions of special values, on a GPU as on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.test_index_faults import USES, tells_the_wrong_index
from tilegrad import Tensor
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.errors import IndexRangeError


@pytest.mark.parametrize("use", USES)
def test_the_wrong_index_is_named(gpu: CudaDevice, use: str) -> None:
    tells_the_wrong_index(use, gpu.name)


def test_many_wrong_indices_are_one_error(gpu: CudaDevice) -> None:
    table = tg.randn(1000, 256).to(gpu.name)
    lookup = tg.jit(lambda i: table[i] * 2)
    for _ in range(4):
        wrong = tg.randint(1000, 5000, (200_000,)).to(gpu.name)
        made = lookup(wrong)
        with pytest.raises(IndexRangeError, match=r"index \d{4} is outside axis 0, which has 1000 elements"):
            tg.cuda.synchronize()
        tg.cuda.synchronize()
        assert made.shape == (200_000, 256)
        assert lookup(wrong % 1000).isfinite().all().item()


def test_large_scatters_are_checked(gpu: CudaDevice) -> None:
    """Scatters that sort their entries first."""
    count = 300_000
    add = tg.jit(lambda i, x: tg.zeros(5000, 8, device=gpu.name).index_add(0, i, x))
    x = tg.ones(count, 8).to(gpu.name)
    rows = np.arange(count) % 5000
    np.testing.assert_array_equal(add(tg.tensor(rows).to(gpu.name), x).cpu().numpy(), 60.0)
    rows[count // 3] = 5000
    with pytest.raises(IndexRangeError, match="index_add: index 5000 is outside axis 0"):
        add(tg.tensor(rows).to(gpu.name), x).sum().item()


INTEGERS = (tg.uint8, tg.int8, tg.int16, tg.int32, tg.int64)
SPECIAL = [0.0, -0.0, 1.5, -1.5, 0.999, 255.0, 256.0, -1.0, 127.5, -129.0, 65504.0, 1e6, -1e6, 3e9, -3e9, 1e20, -1e20]
SPECIAL += [float("inf"), float("-inf"), float("nan")]
VALUES: dict[str, Callable[[str], Tensor]] = {
    **{
        f"shift {way} of {dtype}": lambda at, way=way, dtype=dtype: (  # type: ignore[misc]
            lambda x, n: x >> n if way == "right" else x << n
        )(
            tg.tensor([1, 100, 77, 3, 127] * 24).to(dtype).to(at),
            tg.arange(120).to(dtype).to(at) - (5 if dtype is not tg.uint8 else 0),
        )
        for dtype in INTEGERS
        for way in ("right", "left")
    },
    **{
        f"{name} by 0 of {dtype}": lambda at, f=f, dtype=dtype: tg.jit(f)(  # type: ignore[misc]
            tg.tensor([7, 1, 0, 100]).to(dtype).to(at), tg.tensor([0, 0, 0, 3]).to(dtype).to(at)
        )
        for dtype in INTEGERS
        for name, f in (
            ("quotient", lambda x, y: x // y),
            ("remainder", lambda x, y: x % y),
            ("fmod", lambda x, y: x.fmod(y)),
        )
    },
    "heaviside": lambda at: tg.tensor(SPECIAL).to(at).heaviside(tg.tensor([0.25]).to(at)),
    "heaviside of nan": lambda at: tg.tensor([0.0, 1.0]).to(at).heaviside(tg.tensor([float("nan")]).to(at)),
    "half times a large number": lambda at: tg.tensor([0.001, 0.5, 1.0, -3.0]).to(tg.float16).to(at) * 1e5,
    "bfloat16 times a small number": lambda at: tg.tensor([0.001, 0.5, 1.0]).to(tg.bfloat16).to(at) * 1e-42,
    **{
        f"{source} to {dtype}": lambda at, source=source, dtype=dtype: (  # type: ignore[misc]
            tg.tensor(SPECIAL).to(source).to(at).to(dtype)
        )
        for source in (tg.float16, tg.bfloat16, tg.float32, tg.float64)
        for dtype in (*INTEGERS, tg.bool, tg.float16, tg.float32)
    },
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("jitted", [False, True], ids=["plain", "jit"])
def test_values_are_those_of_the_cpu(gpu: CudaDevice, name: str, jitted: bool) -> None:
    make = VALUES[name]

    def value(at: str) -> np.ndarray[Any, Any]:
        made = tg.jit(lambda: make(at))() if jitted and "by 0" not in name else make(at)
        return made.float().cpu().numpy() if made.dtype is tg.bfloat16 else made.cpu().numpy()

    np.testing.assert_array_equal(value(gpu.name), value("cpu"))


DRAWS: dict[str, Callable[[str], Tensor]] = {
    "rand": lambda at: tg.rand(1000, device=at),
    "randint": lambda at: tg.randint(-5, 1000, (1000,), device=at),
    "randperm": lambda at: tg.randperm(1000, device=at),
    "bernoulli": lambda at: (tg.ones(1000, device=at) * 0.3).bernoulli(),
    "dropout": lambda at: tg.nn.functional.dropout(tg.ones(1000, device=at), 0.5),
    "randn": lambda at: tg.randn(1000, device=at),
    "randn of float16": lambda at: tg.randn(1000, device=at, dtype=tg.float16),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_the_cpu(gpu: CudaDevice, name: str) -> None:
    made = []
    for at in (gpu.name, "cpu"):
        tg.manual_seed(7)
        made.append(DRAWS[name](at).float().cpu().numpy())
    np.testing.assert_allclose(made[0], made[1], rtol=2e-3 if "16" in name else 1e-5, atol=1e-6)
