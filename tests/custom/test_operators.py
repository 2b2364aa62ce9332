"""Operators that are declared: used lazily, jitted, differentiated, mapped, and told what is wrong with them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.custom.operators import linear, moments, scale, scale_kernel, sort_rows, total
from tilegrad.custom import operators, which_kernel
from tilegrad.errors import (
    ArgumentError,
    DTypeError,
    ForeignError,
    GradientError,
    OperatorError,
    ShapeError,
    SignatureError,
)


def rows(*shape: int, track: bool = False) -> tg.Tensor:
    return tg.tensor(np.random.default_rng(len(shape)).normal(size=shape), requires_grad=track)


@checklist(30)
def test_lazy_jitted_and_differentiated() -> None:
    x = rows(3, 4, track=True)
    np.testing.assert_allclose(scale(x, 3.0).detach().numpy(), x.detach().numpy() * 3)
    fast = tg.jit(lambda x, alpha: scale(x, alpha).exp().sum())
    for alpha in (0.5, 1.0, 1.5):
        np.testing.assert_allclose(fast(x.detach(), alpha).item(), np.exp(x.detach().numpy() * alpha).sum())
    assert len(fast.programs) == 2
    assert tg.autograd.gradcheck(lambda x: scale(x, 3.0), x)
    assert tg.autograd.gradgradcheck(lambda x: scale(x, 3.0) ** 2, x)


@pytest.mark.parametrize(
    "question",
    [
        lambda a: isinstance(a, float),
        lambda a: a.__class__ is float,
        lambda a: type(a) in (int, float),
        lambda a: a > 2,
    ],
    ids=["isinstance", "class", "type", "order"],
)
def test_a_number_that_an_operator_asks_about_is_the_number(question: Callable[[Any], bool]) -> None:
    """Under jit, where it varies, as without: if the operator asks what it is, it is no input."""

    @tg.op("tests::asks(x: F[n], a: float) -> F[n]")
    def asks(x: tg.Tensor, a: float) -> tg.Tensor:
        return x * a + (1 if question(a) else 0)

    fast = tg.jit(lambda x, a: asks(x, a))
    for alpha in (0.5, 2.5, 3.5, 0.5, 1.5):
        assert fast(tg.tensor([1.0, 2.0]), alpha).tolist() == asks(tg.tensor([1.0, 2.0]), alpha).tolist()


@pytest.mark.usefixtures("compiled")
@checklist(30, 31, 32)
def test_a_linear_layer_of_ones_own() -> None:
    x, w, b = rows(2, 3, 4, track=True), rows(5, 4, track=True), rows(5, track=True)
    np.testing.assert_array_equal(linear(x, w, b).detach().numpy(), tg.nn.functional.linear(x, w, b).detach().numpy())
    for given in ((x, w, b), (x, w)):
        assert tg.autograd.gradcheck(linear, given)
        assert tg.autograd.gradgradcheck(linear, given)
    step = tg.jit(tg.grad(lambda w: linear(x.detach(), w, b.detach()).sin().sum()))
    want = tg.grad(lambda w: tg.nn.functional.linear(x.detach(), w, b.detach()).sin().sum())(w.detach())
    np.testing.assert_allclose(step(w.detach()).numpy(), want.numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "write", [lambda x: x.fill_(37.0), lambda x: x.__setitem__(..., 37.0), lambda x: x.copy_(37.0)]
)
def test_numbers_that_a_tensor_was_filled_with(write: Any) -> None:
    """The tensor's elements are in memory; the number in the operator is a number all the same."""
    x = tg.zeros(())
    write(x)
    assert x.item() == 37

    @tg.op("tests::times_37(x: float[*s]) -> float[*s]")
    def times_37(x: Any) -> Any:
        return x * 37.0

    assert times_37(tg.ones(2)).tolist() == [37, 37]


def test_several_results() -> None:
    x = rows(3, 5, track=True)
    mean, spread = moments(x)
    np.testing.assert_allclose(mean.detach().numpy(), x.detach().numpy().mean(1))
    np.testing.assert_allclose(spread.detach().numpy(), x.detach().numpy().var(1))
    assert tg.autograd.gradcheck(moments, x)
    assert tg.autograd.gradcheck(lambda x: moments(x)[1], x)
    only = tg.jit(lambda x: moments(x)[1])
    np.testing.assert_allclose(only(x.detach()).numpy(), x.detach().numpy().var(1))


