"""Convolutions against PyTorch: values, gradients of first and second order, over generated geometries."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.errors import ArgumentError, ShapeError, TilegradError
from tilegrad.nn import functional as F

torch = pytorch()


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def compare(function: str, arrays: list[np.ndarray | None], **geometry: Any) -> None:
    """Values are equal, and so are the gradients of a weighted sum."""
    ours = [None if a is None else tg.tensor(a, requires_grad=True) for a in arrays]
    theirs = [None if a is None else torch.tensor(a, requires_grad=True) for a in arrays]
    y = getattr(F, function)(*ours, **geometry)
    z = getattr(torch.nn.functional, function)(*theirs, **geometry)
    assert tuple(y.shape) == tuple(z.shape)
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1e-9, atol=1e-9)
    weights = random(*z.shape, seed=9)
    (y * tg.tensor(weights)).sum().backward()
    (z * torch.tensor(weights)).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        if a is not None and b is not None:
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-9, atol=1e-9)


@st.composite
def geometries(draw: Any, transposed: bool = False) -> dict[str, Any]:
    """An operator's name, the shapes of its operands, and how its windows lie."""
    rank = draw(st.integers(1, 3))
    small = st.integers(1, 3)

    def each(numbers: Any) -> tuple[int, ...]:
        return tuple(draw(st.lists(numbers, min_size=rank, max_size=rank)))

    stride, dilation, taps, padding = each(small), each(small), each(small), each(st.integers(0, 2))
    groups, per_group, outputs, batch = draw(small), draw(small), draw(small), draw(st.integers(1, 2))
    more = each(st.integers(0, 3 if rank < 3 else 1))
    geometry: dict[str, Any] = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    span = [d * (k - 1) + 1 for d, k in zip(dilation, taps, strict=True)]
    if transposed:
        least = [max(1, -(-(2 * p + 1 - n) // s) + 1) for p, n, s in zip(padding, span, stride, strict=True)]
        extents = [n + m for n, m in zip(least, more, strict=True)]
        geometry["output_padding"] = tuple(
            draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)
        )
        weight = (groups * per_group, outputs, *taps)
    else:
        extents = [max(1, n - 2 * p) + m for n, p, m in zip(span, padding, more, strict=True)]
        weight = (groups * outputs, per_group, *taps)
    name = f"conv_transpose{rank}d" if transposed else f"conv{rank}d"
    bias = random(groups * outputs, seed=2) if draw(st.booleans()) else None
    arrays = [random(batch, groups * per_group, *extents), random(*weight, seed=1), bias]
    return {"function": name, "arrays": arrays, **geometry}


@settings(max_examples=10)
@given(geometries())
def test_convolution(case: dict[str, Any]) -> None:
    compare(**case)


@settings(max_examples=8)
@given(geometries(transposed=True))
def test_transposed_convolution(case: dict[str, Any]) -> None:
    compare(**case)


@pytest.mark.parametrize("padding", ["same", "valid", (0, 2)], ids=str)
def test_padding(padding: Any) -> None:
    for taps, dilation in (((2, 3), 1), ((4, 1), 2)):
        arrays = [random(2, 3, 9, 8), random(4, 3, *taps), random(4)]
        compare("conv2d", arrays, padding=padding, dilation=dilation)


def test_without_batch_and_of_nothing() -> None:
    compare("conv2d", [random(3, 6, 5), random(4, 3, 3, 2), random(4)], padding=1)
    compare("conv_transpose1d", [random(3, 6), random(3, 2, 3), None], stride=2)
    empty = tg.zeros(0, 3, 6, 5, requires_grad=True)
    weight = tg.ones(4, 3, 3, 3, requires_grad=True)
    made = F.conv2d(empty, weight)
    made.sum().backward()
    assert made.shape == (0, 4, 4, 3)
    assert weight.grad.abs().sum().item() == 0


def test_half_precision_is_added_up_in_float32() -> None:
    x, w = (random(*shape).astype(np.float16) for shape in ((1, 64, 8, 8), (4, 64, 3, 3)))
    found = F.conv2d(tg.tensor(x), tg.tensor(w), padding=1)
    exact = torch.nn.functional.conv2d(torch.tensor(x).double(), torch.tensor(w).double(), padding=1)
    assert found.dtype is tg.float16
    np.testing.assert_allclose(found.numpy(), exact.half().numpy(), rtol=2e-3, atol=2e-2)


SECOND_ORDER: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("conv1d", (2, 2, 5), (3, 2, 3), {"padding": 1, "stride": 2}),
    ("conv2d", (1, 2, 4, 5), (2, 1, 2, 3), {"padding": 1, "stride": (2, 1), "dilation": (1, 2), "groups": 2}),
    ("conv3d", (1, 1, 3, 3, 3), (1, 1, 2, 2, 2), {"padding": 1, "stride": 2}),
    ("conv_transpose1d", (1, 2, 3), (2, 2, 3), {"stride": 2, "output_padding": 1}),
    ("conv_transpose2d", (1, 2, 2, 3), (2, 1, 3, 2), {"stride": (3, 1), "padding": 1, "groups": 2}),
]


@pytest.mark.parametrize(
    ("function", "x", "w", "geometry"), SECOND_ORDER, ids=lambda v: v if isinstance(v, str) else ""
)
def test_second_order(function: str, x: tuple[int, ...], w: tuple[int, ...], geometry: dict[str, Any]) -> None:
    operands = [tg.tensor(random(*shape), requires_grad=True) for shape in (x, w)]
    assert tg.autograd.gradgradcheck(lambda x, w: getattr(F, function)(x, w, **geometry), tuple(operands))


def test_one_for_each_entry() -> None:
    """A batch of weights (vmap) does to each input what each weight does alone."""
    x, w = tg.tensor(random(3, 2, 4, 7)), tg.tensor(random(3, 5, 4, 3))

    def loss(x: Any, w: Any) -> Any:
        return F.conv1d(x, w, stride=2, padding=1).square().sum()

    mapped = tg.vmap(tg.grad(loss, argnums=1))(x, w)
    alone = [tg.grad(loss, argnums=1)(x[n], w[n]) for n in range(3)]
    np.testing.assert_allclose(mapped.numpy(), tg.stack(alone).numpy(), rtol=1e-9)
    shared = tg.vmap(lambda x: F.conv1d(x, w[0], stride=2))(x)
    np.testing.assert_allclose(shared[1].numpy(), F.conv1d(x[1], w[0], stride=2).numpy(), rtol=1e-9)


def test_gradients_gather() -> None:
    """No gradient scatters, whatever the stride."""
    x, w = tg.ones(1, 2, 9, 9, requires_grad=True), tg.ones(3, 2, 3, 3, requires_grad=True)
    shown = tg.explain(lambda x, w: tg.grad(lambda x, w: F.conv2d(x, w, stride=2).sum(), argnums=(0, 1))(x, w), x, w)
    assert not any("atomic" in str(kernel) for kernel in shown.kernels)


IMAGE = tg.ones(1, 4, 5, 6)
BAD: list[tuple[Any, type[TilegradError], str]] = [
    (lambda: F.conv2d(IMAGE, tg.ones(2, 4, 7, 3)), ShapeError, r"windows of 7 do not fit.*\(1, 4, 5, 6\)"),
    (lambda: F.conv2d(IMAGE, tg.ones(2, 4, 3, 3), dilation=3), ShapeError, "windows of 7 .* dilation"),
    (lambda: F.conv2d(IMAGE, tg.ones(2, 4, 8, 3), padding=1), ShapeError, "7 with padding"),
    (lambda: F.conv2d(IMAGE, tg.ones(2, 3, 3, 3)), ShapeError, r"4 channels.*\(2, 3, 3, 3\) takes 3"),
    (lambda: F.conv2d(IMAGE, tg.ones(3, 2, 3, 3), groups=2), ShapeError, "groups=2 does not divide the 3 output"),
    (lambda: F.conv2d(IMAGE, tg.ones(4, 1, 3, 3), groups=2), ShapeError, "takes 2 .1 in each of 2 groups"),
    (lambda: F.conv2d(IMAGE, tg.ones(4, 4, 3, 3), groups=0), ArgumentError, "groups=0"),
    (lambda: F.conv2d(IMAGE, tg.ones(4, 4, 3)), ShapeError, r"\(4, 4, 3\) has 3 axes; it needs 4"),
    (lambda: F.conv2d(tg.ones(4, 4), tg.ones(4, 4, 3, 3)), ShapeError, r"\(4, 4\) has 2 axes.*height"),
    (lambda: F.conv2d(IMAGE, tg.ones(4, 4, 0, 3)), ShapeError, r"\(4, 4, 0, 3\)"),
    (lambda: F.conv2d(IMAGE, tg.ones(2, 4, 3, 3), tg.ones(3)), ShapeError, r"bias of the shape \(3,\) for 2"),
    (lambda: F.conv2d(IMAGE, tg.ones(2, 4, 3, 3), stride=0), ArgumentError, "stride=0"),
    (lambda: F.conv2d(IMAGE, tg.ones(2, 4, 3, 3), stride=1.5), ArgumentError, "stride=1.5"),
    (lambda: F.conv2d(IMAGE, tg.ones(2, 4, 3, 3), padding=(1, 1, 1)), ArgumentError, "has 3 numbers"),
    (lambda: F.conv2d(IMAGE, tg.ones(2, 4, 3, 3), padding=-1), ArgumentError, "at least 0"),
    (lambda: F.conv2d(IMAGE, tg.ones(2, 4, 3, 3), padding="full"), ArgumentError, "'full'.*'same' or 'valid'"),
    (lambda: F.conv2d(IMAGE, tg.ones(2, 4, 3, 3), stride=2, padding="same"), ArgumentError, "stride of 1"),
    (lambda: F.conv2d(IMAGE, 3), ArgumentError, "tensor"),  # type: ignore[arg-type]
    (lambda: F.conv_transpose2d(IMAGE, tg.ones(3, 2, 3, 3)), ShapeError, r"4 channels.*takes 3"),
    (lambda: F.conv_transpose2d(IMAGE, tg.ones(4, 2, 1, 1), padding=3), ShapeError, "-1 elements would be left"),
    (
        lambda: F.conv_transpose2d(IMAGE, tg.ones(4, 2, 3, 3), output_padding=1),
        ArgumentError,
        "smaller than the stride",
    ),
    (lambda: F.conv_transpose2d(IMAGE, tg.ones(4, 2, 3, 3), groups=3), ShapeError, "does not divide the 4 input"),
    (lambda: F.unfold(IMAGE, 7), ShapeError, "windows of 7"),
    (lambda: F.fold(tg.ones(1, 8, 3), (4, 4), 2), ShapeError, r"\(1, 8, 3\).* C \* 4 by 9"),
    (lambda: tg.nn.Conv2d(4, 6, 3, groups=4), ShapeError, "groups=4 does not divide 4 and 6"),
    (lambda: tg.nn.Conv2d(4, 6, 3, padding_mode="mirror"), ArgumentError, "'mirror'.*reflect"),
    (lambda: tg.nn.Conv2d(4, 6, 3, 2, padding="same"), ArgumentError, "stride of 1"),
    (lambda: tg.nn.ConvTranspose2d(4, 6, 3, padding_mode="reflect"), ArgumentError, "zeros"),
    (lambda: tg.nn.Conv2d(2, 2, 3, padding=5, padding_mode="reflect")(tg.ones(1, 2, 4, 4)), ShapeError, "reflect"),
    (
        lambda: tg.nn.ConvTranspose1d(1, 1, 3, 2)(tg.ones(1, 1, 4), output_size=[12]),
        ShapeError,
        r"from \(9,\) to \(10,\)",
    ),
]


@pytest.mark.parametrize("number", range(len(BAD)))
def test_bad_geometry(number: int) -> None:
    use, error, message = BAD[number]
    with pytest.raises(error, match=message):
        use()


MODULES: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("Conv1d", (4, 6, 3), {"padding": 2, "groups": 2}, (2, 4, 9)),
    ("Conv2d", (4, 6, (3, 2), 2, 1), {}, (2, 4, 9, 8)),
    ("Conv2d", (4, 4, 3), {"padding": "same", "groups": 4, "bias": False}, (2, 4, 7, 6)),
    ("Conv2d", (2, 3, 3), {"padding": 2, "padding_mode": "reflect"}, (1, 2, 5, 4)),
    ("Conv2d", (2, 3, 3), {"padding": "same", "dilation": 2, "padding_mode": "circular"}, (1, 2, 6, 5)),
    ("Conv2d", (2, 3, 3), {"padding": (1, 2), "padding_mode": "replicate", "stride": 2}, (1, 2, 6, 5)),
    ("Conv3d", (2, 3, 2), {"stride": (1, 2, 1), "dilation": 2}, (1, 2, 5, 6, 4)),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1}, (2, 4, 5)),
    ("ConvTranspose2d", (4, 6, 3, 2, 1, 1, 2), {"bias": False}, (2, 4, 4, 3)),
    ("ConvTranspose3d", (2, 3, 2), {"stride": 2, "dilation": 2}, (1, 2, 3, 2, 2)),
    ("Unfold", ((2, 3),), {"padding": 1, "stride": 2}, (2, 3, 6, 7)),
    ("Fold", ((5, 6), 2), {"dilation": 2}, (2, 12, 12)),
]


