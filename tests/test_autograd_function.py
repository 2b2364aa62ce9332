"""Operations with gradients that the user writes."""

import re
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad.autograd import Function, gradcheck, gradgradcheck, once_differentiable
from tilegrad.errors import ArgumentError, GradientError, InPlaceError


class Linear(Function):
    """The lab's linear function, word for word but for the import."""

    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any = None) -> Any:
        ctx.save_for_backward(input, weight, bias)
        output = input.mm(weight.t())
        if bias is not None:
            output += bias.unsqueeze(0).expand_as(output)
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Any) -> Any:
        input, weight, bias = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if bias is not None and ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


def doubles(*shape: int, track: bool = True) -> tg.Tensor:
    return tg.tensor(np.random.default_rng(len(shape)).normal(size=shape), requires_grad=track)


@checklist(34, 38)
def test_linear_of_the_lab() -> None:
    assert gradcheck(Linear.apply, (doubles(3, 4), doubles(2, 4), doubles(2)))
    assert gradcheck(Linear.apply, (doubles(3, 4), doubles(2, 4)))
    assert gradgradcheck(Linear.apply, (doubles(3, 4), doubles(2, 4)))


@checklist(37)
def test_needs_input_grad() -> None:
    seen = []

    class Watched(Linear):
        @staticmethod
        def backward(ctx: Any, grad_output: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            return Linear.backward(ctx, grad_output)

    x, w = doubles(3, 4, track=False), doubles(2, 4)
    Watched.apply(x, w).sum().backward()
    assert seen == [(False, True)]
    assert x.grad is None
    assert w.grad is not None


@checklist(35)
def test_changed_after_saving() -> None:
    x, w = doubles(3, 4) * 1, doubles(2, 4)
    y = Linear.apply(x, w)
    x.add_(1)
    with pytest.raises(InPlaceError, match=r"Linear.*add_ at test_autograd_function.py"):
        y.sum().backward()


def test_released() -> None:
    y = Linear.apply(doubles(3, 4), doubles(2, 4)).sum()
    y.backward()
    with pytest.raises(GradientError, match="retain_graph"):
        y.backward()


class SumAndDifference(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.n = 0
        return x + y, x - y

    @staticmethod
    def backward(ctx: Any, of_sum: Any, of_difference: Any) -> Any:
        ctx.n += 1
        assert ctx.n == 1, "once for both results"
        return of_sum + of_difference, of_sum - of_difference


def test_several_results() -> None:
    x, y = doubles(3), doubles(3)
    s, d = SumAndDifference.apply(x, y)
    (s * 2 + d * 3).sum().backward()
    assert x.grad.tolist() == [5] * 3
    assert y.grad.tolist() == [-1] * 3
    x.grad = None
    SumAndDifference.apply(x, y)[1].sum().backward()
    assert x.grad.tolist() == [1] * 3  # type: ignore[attr-defined]


def test_integers_and_marks() -> None:
    class WithPlace(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float) -> Any:
            place, rounded = x.argmax(), x.round()
            ctx.mark_non_differentiable(rounded)
            ctx.scale = scale
            return x * scale, place, rounded

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, upstream: Any, *_: Any) -> Any:
            return upstream * ctx.scale, None

    x = doubles(3)
    y, place, rounded = WithPlace.apply(x, 3.0)
    assert y.requires_grad
    assert not place.requires_grad
    assert not rounded.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [3] * 3


def test_setup_context() -> None:
    class Square(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x * x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 2 * x * upstream

    assert gradcheck(Square.apply, doubles(3))
    assert gradgradcheck(Square.apply, doubles(3))


def test_dirty_and_identity() -> None:
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            return upstream * 2

    class Same(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            return upstream * 7

    x = doubles(3)
    y = x * 1
    z = Scale.apply(y)
    assert z is y
    z.sum().backward()
    assert x.grad.tolist() == [2] * 3
    x.grad = None
    Same.apply(x).sum().backward()
    assert x.grad.tolist() == [7] * 3  # type: ignore[attr-defined]


@checklist(36)
def test_wrong_functions() -> None:
    with pytest.raises(ArgumentError, match="@staticmethod"):

        class NotStatic(Function):
            def forward(ctx, x):  # type: ignore[no-untyped-def,override]
                return x

    def returning(*found: Any) -> Any:
        class Wrong(Function):
            @staticmethod
            def forward(ctx: Any, x: Any, y: Any) -> Any:
                return x * y

            @staticmethod
            def backward(ctx: Any, upstream: Any) -> Any:
                return found

        return Wrong.apply(doubles(3), doubles(3)).sum()

    for found, message in (
        ((tg.ones(3),), "1 gradients, but forward takes 2"),
        ((tg.ones(3),) * 3, "3 gradients"),
        ((tg.ones(2), None), re.escape("shape (2,)")),
        ((1.5, None), "a tensor or None"),
    ):
        with pytest.raises(GradientError, match=message):
            returning(*found).backward()
    with pytest.raises(NotImplementedError, match="forward"):
        type("Empty", (Function,), {}).apply(doubles(3))  # type: ignore[attr-defined]


@checklist(154)
@pytest.mark.parametrize("mutant", ["sign", "factor", "dropped", "transposed"])
def test_gradcheck_finds_mutants(mutant: str) -> None:
    class Product(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            ctx.save_for_backward(x, y)
            return x @ y + x * 2

        @staticmethod
        def backward(ctx: Any, upstream: Any) -> Any:
            x, y = ctx.saved_tensors
            to_x, to_y = upstream @ y.t() + upstream * 2, x.t() @ upstream
            match mutant:
                case "sign":
                    to_x = -to_x
                case "factor":
                    to_y = to_y * 2
                case "dropped":
                    to_x = upstream @ y.t()
                case "transposed":
                    to_y = to_y.t()
            return to_x, to_y

    with pytest.raises(GradientError, match="differences say"):
        gradcheck(Product.apply, (doubles(3, 3), doubles(3, 3)))
    assert not gradcheck(Product.apply, (doubles(3, 3), doubles(3, 3)), raise_exception=False)