def test_tuples_and_what_is_left_out() -> None:
    xs = [rows(4), rows(4) * 2, rows(4) * 3]
    np.testing.assert_allclose(total(xs, 2.0).numpy(), sum(x.numpy() for x in xs) * 2)
    assert total(xs=xs[:1]).tolist() == xs[0].tolist()
    assert tg.autograd.gradcheck(lambda x, y: total((x, y, x)), (rows(4, track=True), rows(4, track=True)))


def test_mapped_and_forward() -> None:
    x = rows(6, 3, 4)
    np.testing.assert_allclose(tg.vmap(moments)(x)[1].numpy(), x.numpy().var(-1), rtol=1e-6)
    np.testing.assert_allclose(tg.vmap(tg.vmap(lambda x: scale(x, 4.0)))(x).numpy(), x.numpy() * 4)
    gradient = tg.vmap(tg.grad(lambda x: (scale(x, 4.0) ** 2).sum()))(x)
    np.testing.assert_allclose(gradient.numpy(), 32 * x.numpy())
    value, change = tg.jvp(lambda x: scale(x, 4.0) ** 2, (x,), (x,))
    np.testing.assert_allclose(change.numpy(), 2 * value.numpy())


def test_the_name_stands_in_graphs() -> None:
    stages = tg.explain(lambda x: scale(x, 3.0) + 1, tg.ones(100))
    assert "= scale[alpha=3.0] x0" in str(stages["graph"])
    assert "scale_kernel[2](x0, scale_kernel_1)" in str(stages["program"])
    assert "scale" not in str(tg.explain(lambda x: moments(x)[0], tg.ones(4, 4))["program"]).replace("moments", "")


def test_without_a_kernel_the_reference_is_fused() -> None:
    stages = tg.explain(lambda x: linear(x * 2, tg.ones(3, 4), None) + 1, tg.ones(2, 4))
    assert "linear x0" in str(stages["graph"]).replace("%1 %3", "x0") or "= linear " in str(stages["graph"])
    assert len(stages.kernels) <= 2


@checklist(8)
def test_kernels_by_device() -> None:
    @tg.op("tests::twice(x: F[n]) -> F[n]")
    def twice(x: Any) -> Any:
        return x + x

    seen = []

    @twice.kernel("cpu")
    def on_cpu(x: Any) -> Any:
        seen.append("cpu")
        return x * 2

    @twice.kernel("reference", arrays=True)
    def on_arrays(x: Any) -> Any:
        seen.append("reference")
        return x * np.float32(2)

    assert twice(tg.ones(3)).tolist() == [2, 2, 2]
    assert twice(tg.ones(3, device="reference")).tolist() == [2, 2, 2]
    assert seen == ["cpu", "reference"]
    assert which_kernel(scale, tg.ones(3), 2.0) == ["scale_kernel"]
    assert which_kernel(sort_rows, tg.ones(3, 4)) == ["sort_rows"]

    @twice.kernel("cpu")
    def another(x: Any) -> Any:
        return x * 3

    assert twice(tg.ones(3)).tolist() == [3, 3, 3]


def test_functions_on_arrays() -> None:
    x = rows(3, 7)
    for fn in (sort_rows, tg.jit(sort_rows)):
        values, places = fn(x)
        np.testing.assert_array_equal(values.numpy(), np.sort(x.numpy()))
        np.testing.assert_array_equal(places.numpy(), np.argsort(x.numpy()))
    np.testing.assert_array_equal(tg.vmap(sort_rows)(x)[0].numpy(), np.sort(x.numpy()))
    with pytest.raises(GradientError, match=r"sort_rows has no gradient: its reference calls sort_rows.*@sort_rows"):
        sort_rows(rows(3, 7, track=True))[0].sum().backward()


def test_arrays_and_tensors_do_not_meet() -> None:
    held = tg.ones(3)

    @tg.op("tests::reads_tensors(x: F[n]) -> F[n]", arrays=True)
    def reads_tensors(x: Any) -> Any:
        return (held + 1).numpy()

    with pytest.raises(ForeignError, match="uses a tensor while a program runs: work on the arrays"):
        reads_tensors(tg.ones(3)).numpy()
    assert (held + 1).tolist() == [2, 2, 2]


def test_autocast() -> None:
    @tg.op("tests::product(x: F[n, k], y: F[k, m]) -> F[n, m]", autocast="low")
    def product(x: Any, y: Any) -> Any:
        return x @ y

    @tg.op("tests::careful(x: F[n]) -> F[n]", autocast="float32")
    def careful(x: Any) -> Any:
        return x.exp()

    x = tg.ones(4, 4)
    with tg.autocast("cpu"):
        assert product(x, x).dtype is tg.bfloat16
        assert careful(tg.ones(3, dtype=tg.bfloat16)).dtype is tg.float32
        assert moments(tg.ones(3, 4, dtype=tg.bfloat16))[0].dtype is tg.bfloat16
    assert product(x, x).dtype is tg.float32


