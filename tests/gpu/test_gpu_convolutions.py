"""bfloat16 convolutions with their gradients on the GPU, compared with float64."""

import numpy as np
import pytest

import tilegrad as tg

CASES = {
    "padded": (4, 32, (17, 19), 72, (3, 3), 1, 1, 1, 1),
    "wide": (3, 96, (28, 28), 256, (5, 5), 1, 2, 1, 1),
    "first": (2, 1, (64, 65), 96, (11, 11), 4, 0, 1, 1),
    "colours": (2, 3, (61, 60), 64, (7, 7), 2, 3, 1, 1),
    "dilated": (2, 64, (15, 14), 128, (3, 3), 1, 2, 2, 1),
    "one tap": (2, 64, (20, 20), 128, (1, 1), 2, 0, 1, 1),
    "stride": (4, 48, (13, 13), 64, (3, 3), 2, 1, 1, 1),
    "groups": (2, 128, (9, 9), 128, (3, 3), 1, 1, 1, 2),
    "line": (4, 40, (33,), 100, (5,), 1, 2, 1, 1),
    "volume": (2, 16, (6, 7, 8), 64, (3, 3, 3), 1, 1, 1, 1),
    "few": (64, 6, (14, 14), 16, (5, 5), 1, 0, 1, 1),
    "two to four times": (8, 128, (28, 28), 256, (3, 3), 2, 1, 1, 1),
    "many channels": (8, 512, (7, 7), 512, (3, 3), 1, 1, 1, 1),
    "one image": (1, 512, (7, 7), 512, (3, 3), 1, 1, 1, 1),
    "third of AlexNet, 128": (128, 256, (12, 12), 384, (3, 3), 1, 1, 1, 1),
    "third of AlexNet, 512": (512, 256, (12, 12), 384, (3, 3), 1, 1, 1, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_convolution(name: str) -> None:
    torch = pytest.importorskip("torch")
    batch, channels, extents, outputs, taps, stride, padding, dilation, groups = CASES[name]
    rng = np.random.default_rng(0)
    scale = (channels // groups * np.prod(taps)) ** -0.5
    shapes = ((batch, channels, *extents), (outputs, channels // groups, *taps), (outputs,))
    arrays = [rng.standard_normal(shape) * s for shape, s in zip(shapes, (1, scale, 1), strict=True)]
    theirs = [torch.tensor(a).bfloat16().double().cuda().requires_grad_() for a in arrays]
    how = (stride, padding, dilation, groups)
    wanted = getattr(torch.nn.functional, f"conv{len(taps)}d")(*theirs, *how)
    upstream = torch.tensor(rng.standard_normal(wanted.shape)).bfloat16().double().cuda()
    gradients = torch.autograd.grad(wanted, theirs, upstream)

    def both(x, w, b, y):  # type: ignore[no-untyped-def]
        made = getattr(tg.nn.functional, f"conv{len(taps)}d")(x, w, b, *how)
        return made, *tg.autograd.grad(made, (x, w, b), y)

    ours = [tg.tensor(x.detach().cpu().numpy()).to(tg.bfloat16).cuda() for x in (*theirs, upstream)]
    for x in ours[:3]:
        x.requires_grad = True
    for found, right in zip(tg.jit(both)(*ours), (wanted, *gradients), strict=True):
        right = right.detach().cpu().numpy()
        found = found.detach().float().cpu().numpy()
        assert np.linalg.norm(found - right) <= 1e-2 * np.linalg.norm(right)
