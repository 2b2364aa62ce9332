"""Layers that learn their sizes late, unpooling, sampling at places, batch norm in step: against PyTorch."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.errors import TilegradError

torch = pytorch()
nn, functional = tg.nn, tg.nn.functional
rng = np.random.default_rng(0)

LAZY: list[tuple[str, tuple[Any, ...], dict[str, Any], tuple[int, ...]]] = [
    ("LazyLinear", (3,), {}, (2, 5)),
    ("LazyLinear", (3,), {"bias": False}, (2, 4, 5)),
    ("LazyConv1d", (4, 3), {}, (2, 6, 8)),
    ("LazyConv2d", (4, 3), {"groups": 2, "padding": 1}, (2, 6, 8, 8)),
    ("LazyConv2d", (4, 3), {}, (6, 8, 8)),
    ("LazyConv3d", (4, 2), {}, (1, 2, 4, 4, 4)),
    ("LazyConvTranspose1d", (4, 3), {}, (2, 6, 8)),
    ("LazyConvTranspose2d", (4, 3), {"stride": 2}, (2, 6, 5, 5)),
    ("LazyConvTranspose3d", (2, 2), {}, (1, 3, 3, 3, 3)),
    ("LazyBatchNorm1d", (), {}, (4, 5)),
    ("LazyBatchNorm2d", (), {"eps": 1e-3, "affine": False}, (4, 5, 3, 3)),
    ("LazyBatchNorm3d", (), {}, (2, 5, 2, 2, 2)),
    ("LazyInstanceNorm1d", (), {"affine": True}, (4, 5, 6)),
    ("LazyInstanceNorm2d", (), {}, (4, 5, 6, 6)),
    ("LazyInstanceNorm3d", (), {}, (2, 5, 3, 3, 3)),
]


@pytest.mark.parametrize(("name", "args", "options", "shape"), LAZY, ids=lambda x: str(x)[:20])
def test_lazy_layers(name: str, args: Any, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    """The layer becomes what PyTorch's becomes, and its parameters stay the same objects."""
    torch = pytest.importorskip("torch")
    x = rng.standard_normal(shape).astype(np.float32)
    other = getattr(torch.nn, name)(*args, **options)
    other(torch.tensor(x))
    layer = getattr(nn, name)(*args, **options)
    before = list(layer.parameters())
    assert all(isinstance(p, nn.UninitializedParameter) for p in before)
    layer(tg.tensor(x))
    assert type(layer).__name__ == type(other).__name__
    assert [id(p) for p in layer.parameters()] == [id(p) for p in before]
    assert all(type(p) is nn.Parameter for p in before)
    layer.load_state_dict({k: tg.tensor(v.numpy()) for k, v in other.state_dict().items()})
    np.testing.assert_allclose(
        layer(tg.tensor(x)).detach().numpy(), other(torch.tensor(x)).detach().numpy(), 1e-4, 1e-5
    )


def test_a_lazy_network_trains() -> None:
    net = nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)).double()
    assert "LazyLinear(?, 2)" in repr(net)
    with pytest.raises(TilegradError, match="run a batch through"):
        tg.optim.SGD(net.parameters(), lr=0.1)
    seen: list[int] = []
    net[0].register_forward_hook(lambda *given: seen.append(1))
    x = tg.ones(2, 1, 5, 5, dtype=tg.float64)
    net.eval()(x)
    assert seen == [1]
    assert all(p.dtype is tg.float64 and p.requires_grad for p in net.parameters())
    assert not net[3].training
    optimizer = tg.optim.SGD(net.parameters(), lr=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = ((net(x) - 1) ** 2).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[0]


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("geometry", [(2, None, 0), (3, 2, 1)], ids=str)
def test_unpooling(rank: int, geometry: tuple[int, int | None, int]) -> None:
    """A size that is not given follows from the geometry."""
    extent = 7 if geometry[1] else 6
    x = rng.standard_normal((2, 3, *[extent] * rank)).astype(np.float32)
    found = []
    for lib in (tg, torch):
        given = lib.tensor(x, requires_grad=True)
        pooled, places = getattr(lib.nn, f"MaxPool{rank}d")(*geometry, return_indices=True)(given)
        back = getattr(lib.nn, f"MaxUnpool{rank}d")(*geometry)(pooled, places, output_size=(extent,) * rank)
        plain = getattr(lib.nn.functional, f"max_unpool{rank}d")(pooled, places, *geometry)
        ((back**2).sum() + plain.sum()).backward()
        found.append([back.detach().numpy(), plain.detach().numpy(), given.grad.numpy()])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-6, 1e-6)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("rank", [2, 3])