@pytest.mark.parametrize(("name", "arguments", "more", "shape"), MODULES, ids=lambda v: v if isinstance(v, str) else "")
def test_module(name: str, arguments: tuple[Any, ...], more: dict[str, Any], shape: tuple[int, ...]) -> None:
    """The printed form, the names and shapes of the state, and what a layer makes of an input."""
    ours, theirs = getattr(tg.nn, name)(*arguments, **more), getattr(torch.nn, name)(*arguments, **more)
    assert repr(ours) == repr(theirs)
    state = theirs.state_dict()
    assert {k: tuple(x.shape) for k, x in ours.state_dict().items()} == {k: tuple(x.shape) for k, x in state.items()}
    ours.load_state_dict({k: x.numpy() for k, x in state.items()})
    x = random(*shape).astype(np.float32)
    made, wanted = ours(tg.tensor(x)), theirs(torch.tensor(x))
    np.testing.assert_allclose(made.detach().numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_initial_weights_lie_where_those_of_pytorch_do() -> None:
    layer = tg.nn.Conv2d(16, 32, 3, groups=2)
    bound = 1 / np.sqrt(8 * 9)
    for parameter in (layer.weight, layer.bias):
        assert parameter is not None
        largest = parameter.abs().max().item()
        assert 0.8 * bound < largest <= bound


def test_output_size() -> None:
    ours, theirs = tg.nn.ConvTranspose2d(1, 1, 3, 2), torch.nn.ConvTranspose2d(1, 1, 3, 2)
    for size in ([10, 9], [1, 1, 9, 10]):
        shape = ours(tg.ones(1, 1, 4, 4), output_size=size).shape
        assert tuple(shape) == tuple(theirs(torch.ones(1, 1, 4, 4), output_size=size).shape)


def test_a_batch_that_varies() -> None:
    layer = tg.nn.Conv2d(2, 3, 3, stride=2, padding=1)
    step = tg.jit(lambda x: layer(x).relu())
    for batch in (3, 5, 7):
        x = tg.tensor(random(batch, 2, 8, 8).astype(np.float32))
        np.testing.assert_allclose(step(x).detach().numpy(), layer(x).relu().detach().numpy(), rtol=1e-5, atol=1e-6)


TURNED_BACK: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 1, 3, 2), (1, 1, 2, 3), {"stride": (1, 2), "padding": (1, 0)}),
    ((3, 3, 7, 6, 4), (3, 1, 1, 3, 3),
     {"stride": (3, 3, 2), "padding": (1, 1, 2), "output_padding": (0, 2, 1), "groups": 3}),
    ((1, 2, 2, 1), (2, 1, 2, 3), {"stride": (3, 1), "padding": (1, 1), "dilation": (2, 2)}),
]  # fmt: skip


@pytest.mark.parametrize(("x", "weight", "geometry"), TURNED_BACK, ids=["guards", "grouped", "positions"])
def test_transposed_where_extents_meet(x: tuple[int, ...], weight: tuple[int, ...], geometry: dict[str, Any]) -> None:
    """Few elements, of the same number along several axes: one index of a kernel serves for more than one of them."""
    function = f"conv_transpose{len(x) - 2}d"
    compare(function, [random(*x).astype(np.float64), random(*weight, seed=1), None], **geometry)


def test_nothing_may_be_left() -> None:
    with pytest.raises(ShapeError, match="of 0 elements would be left"):
        F.conv_transpose1d(tg.ones(1, 1, 1), tg.ones(1, 1, 2), padding=1)
