"""Everything that a kernel for threads, or its launch, can be wrong about, each with its own words."""

import re
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.simt.making import made
from tilegrad import simt
from tilegrad.errors import (
    ArgumentError,
    DeviceError,
    InPlaceError,
    KernelError,
    KernelFault,
    KernelLaunchError,
    KernelSourceError,
    LaunchError,
    TraceError,
)

SOURCE = {
    "an unknown name": ("y = threads", "`threads` is not defined"),
    "an unknown function of simt": ("y = simt.sync()", "there is no tilegrad.simt.sync"),
    "a part of a vector": ("y = threadIdx.w", "threadIdx has x, y and z, and no w"),
    "a whole vector": ("y = threadIdx + 1", "threadIdx has three parts: threadIdx.x, .y or .z"),
    "pointer arithmetic": ("y = x + 1", "pointers are not added to"),
    "a pointer's length": ("y = len(x)", "pointers have no length: pass it as an argument"),
    "a pointer's shape": ("y = x.shape", "a pointer, which has only a dtype"),
    "two indices of a pointer": ("y = x[1, 2]", "x[row * width + column]"),
    "a slice": ("y = x[1:2]", "slices are not part of the language"),
    "an index with a fraction": ("y = x[i / 2.0]", "an index is a whole number, and this is float32"),
    "an index outside": (
        "s = shared(float32, 4)\ns[4] = 1.0", "index 4 is outside of axis 0 of `s`, which has 4 elements"
    ),
    "too few indices": ("s = shared(float32, (4, 4))\ns[1] = 1.0", "`s` has 2 axes ([4, 4]), and 1 indices are given"),
    "a quotient of whole numbers": ("y = n / 2", "`/` of two whole numbers (int32, 2): // is the quotient as in C"),
    "a power of whole numbers": ("y = n ** 2", "write the products"),
    "a remainder of floats": ("y = x[0] % 2.0", "write simt.fmod(x, y)"),
    "bits of floats": ("y = x[0] & 1", "`&` is for whole numbers and truth values"),
    "a matrix product": ("y = n @ n", "`@` is not part of the language"),
    "is": ("y = n is N", "compare with =="),
    "two types": ("y = n\ny = x[0]", "`y` is int32 elsewhere in the kernel, and here it is given float32"),
    "a type that is said": ("y: simt.int32 = x[0]", "`y` is int32, and is given float32"),
    "a type that is none": ("y: N = 1", "the type of `y` is an element type"),
    "half": ("y: simt.float16 = 1.0", "kernels per thread compute with float32 and float64"),
    "a value on one way": ("if n > 3:\n    y = 1\nz = y", "`y` is assigned only on one way of the `if` above"),
    "a value in a loop": ("for k in range(n):\n    y = k\nz = y", "`y` is assigned only inside the loop above"),
    "a loop's variable after it": (
        "for k in range(n):\n    pass\ny = k", "`k` is counted by the loop above and ends with it"
    ),
    "a loop's variable assigned": ("for k in range(n):\n    k = 3", "`k` is counted by the loop around"),
    "a loop over an array": ("for k in x:\n    pass", "a loop runs over range(...)"),
    "a loop to a fraction": ("for k in range(2.5):\n    pass", "a bound of a loop is a whole number"),
    "a step of nothing": ("for k in range(0, 4, 0):\n    pass", "the step of a loop is not 0"),
    "a loop with else": ("for k in range(3):\n    pass\nelse:\n    y = 1", "a loop has no else"),
    "an endless loop": ("while True:\n    pass", "this loop never ends: it has no break and no return"),
    "shared memory in a branch": ("if n > 3:\n    s = shared(float32, 4)", "stands at the beginning of a kernel"),
    "shared memory of unknown size": (
        "s = shared(float32, n)", "or use simt.dynamic_shared(dtype), whose size the launch"
    ),
    "shared memory of no size": ("s = shared(float32, 0)", "whole numbers from 1 on, and not 0"),
    "two dynamic arrays": ("s = dynamic_shared(float32)\nr = dynamic_shared(float32)", "has one dynamic_shared array"),
    "two names of an array": ("y = x", "an array has one name: use `x` itself"),
    "an array assigned": ("x = 3", "`x` is an array: assign its elements, x[i] = ..."),
    "a constant assigned": ("N = 3", "`N` is a constant of the kernel"),
    "shared memory of a device function": ("y = with_shared(n)", "pass the array to the device function"),
    "a function of Python": ("y = plain(n)", "plain is a function of Python: mark it with @simt.device"),
    "a recursion": ("y = endless(n)", "endless calls itself: write a loop"),
    "a result on one way": (
        "y = sometimes(n)", "sometimes returns a number on one way through it, and nothing on another"
    ),
    "a constant that is computed": (
        "y = static(n, n)", "`N` of static is a constexpr, and int32 is known only when it runs"
    ),
    "arguments of a function": ("y = twice(n, n)", "twice: too many positional arguments; it takes (x)"),
    "a kernel called": ("child(x, n)", "child is a kernel: launch it, child[blocks, threads](...)"),
    "a launch as a value": ("y = child[1, 1](x, n)", "a launch stands on a line of its own"),
    "a launch without threads": ("child[1](x, n)", "a launch has blocks and threads"),
    "shared memory for a child": ("s = shared(float32, 4)\nchild[1, 1](s, n)", "can be given global memory only"),
    "a kernel of the tile language": ("tile(x)", "tile is a kernel of the tile language (@tg.kernel)"),
    "an atomic without a place": ("atomicAdd(x, 1.0)", "atomicAdd changes an element of an array"),
    "an atomic of bits of floats": ("atomicAnd(x[0], 1)", "atomicAnd is for whole numbers of 32 or 64 bits"),
    "an atomic of a local array": ("s = local(int32, 4)\natomicAdd(s[0], 1)", "is a thread's own"),
    "a mask that is computed": ("y = shfl_sync(n, n, 0)", "the mask of lanes is a constant: 0xffffffff for all 32"),
    "a width that is none": ("y = shfl_sync(ALL_LANES, n, 0, 7)", "the width of a shuffle is a constant, 1, 2, 4, 8"),
    "a barrier in an expression": ("y = syncthreads()", "syncthreads() stands on a line of its own"),
    "a barrier with an argument": ("syncthreads(3)", "syncthreads takes 0 arguments, and 1 are given"),
    "floats in a whole-numbered array": ("out[i] = 0.5", "`out` is int32, and float32 is stored: convert it"),
    "nothing done": ("n + 1", "this computes something and does nothing with it"),
    "a result of a kernel": ("return n", "a kernel returns nothing: store what it computes in an array"),
    "print": ("print(n)", "kernels do not print"),
    "a tensor from outside": ("y = TENSOR[0]", "`TENSOR` is a tensor outside of the kernel: make it a parameter"),
    "a list from outside": ("y = LIST[0]", "[1, 2] has no elements: only arrays have"),
    "a list": ("y = [1, 2]", "kernels have no lists: simt.local(simt.float32, 8)"),
    "a comprehension": ("y = [k for k in range(3)]", "kernels have no comprehensions"),
    "a lambda": ("y = lambda a: a", "written outside of them, with @simt.device"),
    "a walrus": ("y = (z := 3)", "write the assignment on a line of its own"),
    "try": ("try:\n    y = 1\nexcept ValueError:\n    y = 2", "kernels have no exceptions"),
    "raise": ("raise ValueError", "use assert, which the simulator sees to"),
    "with": ("with n:\n    y = 1", "kernels have no `with`"),
    "an import": ("import math", "imports stand outside of kernels"),
    "a function inside": ("def f():\n    pass", "written outside of them, with @simt.device"),
    "global": ("global SIZE\nSIZE = 3", "a kernel changes nothing outside"),
    "several names": ("a, b = n", "several names are given as many expressions"),
    "numpy": ("y = np.sqrt(n)", "is not part of the language of kernels"),
    "a large number": ("y = 2 ** 70 + n", "does not fit in 64 bits"),
}  # fmt: skip
"""A line of a kernel, and the message for its author."""

