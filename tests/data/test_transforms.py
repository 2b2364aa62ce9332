"""Transforms of images: against PyTorch where it has the arithmetic, alone and in batches, eager and jitted."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.data import transforms as t
from tilegrad.errors import ArgumentError, ShapeError

RNG = np.random.default_rng(0)
BATCH = RNG.random((5, 3, 9, 13)).astype(np.float32)


@pytest.mark.parametrize("size", [(4, 5), (9, 13), (18, 20), (7, 30), 6, 12])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "nearest"])
@pytest.mark.parametrize("antialias", [True, False])
def test_resize(size: Any, mode: str, antialias: bool) -> None:
    torch = pytorch()
    resize = t.Resize(size, mode, antialias=antialias)
    wanted = torch.nn.functional.interpolate(
        torch.tensor(BATCH), resize.output_size(9, 13), mode=mode, antialias=antialias and mode != "nearest"
    )
    made = resize(tg.tensor(BATCH))
    np.testing.assert_allclose(made.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(resize(tg.tensor(BATCH[0])).numpy(), wanted[0].numpy(), rtol=1e-5, atol=1e-5)


def test_resize_of_bytes_is_rounded() -> None:
    torch = pytorch()
    image = RNG.integers(0, 256, (3, 9, 13), np.uint8)
    made = t.Resize((5, 6))(tg.tensor(image))
    wanted = torch.nn.functional.interpolate(
        torch.tensor(image)[None].float(), (5, 6), mode="bilinear", antialias=True
    ).round()
    assert made.dtype is tg.uint8
    np.testing.assert_array_equal(made.numpy(), wanted[0].numpy())


@pytest.mark.parametrize(
    ("size", "given", "wanted"),
    [(50, (100, 200), (50, 100)), (50, (201, 100), (100, 50)), ([8], (9, 13), (8, 11)), ((3, 4), (9, 13), (3, 4))],
)
def test_the_size_that_resize_gives(size: Any, given: Any, wanted: Any) -> None:
    assert t.Resize(size).output_size(*given) == wanted


def test_center_crop() -> None:
    x = tg.tensor(BATCH)
    np.testing.assert_array_equal(t.CenterCrop((4, 5))(x).numpy(), BATCH[:, :, 2:6, 4:9])
    np.testing.assert_array_equal(t.CenterCrop(3)(x[0]).numpy(), BATCH[0, :, 3:6, 5:8])
    larger = t.CenterCrop((12, 5))(x).numpy()
    assert larger.shape == (5, 3, 12, 5)
    np.testing.assert_array_equal(larger[:, :, 1:10], BATCH[:, :, :, 4:9])
    assert (larger[:, :, [0, 10, 11]] == 0).all()


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
@pytest.mark.parametrize("padding", [2, (1, 3), (1, 2, 3, 0)])
def test_pad(padding: Any, mode: str) -> None:
    each = (padding,) * 4 if isinstance(padding, int) else tuple(padding) * (4 // len(padding))
    left, top, right, bottom = each
    fill = {"constant_values": 0.5} if mode == "constant" else {}
    wanted = np.pad(BATCH, ((0, 0), (0, 0), (top, bottom), (left, right)), mode, **fill)  # type: ignore[call-overload]
    made = t.Pad(padding, 0.5 if mode == "constant" else 0, mode)(tg.tensor(BATCH))
    np.testing.assert_array_equal(made.numpy(), wanted)


@pytest.mark.parametrize("jit", [False, True])
def test_random_crops_are_parts_of_each_image(jit: bool) -> None:
    tg.manual_seed(0)
    crop = t.RandomCrop((4, 6), padding=1)
    run = tg.jit(lambda x: crop(x)) if jit else crop
    padded = np.pad(BATCH, ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = set()
    for _ in range(4):
        made = run(tg.tensor(BATCH)).numpy()
        assert made.shape == (5, 3, 4, 6)
        for n in range(5):
            windows = np.lib.stride_tricks.sliding_window_view(padded[n], (4, 6), axis=(1, 2))
            found = np.argwhere((windows == made[n][:, None, None]).all(axis=(0, 3, 4)))
            assert len(found) == 1
            seen.add(tuple(found[0]))
    assert len(seen) > 10, "each image has a place of its own"
    assert t.RandomCrop(20, pad_if_needed=True)(tg.tensor(BATCH[0])).shape == (3, 20, 20)


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("make", [t.RandomHorizontalFlip, t.RandomVerticalFlip])
def test_random_flips(make: Any, jit: bool) -> None:
    tg.manual_seed(0)
    flip = make(0.5)
    run = tg.jit(lambda x: flip(x)) if jit else flip
    count = 0
    for _ in range(10):
        made = run(tg.tensor(BATCH)).numpy()
        for before, after in zip(BATCH, made, strict=True):
            turned = (after == np.flip(before, flip.axis)).all()
            assert turned != (after == before).all()
            count += turned
    assert 10 < count < 40
    np.testing.assert_array_equal(make(1.0)(tg.tensor(BATCH)).numpy(), np.flip(BATCH, flip.axis))
    np.testing.assert_array_equal(make(0.0)(tg.tensor(BATCH[0])).numpy(), BATCH[0])


def test_to_tensor_and_normalize() -> None:
    image = RNG.integers(0, 256, (6, 7, 3), np.uint8)
    x = t.ToTensor()(image)
    np.testing.assert_allclose(x.numpy(), image.transpose(2, 0, 1) / np.float32(255), rtol=1e-6)
    assert t.ToTensor()(image[:, :, 0]).shape == (1, 6, 7)
    assert t.ToTensor()(image[None]).shape == (1, 3, 6, 7)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    wanted = (x.numpy() - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    np.testing.assert_allclose(t.Normalize(mean, std)(x).numpy(), wanted, rtol=1e-5)
    t.Normalize(mean, std, inplace=True)(x)
    np.testing.assert_allclose(x.numpy(), wanted, rtol=1e-5)


def test_composed_in_a_jitted_step() -> None:
    prepare = t.Compose([t.Resize((8, 8)), t.Pad(1), t.Normalize(0.5, 0.25), t.Lambda(lambda x: x * 2)])

    @tg.jit
    def step(x: Any) -> Any:
        return prepare(x).sum((1, 2, 3))

    for _ in range(2):
        np.testing.assert_allclose(
            step(tg.tensor(BATCH)).numpy(), prepare(tg.tensor(BATCH)).sum((1, 2, 3)).numpy(), rtol=1e-4
        )
    assert len(step.programs) == 1
    assert "Resize(size=(8, 8)" in repr(prepare)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: t.Normalize(0.0, 0.0), ArgumentError, "std is 0.0"),
        (lambda: t.Normalize((0.1, 0.2), 1.0)(tg.ones(3, 4, 4)), ShapeError, "2 means and 1 deviations for 3 channels"),
        (lambda: t.Normalize(0.1, 1.0)(tg.ones(3, 4, 4).to(tg.uint8)), ArgumentError, "use ToTensor first"),
        (
            lambda: t.RandomCrop(9)(tg.ones(3, 4, 4)),
            ShapeError,
            r"9 x 9 does not fit in images of the shape \(3, 4, 4\)",
        ),
        (lambda: t.RandomCrop((1, 2, 3)), ArgumentError, "number of pixels"),
        (lambda: t.Resize(4, "sinc"), ArgumentError, "'sinc'"),
        (lambda: t.Pad((1, 2, 3))(tg.ones(3, 4, 4)), ArgumentError, "1, 2 or 4 numbers"),
        (lambda: t.Pad(1, padding_mode="wrap"), ArgumentError, "'wrap'"),
        (lambda: t.RandomHorizontalFlip(2), ArgumentError, "no probability"),
        (lambda: t.CenterCrop(3)(np.ones((3, 4, 4))), ArgumentError, "put ToTensor"),
        (lambda: t.CenterCrop(3)(tg.ones(4, 4)), ShapeError, r"not the shape \(4, 4\)"),
        (lambda: t.Lambda(3), ArgumentError, "takes a function"),
    ],
)
def test_what_makes_no_sense(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
