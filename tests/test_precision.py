"""The accuracy of float32 products, from the user's setting to the dot of a kernel, with the error of each setting."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.backend.matrix_unit import TARGET
from tilegrad.backend.cpu.target import target
from tilegrad.backend.reference.graph import interpret
from tilegrad.config import changed
from tilegrad.errors import ArgumentError, KernelError
from tilegrad.ir.dtype import bfloat16, float32
from tilegrad.ir.graph import Graph, Input, TensorType
from tilegrad.ir.precision import PRECISIONS, Precision, in_parts, is_plain, product, to_bfloat16
from tilegrad.ir.tile import Dot, Kernel
from tilegrad.ir.tile_access import roots, statements, walk
from tilegrad.ir.tile_checker import check
from tilegrad.ir.tile_parser import parse
from tilegrad.ops.contraction import Contract, contract
from tilegrad.runtime.device import device

BOUND = {"highest": 2.0**-23, "high": 2.0**-15, "medium": 2.0**-7 * 1.01}
"""Relative error bound of one product."""
SUMMED = 2.0**-19
"""Error bound of a sum of some hundred products in float32, relative to the sum of their magnitudes."""


@pytest.fixture
def precision() -> Iterator[Callable[[str], None]]:
    yield tg.set_float32_matmul_precision
    tg.set_float32_matmul_precision("highest")


def dots(kernel: Kernel) -> list[Dot]:
    return [x for x in walk(*(r for s in statements(kernel.body) for r in roots(s))) if isinstance(x, Dot)]


def asked(fn: Callable[..., Any], *args: Any) -> set[str]:
    """The precisions of all dots that a function is compiled to."""
    found = tg.explain(fn, *args).kernels.launches
    return {dot.precision for launch in found for dot in dots(launch.kernel)}


# --- what the words mean -----------------------------------------------------------------------

rng = np.random.default_rng(0)
NORMAL = [rng.standard_normal(s).astype(np.float32) for s in ((20, 300), (300, 17))]
WIDE = [(a * 2.0 ** rng.integers(-50, 50, a.shape)).astype(np.float32) for a in NORMAL]
DATA = {"normal": NORMAL, "wide": WIDE, "one sign": [np.abs(a) for a in NORMAL], "shifted": [a + 1000 for a in NORMAL]}


@pytest.mark.parametrize("word", PRECISIONS)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("place", ["reference", "cpu"])
def test_errors_against_float64(word: Precision, data: str, place: str) -> None:
    x, y = DATA[data]
    exact = x.astype(np.float64) @ y.astype(np.float64)
    scale = np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
    found = tg.matmul(tg.tensor(x, device=place), tg.tensor(y, device=place), precision=word).cpu().numpy()
    error = np.max(np.abs(found - exact) / scale)
    assert error < BOUND[word] + SUMMED
    if place == "reference" and data == "normal":
        assert error > {"highest": 0.0, "high": 2.0**-23, "medium": 2.0**-15}[word], "it is more exact than it says"


@pytest.mark.parametrize("word", ["high", "medium"])
def test_graph_and_kernels_mean_the_same(word: Precision) -> None:
    x, y = NORMAL
    given = tuple(Input(TensorType(float32, a.shape)) for a in (x, y))
    (meant,) = interpret(Graph(given, (contract(given[0], given[1], "ik,kj->ij", word),)), [x, y])
    done = tg.matmul(tg.tensor(x, device="reference"), tg.tensor(y, device="reference"), precision=word)
    np.testing.assert_allclose(done.cpu().numpy(), meant, atol=2e-5)


ODD = np.float32([np.inf, -np.inf, np.nan, 3.4028235e38, -3.4028235e38, 1e-45, 1e-40, 1.2e-38, 0.0, -0.0, 1.0])


def test_high_meets_float32_at_the_ends_of_the_range() -> None:
    x, y = np.meshgrid(ODD, ODD)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(product(x, y, "high"), x * y)
        rows, one = x.reshape(-1, 1) * np.float32([1, 0]), np.float32([[1.0], [1.0]])
        np.testing.assert_array_equal(product(rows, one, "high", np.matmul), np.matmul(rows, one))


@pytest.mark.parametrize("word", PRECISIONS)
def test_infinities_and_nan_on_the_cpu(word: Precision) -> None:
    x = np.stack([ODD] * 4)
    y = np.eye(len(ODD), dtype=np.float32)
    with np.errstate(all="ignore"):
        wanted = x @ y
    np.testing.assert_array_equal(tg.matmul(tg.tensor(x), tg.tensor(y), precision=word).numpy(), wanted)


def test_parts() -> None:
    x = rng.standard_normal(10000).astype(np.float32) * np.float32(2.0) ** rng.integers(-90, 90, 10000).astype(
        np.float32
    )
    upper, lower = in_parts(x)
    assert is_plain(x).all()
    np.testing.assert_array_equal(to_bfloat16(x), x.astype(bfloat16.numpy).astype(np.float32))
    for part in (upper, lower):
        np.testing.assert_array_equal(part, to_bfloat16(part))
    assert np.max(np.abs(upper.astype(np.float64) + lower - x) / np.abs(x)) <= 2.0**-16


# --- how it is asked for -----------------------------------------------------------------------


def test_a_call_goes_before_what_is_set(precision: Callable[[str], None]) -> None:
    x = tg.randn(32, 48)
    precision("medium")
    assert asked(lambda x: x @ x.T, x) == {"medium"}
    assert asked(lambda x: tg.matmul(x, x.T, precision="highest"), x) == {"highest"}
    assert asked(lambda x: tg.einsum("ik,jk->ij", x, x, precision="high"), x) == {"high"}
    with pytest.raises(ArgumentError, match="'highest', 'high' or 'medium', not 'tf32'"):
        tg.matmul(x, x.T, precision="tf32")


def test_only_float32_is_touched(precision: Callable[[str], None]) -> None:
    precision("medium")
    for dtype in (tg.float64, tg.bfloat16, tg.float16):
        assert asked(lambda x: x @ x.T, tg.randn(32, 48).to(dtype)) == {"highest"}


def layers() -> dict[str, tuple[Callable[[], Any], tuple[int, ...]]]:
    nn = tg.nn
    attention = tg.nn.functional.scaled_dot_product_attention
    return {
        "linear": (lambda: nn.Linear(24, 32), (16, 24)),
        "bilinear": (lambda: lambda x, layer=nn.Bilinear(24, 24, 8): layer(x, x), (16, 24)),
        "conv": (lambda: nn.Conv2d(3, 8, 3), (2, 3, 10, 10)),
        "transposed conv": (lambda: nn.ConvTranspose2d(3, 8, 3, stride=2), (2, 3, 10, 10)),
        "lstm": (lambda: lambda x, layer=nn.LSTM(8, 16): layer(x)[0], (5, 16, 8)),
        "attention": (lambda: lambda x: attention(x, x, x), (2, 2, 16, 8)),
        "baddbmm": (lambda: lambda x: tg.baddbmm(x[:, :, :12], x, x.transpose(1, 2)), (4, 12, 16)),
    }


@pytest.mark.parametrize("name", list(layers()))
def test_layers_and_their_gradients(name: str, precision: Callable[[str], None]) -> None:
    """Every dot of the layer and of its gradient has the precision that was set when the layer ran."""
    make, shape = layers()[name]
    layer = make()
    x = tg.randn(*shape)

    def step(x: tg.Tensor) -> tg.Tensor:
        return tg.grad(lambda x: (layer(x) ** 2).sum())(x)

    precision("high")
    assert asked(step, x) == {"high"}


def test_explain_and_doctor_say_what_is_done() -> None:
    with changed(amx=False):
        kernel = tg.explain(lambda x: tg.matmul(x, x.T, precision="high"), tg.randn(32, 48)).kernels[0]
        assert '# input_precision="high": float32 on cpu' in kernel.splitlines()
        medium = "bfloat16 (AVX-512)" if target().pairs else "float32"
        assert device("cpu").products == {"highest": "float32", "high": "float32", "medium": medium}


@pytest.mark.parametrize(("rows", "said"), [(128, "three products of bfloat16 parts (AMX)"), (4, "float32")])
def test_explain_and_doctor_say_that_the_matrix_unit_is_used(
    rows: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tested without the unit, too: to say how products are made a kernel is lowered, but not compiled."""
    with changed(amx=False):
        made = tg.explain(lambda x: tg.matmul(x, x.T, precision="high"), tg.randn(rows, 256)).kernels[0]
    monkeypatch.setattr("tilegrad.backend.cpu.target.target", lambda: TARGET)
    assert device("cpu").products["high"] == "three products of bfloat16 parts (AMX)"
    assert f'input_precision="high": {said} on cpu' in device("cpu").arithmetic(parse(made))