X, OUT = tg.tensor(np.ones(8, np.float32)), tg.tensor(np.zeros(8, np.int32))


def test_the_table_is_long_enough() -> None:
    assert len(SOURCE) >= 40


@pytest.mark.parametrize("case", SOURCE)
def test_wrong_source(case: str) -> None:
    body, told = SOURCE[case]
    with pytest.raises(KernelSourceError) as raised:
        made(f"i = threadIdx.x\n{body}\nout[i] = n")[1, 8](X, OUT, 8, N=4)
    message = str(raised.value)
    assert told in message
    assert re.search(r"^kernel \w+, <threads \d+>:\d+: ", message), message
    assert re.search(r"^ +\^+", message, re.MULTILINE), message


COPY = "i = blockIdx.x * blockDim.x + threadIdx.x\nif i < n:\n    out[i] = int32(x[i])"
LAUNCHES: dict[str, tuple[Any, type[Exception], str]] = {
    "no configuration": (
        lambda k: k(X, OUT, 8, 4), KernelError, "is launched with blocks and threads: k[grid, block](...)"
    ),
    "blocks only": (lambda k: k[4](X, OUT, 8, 4), KernelLaunchError, "k[grid, block]"),
    "four parts": (lambda k: k[1, 1, 0, 0](X, OUT, 8, 4), KernelLaunchError, "4 are given"),
    "too many threads": (
        lambda k: k[1, 1025](X, OUT, 8, 4), LaunchError,
        "1025 threads along axis x of a block (1025, 1, 1): H200 allows 1 to 1024",
    ),
    "too many threads along z": (
        lambda k: k[1, (1, 1, 65)](X, OUT, 8, 4), LaunchError,
        "65 threads along axis z of a block (1, 1, 65): H200 allows 1 to 64",
    ),
    "too many threads in all": (
        lambda k: k[1, (64, 32)](X, OUT, 8, 4), LaunchError,
        "2048 threads in a block (64, 32, 1): H200 allows 1 to 1024",
    ),
    "no threads": (lambda k: k[1, 0](X, OUT, 8, 4), LaunchError, "0 threads along axis x of a block (0, 1, 1)"),
    "no blocks": (
        lambda k: k[0, 32](X, OUT, 8, 4), LaunchError,
        "0 blocks along axis x of the grid (0, 1, 1): H200 allows 1 to 2147483647",
    ),
    "too many blocks along y": (
        lambda k: k[(1, 65536), 32](X, OUT, 8, 4), LaunchError,
        "65536 blocks along axis y of the grid (1, 65536, 1): H200 allows 1 to",
    ),
    "too much shared memory": (
        lambda k: k[1, 32, 300_000](X, OUT, 8, 4), LaunchError,
        "300000 bytes of shared memory (dynamic): H200 allows 232448",
    ),
    "too much for a T4": (
        lambda k: k.simulate(gpu="T4")[1, 32, 100_000](X, OUT, 8, 4), LaunchError,
        "T4 allows 65536 for a block; use smaller tiles",
    ),
    "shared memory below nothing": (lambda k: k[1, 32, -1](X, OUT, 8, 4), LaunchError, "-1 bytes of shared memory"),
    "a grid with a fraction": (
        lambda k: k[8 / 4, 4](X, OUT, 8, 4), KernelLaunchError, "tilegrad.cdiv(n, threads) rounds up"
    ),
    "a grid of four axes": (
        lambda k: k[(1, 1, 1, 1), 4](X, OUT, 8, 4), KernelLaunchError, "a grid has one to three axes"
    ),
    "too few arguments": (lambda k: k[1, 8](X, OUT), KernelLaunchError, "missing a required argument: 'n'"),
    "an unknown argument": (lambda k: k[1, 8](X, OUT, 8, 4, M=4), KernelLaunchError, "unexpected keyword argument"),
    "an array": (lambda k: k[1, 8](X.numpy(), OUT, 8, 4), KernelLaunchError, "`x` is ndarray: tilegrad.tensor(x)"),
    "a text": (lambda k: k[1, 8](X, OUT, "8", 4), KernelLaunchError, "`n` is str: a kernel takes tensors and numbers"),
    "a tensor as a constant": (
        lambda k: k[1, 8](X, OUT, 8, X), KernelLaunchError, "`N` is a constexpr, and Tensor is none"
    ),
    "a view": (
        lambda k: k[1, 8](X.reshape(2, 4).T, OUT, 8, 4), KernelLaunchError,
        "a kernel sees elements in a row; give it .contiguous()",
    ),
    "a tensor on another device": (
        lambda k: k[1, 8](X.to("reference"), OUT.to("reference"), 8, 4), DeviceError, "run on cpu and cuda"
    ),
    "two devices": (lambda k: k[1, 8](X.to("reference"), OUT, 8, 4), DeviceError, "bring them to one device"),
    "tensors that overlap": (
        lambda k: k[1, 8](OUT[:4], OUT[2:6], 4, 4), KernelLaunchError, "`x` and `out` overlap in memory"
    ),
    "a tensor with a gradient": (
        lambda k: made("x[0] = 1.0")[1, 1](tg.ones(3, requires_grad=True), OUT, 8, 4), InPlaceError, "no derivative"
    ),
    "while traced": (lambda k: tg.jit(lambda a: k[1, 8](a, OUT, 8, 4))(X), TraceError, "while a function is traced"),
    "a GPU that is not in the table": (
        lambda k: k.simulate(gpu="GTX 480")[1, 8](X, OUT, 8, 4), ArgumentError, "V100, T4"
    ),
    "no launch yet": (lambda k: k.source(), KernelError, "has not been read yet"),
    "no counters yet": (lambda k: k.counters, KernelError, "has not run on the CPU"),
    "another source": (lambda k: k.source("ptx"), KernelError, "as 'cuda', and not as 'ptx'"),
}  # fmt: skip


