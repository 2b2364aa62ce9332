"""The origin of the first NaN: the op, the user's line, its inputs."""

from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tilegrad.errors import ArgumentError, NaNError


def loss(x: Any) -> Any:
    hidden = x * 2
    logarithm = hidden.log()  # the line
    return logarithm.mean()


X = [[1.0, 2.0], [0.5, -3.0]]


@pytest.mark.parametrize("function", [loss, tg.jit(loss)], ids=["plain", "jitted"])
def test_a_function(function: Any) -> None:
    found = tg.first_nan(function, tg.tensor(X))
    assert found.made.op == "log"
    assert found.made.place.text.endswith("# the line")
    assert Path(found.made.place.file).name == "test_first_nan.py"
    assert "1 of 4 elements are NaN, the first at [1, 1]" in str(found)
    assert "from f32[2,2], from -6 to 4" in str(found)
    assert tg.first_nan(function, tg.ones(2, 2)) is None


def test_a_tensor() -> None:
    """Recorded; computed already, with its history; an argument."""
    result = loss(tg.tensor(X))
    assert tg.first_nan(result).made.op == "log"
    tracked = loss(tg.tensor(X, requires_grad=True))
    assert tracked.isnan().item()
    assert tracked.item() != tracked.item()
    assert tg.first_nan(tracked).made.op == "log"
    given = tg.tensor([1.0, float("nan")])
    assert "was in x0, as it was given" in str(tg.first_nan(lambda x: x.exp().sum(), given))
    assert tg.first_nan(tg.ones(3)) is None


def test_the_infinity_before() -> None:
    def softmax(x: Any) -> Any:
        large = x.exp()
        return large / large.sum()

    found = tg.first_nan(softmax, tg.tensor([1.0, 100.0]))
    assert found.made.op == "div"
    assert found.infinite.op == "exp"
    assert found.infinite.place.text == "large = x.exp()"
    assert tg.first_nan(lambda x: x.exp(), tg.tensor([100.0])) is None
    assert tg.first_nan(lambda x: x.exp(), tg.tensor([100.0]), inf=True).made.op == "exp"


def test_what_does_not_arrive_is_not_blamed() -> None:
    """A NaN that `where` leaves out is none."""

    def safe(x: Any) -> Any:
        return tg.where(x > 0, x.log(), x)

    assert tg.first_nan(safe, tg.tensor([1.0, -1.0])) is None


def test_a_gradient() -> None:
    weight = tg.nn.Parameter(tg.zeros(3))

    def step() -> None:
        weight.grad = None
        (weight.sqrt() * 0).sum().backward()

    found = tg.first_nan(step)
    assert "in the gradient of" in str(found)
    assert "(weight.sqrt() * 0).sum().backward()" in str(found)
    assert weight.grad is None
    assert weight.tolist() == [0, 0, 0]


class Training:
    def __init__(self) -> None:
        tg.manual_seed(0)
        self.model = tg.nn.Linear(2, 2)
        self.optimizer = tg.optim.SGD(self.model.parameters(), lr=1e30)

    def step(self, x: Any) -> Any:
        self.optimizer.zero_grad()
        value = (self.model(x) ** 2).mean()
        value.backward()
        self.optimizer.step()
        return value


@pytest.mark.parametrize("traced", [False, True])
def test_a_block(traced: bool) -> None:
    """Training within it runs as ever, until a result is NaN."""
    training = Training()
    step = tg.jit(training.step) if traced else training.step
    x = tg.tensor(X)

    def diverge() -> None:
        with tg.first_nan():
            for _ in range(10):
                step(x)

    with pytest.raises(NaNError, match=r"(?s)test_first_nan.py:\d+: .*the first infinity"):
        diverge()
    fine = Training()
    fine.optimizer.param_groups[0]["lr"] = 0.01
    with tg.first_nan():
        inside = [fine.step(x).item() for _ in range(3)]
    again = Training()
    again.optimizer.param_groups[0]["lr"] = 0.01
    assert inside == [again.step(x).item() for _ in range(3)]


def test_gradients_that_nobody_looks_at_are_watched() -> None:
    x = tg.tensor([0.0, 4.0], requires_grad=True)
    with pytest.raises(NaNError, match="the first NaN was made by"), tg.first_nan():
        (x.sqrt() * 0.0).sum().backward()
    x.grad = None
    with tg.first_nan():
        x.sum().backward()


def test_it_takes_functions_and_tensors() -> None:
    with pytest.raises(ArgumentError, match="first_nan takes a function"):
        tg.first_nan(3)
