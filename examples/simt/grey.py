"""A picture from colour to grey: blocks of 16 x 16 threads, whatever its size."""

import tilegrad as tg
from tilegrad import simt
from tilegrad.simt import blockDim, blockIdx, threadIdx


@simt.kernel
def grey(picture, out, width, height):
    """Neighbouring threads (x) work on neighbouring columns: so a warp's accesses lie side by side."""
    column = blockIdx.x * blockDim.x + threadIdx.x
    row = blockIdx.y * blockDim.y + threadIdx.y
    if column < width and row < height:
        i = row * width + column
        size = width * height
        out[i] = 0.21 * picture[i] + 0.72 * picture[size + i] + 0.07 * picture[2 * size + i]


def to_grey(picture: tg.Tensor) -> tg.Tensor:
    _, height, width = picture.shape
    out = tg.empty(height, width, device=picture.device)
    grey[(tg.cdiv(width, 16), tg.cdiv(height, 16)), (16, 16)](picture, out, width, height)
    return out


def main() -> None:
    picture = tg.rand(3, 100, 150)
    print("right:", tg.allclose(to_grey(picture), 0.21 * picture[0] + 0.72 * picture[1] + 0.07 * picture[2], atol=1e-6))
    print(grey.report())


if __name__ == "__main__":
    main()
