"""Operators, functions and modules, as the checklist asks for them."""

from __future__ import annotations

import warnings
from typing import Any, final

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tests.checklist import checklist
from tests.ops.registry import all_examples
from tilegrad import nn, optim
from tilegrad.ir.graph import Reader, Value
from tilegrad.ir.program import Launch
from tilegrad.ir.scalar import Expr, Position
from tilegrad.lazy.handle import wrap
from tilegrad.ops.arithmetic import mul
from tilegrad.ops.base import Unary
from tilegrad.ops.joint import Recompute
from tilegrad.schedule.assemble import assemble
from tilegrad.schedule.fuse import fuse


@checklist(7)
def test_every_operator_has_its_rules_and_its_kernels() -> None:
    """tests/ops requires a checked example of each; this test requires kernels of each."""
    for example in all_examples():
        graph = example.graph()
        for value in graph.values():
            if value in graph.inputs:
                continue
            assert type(value).infer is not Value.infer
            assert type(value).gradient is not Value.gradient
            assert value.opaque or type(value).element is not Value.element
        steps = assemble(fuse(graph)).steps
        same = (*graph.inputs, *(v for v in graph.values() if isinstance(v, Recompute)))
        assert steps or all(v in same or v.type.count == 0 for v in graph.outputs), example.name


@checklist(8)
def test_the_kernel_that_ran_has_a_name() -> None:
    x = tg.rand(5, 7)
    made = tg.explain(lambda x: F.softmax(x, -1), x)
    names = [s.kernel.name for s in made.program.steps if isinstance(s, Launch)]
    assert len(names) == 1
    assert f"def {names[0]}(" in str(made.kernels)


@checklist(11)
@pytest.mark.parametrize("shape", [(7,), (3, 5), (13, 1, 17), (0, 3), (129, 257)])
@pytest.mark.parametrize("axes", [0, -1, None])
def test_means(shape: tuple[int, ...], axes: int | None) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mean of nothing
        wanted = array.mean(axes)
    x = tg.tensor(array)
    got = x.mean() if axes is None else x.mean(axes)
    np.testing.assert_allclose(got.numpy(), wanted, rtol=1e-5, atol=1e-6)


# --- a custom linear layer ----------------------------------------------------------------------


class LinearFunction(tg.autograd.Function):
    """The function of the lab: output = input @ weight.T, with its gradients."""

    @staticmethod
    def forward(ctx: Any, input: tg.Tensor, weight: tg.Tensor) -> tg.Tensor:
        ctx.save_for_backward(input, weight)
        return input.mm(weight.t())

    @staticmethod
    def backward(ctx: Any, grad_output: tg.Tensor) -> tuple[tg.Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        grad_input = grad_output.mm(weight) if ctx.needs_input_grad[0] else None
        grad_weight = grad_output.t().mm(input) if ctx.needs_input_grad[1] else None
        return grad_input, grad_weight


class MyLinear(nn.Module):
    def __init__(self, input_features: int, output_features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(tg.Tensor(output_features, input_features))
        self.weight.data.uniform_(-0.1, 0.1)

    def forward(self, input: tg.Tensor) -> tg.Tensor:
        return LinearFunction.apply(input, self.weight)


@checklist(31)
def test_a_custom_linear_layer_is_the_built_in_one() -> None:
    own, built_in = MyLinear(5, 3), nn.Linear(5, 3, bias=False)
    built_in.weight.data.copy_(own.weight.data)
    x = tg.rand(4, 5)
    np.testing.assert_array_equal(own(x).detach().numpy(), built_in(x).detach().numpy())
    own(x).square().sum().backward()
    built_in(x).square().sum().backward()
    np.testing.assert_allclose(own.weight.grad.numpy(), built_in.weight.grad.numpy(), rtol=1e-6)


def network(second: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), second)


@checklist(19, 42)
def test_a_custom_layer_drops_into_a_network_and_trains() -> None:
    tg.manual_seed(0)
    net = network(MyLinear(8, 1))
    assert len(list(net.parameters())) == 3
    x = tg.randn(64, 6)
    y = x[:, :1] * 0.5 - x[:, 1:2]
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    @tg.jit
    def step(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x, y).item() for _ in range(80)]
    assert losses[-1] < 0.2 * losses[0]


@checklist(32)
def test_both_layouts_of_a_weight_have_the_gradients_of_the_formula() -> None:
    x, w = tg.randn(4, 5), tg.randn(5, 3)
    tall, wide = w.clone().requires_grad_(), w.t().clone().requires_grad_()
    upstream = tg.randn(4, 3)
    (x @ tall).backward(upstream)
    (x @ wide.t()).backward(upstream)
    np.testing.assert_allclose(tall.grad.numpy(), x.numpy().T @ upstream.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(wide.grad.numpy(), tall.grad.numpy().T, rtol=1e-6)


# --- an operator from outside -------------------------------------------------------------------


@final
class Cubed(Unary):
    """x**3, written by following docs/adding_an_op.md."""

    takes = "f"

    def scalar(self, *elements: Expr) -> Expr:
        (x,) = elements
        return x * x * x

    def share_x(self, upstream: Value) -> Value | None:
        return mul(upstream, mul(mul(self.x, self.x), 3.0))


def cubed(x: tg.Tensor) -> tg.Tensor:
    return wrap(Cubed(x.value))


@checklist(30)
def test_an_operator_defined_outside_works_everywhere() -> None:
    x = tg.randn(3, 4, dtype=tg.float64, requires_grad=True)
    np.testing.assert_allclose(cubed(x).detach().numpy(), x.detach().numpy() ** 3)
    np.testing.assert_allclose(tg.jit(cubed)(x.detach()).numpy(), x.detach().numpy() ** 3)
    np.testing.assert_allclose(tg.vmap(cubed)(x.detach()).numpy(), x.detach().numpy() ** 3)
    assert tg.autograd.gradcheck(cubed, (x,))
    assert tg.autograd.gradgradcheck(cubed, (x,))


@checklist(59)
def test_an_operator_that_lacks_a_rule_is_refused() -> None:
    class Half(Value):
        x: Value

        def infer(self) -> Any:
            return self.x.type

        def element(self, position: Position, read: Reader) -> Expr:
            return read(self.x, position) * 0.5

    with pytest.raises(TypeError, match="gradient"):
        Half(tg.ones(3).value)  # type: ignore[abstract]


@pytest.mark.defect(7)
@checklist(198)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow", "maximum", "minimum"])
def test_arithmetic_with_its_gradients(name: str) -> None:
    x, y = (tg.rand(5, dtype=tg.float64, requires_grad=True) + 0.5 for _ in range(2))
    leaves = [t.detach().requires_grad_() for t in (x, y)]
    assert tg.autograd.gradcheck(getattr(tg, name), tuple(leaves))


@pytest.mark.defect(7)
@checklist(198)
@pytest.mark.parametrize("name", ["abs", "exp", "log", "relu", "sigmoid", "tanh", "sqrt", "neg", "sum", "mean", "amax"])
def test_maps_and_reductions_with_their_gradients(name: str) -> None:
    x = (tg.rand(5, 3, dtype=tg.float64) + 0.5).requires_grad_()
    assert tg.autograd.gradcheck(getattr(tg, name), (x,))
