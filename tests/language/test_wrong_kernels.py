"""Every kind of wrong kernel, with the message for its author, at the line and with a caret."""

import linecache
import re

import pytest

import tilegrad as tg
import tilegrad.language as tl
from tests.language.kernel_texts import launched, made
from tilegrad.errors import DeviceError, InPlaceError, KernelError, KernelLaunchError, KernelSourceError

SOURCE: dict[str, tuple[str, str]] = {
    "an unknown function": ("tl.laod(x + i)", "there is no tl.laod; did you mean tl.load?"),
    "an unknown function of math": ("tl.math.expp(v)", "there is no tl.math.expp; did you mean tl.math.exp"),
    "a function of tl.math": ("y = tl.tanh(v)", "there is no tl.tanh; did you mean tl.math.tanh?"),
    "an unknown name": ("y = w + 1", "there is no `w`"),
    "a name with a typing error": ("y = BLOK + 1", "there is no `BLOK`; did you mean `BLOCK`?"),
    "a name before its value": ("y = later + 1\nlater = 2", "`later` has no value yet: it is assigned further down"),
    "an unknown method": ("y = v.summ(0)", "a tile has no summ; did you mean .sum?"),
    "matrix product by @": ("y = v @ v", "matrices are multiplied with tl.dot(x, y)"),
    "shapes that do not meet": ("y = v + tl.arange(0, 5)", "shapes [8] and [5] do not fit together"),
    "an element by its number": ("y = v[3]", "a tile is indexed by `:` and `None` only"),
    "a slice": ("y = v[0:4]", "elements are chosen with tl.where and tl.sum, or tl.gather"),
    "too many axes in an index": ("y = v[:, :, None]", "float32[8] has 1 axes, and the index has 2"),
    "an element assigned": ("v[0] = 1.0", "elements of a tile are not assigned: write y = tl.where"),
    "an attribute assigned": ("v.x = 1.0", "only names are assigned in kernels"),
    "a tile as condition": ("if v > 0:\n    y = 1", "a condition is one truth value, and this is bool[8]"),
    "a tile in a while": ("while v > 0:\n    v -= 1", "a condition is one truth value, and this is bool[8]"),
    "a pointer as condition": ("if x:\n    y = 1", "`p is not None` asks whether it was given"),
    "a pointer as a number": ("y = x * 2", "to a pointer integers can be added and subtracted"),
    "two pointers added": ("y = x + out", "to a pointer integers can be added and subtracted"),
    "a pointer moved by floats": ("y = tl.load(x + v)", "a pointer moves by integers, and not by float32[8]"),
    "a load through a number": ("y = tl.load(n)", "tl.load takes a pointer, and this is int32"),
    "a store through a number": ("tl.store(v, 1.0)", "tl.store takes a pointer, and this is float32[8]"),
    "a mask of integers": ("y = tl.load(x + i, mask=i)", "a mask is made of truth values, and this is int32[8]"),
    "a mask of another shape": ("y = tl.load(x + i, mask=tl.arange(0, 4) < 2)", "the mask"),
    "a mask for one pointer": ("y = tl.load(x, mask=m)", "a mask of shape [8] for one pointer"),
    "other without mask": ("y = tl.load(x + i, other=0.0)", "`other` without `mask`"),
    "a value of another shape": ("tl.store(out + i, tl.zeros([4], tl.float32))", "a value of shape [4] does not fit"),
    "a tile stored at one place": ("tl.store(out, v)", "a value of shape [8] does not fit"),
    "an argument too many": ("y = tl.exp(v, v)", "tl.exp: too many positional arguments"),
    "an argument missing": ("tl.store(out + i)", "tl.store: missing a required argument: 'value'"),
    "an unknown keyword": ("y = tl.load(x + i, msk=m)", "tl.load: got an unexpected keyword argument 'msk'"),
    "a length that is computed": ("y = tl.arange(0, n)", "must be known when the kernel is compiled"),
    "an empty range": ("y = tl.arange(4, 4)", "tl.arange(4, 4) has no elements"),
    "a shape that is computed": ("y = tl.zeros([n], tl.float32)", "make what it comes from a parameter"),
    "a shape of nothing": ("y = tl.zeros([0], tl.float32)", "the extents of a tile are positive, and not [0]"),
    "no element type": ("y = tl.zeros([8], 5)", "here an element type must stand, such as tl.float32"),
    "an unknown type": ("y = v.to(tl.float31)", "there is no tl.float31; did you mean tl.float32?"),
    "a function of floats": ("y = tl.exp(i)", "tl.exp takes floats, and this is int32[8]: convert it"),
    "bits of another width": ("y = v.to(tl.int64, bitcast=True)", "its bits cannot be read as i64"),
    "floats shifted": ("y = v << 1", "shl takes integers"),
    "floats divided to the floor": ("y = v // 2.0", "// is for integers, and these are floats"),
    "truth values added": ("y = m + m", "+ of two truth values: convert them with .to(tl.int32)"),
    "a number that does not fit": ("y = v.to(tl.int8) + 1000", "1000 is no number of int8"),
    "division of constants by zero": ("y = BLOCK // 0", "integer division or modulo by zero"),
    "an axis that is not there": ("y = tl.sum(v, 1)", "tl.sum: there is no axis 1 in a tile of 1 axes"),
    "a sum of a number": ("y = tl.sum(n, 0)", "tl.sum runs over an axis of a tile, and this is a single number"),
    "a reshape that does not fit": ("y = tl.reshape(v, [3, 3])", "of shape [8] cannot be reshaped to [3, 3]"),
    "a broadcast that does not fit": ("y = tl.broadcast_to(v, [4])", "of shape [8] does not broadcast to [4]"),
    "an order that is none": ("y = tl.permute(v[:, None], [0, 0])", "[0, 0] is no order of the 2 axes"),
    "one axis transposed": ("y = tl.trans(v)", "tl.trans exchanges two axes, and float32[8] has 1"),
    "dot of vectors": ("y = tl.dot(v, v)", "or [b, m, k] and [b, k, n], and not [8] and [8]"),
    "dot of two types": ("y = tl.dot(v[:, None], v[None, :].to(tl.float16))", "tl.dot takes two tiles of one type"),
    "an accumulator of another shape": (
        "y = tl.dot(v[:, None], v[None, :], tl.zeros([4, 4], tl.float32))", "the accumulator is float32[4, 4]"
    ),
    "an unknown precision": ("y = tl.dot(v[:, None], v[None, :], input_precision='tf16')", "input_precision is one of"),
    "a split of three": ("y = tl.split(tl.zeros([4, 3], tl.float32))", "whose last axis has extent 2"),
    "a sort of an odd length": ("y = tl.sort(tl.zeros([3], tl.float32))", "sorts axes whose extent is a power of two"),
    "a gather of another shape": ("y = tl.gather(v[:, None], i, 0)", "an index of shape [8] does not fit [8, 1]"),
    "an atomic of truth values": ("tl.atomic_and(out + i, 1.0)", "tl.atomic_and takes integers"),
    "break": ("for k in range(3):\n    break", "there is no break: put the condition into a `while`"),
    "continue": ("for k in range(3):\n    continue", "put the rest of the loop under an `if`"),
    "return in a loop": ("for k in range(n):\n    return", "there is no return inside a loop"),
    "a result of a launch": ("return v", "a kernel that is launched returns nothing: store what it computes"),
    "a loop over a tile": ("for k in v:\n    pass", "a loop runs over range(...)"),
    "a loop to a float": ("for k in range(2.5):\n    pass", "the bounds of a loop are integers, and not 2.5"),
    "a step of nothing": ("for k in range(0, 4, 0):\n    pass", "the step of a loop is not 0"),
    "an unrolled loop of unknown length": ("for k in tl.static_range(n):\n    pass", "tl.static_range must be known"),
    "a loop that never ends": ("while True:\n    pass", "this loop never ends"),
    "a loop with else": ("for k in range(3):\n    pass\nelse:\n    y = 1", "a loop has no else"),
    "a name from inside a loop": ("for k in range(n):\n    y = k\nz = y", "`y` is assigned only inside the loop above"),
    "a name from one branch": ("if n > 3:\n    y = 1\nz = y", "`y` is assigned only on one way of the `if` above"),
    "two types after a branch": ("if n > 3:\n    y = v\nelse:\n    y = i\nz = y", "is float32[8] after one way"),
    "another type in a loop": ("y = 0\nfor k in range(n):\n    y = y + v", "`y` is int32 before the loop, and float"),
    "a comprehension": ("y = [k for k in range(3)]", "kernels have no comprehensions"),
    "a lambda": ("y = lambda a: a", "functions in kernels are written outside of them"),
    "a dictionary": ("y = {1: 2}", "kernels have no dictionaries"),
    "a walrus": ("y = (z := 3)", "write the assignment on a line of its own"),
    "try": ("try:\n    y = 1\nexcept ValueError:\n    y = 2", "kernels have no exceptions"),
    "raise": ("raise ValueError", "use tl.device_assert"),
    "with": ("with n:\n    y = 1", "kernels have no `with`"),
    "an import": ("import math", "imports stand outside of kernels"),
    "a function inside": ("def f():\n    pass", "functions that kernels call are written outside of them"),
    "global": ("global SIZE\nSIZE = 3", "a kernel changes nothing outside but what it stores"),
    "delete": ("del v", "names need not be deleted"),
    "a function of Python": ("y = plain(v)", "plain is a function of Python: mark it with @tilegrad.kernel"),
    "float of a tile": ("y = float(v)", "float is for constants: of a tile write x.to(tl.float32)"),
    "a list from outside": ("y = TENSOR", "`TENSOR` is list, which a kernel cannot use"),
    "a constant that is computed": ("y = static(i, n)", "the end of tl.arange must be known when the kernel is"),
    "a kernel without end": ("y = endless(v)", "endless calls itself without an end"),
    "arguments of another kernel": ("y = twice(v, v)", "twice: too many positional arguments; it takes (x)"),
    "a reduction with a function of Python": ("y = tl.reduce(v, 0, plain)", "must be marked with @tilegrad.kernel"),
    "a reduction that loses a value": ("y = tl.reduce((v, i), 0, one_of_two)", "one_of_two: too many positional"),
    "a reduction that makes two": ("y = tl.reduce(v, 0, two_of_two)", "and returns 2: it must return 1"),
    "a static assertion": ("tl.static_assert(BLOCK > 8, 'too small')", "tl.static_assert failed: too small"),
    "a static assertion of a tile": ("tl.static_assert(n > 8)", "tl.device_assert takes tiles"),
    "a print without text": ("tl.device_print(v)", "tl.device_print begins with a text"),
    "Python's print without text": ("print(v)", "tl.device_print begins with a text"),
    "values for too few names": ("a, b = 1, 2, 3", "3 values cannot be given to 2 names"),
    "a tile for two names": ("a, b = v", "float32[8] cannot be given to 2 names"),
    "a mask for a block pointer": (
        "p = tl.make_block_ptr(x, (n,), (1,), (0,), (8,), (0,))\ny = tl.load(p, mask=m)", "a block pointer has no mask"
    ),
    "offsets that are too few": ("p = tl.make_block_ptr(x, (n, n), (1,), (0,), (8,), (0,))", "shape has 2 entries"),
    "advance of a tile": ("p = tl.advance(v, (1,))", "tl.advance moves block pointers"),
    "a boundary that is no axis": (
        "p = tl.make_block_ptr(x, (n,), (1,), (0,), (8,), (0,))\ny = tl.load(p, boundary_check=(1,))",
        "boundary_check names",
    ),
    "an axis of the grid": ("y = tl.program_id(3)", "a grid has axes 0, 1 and 2, and no axis 3"),
    "a choice of two shapes": ("y = v if n > 3 else tl.zeros([4], tl.float32)", "shapes [8] and [4] do not fit"),
    "is with a tile": ("y = v is n", "`is` compares with None; tiles are compared with =="),
    "keywords by stars": ("y = tl.load(**n)", "** is not part of the tile language"),
}  # fmt: skip
"""The lines of a kernel after the load of `v`, and the message for its author."""


