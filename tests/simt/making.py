"""Kernels for threads from text, as if it stood in a file."""

from tests.from_text import from_text
from tilegrad.simt import ThreadKernel

HEAD = """import math
import numpy as np
import tilegrad as tg
import tilegrad.language as tl
from tilegrad import simt
from tilegrad.simt import *

LIST = [1, 2]
TENSOR = tg.ones(3)

def plain(x):
    return x

@simt.device
def twice(x):
    return x * 2

@simt.device
def endless(x):
    return endless(x)

@simt.device
def sometimes(x):
    if x > 0:
        return x

@simt.device
def with_shared(x):
    part = shared(float32, 4)
    return x

@simt.device
def static(x, N: simt.constexpr):
    return x * N

@simt.kernel
def child(x, n):
    x[0] = n

@tg.kernel
def tile(x):
    pass

"""


def made(body: str, parameters: str = "x, out, n, N: simt.constexpr") -> ThreadKernel:
    """The kernel `k` with this body."""
    lines = "".join(f"    {line}\n" for line in body.strip("\n").split("\n"))
    text = f"{HEAD}@simt.kernel\ndef k({parameters}):\n{lines}"
    found: ThreadKernel = from_text(text, "threads")["k"]
    return found
