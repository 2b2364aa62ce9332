"""Graphs, networks and their gradients, as the checklist asks for them."""

from __future__ import annotations

import random

import numpy as np
import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tests.checklist import checklist
from tests.fuzz.graphs import drawn
from tests.schedule.programs import kernels
from tests.schedule.programs import program as program_of
from tilegrad import nn
from tilegrad.errors import TilegradError
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ir.graph_checker import check_graph
from tilegrad.ir.program import Launch
from tilegrad.ops.arithmetic import add
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.order import order
from tilegrad.transform.autodiff import leaf_gradients
from tilegrad.transform.pipeline import optimise


def random_graphs(count: int) -> list[Graph]:
    rng = random.Random(0)
    return [drawn([rng.randrange(10000) for _ in range(120)]).graph for _ in range(count)]


@checklist(2, 86)
def test_graphs_are_in_topological_order() -> None:
    for graph in random_graphs(1000):
        place = {v: n for n, v in enumerate(graph.values())}
        given = set(graph.inputs)
        assert all(place[x] < place[v] for v in place if v not in given for x in v.inputs)


@checklist(2)
def test_a_cycle_is_refused() -> None:
    x = Input(TensorType(float32, (3,)), "x")
    y = add(x, 1.0)
    z = add(y, 2.0)
    y.__dict__["inputs"] = (z, y.inputs[1])  # nobody can write this without force: values are made after what they read
    with pytest.raises(TilegradError):
        check_graph(Graph((x,), (z,)))


@checklist(86)
def test_kernels_run_after_those_they_need() -> None:
    for graph in random_graphs(300):
        graph = optimise(graph)
        made: set[Value] = set(graph.inputs)
        for group in order(fuse(graph)).groups:
            assert group.needs() <= made
            made |= set(group.stored)


@pytest.mark.defect(9)
@checklist(86)
def test_a_tensor_that_is_an_output_and_read_again() -> None:
    """The counter-example to a reversed breadth-first search: a feeds an output and a deeper layer."""

    @tg.jit
    def three(x: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor]:
        a = F.softmax(x, -1)
        b = F.softmax(a @ a, -1)
        return a, b @ b

    x = tg.randn(6, 6)
    a, c = three(x)
    wanted = tg.softmax(x, -1)
    np.testing.assert_allclose(a.numpy(), wanted.numpy(), rtol=1e-6)
    b = tg.softmax(wanted @ wanted, -1)
    np.testing.assert_allclose(c.numpy(), (b @ b).numpy(), rtol=1e-5)


@checklist(85)
def test_one_network_and_many_programs_share_weights() -> None:
    net = nn.Linear(4, 3)
    first, second = tg.jit(lambda x: net(x)), tg.jit(lambda x: net(x) * 2)
    x = tg.ones(2, 4)
    before = tg.live_bytes()
    np.testing.assert_allclose(first(x).detach().numpy() * 2, second(x).detach().numpy())
    net.weight.data.zero_()
    np.testing.assert_allclose(first(x).detach().numpy(), np.broadcast_to(net.bias.detach().numpy(), (2, 3)))
    np.testing.assert_allclose(second(x).detach().numpy(), first(x).detach().numpy() * 2)
    assert tg.live_bytes() - before < 2 * net.weight.numel() * 4 + 4096  # no copy of the weights for each


@checklist(87)
def test_recording_allocates_nothing() -> None:
    x = tg.ones(1000)
    x.numpy()
    before = tg.live_bytes()
    y = x
    for _ in range(10):
        y = (y * 2).exp().sum() + x
    assert tg.live_bytes() == before
    del y


@checklist(88)
def test_shapes_are_inferred_and_errors_name_both() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(9, 2))
    with pytest.raises(TilegradError) as problem:
        net(tg.ones(3, 4))
    assert "8" in str(problem.value)
    assert "9" in str(problem.value)
    assert tuple(net[0](tg.ones(3, 4)).shape) == (3, 8)  # known without computing