@checklist(127)
@pytest.mark.parametrize("case", LAUNCHES)
def test_wrong_launches(case: str) -> None:
    launch, error, told = LAUNCHES[case]
    with pytest.raises(error, match=re.escape(told)):
        launch(made(COPY))


RUNS = {
    "a division by zero": ("out[i] = n // i", "division by zero"),
    "a remainder of a division by zero": ("out[i] = n % i", "remainder of a division by zero"),
    "a shift that is too far": ("out[i] = n << (i + 31)", "a shift by 32 bits of a number that has 32"),
    "a negative index": ("out[i - 1] = n", "index -1 is outside of out"),
    "a column outside of a row": (
        "s = shared(float32, (4, 4))\ns[0, i] = 1.0",
        "index 4 along axis 1 is outside of s, which has 4 x 4 elements of float32 in shared",
    ),
    "a local array without values": (
        "s = local(float32, 4)\nout[i] = int32(s[i % 4])", "reads s[0], which no thread has written yet: a local array"
    ),
    "an assertion": ("assert i < 3, 'too many threads'", "the assertion does not hold: too many threads"),
    "a step below nothing": (
        "for k in range(0, 8, i - 4):\n    out[i] = k", "a step that is computed must be positive"
    ),
    "two stores to one element": ("out[0] = i", "race: writes out[0]"),
    "a store and an atomic": ("out[0] = i * 0 + 5\natomicAdd(out[0], i)", "race: changes (atomically) out[0]"),
    "a lane that is not there": (
        "out[i] = shfl_sync(ALL_LANES, i, 20)", "takes the value of lane 20, which does not take part"
    ),
    "a lane that the mask lacks": (
        "out[i] = shfl_sync(0xf, i, 0)", "reached by a lane that its mask 0xf does not name"
    ),
    "a warp barrier that some reach": (
        "if i < 4:\n    syncwarp()", "syncwarp() in divergent code: 4 of the 8 threads of this warp"
    ),
    "a shuffle that some reach": (
        "if i < 4:\n    n = shfl_sync(ALL_LANES, i, 0)", "shfl_sync in divergent code: 4 of the 8"
    ),
    "a loop without an end": ("while n > 0:\n    pass", "deadlock: this loop waits for a change"),
    "shared memory that no launch gave": (
        "s = dynamic_shared(float32)\ns[i] = 1.0", "index 0 is outside of s, which has 0 elements"
    ),
    "a child without blocks": ("if i == 0:\n    child[n - 8, 1](x, n)", "0 blocks along axis x of the grid (0, 1, 1)"),
}  # fmt: skip