def test_sampling(mode: str, padding: str, align: bool, rank: int) -> None:
    sampled(mode, padding, align, rank)


@pytest.mark.parametrize(("padding", "align"), [("zeros", False), ("border", True), ("reflection", False)])
def test_sampling_by_cubics(padding: str, align: bool) -> None:
    sampled("bicubic", padding, align, 2)


def sampled(mode: str, padding: str, align: bool, rank: int) -> None:
    """The same pixels and gradients as PyTorch's."""
    x = rng.standard_normal((2, 3, *[5, 4, 3][:rank])).astype(np.float64)
    grid = rng.uniform(-1.6, 1.6, (2, *[3, 4, 2][:rank], rank))
    found = []
    for lib in (tg, torch):
        image, places = lib.tensor(x, requires_grad=True), lib.tensor(grid, requires_grad=True)
        y = lib.nn.functional.grid_sample(image, places, mode, padding, align)
        (y**2).sum().backward()
        slopes = places.grad if places.grad is not None else lib.zeros_like(places)
        found.append([y.detach().numpy(), image.grad.numpy(), slopes.numpy()])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-6, 1e-8)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 3, 2, 4)], ids=str)
def test_affine_grids(align: bool, size: tuple[int, ...]) -> None:
    theta = rng.standard_normal((2, len(size) - 2, len(size) - 1))
    ours = functional.affine_grid(tg.tensor(theta), size, align)
    np.testing.assert_allclose(
        ours.numpy(), torch.nn.functional.affine_grid(torch.tensor(theta), size, align).numpy(), 1e-6, 1e-8
    )


def test_batch_norm_in_step() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Sequential(nn.BatchNorm1d(2)))
    net[1].running_mean.fill_(3.0)
    parameters, weights = [id(p) for p in net.parameters()], net.state_dict()
    made = nn.SyncBatchNorm.convert_sync_batchnorm(net)
    assert [id(p) for p in made.parameters()] == parameters
    assert made.state_dict().keys() == weights.keys()
    assert isinstance(made[1], nn.SyncBatchNorm)  # type: ignore[index]
    assert made[1].running_mean.tolist() == [3, 3]  # type: ignore[index]
    x = rng.standard_normal((3, 4, 2)).astype(np.float32)
    same = [m(4)(lib.tensor(x)).detach().numpy() for lib, m in ((tg, nn.SyncBatchNorm), (torch, torch.nn.BatchNorm1d))]
    np.testing.assert_allclose(*same, 1e-5, 1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: nn.LazyConv2d(3, 3)(tg.ones(4)), "no channels"),
        (lambda: nn.SyncBatchNorm(3, process_group=1), "of this process"),
        (lambda: functional.max_unpool2d(tg.ones(1, 2, 2), tg.ones(1, 2, 1).long(), 2), "same 3 or 4 axes"),
        (
            lambda: functional.max_unpool1d(tg.ones(1, 2), tg.zeros(1, 2).long(), 2, output_size=(9,)),
            "less than a stride",
        ),
        (lambda: functional.grid_sample(tg.ones(1, 1, 2, 2), tg.ones(1, 2, 2, 3)), r"\(N, ..., ..., 2\)"),
        (lambda: functional.grid_sample(tg.ones(1, 1, 2, 2), tg.ones(1, 2, 2, 2), "area"), "'nearest'"),
        (lambda: functional.grid_sample(tg.ones(1, 1, 2, 2, 2), tg.ones(1, 2, 2, 2, 3), "bicubic"), "is for images"),
        (lambda: functional.affine_grid(tg.ones(1, 2, 2), (1, 1, 2, 2)), r"\(N, 2, 3\)"),
    ],
)
def test_refused(call: Any, words: str) -> None:
    with pytest.raises(TilegradError, match=words):
        call()