@checklist(92)
def test_three_inputs_and_two_outputs() -> None:
    def both(x: tg.Tensor, y: tg.Tensor, z: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor]:
        return (x * y + z).sum(), (x - z).exp().mean()

    arrays = [np.random.default_rng(n).standard_normal(5) for n in range(3)]
    a, b, c = arrays
    one, two = tg.jit(both)(*map(tg.tensor, arrays))
    np.testing.assert_allclose([one.item(), two.item()], [(a * b + c).sum(), np.exp(a - c).mean()])
    wanted = [[b, a, np.ones(5)], [np.exp(a - c) / 5, np.zeros(5), -np.exp(a - c) / 5]]
    for n in range(2):
        leaves = [tg.tensor(array, requires_grad=True) for array in arrays]
        found = tg.autograd.grad(both(*leaves)[n], leaves, allow_unused=True)
        for got, want in zip(found, wanted[n], strict=True):
            np.testing.assert_allclose(np.zeros(5) if got is None else got.numpy(), want, rtol=1e-12)


class Residual(nn.Module):
    """Two branches that join, a way around them, and one layer that is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.left, self.right = (nn.Linear(6, 6) for _ in range(3))

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        y = self.shared(x)
        joined = tg.cat([self.left(y).relu(), self.right(y).tanh()], -1)
        return self.shared(joined[:, :6] + joined[:, 6:]) + x


@checklist(93)
def test_branches_joins_skips_and_shared_layers() -> None:
    net, x = Residual(), tg.randn(3, 6)
    s, left, right = ((m.weight.detach().numpy(), m.bias.detach().numpy()) for m in (net.shared, net.left, net.right))
    y = x.numpy() @ s[0].T + s[1]
    joined = np.maximum(y @ left[0].T + left[1], 0) + np.tanh(y @ right[0].T + right[1])
    np.testing.assert_allclose(net(x).detach().numpy(), joined @ s[0].T + s[1] + x.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(tg.jit(net)(x).detach().numpy(), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    double = Residual().to(tg.float64)
    assert tg.autograd.gradcheck(double, (tg.randn(2, 6, dtype=tg.float64, requires_grad=True),))


@checklist(94)
def test_structures_may_change_from_call_to_call() -> None:
    layers = [nn.Linear(5, 5) for _ in range(3)]

    @tg.jit
    def deep(x: tg.Tensor, depth: int) -> tg.Tensor:
        for layer in layers[:depth]:
            x = layer(x).tanh()
        return x

    def plain(x: tg.Tensor, depth: int) -> tg.Tensor:
        for layer in layers[:depth]:
            x = layer(x).tanh()
        return x

    for n in range(9):
        x = tg.randn(2, 5)
        np.testing.assert_allclose(
            deep(x, n % 3 + 1).detach().numpy(), plain(x, n % 3 + 1).detach().numpy(), rtol=1e-5, atol=1e-6
        )
    assert len(deep.programs) == 3


@checklist(98)
def test_a_loss_is_a_graph_of_operators() -> None:
    """L1 = SUB, ABS, REDUCE: connected it is one kernel, and has the gradient of the built-in one."""

    def l1(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        return tg.abs(tg.sub(x, y)).mean()

    x, y = tg.randn(6, 7, requires_grad=True), tg.randn(6, 7)
    np.testing.assert_allclose(l1(x, y).item(), F.l1_loss(x, y).item(), rtol=1e-6)
    (own,), (built_in,) = tg.autograd.grad(l1(x, y), [x]), tg.autograd.grad(F.l1_loss(x, y), [x])
    np.testing.assert_array_equal(own.numpy(), built_in.numpy())
    assert kernels(program_of(l1, tg.zeros(6, 7, device="null"), tg.zeros(6, 7, device="null"))) == 1


@checklist(5)
def test_eager_and_captured_give_the_same_and_captured_takes_fewer_kernels() -> None:
    net = Residual()
    jitted = tg.jit(net)
    for n in (2, 3, 5):
        x = tg.randn(n, 6)
        np.testing.assert_allclose(jitted(x).detach().numpy(), net(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    launches = [s for s in jitted.programs[0].compiled.program.steps if isinstance(s, Launch)]
    assert len(launches) < len(jitted.programs[0].compiled.stages["graph"].artifact.values())  # type: ignore[attr-defined]


@checklist(145)
def test_the_graph_of_a_logistic_regression_prints() -> None:
    w, b = tg.zeros(4, 3, requires_grad=True), tg.zeros(3, requires_grad=True)

    def step(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        loss = F.cross_entropy(x @ w + b, y)
        for p, g in zip((w, b), tg.autograd.grad(loss, [w, b]), strict=True):
            p.data -= 0.5 * g
        return loss

    x, y = tg.randn(10, 4), tg.randint(0, 3, (10,))
    text = str(tg.explain(step, x, y).differentiated)
    assert text.count("contract") >= 2  # the product, and the gradient of the weight
    assert text.count(" = sub") >= 2  # both assignments
    assert "test_graphs.py" in text  # each value with the user's line


@checklist(147)
def test_softmax_cross_entropy_is_stable() -> None:
    x = tg.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]], requires_grad=True)
    y = tg.tensor([0, 2])
    loss = F.cross_entropy(x, y, reduction="sum")
    loss.backward()
    assert np.isfinite(loss.item())
    p = np.array([[1, 0, 0], [1 / 3, 1 / 3, 1 / 3]])
    np.testing.assert_allclose(x.grad.numpy(), p - np.array([[1, 0, 0], [0, 0, 1]]), atol=1e-6)


@checklist(149)
def test_independent_branches() -> None:
    @tg.jit
    def both(a: tg.Tensor) -> tg.Tensor:
        a = a * 2
        b, c = a + 1, a + 2
        return b * c

    np.testing.assert_array_equal(both(tg.ones(2, 2)).numpy(), np.full((2, 2), 12.0))


@checklist(156)
def test_gradients_are_graph() -> None:
    x = tg.randn(4, requires_grad=True)
    (g,) = tg.autograd.grad((x * x * x).sum(), [x], create_graph=True)
    assert g.requires_grad
    assert isinstance(g.value, Value)
    (h,) = tg.autograd.grad(g.sum(), [x])
    np.testing.assert_allclose(h.numpy(), 6 * x.detach().numpy(), rtol=1e-6)


@checklist(159)
@pytest.mark.parametrize("times", [2, 5, 9])
def test_shares_are_added_without_redundant_nodes(times: int) -> None:
    x = Input(TensorType(float32, (3,)), "x")
    x.__dict__["tracked"] = True
    y: Value = x
    for _ in range(times - 1):
        y = add(y, x)
    (g,) = leaf_gradients([y], [Input(TensorType(float32, (3,)), "dy")]).values()
    assert sum(v.op == "add" for v in Graph((), (g,)).values()) == times - 1  # n shares need n - 1 additions


@pytest.mark.defect(12)
@checklist(159)
def test_what_is_not_reached_has_the_gradient_that_pytorch_says() -> None:
    x, y = tg.ones(2, requires_grad=True), tg.ones(2, requires_grad=True)
    assert tg.autograd.grad((x * 2).sum(), [x, y], allow_unused=True)[1] is None
    with pytest.raises(TilegradError):
        tg.autograd.grad((x * 2).sum(), [x, y])


@checklist(99)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "int32", "int64", "uint8"])
def test_kernels_for_every_element_type(dtype: str) -> None:
    x = tg.arange(12).reshape(3, 4).to(getattr(tg, dtype))
    made = tg.jit(lambda x: (x * x + x, x.sum(0), x @ x.t()))(x)
    a = np.arange(12).reshape(3, 4)
    for got, want in zip(made, (a * a + a, a.sum(0), a @ a.T), strict=True):
        wanted = want.astype(np.float64) if got.dtype.is_float else want.astype(got.dtype.name)
        np.testing.assert_allclose(got.to(tg.float64).numpy(), wanted.astype(np.float64), rtol=2e-2)
