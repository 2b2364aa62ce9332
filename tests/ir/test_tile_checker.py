"""Errors of the checker with their lines, and the types of correct kernels."""

import pytest

from tilegrad.errors import KernelError
from tilegrad.ir.dtype import bool_, float16, float32, int32, int64
from tilegrad.ir.tile import Apply, Arange, Assign, For, Kernel, Literal, Name, Store, TileParameter
from tilegrad.ir.tile_checker import TileType, check
from tilegrad.ir.tile_parser import parse

HEAD = 'def f(x: "*f32", h: "*f16", m: "*bool", n: "i64", p: "i32", s: "f32"):\n    i = tl.arange(0, 8)\n'

WRONG = {
    "an unknown name": ("v = y + 1", "there is no variable `y`"),
    "an unknown function": ("v = tl.expo(s)", "did you mean tl.exp?"),
    "no function of tl": ("v = print(s)", "`print` is none"),
    "two dtypes": ("v = tl.load(x) + tl.load(h)", "`tl.load(x)` is f32 and `tl.load(h)` is f16"),
    "integers of two signs": ("v = n.to(tl.uint64) + n", "convert one of them"),
    "a literal that is no value": ("v = p + 1.5", "the literal 1.5 is no value of i32"),
    "a literal out of range": ("v = p.to(tl.int8) + 300", "the literal 300 is no value of i8"),
    "a negative unsigned literal": ("v = p.to(tl.uint8) * -1", "the literal -1 is no value of u8"),
    "a huge number": ("v = 99999999999999999999", "does not fit in 64 bits"),
    "shapes": ("v = i + tl.arange(0, 4)", "shapes [8] and [4] do not fit together"),
    "a function of floats": ("v = tl.exp(i)", "exp takes floats, and `i` is i32"),
    "bool arithmetic": ("v = tl.load(m) + tl.load(m)", "add takes integers or floats"),
    "too few arguments": ("v = tl.maximum(s)", "maximum takes 2 arguments"),
    "a pointer times something": ("v = x * 2", "to a pointer integers can be added"),
    "a pointer as a number": ("v = tl.sum(x + i, axis=0)", "read through it with tl.load"),
    "a load from a number": ("v = tl.load(n)", "`n` is i64, and not a pointer"),
    "a mask of numbers": ("v = tl.load(x + i, mask=i)", "the mask `i` is i32[8], and not bool"),
    "a mask of another shape": ("v = tl.load(x + i, mask=tl.arange(0, 4) < 3)", "does not fit pointers of [8]"),
    "a mask wider than the pointers": ("v = tl.load(x, mask=i < 3)", "of shape [8] does not fit pointers of []"),
    "other of another dtype": ("v = tl.load(h, mask=n > 0, other=s)", "`other` `s` is f32, and not f16"),
    "other without mask": ("v = tl.load(x, other=0.0)", "`other` without `mask`"),
    "other of another shape": ("v = tl.load(x, mask=n > 0, other=i.to(tl.float32))", "`other` of shape [8]"),
    "a store of another dtype": (
        "tl.store(h, s)",
        "the value `s` is f32, and not f16: convert it with .to(tl.float16)",
    ),
    "a store of another shape": ("tl.store(x, i.to(tl.float32))", "a value of shape [8] does not fit"),
    "an axis": ("v = tl.sum(i, axis=1)", "axis 1 in `tl.sum(i, axis=1)`: the tile has 1 axes"),
    "a sum of bools": ("v = tl.sum(i < 3, axis=0)", "sum does not take bool"),
    "an empty range": ("v = tl.arange(4, 4)", "must have at least one element"),
    "a range of unknown length": ("v = tl.arange(0, n)", "known when the kernel is compiled"),
    "a fourth axis of the grid": ("v = tl.program_id(3)", "axes 0, 1 and 2"),
    "new axes": ("v = i[:, :, None]", "the tile has 1 axes"),
    "an index": ("v = i[3]", "indexed with `:` and `None` only"),
    "broadcast_to": ("v = tl.broadcast_to(i, [4])", "does not broadcast to [4]"),
    "reshape": ("v = tl.reshape(i, [3, 3])", "cannot be reshaped to [3, 3]"),
    "trans": ("v = tl.trans(i)", "is no order of the 1 axes of `i`"),
    "full of a tile": ("v = tl.full([8], i, tl.int32)", "tl.full takes one number"),
    "a tile of no extent": ("v = tl.zeros([0], tl.float32)", "positive numbers"),
    "bitcast": ("v = s.to(tl.int64, bitcast=True)", "cannot be read as i64"),
    "dot of vectors": ("v = tl.dot(i, i)", "tl.dot takes [m, k] and [k, n], and not [8] and [8]"),
    "dot of long integers": ("v = tl.dot(i[:, None].to(tl.int64), i[None, :].to(tl.int64))", "does not take i64"),
    "dot of two dtypes": ("v = tl.dot(i[:, None], i[None, :].to(tl.int8))", "convert one of them"),
    "an accumulator": ("v = tl.dot(i[:, None], i[None, :], 0.0)", "the accumulator `0.0` is f32, and not i32[8,8]"),
    "another type for a name": ("i = s", "`i` is i32[8] elsewhere and would be f32 here"),
    "an assigned index": ("for k in range(3):\n        k = 1", "`k` counts the loop around it"),
    "an index that is a variable": ("for i in range(3):\n        pass", "`i` is a variable already"),
    "bounds of floats": ("for k in range(s):\n        pass", "single integers"),
    "a step of nothing": ("for k in range(0, 8, 0):\n        pass", "the step of a loop is positive"),
    "a loop over a tile": ("for k in i:\n        pass", "a loop runs over range(start, stop, step)"),
    "a name of a block": ("for k in range(3):\n        a = k\n    b = a", "known only inside the block"),
    "a condition that is a tile": ("if i < 3:\n        pass", "a condition is one bool"),
    "a condition that is a number": ("while n:\n        pass", "a condition is one bool, and `n` is i64"),
    "return": ("return n", "a kernel does not return"),
    "a list": ("v = [1, 2]", "no expression of the tile language"),
    "two targets": ("a, b = n, n", "no statement of the tile language"),
    "matrix product": ("v = i @ i", "matrices are multiplied by tl.dot"),
    "a reserved name": ("tl = 3", "cannot be the name of a variable"),
    "an unknown dtype": ("v = s.to(tl.float23)", "no element type float23"),
    "an unknown keyword": ("v = tl.load(x, msk=n > 0)", "unexpected keyword argument 'msk'"),
    "broken Python": ("v = (1", "was never closed"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong(case: str) -> None:
    line, reason = WRONG[case]
    with pytest.raises(KernelError) as raised:
        parse(f"{HEAD}    {line}\n")
    message = str(raised.value)
    assert reason in message
    assert "^" in message
    if case != "broken Python":
        assert message.startswith("kernel f, line ")


def test_the_caret_stands_under_the_mistake() -> None:
    with pytest.raises(KernelError) as raised:
        parse(f"{HEAD}    v = i * 2 + tl.exp(i)\n")
    _, line, carets = str(raised.value).split("\n")
    assert line == "        v = i * 2 + tl.exp(i)"
    assert carets.split(" [at ")[0] == "                    ^^^^^^^^^"


def test_kernels_that_were_built_are_told_the_statement() -> None:
    body = (Assign("v", Name("x") + Literal(1.5)),)
    with pytest.raises(KernelError, match=r"kernel k: in `v = x \+ 1.5`: "):
        check(Kernel("k", (TileParameter("x", float32),), body))


@pytest.mark.parametrize("name", ["tl", "for", "a b", ""])
def test_names(name: str) -> None:
    with pytest.raises(KernelError, match="cannot be the name"):
        check(Kernel("k", (TileParameter(name, float32),), ()))


def test_parameters_without_a_type() -> None:
    with pytest.raises(KernelError, match="the parameter `n` has no type; say what it is"):
        parse("def f(n):\n    pass")


def test_types() -> None:
    kernel = parse("""
        def f(x: "*f16", n: "i64", flag: "bool"):
            i = tl.arange(0, 8)
            v = tl.load(x + i[:, None] * n + i[None, :], mask=i[None, :] < n, other=0)
            small = v.to(tl.float32) < 1
            best = tl.argmax(v, axis=1)
            for k in range(0, n, 2):
                j = k + 1
    """)
    variables = {name: str(found) for name, found in check(kernel).variables.items()}
    assert variables == {
        "x": "*f16",
        "n": "i64",
        "flag": "bool",
        "i": "i32[8]",
        "v": "f16[8,8]",
        "small": "bool[8,8]",
        "best": "i32[8]",
        "k": "i64",
        "j": "i64",
    }


def test_types_of_new_expressions() -> None:
    """A backend may ask for what it has made itself."""
    types = check(parse('def f(n: "i64"):\n    i = tl.arange(0, 4)\n    b = i < n'))
    assert types.of(Name("i") * Name("n")) == TileType(int64, (4,))
    assert types.of(Apply("where", (Name("b"), Literal(1), Literal(0)))) == TileType(int32, (4,))
    assert types.of(Name("b") & True) == TileType(bool_, (4,))


@pytest.mark.parametrize(
    "expression, dtype",
    [
        (Apply("add", (Name("h"), Literal(1))), float16),
        (Apply("lt", (Literal(1), Name("h"))), float16),
        (Apply("add", (Arange(0, 4), Name("n"))), int64),
        (Apply("where", (Literal(True), Literal(0), Name("h"))), float16),
        (Apply("add", (Literal(1), Literal(2.0))), float32),
        (Apply("add", (Name("x"), Arange(0, 4))), int32),
        (Apply("add", (Name("x"), Literal(1))), int32),
    ],
)
def test_where_arguments_meet(expression: Apply, dtype: object) -> None:
    parameters = (TileParameter("h", float16, False), TileParameter("n", int64, False), TileParameter("x", float32))
    assert check(Kernel("k", parameters, ())).arguments(expression) is dtype


def test_an_object_that_is_used_twice_is_known_only_where_its_names_are() -> None:
    shared = Name("a") + 1
    inside = For("k", Literal(0), Literal(3), Literal(1), (Assign("a", Name("k")), Assign("b", shared)))
    with pytest.raises(KernelError, match="known only inside the block"):
        check(Kernel("k", (), (inside, Assign("c", shared))))


def test_checking_is_fast() -> None:
    """A pass over the objects, not over the paths to them: this expression has 2**60 paths."""
    x = Name("n") + 1
    for _ in range(60):
        x = x + x
    check(Kernel("k", (TileParameter("n", int64, False), TileParameter("x", int64)), (Store(Name("x"), x),)))
