"""Hooks of modules, of their gradients and of their state, as in PyTorch."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import nn
from tilegrad.errors import ArgumentError

torch = pytest.importorskip("torch")


def both() -> tuple[Any, Any]:
    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    ours = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    ours.load_state_dict({name: value.numpy() for name, value in theirs.state_dict().items()})
    return ours, theirs


def near(x: Any, y: Any) -> None:
    assert (x is None) == (y is None)
    if x is not None:
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("tracked", [False, True])
def test_backward_hooks_see_and_replace_what_pytorchs_do(place: int, tracked: bool) -> None:
    seen: list[list[Any]] = []
    gradients = []
    array = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    for module, make in zip(both(), (tg.tensor, torch.tensor), strict=True):
        noted: list[Any] = []
        seen.append(noted)

        def double(module: Any, grad_output: Any, noted: list[Any] = noted) -> Any:
            noted.extend(grad_output)
            return tuple(g * 2 for g in grad_output)

        def halve(module: Any, grad_input: Any, grad_output: Any, noted: list[Any] = noted) -> Any:
            noted.extend([*grad_input, *grad_output])
            return tuple(None if g is None else g * 0.25 for g in grad_input)

        module[place].register_full_backward_pre_hook(double)
        handle = module[place].register_full_backward_hook(halve)
        x = make(array, requires_grad=tracked)
        module(x).sum().backward()
        gradients.append([x.grad, *(p.grad for p in module.parameters())])
        handle.remove()
    assert len(seen[0]) == len(seen[1]) == 3
    for x, y in zip([*seen[0], *gradients[0]], [*seen[1], *gradients[1]], strict=True):
        near(x, y)


def test_backward_hooks_cost_nothing_without_gradients() -> None:
    layer = nn.Identity()
    layer.register_full_backward_hook(lambda module, grad_input, grad_output: pytest.fail("no gradient flows"))
    with tg.no_grad():
        assert layer(tg.ones(2)).tolist() == [1, 1]


def test_state_hooks() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    order: list[str] = []
    module[0].register_state_dict_pre_hook(lambda m, prefix, keep_vars: order.append(f"before {prefix}"))

    def saved(m: Any, state: dict[str, Any], prefix: str, metadata: Any) -> None:
        state[f"{prefix}scale"] = state.pop(f"{prefix}weight")

    def loading(m: Any, state: dict[str, Any], prefix: str, *others: Any) -> None:
        state[f"{prefix}weight"] = state.pop(f"{prefix}scale")

    module[0].register_state_dict_post_hook(saved)
    module[0].register_load_state_dict_pre_hook(loading)
    module.register_load_state_dict_post_hook(lambda m, keys: order.append(f"after {len(keys.missing_keys)}"))
    state = module.state_dict()
    assert list(state) == ["0.bias", "0.scale"]
    with tg.no_grad():
        state["0.scale"].copy_(tg.ones(2, 2))
    module.load_state_dict(state)
    assert list(state) == ["0.bias", "0.scale"], "the caller's state stays as it is"
    assert order == ["before 0.", "after 0"]


def test_extra_state_travels_with_the_rest() -> None:
    class Counting(nn.Module):
        count = 0

        def get_extra_state(self) -> int:
            return self.count

        def set_extra_state(self, state: int) -> None:
            self.count = state

    first, second = nn.Sequential(Counting()), nn.Sequential(Counting())
    first[0].count = 7
    assert first.state_dict() == {"0._extra_state": 7}
    second.load_state_dict(first.state_dict())
    assert second[0].count == 7
    with pytest.raises(ArgumentError, match="0._extra_state: missing in the state"):
        second.load_state_dict({})


def test_assigned_state_keeps_its_dtype() -> None:
    module = nn.Linear(2, 2)
    module.load_state_dict({name: value.double() for name, value in module.state_dict().items()}, assign=True)
    assert module.weight.dtype is tg.float64
    assert module.weight.requires_grad


def test_submodules_are_replaced_by_path() -> None:
    module = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
    module.set_submodule("0.0", nn.Tanh())
    assert isinstance(module.get_submodule("0.0"), nn.Tanh)
    with pytest.raises(AttributeError, match="no attribute '7'"):
        module.set_submodule("0.7", nn.Tanh(), strict=True)
    module.set_submodule("0.7", nn.Tanh())
    assert isinstance(module[0][1], nn.Tanh)  # type: ignore[index]
    with pytest.raises(AttributeError, match="not a Module"):
        module.set_submodule("0.0.training", nn.Tanh())
    with pytest.raises(ArgumentError, match="True or False"):
        module.train("yes")  # type: ignore[arg-type]


def test_children_are_found_once() -> None:
    layer = nn.Tanh()
    assert [name for name, _ in nn.Sequential(layer, layer).named_children()] == ["0"]
    seen: set[Any] = {layer}
    assert [name for name, _ in nn.Sequential(layer, nn.Tanh()).named_modules(seen, "net")] == ["net", "net.1"]


def test_more_containers() -> None:
    parameters = nn.ParameterDict({"a": tg.ones(2), "b": nn.Parameter(tg.zeros(3, 1))})
    assert list(parameters.state_dict()) == ["a", "b"]
    assert "Parameter containing" in repr(parameters)
    assert parameters.pop("a").tolist() == [1, 1]
    with pytest.raises(KeyError, match="no parameter 'a'; there are b"):
        _ = parameters["a"]
    row = nn.ParameterList([tg.ones(1), tg.zeros(1)])
    row[-1] = tg.full((1,), 3.0)
    assert [x.item() for x in row[:2]] == [1, 3]
    net = nn.Sequential(nn.Tanh()) + nn.Sequential(nn.ReLU())
    net += [nn.Sigmoid()]
    assert isinstance(net.pop(-1), nn.Sigmoid)
    assert len(net) == 2


@pytest.mark.parametrize("count", [0, 1, 2])
def test_lists_of_parameters_print_as_in_pytorch(count: int) -> None:
    ours, theirs = (
        system.nn.Sequential(system.nn.ParameterList([system.ones(n + 1, 2) for n in range(count)]))
        for system in (tg, torch)
    )
    assert repr(ours).replace("tilegrad.", "torch.") == repr(theirs)