def test_registry() -> None:
    @tg.op("here::same_name(x: F[n]) -> F[n]")
    def first(x: Any) -> Any:
        return x + 1

    @tg.op("there::same_name(x: F[n]) -> F[n]")
    def second(x: Any) -> Any:
        return x + 2

    assert operators["here::same_name"] is first
    assert operators["there::same_name"] is second
    assert operators["scale"] is scale
    assert (first(tg.zeros(1)) + second(tg.zeros(1))).item() == 3
    with pytest.raises(OperatorError, match="there are 2 operators of the name same_name: here::same_name, there::"):
        operators["same_name"]
    with pytest.raises(OperatorError, match="there is no operator 'none'"):
        operators["none"]


def test_the_gradient_is_not_computed_for_what_needs_none() -> None:
    x, w = rows(3, 4), rows(5, 4, track=True)
    step = tg.jit(lambda w: tg.grad(lambda w: linear(x, w).sum())(w))
    assert step(w.detach()).shape == (5, 4)
    assert len(tg.explain(step, w.detach()).kernels) <= 2


# --- what is wrong ------------------------------------------------------------------------------------

SIGNATURES = {
    "square": "is wanted",
    "square(x: F[n])": "'->' is wanted here",
    "square(x: F[n]) -> F[m]": "m of the result `out` is given by no argument",
    "square(x: flot[n]) -> F[n]": r"there is no dtype flot \(did you mean float\?\)\n.*\n +\^\^\^\^",
    "square(x: F) -> F[n]": "a dtype that varies, needs its axes",
    "square(x: F[n], x: F[n]) -> F[n]": "there are two of the name x",
    "square(x: F[*a, *b]) -> F[*a]": "one \\* is enough",
    "square(x: F[n]) -> G[n]": "G of the result `out` is given by no argument",
    "square(x: F[n]) -> Tensor": "an operator says what it gives",
    "square(x: F[n]) -> F[n] F[n]": "nothing more is expected",
    "square(x: F[n], k: int = two) -> F[n]": "a number is wanted here",
    "square(x: (F[n], ...)) -> F[": "is wanted here",
    "a::b::c(x: F[n]) -> F[n]": "is wanted here",
    "square(n: F[n]) -> F[n]": "n is the name of two things",
}


@pytest.mark.parametrize("text", SIGNATURES)
def test_wrong_signatures(text: str) -> None:
    with pytest.raises(SignatureError, match=SIGNATURES[text]):
        tg.op(text)


X = tg.ones(3, 4)
CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "too few": (lambda: scale(), ArgumentError, "scale: `x` is missing: tests::scale"),
    "too many": (lambda: scale(X, 1.0, 2.0), ArgumentError, "scale takes 2 arguments, not 3"),
    "twice": (lambda: scale(X, x=X), ArgumentError, "`x` is given twice"),
    "unknown": (lambda: scale(X, beta=1.0), ArgumentError, "scale has no argument `beta`"),
    "no tensor": (lambda: scale(3.0), ArgumentError, r"`x` is float 3.0; give a tensor, as in tilegrad.tensor\(x\)"),
    "None": (lambda: scale(None), ArgumentError, "`x` is None; it is not optional"),
    "no number": (lambda: scale(X, "two"), DTypeError, "`alpha` is str 'two'"),
    "a tensor for a number": (lambda: scale(X, X), DTypeError, "`alpha` is a tensor of .*: alpha.item"),
    "a dtype": (lambda: scale(tg.arange(3)), DTypeError, "`x` is int64; x: F.* takes a floating dtype"),
    "two dtypes": (lambda: linear(X, X.double()), DTypeError, "`w` is float64, and `x` is float32"),
    "shapes": (lambda: linear(X, tg.ones(5, 3)), ShapeError, "axis 1 of `w` of shape .* is k = 3, but k = 4"),
    "rank": (lambda: linear(X, tg.ones(4)), ShapeError, "`w`"),
    "an optional one": (lambda: linear(X, tg.ones(5, 4), tg.ones(4)), ShapeError, "`b`"),
    "not a tuple": (lambda: total(3), ArgumentError, "`xs` is int; it takes a tuple or a list of tensors"),
    "in a tuple": (lambda: total([X, 3]), ArgumentError, r"`xs\[1\]` is int 3"),
    "shapes in a tuple": (lambda: total([X, tg.ones(3)]), ShapeError, r"xs\[1\]"),
    "kernel for one device": (lambda: scale.kernel("cuda:1"), OperatorError, "for a kind of device, not for one"),
    "no kernel": (lambda: scale.kernel("cpu", 3), OperatorError, "is a function that launches kernels, not int"),
    "no gradient": (lambda: scale.gradient(3), OperatorError, "a gradient is a function, not int"),
    "asks for more": (
        lambda: scale.gradient(lambda y: y),
        OperatorError,
        "asks for `y`; there are x, alpha, out, upstr",
    ),
    "autocast": (lambda: tg.op("f(x: F[n]) -> F[n]", autocast="high"), OperatorError, "autocast is None, 'low' or"),
    "no function": (lambda: tg.op("f(x: F[n]) -> F[n]")(3), OperatorError, "@op stands before a function"),
}


