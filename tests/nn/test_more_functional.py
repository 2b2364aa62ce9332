"""Functions beyond the layers: modes of resizing and padding, alignments, distances, drawn values, 16-bit numbers."""

import warnings
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.errors import ArgumentError, AxisError, ShapeError, TilegradError
from tilegrad.nn import functional as F

torch = pytorch()
warnings.filterwarnings("ignore", module="torch")


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(np.float32)


def both(array: np.ndarray) -> tuple[Any, Any]:
    """The same tensor here and in PyTorch, wanting a gradient."""
    return tg.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)


def compare(ours: Any, theirs: Any, *inputs: tuple[Any, Any], tolerance: float = 3e-5) -> None:
    """Values are equal, and so are the gradients of a weighted sum."""
    near = {"rtol": tolerance, "atol": tolerance}
    np.testing.assert_allclose(ours.detach().numpy(), theirs.detach().numpy(), **near)
    weights = random(*theirs.shape, seed=9)
    (ours * tg.tensor(weights)).sum().backward()
    (theirs * torch.tensor(weights)).sum().backward()
    for x, y in inputs:
        np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), **near)


# --- resizing ----------------------------------------------------------------------------------------

SIZES = [((1, 2, 5), 3), ((1, 2, 5), 13), ((1, 1, 7, 4), (3, 6)), ((1, 1, 4, 6), (9, 12)), ((1, 1, 3, 4, 5), (2, 7, 5))]


@pytest.mark.parametrize(("shape", "size"), SIZES, ids=str)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area", "linear", "bicubic"])
def test_interpolate(mode: str, shape: tuple[int, ...], size: Any) -> None:
    if mode == "linear":
        mode = {3: "linear", 4: "bilinear", 5: "trilinear"}[len(shape)]
    if mode == "bicubic" and len(shape) != 4:
        pytest.skip("of images only")
    x = both(random(*shape))
    compare(F.interpolate(x[0], size, mode=mode), torch.nn.functional.interpolate(x[1], size, mode=mode), x)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(3, 4), (11, 5)], ids=str)
def test_antialias(size: Any, align: bool, mode: str) -> None:
    x = both(random(1, 2, 8, 9))
    settings: Any = {"size": size, "mode": mode, "align_corners": align, "antialias": True}
    compare(F.interpolate(x[0], **settings), torch.nn.functional.interpolate(x[1], **settings), x, tolerance=1e-4)


@pytest.mark.parametrize("factor", [1.3, 0.7, 2.0, 3.0], ids=str)
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "area"])
def test_interpolate_by_a_factor(mode: str, factor: float, recompute: bool) -> None:
    x = both(random(1, 1, 7, 10))
    settings: Any = {"scale_factor": factor, "mode": mode, "recompute_scale_factor": recompute}
    compare(F.interpolate(x[0], **settings), torch.nn.functional.interpolate(x[1], **settings), x)


def test_images_of_bytes_are_resized() -> None:
    x = np.arange(12, dtype=np.uint8).reshape(1, 1, 3, 4)
    ours, theirs = F.interpolate(tg.tensor(x), (5, 2)), torch.nn.functional.interpolate(torch.tensor(x), (5, 2))
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


# --- padding -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("widths", [(1, 2), (0, 3, 2, 1), (-1, 2, 1, -2), (0, 0)], ids=str)
def test_pad(widths: tuple[int, ...], mode: str) -> None:
    x = both(random(2, 3, 4, 5) if len(widths) == 4 else random(2, 3, 5))
    compare(F.pad(x[0], widths, mode), torch.nn.functional.pad(x[1], widths, mode), x)


# --- alignments --------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("joined", [False, True])
def test_ctc(joined: bool, reduction: str) -> None:
    logits = both(random(7, 3, 5))
    rows = np.array([[1, 1, 2], [3, 0, 0], [4, 2, 0]])
    lengths, steps = [3, 1, 2], [7, 5, 6]
    targets = np.concatenate([row[:n] for row, n in zip(rows, lengths, strict=True)]) if joined else rows
    ours = F.ctc_loss(logits[0].log_softmax(2), tg.tensor(targets), steps, tg.tensor(lengths), reduction=reduction)
    theirs = torch.nn.functional.ctc_loss(
        logits[1].log_softmax(2), torch.tensor(targets), torch.tensor(steps), torch.tensor(lengths), reduction=reduction
    )
    compare(ours, theirs, logits)


