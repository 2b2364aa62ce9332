"""The layers of common networks, by what is said of them in their papers, and sizes drawn around them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.geometries.layers import Attention, Convolution, Dense, Layer, Normalised, Transposed
from tests.geometries.recurrent import Recurrent

HOW = ("alone", "after", "before", "around")
COUNT = 440


class Case(NamedTuple):
    """A layer of a network; `number`: its place in the table, from which turns are taken."""

    number: int
    network: str
    layer: Layer

    @property
    def name(self) -> str:
        return f"{self.number}-{self.network}"


def cases(most: float, batch: int) -> list[Case]:
    """All geometries, at the batch of their network or at one, with a limit for the number of products in a sum."""
    found = dict.fromkeys(_all())
    kept = [(network, _smaller(layer, most, batch)) for network, layer in found]
    drawn = random.Random(0)
    while len(kept) < COUNT:
        network, layer = kept[drawn.randrange(len(found))]
        kept.append((f"{network}-drawn", _drawn(layer, drawn)))
    return [Case(n, network, layer) for n, (network, layer) in enumerate(kept[:COUNT])]


def _all() -> Iterator[tuple[str, Layer]]:
    """Networks and their layers, the way things are around each of them in turn."""
    for n, (network, layer) in enumerate(_plain()):
        turned = isinstance(layer, Convolution | Dense) and layer.how == "alone"
        yield network, layer._replace(how=HOW[n % 4]) if turned else layer  # type: ignore[attr-defined]


def _square(batch: int, channels: int, side: int, outputs: int, taps: int, *more: int) -> Convolution:
    return Convolution(batch, channels, (side, side), outputs, (taps, taps), *more)


def _plain() -> Iterator[tuple[str, Layer]]:
    yield from _alexnet()
    yield from _vgg_and_resnet()
    yield from _dense_and_mobile()
    yield from _pictures()
    yield from _lines_and_volumes()
    yield from _transformers()
    yield from _recurrences()


def _alexnet() -> Iterator[tuple[str, Layer]]:
    """AlexNet with two groups as in the paper, with one as in torchvision, with one channel, and for CIFAR."""
    shapes = ((96, 27, 256, 5, 1, 2, 1, 2), (256, 13, 384, 3, 1, 1), (384, 13, 384, 3, 1, 1, 1, 2))
    yield "alexnet", _square(32, 3, 227, 96, 11, 4)
    for c, side, o, *more in (*shapes, (384, 13, 256, 3, 1, 1, 1, 2)):
        yield "alexnet", _square(32, c, side, o, *more)
    for c, side, o, *more in ((3, 224, 64, 11, 4, 2), (64, 27, 192, 5, 1, 2), (192, 13, 384, 3, 1, 1)):
        yield "alexnet-torch", _square(32, c, side, o, *more)
    for c, o in ((384, 256), (256, 256)):
        yield "alexnet-torch", _square(32, c, 13, o, 3, 1, 1)
    yield "alexnet-book", _square(32, 1, 224, 96, 11, 4)
    for c, side, o, *more in ((96, 26, 256, 5, 1, 2), (256, 12, 384, 3, 1, 1), (384, 12, 384, 3, 1, 1)):
        yield "alexnet-book", _square(64, c, side, o, *more)
    yield "alexnet-book", _square(128, 384, 12, 256, 3, 1, 1)
    for c, side, o in ((3, 32, 64), (64, 16, 192), (192, 8, 384), (384, 8, 256)):
        yield "alexnet-cifar", _square(128, c, side, o, 3, 2 if c == 3 else 1, 1)
    for i, o in ((9216, 4096), (6400, 4096), (4096, 4096), (4096, 1000), (1024, 4096), (4096, 10)):
        yield "alexnet", Dense((64,), i, o)


def _vgg_and_resnet() -> Iterator[tuple[str, Layer]]:
    widths = (3, 64, 64, 128, 128, 256, 256, 512, 512)
    for first, batch in ((224, 4), (32, 64)):
        for n, (c, o) in enumerate(pairwise(widths)):
            yield f"vgg-{first}", _square(batch, c, first >> (n // 2), o, 3, 1, 1)
        yield f"vgg-{first}", _square(batch, 512, first >> 4, 512, 3, 1, 1)
    yield "vgg", Dense((32,), 25088, 4096)
    yield "resnet", _square(8, 3, 224, 64, 7, 2, 3)
    for n, c in enumerate((64, 128, 256, 512)):
        side = 56 >> n
        yield "resnet18", _square(8, c, side, c, 3, 1, 1)
        yield "resnet50", _square(8, 4 * c, side, c, 1)
        yield "resnet50", _square(8, c, side, 4 * c, 1)
        yield "resnet-batch", _square(1, c, side, c, 3, 1, 1)
        if n:
            yield "resnet18", _square(8, c // 2, 2 * side, c, 3, 2, 1)
            yield "resnet18", _square(8, c // 2, 2 * side, c, 1, 2)
            yield "resnet50", _square(8, 2 * c, 2 * side, 4 * c, 1, 2)
            yield "resnet50", _square(8, c, 2 * side, c, 3, 2, 1)
            yield "resnext", _square(4, 2 * c, side, 2 * c, 3, 1, 1, 1, 32)
        yield "dilated", _square(4, c, 28, c, 3, 1, 2, 2)
    for c, side in ((16, 32), (32, 16), (64, 8)):
        yield "resnet20", _square(64, c, side, c, 3, 1, 1)
        yield "resnet20", _square(64, c // 2, 2 * side, c, 3, 2, 1)
    yield "resnet", Normalised("batch", (8, 64, 56, 56))
    yield "resnet", Normalised("batch", (32, 512, 7, 7))
    yield "resnet", Dense((32,), 2048, 1000)


def _dense_and_mobile() -> Iterator[tuple[str, Layer]]:
    for side, channels in ((56, (64, 96, 224)), (28, (128, 160, 480)), (14, (256, 288, 992)), (7, (512, 544, 992))):
        for c in channels:
            yield "densenet", _square(8, c, side, 128, 1)
        yield "densenet", _square(8, 128, side, 32, 3, 1, 1)
        yield "densenet", _square(8, channels[-1] + 32, side, (channels[-1] + 32) // 2, 1)
    yield "mobilenet", _square(8, 3, 224, 32, 3, 2, 1)
    for c, side, o in ((32, 112, 64), (64, 56, 128), (128, 28, 256), (256, 14, 512), (512, 14, 512), (1024, 7, 1024)):
        yield "mobilenet", _square(8, c, side, c, 3, 1, 1, 1, c)
        yield "mobilenet", _square(8, c, 2 * side, c, 3, 2, 1, 1, c)
        yield "mobilenet", _square(8, c, side, o, 1)
    for c, side, o in ((16, 112, 24), (24, 56, 32), (32, 28, 64), (64, 14, 96), (96, 14, 160), (160, 7, 320)):
        yield "mobilenet2", _square(8, c, side, 6 * c, 1)
        yield "mobilenet2", _square(8, 6 * c, side, 6 * c, 3, 1, 1, 1, 6 * c)
        yield "mobilenet2", _square(8, 6 * c, side, o, 1)
    for c, side, taps in ((40, 28, 5), (80, 14, 5), (112, 14, 5), (192, 7, 5), (672, 7, 3)):
        yield "efficientnet", _square(4, 6 * c, side, 6 * c, taps, 1, taps // 2, 1, 6 * c)
        yield "efficientnet", _square(4, 6 * c, side, c + 16, 1)
    for c, o in ((16, 64), (32, 128), (48, 192), (64, 256)):
        yield "squeezenet", _square(8, c, 27, o, 3, 1, 1)
        yield "squeezenet", _square(8, 2 * o, 27, c, 1)
    for c, side in ((96, 56), (192, 28), (384, 14), (768, 7)):
        yield "convnext", _square(4, c, side, c, 7, 1, 3, 1, c)
        yield "convnext", Dense((4 * side * side,), c, 4 * c)
        yield "convnext", Dense((4, side * side), 4 * c, c)
        if c < 768:
            yield "convnext", _square(4, c, side, 2 * c, 2, 2)
    yield "convnext", _square(4, 3, 224, 96, 4, 4)


def _pictures() -> Iterator[tuple[str, Layer]]:
    for c, side, o in ((1, 572, 64), (64, 570, 64), (64, 284, 128), (128, 140, 256), (256, 68, 512), (512, 32, 1024)):
        yield "unet", _square(1, c, side, o, 3)
    for c, side in ((1024, 28), (512, 52), (256, 100), (128, 196)):
        yield "unet", Transposed(1, c, (side, side), c // 2, (2, 2), 2)
        yield "unet", _square(1, c, 2 * side, c // 2, 3)
    for c, side, o in ((3, 128, 32), (32, 64, 64), (64, 32, 128), (128, 16, 256), (256, 16, 128), (128, 128, 2)):
        yield "unet-small", _square(4, c, side, o, 1 if o == 2 else 3, 1, 0 if o == 2 else 1)
    yield "dcgan", Transposed(16, 100, (1, 1), 512, (4, 4))
    for c, side, o in ((512, 4, 256), (256, 8, 128), (128, 16, 64), (64, 32, 3)):
        yield "dcgan", Transposed(16, c, (side, side), o, (4, 4), 2, 1)
        yield "dcgan", _square(16, o, 2 * side, c, 4, 2, 1)
        yield "dcgan-deconv", Transposed(8, c, (side, side), o, (3, 3), 2, 1, 1)
    yield "dcgan", _square(16, 512, 4, 1, 4)
    for c, side, o in ((3, 64, 32), (32, 31, 64), (64, 14, 128), (128, 6, 256)):
        yield "vae", _square(16, c, side, o, 4, 2)
    for c, side, o in ((1, 28, 6), (6, 14, 16), (1, 28, 32), (32, 26, 64)):
        yield "lenet", _square(64, c, side, o, 5 if o < 32 else 3, 1, 2 if c == 1 and o == 6 else 0)
    for c, o in ((64, 256), (64, 64), (3, 64), (64, 12)):
        yield "srresnet", _square(4, c, 48, o, 9 if 3 in (c, o) else 3, 1, 4 if 3 in (c, o) else 1)
    for c, side, o, taps in ((192, 28, 96, 1), (96, 28, 208, 3), (16, 14, 48, 5), (832, 7, 384, 1), (480, 14, 192, 1)):
        yield "inception", _square(8, c, side, o, taps, 1, taps // 2)
    for c in (128, 160, 192):
        yield "inception3", Convolution(4, c, (17, 17), c, (1, 7))
        yield "inception3", Convolution(4, c, (17, 17), c, (7, 1))
    for c, side, o in ((3, 84, 16), (4, 84, 32), (32, 20, 64), (64, 9, 64)):
        yield "dqn", _square(32, c, side, o, 8 if side == 84 else 4 if side == 20 else 3, 4 if side == 84 else 1)
    for taps, stride, padding, dilation in ((4, 3, 3, 2), (7, 2, 0, 1), (2, 1, 1, 1), (6, 2, 2, 1), (3, 3, 1, 3)):
        yield "odd", Convolution(3, 104, (9, 34), 64, (taps, taps), stride, padding, dilation)
        yield "odd", Convolution(18, 4, (58, 33), 16, (taps, taps), stride, padding, dilation)


def _lines_and_volumes() -> Iterator[tuple[str, Layer]]:
    for c, length, o, taps, stride, padding, dilation in (
        (1, 16000, 64, 80, 4, 38, 1),
        (1, 16000, 512, 10, 5, 0, 1),
        (512, 3199, 512, 3, 2, 0, 1),
        (64, 1000, 128, 3, 1, 1, 1),
        (128, 500, 128, 25, 4, 11, 1),
        (64, 512, 64, 2, 1, 4, 4),
        (64, 512, 64, 3, 1, 32, 32),
        (80, 300, 384, 3, 1, 1, 1),
        (384, 300, 384, 3, 2, 1, 1),
        (300, 60, 100, 5, 1, 0, 1),
        (40, 33, 100, 5, 1, 2, 1),
    ):
        yield "line", Convolution(8, c, (length,), o, (taps,), stride, padding, dilation)
    yield "line", Transposed(8, 128, (125,), 64, (25,), 4, 11, 1)
    yield "line", Transposed(4, 512, (40,), 256, (16,), 8, 4)
    yield "line", Convolution(4, 256, (200,), 256, (31,), 1, 15, 1, 256)
    for c, side, o in ((3, (16, 56, 56), 64), (64, (16, 28, 28), 128), (128, (8, 14, 14), 256), (256, (4, 7, 7), 512)):
        yield "c3d", Convolution(1, c, side, o, (3, 3, 3), 1, 1)
    yield "c3d", Convolution(1, 16, (12, 24, 24), 32, (3, 3, 3), 2, 1)
    yield "c3d", Transposed(1, 32, (6, 8, 8), 16, (2, 2, 2), 2)


def _transformers() -> Iterator[tuple[str, Layer]]:
    yield "vit", _square(8, 3, 224, 768, 16, 16)
    yield "vit", _square(8, 3, 224, 384, 14, 14)
    yield "vit-cifar", _square(64, 3, 32, 384, 4, 4)
    for width, tokens, batch in ((384, 256, 16), (768, 197, 8), (1024, 50, 8), (192, 65, 32)):
        yield "vit", Dense((batch, tokens), width, 3 * width)
        yield "vit", Dense((batch, tokens), width, 4 * width)
        yield "vit", Dense((batch * tokens,), 4 * width, width)
        yield "vit", Normalised("layer", (batch, tokens, width))
        yield "vit", Attention(batch, width // 64, tokens, tokens, 64)
    for width, tokens, batch in ((768, 128, 8), (1024, 384, 2), (256, 512, 4), (312, 77, 4)):
        yield "bert", Dense((batch, tokens), width, width)
        yield "bert", Dense((batch * tokens,), width, 4 * width)
        yield "bert", Dense((batch, tokens), 4 * width, width)
        yield (
            "bert",
            Attention(batch, width // (26 if width == 312 else 64), tokens, tokens, 26 if width == 312 else 64),
        )
        yield "bert", Normalised("layer", (batch, tokens, width))
    yield "bert", Dense((8, 128), 768, 2)
    yield "bert", Dense((256,), 768, 30522)
    for width, tokens, batch in ((768, 1024, 1), (384, 256, 16), (64, 100, 8)):
        yield "gpt", Attention(batch, max(1, width // 64), tokens, tokens, 64, True)
        yield "gpt", Dense((batch, tokens), width, 65)
    for q, k, d in ((1, 300, 64), (100, 333, 32), (128, 128, 128), (64, 77, 40), (33, 257, 96)):
        yield "cross", Attention(4, 4, q, k, d)
    for rows, width, outputs in ((196, 512, 256), (196, 256, 384), (64, 128, 64)):
        yield "mixer", Dense((16, rows), width, outputs)
        yield "mixer", Dense((16, width), rows, outputs)
    for i, o in ((784, 256), (256, 10), (13, 1), (100, 50), (1, 64), (4096, 4096), (333, 777), (12288, 16)):
        yield "mlp", Dense((64,), i, o)


def _recurrences() -> Iterator[tuple[str, Layer]]:
    for kind, batch, steps, inputs, width in (
        ("LSTM", 64, 28, 28, 128),
        ("LSTM", 16, 35, 200, 200),
        ("LSTM", 8, 20, 224, 224),
        ("LSTM", 4, 12, 100, 512),
        ("LSTM", 20, 10, 650, 650),
        ("GRU", 16, 20, 256, 256),
        ("GRU", 32, 10, 64, 100),
        ("GRU", 4, 12, 300, 1024),
        ("RNN", 32, 30, 57, 128),
        ("RNN", 8, 16, 128, 512),
        ("RNN", 1, 40, 26, 32),
        ("GRU", 1, 25, 13, 48),
    ):
        yield kind.lower(), Recurrent(kind, batch, steps, inputs, width)


def _smaller(layer: Layer, most: float, batch: int) -> Layer:
    """The layer at a smaller batch, or on smaller images, within a limit for the number of products in a sum.

    Channels stay, because tile sizes, padding and masks depend on them; so do widths up to 2048.
    """
    if batch and hasattr(layer, "batch"):
        layer = layer._replace(batch=min(layer.batch, batch))  # type: ignore[attr-defined]
    while layer.work > most:
        match layer:
            case Convolution() | Transposed() | Attention() | Recurrent() if layer.batch > 1:  # type: ignore[attr-defined]
                layer = layer._replace(batch=(layer.batch + 1) // 2)
            case Convolution() | Transposed() if max(layer.extents) > 16:  # type: ignore[attr-defined]
                smaller = tuple([max(min(e, 9), e * 3 // 4) for e in layer.extents])
                layer = layer._replace(extents=smaller)
            case Dense() if max(layer.rows) > 32:  # type: ignore[attr-defined]
                layer = layer._replace(rows=tuple([max(min(r, 8), r * 3 // 5) for r in layer.rows]))
            case Attention() if max(layer.queries, layer.keys) > 64:  # type: ignore[attr-defined]
                layer = layer._replace(queries=-(-layer.queries * 3 // 4), keys=-(-layer.keys * 3 // 4))
            case Recurrent() if layer.steps > 4:  # type: ignore[attr-defined]
                layer = layer._replace(steps=layer.steps // 2)
            case Normalised() if layer.shape[0] > 2:  # type: ignore[attr-defined]
                layer = layer._replace(shape=(layer.shape[0] // 2, *layer.shape[1:]))  # type: ignore[attr-defined]
            case Dense() if max(layer.inputs, layer.outputs) > 2048:  # type: ignore[attr-defined]
                layer = layer._replace(inputs=-(-layer.inputs // 2), outputs=-(-layer.outputs // 2))
            case _:
                return layer
    return layer


def _drawn(layer: Layer, drawn: random.Random) -> Layer:
    """The same layer with sizes a little off: tiles and lines end elsewhere then."""
    near = lambda n: max(1, n + drawn.choice((-3, -1, 0, 0, 1, 2, 5)))  # noqa: E731
    match layer:
        case Convolution(groups=1):
            extents = tuple([max(near(e), layer.dilation * (t - 1) + 1) for e, t in zip(layer.extents, layer.taps)])
            return layer._replace(channels=near(layer.channels), outputs=near(layer.outputs), extents=extents)
        case Convolution():
            return layer._replace(extents=tuple([e + drawn.randrange(4) for e in layer.extents]))
        case Transposed():
            return layer._replace(channels=near(layer.channels), extents=tuple([near(e) for e in layer.extents]))
        case Dense():
            return Dense(tuple([near(r) for r in layer.rows]), near(layer.inputs), near(layer.outputs), layer.how)
        case Attention():
            return layer._replace(queries=(q := near(layer.queries)), keys=q if layer.causal else near(layer.keys))
        case Normalised():
            return layer._replace(shape=tuple([near(e) for e in layer.shape]))  # type: ignore[attr-defined]
        case Recurrent():
            return layer._replace(width=near(layer.width), inputs=near(layer.inputs))
    raise AssertionError(layer)
