"""RGB to grey: three bytes in, one out; programs for squares of an image, and for stretches of it."""

import tilegrad as tg
import tilegrad.language as tl
from examples.kernels.frame import Climb


def grey(image: tg.Tensor) -> tg.Tensor:
    red, green, blue = image.float()
    return (0.2989 * red + 0.5870 * green + 0.1140 * blue).to(tg.uint8)


climb = Climb(
    "RGB to grey",
    inputs=lambda height, width: (tg.randint(0, 256, (3, height, width)).to(tg.uint8),),
    expected=grey,
    size={"height": 2160, "width": 3840},
    large={"height": 8640, "width": 15360},
    tiny=[{"height": 5, "width": 7}, {"height": 33, "width": 70}],
    bytes=lambda height, width: 4 * height * width,
    operations=lambda height, width: 5 * height * width,
    tolerance=1.001 / 255,  # a product that is rounded otherwise may fall on the other side of a whole number
)


@tg.kernel
def mixed(x, at, plane, inside):
    red = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    green = tl.load(x + plane + at, mask=inside, other=0).to(tl.float32)
    blue = tl.load(x + 2 * plane + at, mask=inside, other=0).to(tl.float32)
    return (0.2989 * red + 0.5870 * green + 0.1140 * blue).to(tl.uint8)


@tg.kernel
def square(x, out, height, width, SIDE: tl.constexpr):
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    at = row[:, None] * width + column[None, :]
    inside = (row[:, None] < height) & (column[None, :] < width)
    tl.store(out + at, mixed(x, at, height * width, inside), mask=inside)


@tg.kernel
def stretch(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, mixed(x, at, n, at < n), mask=at < n)


def in_squares(image: tg.Tensor, side: int) -> tg.Tensor:
    _, height, width = image.shape
    out = tg.empty(height, width, dtype=tg.uint8, device=image.device)
    square[(tg.cdiv(height, side), tg.cdiv(width, side))](image, out, height, width, SIDE=side)
    return out


@climb.step(on="cpu")
def pixels(image: tg.Tensor) -> tg.Tensor:
    """a program for each pixel"""
    return in_squares(image, 1)


@climb.step
def squares(image: tg.Tensor) -> tg.Tensor:
    """squares of 32 by 32 pixels"""
    return in_squares(image, 32)


@climb.step
def stretches(image: tg.Tensor) -> tg.Tensor:
    """stretches of 4,096 pixels: rows do not matter"""
    _, height, width = image.shape
    out = tg.empty(height, width, dtype=tg.uint8, device=image.device)
    stretch[(tg.cdiv(height * width, 4096),)](image, out, height * width, BLOCK=4096)
    return out


if __name__ == "__main__":
    climb.main()