def test_ctc_of_one_sequence_and_of_what_cannot_be() -> None:
    logits = both(random(4, 5))
    given = ((tg.tensor([2, 1]), 4, 2), (torch.tensor([2, 1]), torch.tensor(4), torch.tensor(2)))
    ours, theirs = (
        f.ctc_loss(x.log_softmax(1), labels, steps, count, blank=3)
        for f, x, (labels, steps, count) in zip((F, torch.nn.functional), logits, given, strict=True)
    )
    compare(ours, theirs, logits)
    x = tg.tensor(random(2, 1, 5), requires_grad=True)
    labels = tg.tensor([[1, 1, 2]])
    assert F.ctc_loss(x.log_softmax(2), labels, [2], [3], reduction="sum").item() == float("inf")
    loss = F.ctc_loss(x.log_softmax(2), labels, [2], [3], zero_infinity=True)
    loss.backward()
    assert loss.item() == 0
    assert not x.grad.numpy().any()
    empty = F.ctc_loss(x.log_softmax(2), labels, [2], [0], reduction="sum")
    np.testing.assert_allclose(empty.item(), -x.log_softmax(2)[:, 0, 0].sum().item(), rtol=1e-5)


# --- distances, drawn values ---------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_pdist(p: float) -> None:
    x = both(random(5, 3))
    compare(F.pdist(x[0], p), torch.nn.functional.pdist(x[1], p), x)


def test_gumbel_softmax() -> None:
    tg.manual_seed(0)
    share = np.array([0.1, 0.6, 0.3])
    logits = tg.tensor(np.log(share).astype(np.float32)).expand(20000, 3).clone().requires_grad_()
    hard = F.gumbel_softmax(logits, hard=True)
    (hard * tg.tensor([1.0, 2.0, 3.0])).sum().backward()
    np.testing.assert_allclose(hard.detach().numpy().mean(0), share, atol=0.015)
    assert logits.grad.numpy().any()
    soft = F.gumbel_softmax(logits, tau=0.5).detach().numpy()
    np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "dropout3d", "feature_alpha_dropout"])
def test_whole_channels_are_dropped(name: str) -> None:
    tg.manual_seed(1)
    shape = (40, 50, *(3,) * {"dropout1d": 1, "dropout3d": 3}.get(name, 2))
    x = tg.ones(*shape, requires_grad=True)
    y = getattr(F, name)(x, 0.4, True)
    y.sum().backward()
    rows = y.detach().numpy().reshape(2000, -1)
    assert (rows == rows[:, :1]).all()
    assert len(np.unique(rows)) == 2
    assert (rows[:, 0] == rows.min()).mean() == pytest.approx(0.4, abs=0.05)
    assert set(np.unique(x.grad.numpy() > 0)) == {False, True}


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    tg.manual_seed(2)
    y = F.alpha_dropout(tg.randn(300, 300), 0.3, training=True).numpy()
    assert y.mean() == pytest.approx(0, abs=0.02)
    assert y.std() == pytest.approx(1, abs=0.02)
    assert not F.alpha_dropout(tg.ones(3), 1.0, training=True).numpy().any()


def test_rrelu_draws_slopes() -> None:
    tg.manual_seed(3)
    y = F.rrelu(-tg.ones(1000), 0.2, 0.4, training=True).numpy()
    assert -0.4 <= y.min() < -0.39
    assert -0.21 < y.max() <= -0.2


# --- in place, in 16 bits --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "elu", "celu", "selu", "leaky_relu", "hardtanh", "rrelu", "threshold"])
def test_underscore_changes_its_input(name: str) -> None:
    array = random(3, 4)
    settings = {"threshold": (0.5, 2.0)}.get(name, ())
    x, y = tg.tensor(array), torch.tensor(array)
    assert getattr(F, f"{name}_")(x, *settings) is x
    getattr(torch.nn.functional, f"{name}_")(y, *settings)
    np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["silu", "mish", "hardswish", "hardsigmoid", "relu6", "dropout"])