def test_the_table_is_long_enough() -> None:
    assert len(SOURCE) >= 80


@pytest.mark.parametrize("case", SOURCE)
def test_wrong_source(case: str) -> None:
    body, told = SOURCE[case]
    with pytest.raises(KernelError) as raised:
        launched(f"{body}\ntl.store(out + i, v, mask=m)")
    message = str(raised.value)
    assert told in message
    assert isinstance(raised.value, KernelSourceError)
    assert re.search(r"^kernel \w+, <kernel \d+>:\d+: |^kernel \w+, \w+\.py:\d+: ", message), message
    assert re.search(r"^ +\^+", message, re.MULTILINE), message


def test_the_caret_stands_below_what_is_wrong() -> None:
    with pytest.raises(KernelSourceError) as raised:
        launched("y = v + tl.exp(w) + 1")
    lines = str(raised.value).split("\n")
    assert lines[1].strip() == "y = v + tl.exp(w) + 1"
    assert lines[1].index("w") == lines[2].index("^")
    assert lines[2].strip().split(" ")[0] == "^"


def test_the_caret_stands_below_what_is_returned() -> None:
    with pytest.raises(KernelSourceError) as raised:
        launched("return v")
    assert str(raised.value).split("\n")[1].strip() == "return v"


def test_who_called_is_told() -> None:
    with pytest.raises(KernelSourceError) as raised:
        launched("y = twice(x)")
    assert "called by k, <kernel" in str(raised.value)
    assert "kernel twice, <kernel" in str(raised.value)


