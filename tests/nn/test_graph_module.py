"""Modules on recorded graphs: names of their tensors, and what calls they refuse."""

from typing import Any

import pytest

import tilegrad as tg
from tilegrad import nn
from tilegrad.errors import ArgumentError, DTypeError, ShapeError
from tilegrad.nn.graph_module import GraphModule
from tilegrad.nn.record import recorded


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.second = nn.Linear(3, 4)
        self.second.weight = self.first.weight

    def forward(self, x: tg.Tensor, y: Any = None) -> tg.Tensor:
        return self.first(x) + self.second(y[0] if isinstance(y, tuple) else y)


@pytest.fixture
def net() -> GraphModule:
    return recorded(Two(), (tg.ones(2, 3), (tg.ones(2, 3),)), dynamic={"x": {0: "n"}, "y": ({0: "n"},)})


def test_tensors_have_the_names_of_the_model(net: GraphModule) -> None:
    assert [*net.state_dict()] == ["first.weight", "first.bias", "second.weight", "second.bias"]
    assert [name for name, _ in net.named_parameters()] == ["first.weight", "first.bias", "second.bias"]
    assert net.second.weight is net.first.weight


def test_arguments_have_names(net: GraphModule) -> None:
    x = tg.ones(5, 3)
    assert net(y=(x,), x=x).shape == net(x, (x,)).shape == net(x.numpy(), y=(x,)).shape == (5, 4)


REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any], type[Exception], str]] = {
    "missing": ((tg.ones(2, 3),), {}, ArgumentError, "'y' is missing: the network takes x, y"),
    "too many": ((tg.ones(2, 3), None, None), {}, ArgumentError, "2 arguments"),
    "unknown": ((tg.ones(2, 3),), {"z": None}, ArgumentError, "'z' is unknown"),
    "twice": ((tg.ones(2, 3),), {"x": tg.ones(2, 3)}, ArgumentError, "'x' is given twice"),
    "no tensor": ((1.0, (tg.ones(2, 3),)), {}, ArgumentError, "to be a tensor, not float"),
    "other containers": ((tg.ones(2, 3), [tg.ones(2, 3)]), {}, ArgumentError, r"\[tensor\], not \(tensor,\)"),
    "another dtype": ((tg.ones(2, 3).double(), (tg.ones(2, 3),)), {}, DTypeError, "float64 elements; .* float32"),
    "another shape": ((tg.ones(2, 4), (tg.ones(2, 3),)), {}, ShapeError, r"\(2, 4\); the network takes \(n, 3\)"),
    "another size": ((tg.ones(2, 3), (tg.ones(3, 3),)), {}, ShapeError, "with n = 2"),
    "nothing": ((tg.ones(0, 3), (tg.ones(0, 3),)), {}, ShapeError, r"\(0, 3\)"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_calls_that_do_not_fit_are_refused(case: str, net: GraphModule) -> None:
    args, kwargs, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        net(*args, **kwargs)


def test_sizes_that_were_taken_for_unequal_are_refused() -> None:
    class Chosen(nn.Module):
        def forward(self, x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
            return x * 2 if x.shape[0] == 4 else x

    net = recorded(Chosen(), (tg.ones(2), tg.ones(1)), dynamic={"x": {0: "n"}})
    assert net(tg.ones(3), tg.ones(1)).tolist() == [1, 1, 1]
    with pytest.raises(ShapeError, match="n is not 4"):
        net(tg.ones(4), tg.ones(1))


def test_a_decision_on_a_size_of_one_is_noticed() -> None:
    """A symbol is larger than 1: what happens where it is 1 is recorded to compare, and refused if it is another."""

    class Chosen(nn.Module):
        def forward(self, x: tg.Tensor) -> tg.Tensor:
            return x * 2 if x.shape[0] == 1 else x

    net = recorded(Chosen(), (tg.zeros(2),), dynamic={"x": {0: "n"}})
    assert net(tg.ones(3)).tolist() == [1, 1, 1]
    with pytest.raises(ShapeError, match="n is not 1"):
        net(tg.ones(1))


def test_a_tensor_that_is_missing_is_named(net: GraphModule) -> None:
    with pytest.raises(ArgumentError, match="first.weight"):
        GraphModule(net.graph, {})