def test_inplace_changes_its_input(name: str) -> None:
    x = tg.tensor(random(3, 4))
    assert getattr(F, name)(x, inplace=True) is x


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_norms_of_16_bits(dtype: str) -> None:
    array = random(4, 6, 50, seed=3) + 100
    x = tg.tensor(array).to(getattr(tg, dtype)).requires_grad_()
    y = torch.tensor(array).to(getattr(torch, dtype)).float()  # PyTorch's own sums in 16 bits are off by a hundredth
    for name, settings in [
        ("layer_norm", ((50,),)),
        ("group_norm", (3,)),
        ("rms_norm", ((50,), None, 1e-5)),
        ("batch_norm", (None, None, None, None, True)),
        ("instance_norm", ()),
    ]:
        ours, theirs = getattr(F, name)(x, *settings), getattr(torch.nn.functional, name)(y, *settings)
        assert ours.dtype is x.dtype
        np.testing.assert_allclose(
            ours.float().detach().numpy(), theirs.float().detach().numpy(), rtol=2e-2, atol=2e-2, err_msg=name
        )


# --- bad input -------------------------------------------------------------------------------------------

BAD: list[tuple[str, str, Any, type[TilegradError]]] = [
    ("odd length", "glu", (tg.ones(3, 5),), ShapeError),
    ("no axis", "glu", (tg.ones(3), 4), AxisError),
    ("one value for each channel", "batch_norm", (tg.ones(1, 3), None, None, None, None, True), ShapeError),
    ("running_mean and running_var are needed", "batch_norm", (tg.ones(2, 3), None, None), ArgumentError),
    (r"weight has the shape \(2,\)", "group_norm", (tg.ones(2, 6, 3), 3, tg.ones(2)), ShapeError),
    ("into 4 groups", "group_norm", (tg.ones(2, 6, 3), 4), ShapeError),
    ("does not end in the normalized_shape", "rms_norm", (tg.ones(2, 3), (4,)), ShapeError),
    ("no probability", "alpha_dropout", (tg.ones(2), 1.5, True), ArgumentError),
    ("at most 4 elements", "pad", (tg.ones(2, 5), (5, 0), "reflect"), ShapeError),
    ("mode 'mirror' is not there", "pad", (tg.ones(2, 5), (1, 0), "mirror"), ArgumentError),
    ("one of them", "interpolate", (tg.ones(1, 1, 4),), ArgumentError),
    ("one at least", "interpolate", (tg.ones(1, 1, 4), None, 0.1), ShapeError),
    ("takes .* 2 more axes", "interpolate", (tg.ones(1, 1, 4), 5, None, "bicubic"), ShapeError),
    ("no multiple of", "pixel_shuffle", (tg.ones(6, 2, 2), 2), ShapeError),
    ("are no multiples of 3", "pixel_unshuffle", (tg.ones(1, 3, 4), 3), ShapeError),
    ("must be 1 or 2", "multi_margin_loss", (tg.ones(2, 3), tg.tensor([0, 1]), 3), ArgumentError),
    ("negative numbers", "gaussian_nll_loss", (tg.ones(2), tg.ones(2), tg.tensor([1.0, -1.0])), ArgumentError),
    ("is no class", "ctc_loss", (tg.ones(2, 1, 3), tg.tensor([[1]]), [2], [1], 7), ArgumentError),
    ("has 2 numbers for 1 sequences", "ctc_loss", (tg.ones(2, 1, 3), tg.tensor([[1]]), [2, 2], [1]), ShapeError),
    ("without offsets", "embedding_bag", (tg.tensor([0, 1]), tg.ones(3, 2)), ArgumentError),
    ("go with", "bilinear", (tg.ones(2, 3), tg.ones(2, 4), tg.ones(5, 4, 3)), ShapeError),
]


@pytest.mark.parametrize(("says", "name", "given", "kind"), BAD, ids=[f"{name} {says}" for says, name, *_ in BAD])
def test_bad_input(says: str, name: str, given: tuple[Any, ...], kind: type[TilegradError]) -> None:
    with pytest.raises(kind, match=says):
        getattr(F, name)(*given)


def test_a_variance_that_is_known_later() -> None:
    assert np.isnan(F.gaussian_nll_loss(tg.ones(2), tg.ones(2), -tg.ones(2).abs()).item())
