"""Signatures: their printed form, what they match, and the errors of what they do not match."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tilegrad.errors import SignatureError
from tilegrad.foreign.patterns import Signature
from tilegrad.foreign.signature import parse, signatures
from tilegrad.ir.dtype import float32, float64, int32
from tilegrad.ir.graph import TensorType
from tilegrad.ir.size import Size

LINES = [
    "f() -> None",
    "f(x: float32[]) -> float32[]",
    "f(x: float32[*s], a: float64 = 0.5, k: int32 = -3) -> float32[*s, k]",
    "f(x: F[b, *s, n], w: F[n, k]) -> F[b, *s, k]",
    "f(x: T[2 * n + 1]) -> (values: T[n], places: int64[(n + 1) // 2])",
    "f(x: bool[n, 3]) -> Tensor",
    "f(x: bfloat16[n - 1]) -> list",
]


@pytest.mark.parametrize("line", LINES)
def test_printed_and_read_again(line: str) -> None:
    read = parse(line)
    assert parse(str(read)) == read
    assert str(read) == line.replace("T[2 * n + 1]", "T[(2 * n) + 1]")


def types(*shapes: tuple[object, ...]) -> list[TensorType]:
    return [TensorType(float32, shape) for shape in shapes]  # type: ignore[arg-type]


def outputs(signature: Signature, *shapes: tuple[object, ...], numbers: tuple[int, ...] = ()) -> list[str]:
    return [str(t) for t in signature.outputs(signature.match(types(*shapes), numbers))]


def test_groups_stand_anywhere() -> None:
    read = parse("f(x: float[b, *s, n], w: float[n, k]) -> float[b, *s, k]")
    assert outputs(read, (2, 3, 4, 5), (5, 7)) == ["f32[2,3,4,7]"]
    assert outputs(read, (2, 5), (5, 7)) == ["f32[2,7]"]


def test_extents_are_computed_and_solved() -> None:
    read = parse("f(x: float[n + 2], k: int) -> (a: float[n], b: float[n // k, k * 2])")
    assert outputs(read, (9,), numbers=(3,)) == ["f32[7]", "f32[2,6]"]


def test_symbolic_sizes() -> None:
    n = Size.named("n")
    assert outputs(parse("f(x: float[m]) -> float[2 * m + 1]"), (n,)) == ["f32[2*n + 1]"]


def test_dtypes_that_vary() -> None:
    read = parse("f(x: F[n], y: I[n], z: F[]) -> F[n]")
    match = read.match([TensorType(float64, (3,)), TensorType(int32, (3,)), TensorType(float64, ())])
    assert read.outputs(match)[0].dtype is float64
    assert match.dtypes == {"F": float64, "I": int32}


def test_several_lines_with_descriptions() -> None:
    found = signatures("""
        # two functions
        first(x: float[n]) -> float[n]  # does one thing

        second(x: float[n]) -> float[]
    """)
    assert [s.name for s in found] == ["first", "second"]
    assert found[0].doc == "does one thing"


@given(some.lists(some.integers(0, 9), min_size=2, max_size=6))
def test_a_group_takes_what_is_left(shape: list[int]) -> None:
    read = parse("f(x: float[a, *s, b]) -> float[*s, b, a]")
    match = read.match(types(tuple(shape)))
    assert match.groups["s"] == tuple(shape[1:-1])
    assert read.outputs(match)[0].shape == (*shape[1:-1], shape[-1], shape[0])


WRONG = [
    ("f(x: flaot[n]) -> float[n]", r"no dtype flaot \(did you mean float"),
    ("f(x float[n]) -> float[n]", "':' is wanted"),
    ("f(x: float[n]) float[n]", "'->' is wanted"),
    ("f(x: float[n]) -> float[m]", "m of the result `out`"),
    ("f(x: float[*s]) -> float[*t]", r"\*t of the result"),
    ("f(x: float[n]) -> T[n]", "T of the result"),
    ("f(x: float[n], x: float[n]) -> float[n]", "two of the name x"),
    ("f(x: float[*s, *t]) -> float[*s]", r"one \* is enough"),
    ("f(x: T) -> float[1]", "needs its axes"),
    ("f(x: float[n]) -> float", "needs its axes"),
    ("f(int: float[n]) -> float[n]", "int means something in C"),
    ("f(out: float[n]) -> float[n]", "a single result is called out"),
    ("f(n: float[n]) -> float[n]", "n is the name of two things"),
    ("f(x: float[n]) -> float[n] and more", "nothing more"),
    ("f(x: float[n], a: float = one) -> float[n]", "a number is wanted"),
    ("f(x: float[1.5]) -> float[n]", "extent"),
    ("", "name of the function"),
]


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_wrong_signatures(line: str, message: str) -> None:
    with pytest.raises(SignatureError, match=message) as caught:
        parse(line)
    assert not line or "^" in str(caught.value), "the place is marked"
