"""Networks and mutations for the tests of saved programs."""

import random
from collections.abc import Iterator
from functools import cache

import tilegrad as tg
from tests.nn.test_record import NETWORKS
from tilegrad.saved.exported import ExportedProgram

LENET = """tilegrad network 1
# LeNet-5 for 28 x 28 digits, written by hand
tensors:
  conv1.weight: parameter float32[6, 1, 5, 5]
  conv1.bias:   parameter float32[6]
  conv2.weight: parameter float32[16, 6, 5, 5]
  conv2.bias:   parameter float32[16]
  fc1.weight:   parameter float32[120, 256]
  fc1.bias:     parameter float32[120]
  fc2.weight:   parameter float32[10, 120]
  fc2.bias:     parameter float32[10]
evaluate(image: float32[n, 1, 28, 28]) -> tensor:
  c1 = conv2d(image, conv1.weight, conv1.bias)
  a1 = relu(c1)
  p1 = max_pool2d(a1, 2)
  c2 = conv2d(p1, conv2.weight, conv2.bias)
  a2 = relu(c2)
  p2 = max_pool2d(a2, kernel_size=(2, 2))
  f0 = flatten(p2, 1)
  f1 = linear(f0, fc1.weight, fc1.bias)
  a3 = relu(f1)
  scores = linear(a3, fc2.weight, fc2.bias)
  return scores
"""


@cache
def exported(name: str, dynamic: bool = True) -> ExportedProgram:
    """Export one of the networks."""
    make, example, sizes = NETWORKS[name]
    tg.manual_seed(3)
    return tg.export(make().eval(), example(3), dynamic=sizes if dynamic else None)


def mutations(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Yield damaged copies: flipped bits, cut, doubled and exchanged pieces, other numbers."""
    draw = random.Random(seed)
    for _ in range(count):
        made = bytearray(data)
        for _ in range(draw.choice((1, 1, 1, 2, 5))):
            at, to = sorted(
                (draw.randrange(len(made) + 1), min(draw.randrange(40) + draw.randrange(len(made) + 1), len(made)))
            )
            kind = draw.randrange(6)
            if kind == 0 and at < len(made):
                made[at] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del made[at:to]
            elif kind == 2:
                made[at:at] = made[at : min(to, at + 200)]
            elif kind == 3:
                made[at:at] = draw.choice(
                    (b"1152921504606846976", b"-", b"0", b"(" * 300, b"*n", b"9" * 5000, b"%0", b"\n")
                )
            elif kind == 4:
                digits = [n for n, byte in enumerate(made) if 48 <= byte <= 57]
                if digits:
                    made[draw.choice(digits)] = draw.choice(b"0123456789")
            else:
                lines = bytes(made).split(b"\n")
                x, y = draw.randrange(len(lines)), draw.randrange(len(lines))
                lines[x], lines[y] = lines[y], lines[x]
                made = bytearray(b"\n".join(lines))
            if not made:
                made = bytearray(b"\0")
        yield bytes(made)