def test_second_derivatives_keep_it() -> None:
    x, y = (Input(TensorType(float32, (4, 4))) for _ in range(2))
    for v in (x, y):
        v.__dict__["tracked"] = True
    first = contract(x, y, "ik,kj->ij", "medium")
    upstream = Input(first.type)
    shares = [s for s in first.gradient(upstream) if s is not None]
    again = [s for share in shares for s in share.gradient(upstream) if isinstance(s, Contract)]
    assert {v.precision for v in [*shares, *again]} == {"medium"}  # type: ignore[attr-defined]


# --- in the tile language ----------------------------------------------------------------------

KERNEL = """
@tg.kernel
def product(x: "*f32", y: "*f32", z: "*f32"):
    i = tl.arange(0, 8)
    at = i[:, None] * 8 + i[None, :]
    tl.store(z + at, tl.dot(tl.load(x + at), tl.load(y + at), WORD))
"""


@pytest.mark.parametrize(
    ("word", "meant"),
    [("highest", "highest"), ("high", "high"), ("medium", "medium"), ("ieee", "highest"), ("tf32x3", "highest")]
    + [("bf16x6", "highest"), ("bf16x3", "highest"), ("tf32", "high")],
)
def test_words_in_kernels(word: str, meant: str) -> None:
    kernel = parse(KERNEL.replace("WORD", f'input_precision="{word}"'))
    assert [dot.precision for dot in dots(kernel)] == [meant]
    assert parse(str(kernel)) == kernel
    assert (f'input_precision="{meant}"' in str(kernel)) == (meant != "highest")
    check(kernel)


def test_wrong_words_in_kernels() -> None:
    with pytest.raises(KernelError, match="input_precision is one of 'highest', 'high', 'medium', 'ieee'.*not 'bf16'"):
        parse(KERNEL.replace("WORD", "input_precision='bf16'"))
    kernel = parse(KERNEL.replace("WORD", "input_precision='high'"))
    (old,) = dots(kernel)
    store = kernel.body[-1]
    wrong = kernel.replaced(body=(*kernel.body[:-1], store.replaced(value=old.replaced(precision="tf32"))))
    with pytest.raises(KernelError, match="precision of a tl.dot is one of highest, high, medium"):
        check(wrong)
    with pytest.raises(KernelError, match="no function mul_high"):
        parse(KERNEL.replace("tl.dot(tl.load(x + at), tl.load(y + at), WORD)", "tl.mul_high(i, i)"))
