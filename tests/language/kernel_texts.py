"""Kernels from text, as if it stood in a file."""

import tilegrad as tg
import tilegrad.language as tl
from tests.from_text import from_text
from tilegrad.language.kernel import KernelFunction

HEAD = """import math
import numpy as np
import tilegrad as tg
import tilegrad.language as tl
from tilegrad.language import kernel

SIZE = 8
TENSOR = [1, 2]

def plain(x):
    return x

@kernel
def twice(x):
    return x * 2

@kernel
def endless(x):
    return endless(x)

@kernel
def static(x, N: tl.constexpr):
    return x + tl.arange(0, N)

@kernel
def added(a, b):
    return a + b

@kernel
def second(a, b):
    return b

@kernel
def better(v, i, w, j):
    c = v > w
    return tl.where(c, v, w), tl.where(c, i, j)

@kernel
def swapped(a, b):
    return b, a

@kernel
def one_of_two(a, b):
    return a

@kernel
def two_of_two(a, b):
    return a, b

"""


def made(body: str, parameters: str = "x, out, n, BLOCK: tl.constexpr") -> KernelFunction:
    """The kernel `k` with this body."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    text = f"{HEAD}@kernel\ndef k({parameters}):\n{lines}"
    found: KernelFunction = from_text(text, "kernel")["k"]
    return found


def launched(body: str, how: str = "run", grid: object = (4,), n: int = 30) -> tuple[tg.Tensor, tg.Tensor]:
    """A kernel with this body on n numbers of x, into n of out, by blocks of 8; `v` is x at the places `i`."""
    start = "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\nm = i < n\nv = tl.load(x + i, mask=m, other=0.0)\n"
    k = made(start + body)
    x, out = tg.arange(n).float() + 1, tg.empty(n)
    {"run": k, "check": k.check, "race": k.race}[how][grid](x, out, n, BLOCK=8)  # type: ignore[index]
    return x, out


__all__ = ["launched", "made", "tl"]