@pytest.mark.parametrize("case", RUNS)
def test_wrong_runs(case: str) -> None:
    body, told = RUNS[case]
    with pytest.raises((KernelFault, LaunchError), match=re.escape(told)):
        made(f"i = threadIdx.x\n{body}")[1, 8](X, tg.tensor(np.zeros(8, np.int32)), 8, N=4)


def test_outside_of_kernels() -> None:
    with pytest.raises(KernelError, match="simt.syncthreads is called in kernels only"):
        simt.syncthreads()
    with pytest.raises(KernelError, match=r"threadIdx.x has a value in kernels only"):
        _ = simt.threadIdx.x


@simt.kernel
def in_tiles(out, N: simt.constexpr):  # type: ignore[no-untyped-def]
    part = simt.shared(tg.float32, N)
    part[simt.threadIdx.x] = 1.0
    out[simt.threadIdx.x] = part[simt.threadIdx.x]


def test_arrays_of_fixed_size_have_48_kib() -> None:
    """NVIDIA's compiler refuses more, whatever the GPU has; dynamic ones may have all of it."""
    out = tg.zeros(32)
    in_tiles[1, 32](out, 12 * 1024)
    assert out.tolist() == [1.0] * 32
    for way in (in_tiles, in_tiles.simulate(gpu="H100")):
        with pytest.raises(LaunchError, match="49156 bytes of static shared memory: CUDA allows 49152 of it"):
            way[1, 32](out, 12 * 1024 + 1)