COPY = "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\ntl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)"
X, OUT = tg.ones(30), tg.empty(30)
VIEW = tg.zeros(40)
LAUNCHES = {
    "no grid": (lambda k: k(X, OUT, 30, 8), KernelError, "is launched with a grid: k[(programs,)](...)"),
    "too few arguments": (lambda k: k[4](X, OUT, 30), KernelLaunchError, "missing a required argument: 'BLOCK'"),
    "too many": (lambda k: k[4](X, OUT, 30, 8, 9), KernelLaunchError, "too many positional arguments"),
    "an unknown name": (lambda k: k[4](X, OUT, 30, 8, BLOK=8), KernelLaunchError, "unexpected keyword argument 'BLOK'"),
    "a tensor as constant": (lambda k: k[4](X, OUT, 30, BLOCK=X), KernelLaunchError, "is a constexpr, and a tensor of"),
    "a set as constant": (lambda k: k[4](X, OUT, 30, BLOCK={}), KernelLaunchError, "is a constexpr, and dict is none"),
    "an array": (lambda k: k[4](X.numpy(), OUT, 30, BLOCK=8), KernelLaunchError, "`x` is ndarray: tilegrad.tensor(x)"),
    "an object": (lambda k: k[4](object(), OUT, 30, BLOCK=8), KernelLaunchError, "a kernel takes tensors and numbers"),
    "a number too large": (lambda k: k[4](X, OUT, 2**70, BLOCK=8), KernelLaunchError, "does not fit in 64 bits"),
    "four axes": (lambda k: k[1, 1, 1, 1](X, OUT, 30, BLOCK=8), KernelLaunchError, "a grid has one to three axes"),
    "a grid of floats": (lambda k: k[(30 / 8,)](X, OUT, 30, BLOCK=8), KernelLaunchError, "tilegrad.cdiv(n, BLOCK)"),
    "a negative grid": (lambda k: k[(-1,)](X, OUT, 30, BLOCK=8), KernelLaunchError, "-1 programs along an axis"),
    "a grid as large along each axis": (
        lambda k: k[(2**20, 2**20, 2**20)](X, OUT, 30, BLOCK=8),
        KernelLaunchError,
        f"is {2**60} programs, and a launch has at most {2**31 - 1}",
    ),
    "an address that is none": (
        lambda k: made("tl.store(out + n.to(tl.pointer_type(tl.int8)), 1)")[1](X, OUT, 30, BLOCK=8),
        KernelSourceError,
        "an address is an integer of 64 bits (x.data_ptr()), and not int32",
    ),
    "a pointer as one to other elements": (
        lambda k: made("tl.store(x.to(tl.pointer_type(tl.int8)), 1)")[1](X, OUT, 30, BLOCK=8),
        KernelSourceError,
        "a pointer keeps its type, and this is a pointer to float32",
    ),
    "a type that there is not": (
        lambda k: made("tl.store(x, tl.load(x).to(tl.float8e5b16))")[1](X, OUT, 30, BLOCK=8),
        KernelSourceError,
        "there are no elements of tl.float8e5b16",
    ),
    "a large grid": (lambda k: k[(2**31,)](X, OUT, 30, BLOCK=8), KernelLaunchError, "0 to 2147483647 are possible"),
    "two devices": (
        lambda k: k[4](X, tg.empty(30, device="reference"), 30, BLOCK=8), DeviceError,
        "its tensors are on cpu and reference",
    ),
    "a leaf that is written": (
        lambda k: k[4](X, tg.ones(30, requires_grad=True), 30, BLOCK=8), InPlaceError, "a kernel has no derivative"
    ),
    "tensors that overlap": (
        lambda k: k[4](VIEW[:30], VIEW[5:35], 30, BLOCK=8), KernelLaunchError, "`x` and `out` overlap in memory"
    ),
    "a check while traced": (
        lambda k: tg.jit(lambda a: k.check[4](a, OUT, 30, BLOCK=8))(X), KernelLaunchError, "`check` runs now"
    ),
    "what was never launched": (lambda k: k.ir, KernelError, "has not been read yet"),
}  # fmt: skip


@pytest.mark.parametrize("case", LAUNCHES)
def test_wrong_launches(case: str) -> None:
    launch, error, told = LAUNCHES[case]
    with pytest.raises(error, match=re.escape(told)):
        launch(made(COPY))


def test_functions_of_tl_outside_of_kernels() -> None:
    with pytest.raises(KernelError, match=r"tl.load is called in kernels only"):
        tl.load(X)


@pytest.mark.parametrize("text", ["", "import sys", "def other(x):\n    pass", "def k(x:\n    pass"])
def test_a_kernel_without_source(text: str) -> None:
    """Text of another program may stand under its file's name: "<string>" is what Python 3.13 calls that of `-c`."""
    names: dict[str, object] = {"kernel": tl.kernel}
    file = f"<kernel without source {text}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    exec(compile("@kernel\ndef k(x):\n    pass", file, "exec"), names)
    with pytest.raises(KernelError, match="cannot be found: a kernel is read from its source"):
        names["k"][1](X)  # type: ignore[index]