@pytest.mark.parametrize("case", CALLS)
def test_wrong_calls(case: str) -> None:
    call, error, message = CALLS[case]
    with pytest.raises(error, match=message):
        call()


OUTSIDE = tg.tensor([1.0, 2.0, 3.0])


def launched(*args: Any, **kwargs: Any) -> None:
    scale_kernel[(1,)](*args, **kwargs)


FUNCTIONS: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "a number": (lambda x: 3, OperatorError, r"the reference returned 3 \(int\) for `out`, and not a tensor"),
    "two for one": (lambda x: (x, x), OperatorError, "the reference returned 2 values; the signature says 1"),
    "shape": (lambda x: x.sum(), ShapeError, r"gives shape \[\] for `out`; the signature says \[3\]"),
    "dtype": (lambda x: x.int(), DTypeError, "gives int32 for `out`; the signature says float32"),
    "from outside": (lambda x: x + OUTSIDE, OperatorError, "uses a tensor of .* that is none of its arguments"),
    "random": (lambda x: x + tg.rand(3), OperatorError, "that is none of its arguments"),
    "elements": (lambda x: x if x.sum() > 0 else -x, tg.errors.TraceError, "placeholder"),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_wrong_references_and_kernels(case: str) -> None:
    fn, error, message = FUNCTIONS[case]
    wrong = tg.op("tests::wrong(x: F[n]) -> F[n]")(fn)
    with pytest.raises(error, match=message):
        wrong(tg.ones(3))
    right = tg.op("tests::right(x: F[n]) -> F[n]")(lambda x: x)
    right.kernel("cpu", fn)
    with pytest.raises(error, match=message.replace("the reference", "the kernel for cpu")):
        right(tg.ones(3)).numpy()


KERNELS: dict[str, tuple[Callable[..., Any], str]] = {
    "writes nothing": (lambda x, out: None, "the kernel for cpu writes nothing to `out`"),
    "returns too": (lambda x, out: launched(x, out, 3, 1.0, BLOCK=4) or x, "and returned something too"),
    "reads first": (lambda x, out: (out.add_(x), None)[1], "reads `out` before it has written to it"),
}


@pytest.mark.parametrize("case", KERNELS)
def test_wrong_kernels(case: str) -> None:
    fn, message = KERNELS[case]
    op = tg.op("tests::wrong(x: F[n]) -> F[n]")(lambda x: x)
    op.kernel("cpu", fn)
    with pytest.raises(OperatorError, match=message):
        op(tg.ones(3)).numpy()


GRADIENTS: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "shape": (lambda upstream: upstream.sum(), ShapeError, r"the gradient of `x` has shape \(\), and `x` has \(3,\)"),
    "dtype": (lambda upstream: upstream.double(), DTypeError, "the gradient of `x` is float64, and `x` is float32"),
    "number": (
        lambda upstream: 1.0,
        GradientError,
        r"the gradient of `x` is 1.0 \(float\); a tensor or None is wanted",
    ),
    "too few": (lambda upstream: (), GradientError, "gives 0 values for the tensors x, y"),
    "name": (lambda upstream: {"z": upstream}, GradientError, "its gradient has 'z'; the tensors are x, y"),
}


@pytest.mark.parametrize("case", GRADIENTS)
def test_wrong_gradients(case: str) -> None:
    fn, error, message = GRADIENTS[case]
    op = tg.op("tests::wrong(x: F[n], y: F[n]) -> F[n]")(lambda x, y: x * y)
    rule = fn if case in ("too few", "name") else (lambda upstream: (fn(upstream), None))
    op.gradient(rule)
    with pytest.raises(error, match=message):
        op(tg.ones(3, requires_grad=True), tg.ones(3)).sum().backward()
