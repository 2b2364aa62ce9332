"""The number of kernels and the memory of common programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tilegrad as tg
import tilegrad.nn.functional as F
from tests.checklist import checklist
from tests.schedule.programs import copies, given, kernels, labels, least_arena, program, with_gradients
from tilegrad import nn, optim
from tilegrad.ir.program import Launch, Program


def training(model: nn.Module, optimizer: optim.Optimizer, x: tg.Tensor, y: tg.Tensor) -> Program:
    def step(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return program(step, x, y)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).to("null")


class Block(nn.Module):
    """Single-head attention and a perceptron, each with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: tg.Tensor) -> tg.Tensor:
        y = self.first(x)
        q, k, v = self.query(y), self.key(y), self.value(y)
        x = x + self.out(F.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v)
        return x + self.narrow(F.gelu(self.wide(self.second(x))))


@pytest.mark.parametrize("shape", [(512, 700), (64, 50257), (17, 65536), (64, 1000000)])
def test_softmax_is_one_kernel(shape: tuple[int, int]) -> None:
    assert kernels(program(lambda x: F.softmax(x, -1), given(*shape))) == 1


def test_long_rows_that_are_few_are_shared() -> None:
    assert kernels(program(lambda x: F.softmax(x, -1), given(2, 65536))) > 1


def test_softmax_backward_is_one_kernel() -> None:
    """Its inputs are the result of the forward pass and the upstream gradient."""
    made = with_gradients(lambda x: F.softmax(x, -1), given(512, 700, grad=True))
    assert kernels(made) == 1


def normalised(x: tg.Tensor, w: tg.Tensor, b: tg.Tensor) -> tg.Tensor:
    return F.layer_norm(x, (1024,), w, b)


def test_what_is_dear_is_not_computed_for_every_row() -> None:
    made = program(lambda w, x: w @ tg.tanh(tg.exp(x)), given(500, 300), given(300))
    assert kernels(made) == 2
    assert kernels(program(lambda w, x: w @ (x + 1.0), given(500, 300), given(300))) == 1


@pytest.mark.parametrize("planes", [(300, 300), (90000,)])
def test_many_planes(planes: tuple[int, ...]) -> None:
    """More planes than a grid has instances along its last axes."""
    made = with_gradients(lambda x: F.max_pool2d(x, 3, 1), given(*planes, 6, 6, grad=True))  # type: ignore[return-value]
    assert kernels(made) == 2


def test_layer_norm_is_one_kernel() -> None:
    assert kernels(program(normalised, given(512, 1024), given(1024), given(1024))) == 1


def test_layer_norm_and_its_gradients_are_two_kernels() -> None:
    """One along the rows for all, of the gradients of weight and bias parts; then one for the sums of these parts."""
    made = with_gradients(normalised, given(512, 1024, grad=True), given(1024, grad=True), given(1024, grad=True))
    assert kernels(made) == 2
    last = [step for step in made.steps if isinstance(step, Launch)][1]
    assert all(int(b.type.count) <= 64 * 1024 for b in made.buffers if b.name in last.arguments)


def perceptron(x: tg.Tensor, w: tg.Tensor, b: tg.Tensor, v: tg.Tensor, c: tg.Tensor) -> tg.Tensor:
    return F.linear(F.gelu(F.linear(x, w, b)), v, c)


def test_what_follows_a_product_is_part_of_its_kernel() -> None:
    shapes = ((256, 128), (512, 128), (512,), (128, 512), (128,))
    assert kernels(program(perceptron, *(given(*s) for s in shapes))) == 2
    assert kernels(with_gradients(perceptron, *(given(*s, grad=True) for s in shapes))) <= 8


@pytest.mark.parametrize("classes", [10, 1000])
def test_cross_entropy_and_its_gradient(classes: int) -> None:
    y = labels(4096)
    assert kernels(with_gradients(lambda x: F.cross_entropy(x, y), given(4096, classes, grad=True))) <= 3


@checklist(201)
@pytest.mark.parametrize("batch", [1, 64, 65, 512])
def test_a_step_of_training(batch: int) -> None:
    """Two products forward, one and two backward with the updates in them; softmax with all around it; a bias."""
    model = mlp()
    made = training(model, optim.SGD(model.parameters(), lr=0.1), given(batch, 784), labels(batch))
    assert kernels(made) <= 7
    assert copies(made) == 0
    assert {b.name for b in made.buffers if b.role == "input"} >= set(made.outputs[-4:])  # parameters are renewed


@checklist(196)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_updates_of_momentum_are_in_place(momentum: float) -> None:
    model = mlp()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=momentum, nesterov=momentum > 0)
    x, y = given(64, 784), labels(64)
    training(model, optimizer, x, y)
    made = training(model, optimizer, x, y)  # now the buffers of the optimizer are there
    assert (kernels(made) <= 9, copies(made)) == (True, 0)


def test_an_update_of_adam_is_one_pass_over_memory() -> None:
    w = nn.Parameter(given(300, 400))
    optimizer = optim.Adam([w])

    def step(gradient: tg.Tensor) -> None:
        w.grad = gradient
        optimizer.step()

    program(step, given(300, 400))
    made = program(step, given(300, 400))
    assert kernels(made) <= 2  # the count of steps, and the rest
    assert copies(made) == 0


def test_updates_of_adam_happen_where_the_gradients_are_made() -> None:
    """A counter of steps, small enough for one instance, does not keep updates out of a product."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 96), nn.ReLU(), nn.Linear(96, 10)).to("null")
    optimizer = optim.Adam(model.parameters())
    x, y = given(32, 64), labels(32)
    training(model, optimizer, x, y)
    made = training(model, optimizer, x, y)

    names = [step.kernel.name for step in made.steps if isinstance(step, Launch)]
    assert sum("permute" in name for name in names) == 3  # gradients of weights
    assert all("add_sub" in name for name in names if "permute" in name)
    assert (len(names), copies(made)) == (12, 0)


def stack() -> Program:
    model = nn.Sequential(*(Block(64) for _ in range(12)), nn.Linear(64, 10)).to("null")
    return training(model, optim.SGD(model.parameters(), lr=0.1), given(96, 64), labels(96))


def small() -> Program:
    model = mlp()
    return training(model, optim.SGD(model.parameters(), lr=0.1), given(64, 784), labels(64))


@checklist(182)
@pytest.mark.parametrize("make", [small, stack])
def test_memory_is_planned_tightly(make: Callable[[], Program]) -> None:
    made = make()
    assert 0 < int(made.arena) <= 1.1 * least_arena(made)
