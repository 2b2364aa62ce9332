"""Hooks of optimizers."""

from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import ArgumentError

torch = pytest.importorskip("torch")


def trained(system: Any, log: list[str]) -> Any:
    """A parameter and its optimizer, whose hooks write a log."""
    parameter = system.nn.Parameter(system.ones(2))
    optimizer = system.optim.SGD([parameter], lr=0.5)
    optimizer.register_step_pre_hook(lambda o, args, kwargs: log.append(f"before {len(args)} {sorted(kwargs)}"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: log.append(f"after {args[0] is o}"))
    optimizer.register_state_dict_pre_hook(lambda o: log.append("saving"))
    optimizer.register_state_dict_post_hook(lambda o, s: {**s, "more": 1})
    optimizer.register_state_dict_post_hook(lambda o, s: log.append(f"saved {sorted(s)}"))
    optimizer.register_state_dict_post_hook(lambda o, s: log.append(f"first {sorted(s)}"), prepend=True)
    optimizer.register_load_state_dict_pre_hook(lambda o, s: log.append(f"loading {sorted(s)}"))
    optimizer.register_load_state_dict_post_hook(lambda o: log.append("loaded"))
    return parameter, optimizer


def test_hooks_are_called_as_in_pytorch() -> None:
    logs: list[list[str]] = [[], []]
    for system, log in zip((tg, torch), logs, strict=True):
        parameter, optimizer = trained(system, log)
        parameter.grad = system.ones(2)
        optimizer.step()
        optimizer.step(closure=lambda: None)
        optimizer.load_state_dict(optimizer.state_dict())
        handle = optimizer.register_step_post_hook(lambda o, a, k, log=log: log.append("once"))
        optimizer.step()
        handle.remove()
        optimizer.step()
        assert float(parameter.detach()[0]) == -1.0
    assert logs[0] == logs[1]


def test_a_hook_gives_other_arguments() -> None:
    parameter = tg.nn.Parameter(tg.ones(2))
    parameter.grad = tg.ones(2)
    optimizer = tg.optim.SGD([parameter], lr=0.5)
    with optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, lambda: "loss"), {})):
        assert optimizer.step() == "loss"
    with optimizer.register_step_pre_hook(lambda o, args, kwargs: "what"), pytest.raises(ArgumentError, match="what"):
        optimizer.step()
    assert optimizer.step() is None


def test_a_jitted_step_is_traced_anew_for_other_hooks() -> None:
    parameter = tg.nn.Parameter(tg.ones(2))
    optimizer = tg.optim.SGD([parameter], lr=1.0)

    @tg.jit
    def step() -> tg.Tensor:
        optimizer.zero_grad()
        loss = (parameter * 2.0).sum()
        loss.backward()
        optimizer.step()
        return loss

    step()

    def without_gradient(*given: Any) -> None:
        parameter.grad.mul_(0.0)

    handle = optimizer.register_step_pre_hook(without_gradient)
    step()
    np.testing.assert_array_equal(parameter.detach().numpy(), [-1.0, -1.0])
    handle.remove()
    step()
    np.testing.assert_array_equal(parameter.detach().numpy(), [-3.0, -3.0])


@pytest.mark.parametrize("shape", [(6, 4), (4, 6)])
@pytest.mark.parametrize("options, exact", [
    ({}, 0.15), ({"adjust_lr_fn": "match_rms_adamw", "nesterov": False, "ns_steps": 1}, 0.02),
])  # fmt: skip
def test_muon(shape: tuple[int, int], options: dict[str, Any], exact: float) -> None:
    """Its directions are computed in bfloat16, whose roundings grow with each iteration."""
    random = np.random.default_rng(0)
    start = random.standard_normal(shape).astype(np.float32)
    pairs = []
    for system in (tg, torch):
        parameter = system.nn.Parameter(system.tensor(start))
        pairs.append((system, parameter, system.optim.Muon([parameter], lr=0.1, **options)))
    for _ in range(3):
        gradient = random.standard_normal(shape).astype(np.float32)
        for system, parameter, optimizer in pairs:
            parameter.grad = system.tensor(gradient)
            optimizer.step()
    ours, theirs = (parameter.detach().numpy() for _, parameter, _ in pairs)
    assert np.abs(ours - theirs).max() < exact * np.abs(theirs - start).max()


def test_muon_takes_matrices() -> None:
    with pytest.raises(ArgumentError, match=r"parameter 0 has the shape \(3,\): it trains matrices"):
        tg.optim.Muon([tg.nn.Parameter(tg.ones(3))])
    with pytest.raises(ArgumentError, match="adjust_lr_fn='no'"):
        tg.optim.Muon([tg.nn.Parameter(tg.ones(3, 3))], adjust_lr_fn="no")
