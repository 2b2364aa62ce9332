"""The first step of a training loop and the second are one program: initial state is computed before, by itself."""

import inspect

import pytest

import tilegrad as tg
from tilegrad import nn
from tilegrad.lazy.realize import compiled_programs

pytestmark = pytest.mark.usefixtures("compiled")

WITHOUT_CLOSURE = [
    cls
    for _, cls in inspect.getmembers(tg.optim, inspect.isclass)
    if issubclass(cls, tg.optim.Optimizer)
    and cls.update is not tg.optim.Optimizer.update
    and not issubclass(cls, tg.optim.LBFGS)
]


def programs_of_steps(model: nn.Module, optimizer: tg.optim.Optimizer, steps: int = 4) -> list[int]:
    x = tg.tensor([[float(i + j) for i in range(7)] for j in range(4)])
    found = []
    for _ in range(steps):
        before = len(compiled_programs())
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        loss.item()
        found.append(len(compiled_programs()) - before)
    return found


@pytest.mark.parametrize("cls", WITHOUT_CLOSURE, ids=lambda cls: cls.__name__)
def test_no_program_for_the_second_step(cls: type[tg.optim.Optimizer]) -> None:
    tg.manual_seed(0)
    layers = [nn.Linear(7, 7, bias=False)]
    if cls is not tg.optim.Muon:
        layers += [nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3)]
    model = nn.Sequential(*layers)
    first, *others = programs_of_steps(model, cls(model.parameters(), lr=0.01))
    assert first <= 3  # parameters, other state, the step
    assert others == [0, 0, 0]


def test_updates_by_hand() -> None:
    w = tg.randn(3, 5, requires_grad=True)
    found = []
    for _ in range(3):
        before = len(compiled_programs())
        loss = (w @ w.T).sum()
        loss.backward()
        with tg.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
        loss.item()
        found.append(len(compiled_programs()) - before)
    assert found[0] <= 2
    assert found[1:] == [0, 0]


def test_values_that_are_replaced_unseen_are_not_computed() -> None:
    """As by `load_state_dict`, or by an initialisation in place."""
    layer = nn.Linear(11, 13)
    nn.init.ones_(layer.weight)
    before = len(compiled_programs())
    assert layer.weight.sum().item() == 143
    assert len(compiled_programs()) == before + 1


def test_values_before_the_update_are_kept() -> None:
    tg.manual_seed(1)
    layer = nn.Linear(3, 2)
    start = layer.weight.detach().clone()
    optimizer = tg.optim.SGD(layer.parameters(), lr=0.5)
    layer(tg.ones(4, 3)).sum().backward()
    optimizer.step()
    assert tg.allclose(layer.weight.detach(), start - 2.0)
