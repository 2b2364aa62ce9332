"""Optimizers against PyTorch, over several steps."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tests.recorded import pytorch
from tilegrad.errors import ArgumentError

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("Adam", {"lr": 0.05}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.95), "eps": 1e-4, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True, "maximize": True}),
    ("Adam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True, "foreach": True}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.3, "maximize": True}),
    ("Adadelta", {"lr": 1.0}),
    ("Adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-4, "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {"lr": 0.02}),
    ("RMSprop", {"lr": 0.02, "alpha": 0.8, "momentum": 0.5, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.02, "centered": True, "eps": 1e-3}),
    ("RMSprop", {"lr": 0.02, "centered": True, "momentum": 0.9, "eps": 1e-3, "maximize": True}),
    ("Adamax", {"lr": 0.05}),
    ("Adamax", {"lr": 0.05, "betas": (0.7, 0.9), "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.05}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "momentum_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.05}),
    ("RAdam", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("ASGD", {"lr": 0.05, "lambd": 0.01}),
    ("ASGD", {"lr": 0.05, "alpha": 0.5, "t0": 3, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {"lr": 0.02}),
    ("Rprop", {"lr": 0.02, "etas": (0.4, 1.5), "step_sizes": (1e-3, 0.05), "maximize": True}),
    ("Adafactor", {"lr": 0.05}),
    ("Adafactor", {"lr": 0.5, "beta2_decay": -0.5, "eps": (1e-6, 1e-2), "d": 1.5, "weight_decay": 0.1}),
]


def starts() -> Iterator[np.ndarray]:
    rng = np.random.default_rng(0)
    for shape in [(4, 3), (3,), ()]:
        yield rng.standard_normal(shape).astype(np.float32)


def loss(parameters: list[Any]) -> Any:
    """Something curved that mixes all the parameters."""
    w, b, s = parameters
    return ((w * b).tanh().sum() * s + (w * w).sum() * 0.1 + (b - 1).abs().sum()) * 0.5


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)
@checklist(196)
def test_ten_steps(name: str, settings: dict[str, Any]) -> None:
    torch = pytorch()
    ours = [tg.tensor(x, requires_grad=True) for x in starts()]
    theirs = [torch.tensor(x, requires_grad=True) for x in starts()]
    mine, its = getattr(tg.optim, name)(ours, **settings), getattr(torch.optim, name)(theirs, **settings)
    for step in range(10):
        for parameters, optimizer in ((ours, mine), (theirs, its)):
            optimizer.zero_grad()
            loss(parameters).backward()
            if step == 5:  # a schedule
                optimizer.param_groups[0]["lr"] *= 0.5
            optimizer.step()
        for x, y in zip(ours, theirs):
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", sorted({name for name, _ in SETTINGS}))
@pytest.mark.parametrize("shape", [None, (), (1,)], ids=["number", "tensor", "one element"])
def test_a_learning_rate_that_changes_before_the_first_step(name: str, shape: tuple[int, ...] | None) -> None:
    """As a scheduler with a warm-up does."""
    torch = pytorch()
    starting = list(starts())
    ours = [tg.tensor(x, requires_grad=True) for x in starting]
    theirs = [torch.tensor(x, requires_grad=True) for x in starting]
    rates: list[Any] = [0.5, 0.5] if shape is None else [tg.full(shape, 0.5), torch.full(shape, 0.5)]
    mine, its = getattr(tg.optim, name)(ours, lr=rates[0]), getattr(torch.optim, name)(theirs, lr=rates[1])
    for optimizer, rate in zip((mine, its), rates, strict=True):
        optimizer.param_groups[0]["lr"] = rate * 0.1

    def step() -> None:
        mine.zero_grad()
        loss(ours).backward()
        mine.step()

    steps = tg.jit(step)
    for n in range(4):
        (steps if n else step)()
        its.zero_grad()
        loss(theirs).backward()
        its.step()
    for x, y in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=2e-5, atol=2e-6)


def test_groups_closure_and_parameters_without_gradient() -> None:
    w, b, unused = (tg.tensor(x, requires_grad=True) for x in starts())
    optimizer = tg.optim.SGD([{"params": [w]}, {"params": [b, unused], "lr": 0.0}], lr=0.5)
    before = [x.detach().numpy().copy() for x in (w, b, unused)]

    def closure() -> Any:
        optimizer.zero_grad()
        value = (w * w).sum() + (b * b).sum()
        value.backward()
        return value

    value = optimizer.step(closure)
    assert value.item() == pytest.approx((before[0] ** 2).sum() + (before[1] ** 2).sum(), rel=1e-5)
    np.testing.assert_allclose(w.detach().numpy(), 0 * before[0], atol=1e-6)
    np.testing.assert_array_equal(b.detach().numpy(), before[1])
    np.testing.assert_array_equal(unused.detach().numpy(), before[2])
    assert unused.grad is None


def test_the_update_is_seen_by_those_who_share_the_memory() -> None:
    w = tg.tensor([1.0, 2.0], requires_grad=True)
    shared = w.detach()
    optimizer = tg.optim.SGD([w], lr=0.5)
    w.sum().backward()
    optimizer.step()
    np.testing.assert_array_equal(shared.numpy(), [0.5, 1.5])


def test_zero_grad() -> None:
    w = tg.tensor([1.0, 2.0], requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=0.5)
    w.sum().backward()
    optimizer.zero_grad(set_to_none=False)
    np.testing.assert_array_equal(w.grad.numpy(), [0, 0])
    optimizer.zero_grad()
    assert w.grad is None


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)
@pytest.mark.usefixtures("compiled")
def test_state_goes_on_after_saving(name: str, settings: dict[str, Any]) -> None:
    """Six steps equal three, a save and a load into a new optimizer, and three more."""

    def run(steps: int, parameters: list[Any], optimizer: Any) -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(parameters).backward()
            optimizer.step()

    whole = [tg.tensor(x, requires_grad=True) for x in starts()]
    run(6, whole, getattr(tg.optim, name)(whole, **settings))
    first = [tg.tensor(x, requires_grad=True) for x in starts()]
    optimizer = getattr(tg.optim, name)(first, **settings)
    run(3, first, optimizer)
    second = [tg.tensor(x.detach().numpy().copy(), requires_grad=True) for x in first]
    other = getattr(tg.optim, name)(second, lr=9.0)
    other = getattr(tg.optim, name)(second, **settings | {"lr": 9.0})
    other.load_state_dict(optimizer.state_dict())
    assert other.param_groups[0]["lr"] == settings["lr"]
    run(3, second, other)
    for x, y in zip(whole, second):
        np.testing.assert_array_equal(x.detach().numpy(), y.detach().numpy())


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)
def test_a_state_of_pytorch_goes_on_here_and_back(name: str, settings: dict[str, Any]) -> None:
    """Three steps there, three here, three there: as nine there."""
    torch = pytest.importorskip("torch")

    def run(parameters: list[Any], optimizer: Any) -> None:
        for _ in range(3):
            optimizer.zero_grad()
            loss(parameters).backward()
            optimizer.step()

    def start(library: Any, arrays: Any) -> tuple[list[Any], Any]:
        parameters = [library.tensor(np.array(x), requires_grad=True) for x in arrays]
        return parameters, getattr(library.optim, name)(parameters, **settings)

    whole, optimizer = start(torch, starts())
    for _ in range(3):
        run(whole, optimizer)
    first, before = start(torch, starts())
    run(first, before)
    second, here = start(tg, [x.detach().numpy() for x in first])
    here.load_state_dict(before.state_dict())
    run(second, here)
    state = here.state_dict()
    state["state"] = {n: {k: torch.tensor(v.numpy()) for k, v in s.items()} for n, s in state["state"].items()}
    third, after = start(torch, [x.detach().numpy() for x in second])
    after.load_state_dict(state)
    run(third, after)
    for x, y in zip(third, whole):
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("name", sorted({name for name, _ in SETTINGS}))
def test_a_state_before_the_first_step_is_one_for_pytorch(name: str) -> None:
    torch = pytorch()
    ours = [tg.tensor(x, requires_grad=True) for x in starts()]
    state = getattr(tg.optim, name)(ours, lr=0.1).state_dict()
    state["state"] = {n: {k: torch.tensor(v.numpy()) for k, v in s.items()} for n, s in state["state"].items()}
    wanted, found = ([torch.tensor(x, requires_grad=True) for x in starts()] for _ in range(2))
    for parameters in (wanted, found):
        optimizer = getattr(torch.optim, name)(parameters, lr=0.1)
        if parameters is found:
            optimizer.load_state_dict(state)
        loss(parameters).backward()
        optimizer.step()
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)
def test_state_dict_has_pytorchs_form(name: str, settings: dict[str, Any]) -> None:
    torch = pytorch()
    x = np.ones(3, np.float32)
    states = []
    for library in (tg, torch):
        w = library.tensor(x, requires_grad=True)
        optimizer = getattr(library.optim, name)([w], **settings)
        (w * w).sum().backward()
        optimizer.step()
        states.append(optimizer.state_dict())
    ours, theirs = states
    assert set(ours["param_groups"][0]) <= set(theirs["param_groups"][0])
    wanted = {k: v for k, v in theirs["state"].get(0, {}).items() if v is not None}
    assert set(wanted) <= set(ours["state"].get(0, {}))
    for key, value in wanted.items():
        np.testing.assert_allclose(ours["state"][0][key].numpy(), value.numpy(), rtol=1e-5)


def test_lion() -> None:
    """Against the algorithm as published: sign of an interpolation, then another interpolation is kept."""
    w, m, lr, first, second, decay = starts().__next__().astype(np.float64), 0.0, 0.1, 0.9, 0.99, 0.2
    x = tg.tensor(w.astype(np.float32), requires_grad=True)
    optimizer = tg.optim.Lion([x], lr=lr, betas=(first, second), weight_decay=decay)
    for _ in range(10):
        optimizer.zero_grad()
        (x.square() * x + x.sin()).sum().backward()
        optimizer.step()
        g = 3 * w**2 + np.cos(w)
        w = w - lr * (np.sign(first * m + (1 - first) * g) + decay * w)
        m = second * m + (1 - second) * g
        np.testing.assert_allclose(x.detach().numpy(), w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "RAdam", "Adagrad", "Adamax"])
def test_parameters_that_miss_some_steps(name: str) -> None:
    """Counters are in common for those that are updated together; they part when a gradient is missing."""
    torch = pytorch()
    ours = [tg.tensor(x, requires_grad=True) for x in starts()]
    theirs = [torch.tensor(x, requires_grad=True) for x in starts()]
    mine, its = getattr(tg.optim, name)(ours, lr=0.05), getattr(torch.optim, name)(theirs, lr=0.05)
    for missing in ((), (0,), (), (0, 1), (2,), ()):
        for parameters, optimizer in ((ours, mine), (theirs, its)):
            optimizer.zero_grad()
            loss(parameters).backward()
            for n in missing:
                parameters[n].grad = None
            optimizer.step()
        for x, y in zip(ours, theirs):
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=2e-5, atol=2e-6)
    assert [mine.state[x]["step"].item() for x in ours] == [4, 5, 5]
    other = getattr(tg.optim, name)(ours, lr=0.05)
    assert len({id(s["step"]) for s in other.state.values()}) == 1
    other.load_state_dict(mine.state_dict())
    assert [other.state[x]["step"].item() for x in ours] == [4, 5, 5]
    assert len({id(s["step"]) for s in other.state.values()}) == 2


def test_groups_that_come_later() -> None:
    w, b, s = (tg.tensor(x, requires_grad=True) for x in starts())
    optimizer = tg.optim.Adam([w], lr=0.1)
    (w.sum() + b.sum()).backward()
    optimizer.step()
    optimizer.add_param_group({"params": [b, s], "lr": 0.5, "fused": True})
    optimizer.step()
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.5]
    assert [optimizer.state[x]["step"].item() for x in (w, b, s)] == [2, 1, 0]


def test_groups_may_have_names() -> None:
    optimizer = tg.optim.SGD([{"params": [tg.ones(1)], "name": "bias"}, {"params": []}], lr=0.1)
    optimizer.load_state_dict(optimizer.state_dict())
    assert optimizer.param_groups[0]["name"] == "bias"
    optimizer.step()


def test_names_of_parameters_are_kept() -> None:
    """As in PyTorch, in groups and in state dicts."""
    torch = pytorch()
    groups = []
    for system in (tg, torch):
        model = system.nn.Linear(2, 2)
        optimizer = system.optim.SGD(model.named_parameters(), lr=0.1)
        optimizer.add_param_group({"params": [("more", system.ones(1))]})
        optimizer.load_state_dict(optimizer.state_dict())
        groups.append([group["param_names"] for group in optimizer.state_dict()["param_groups"]])
        with pytest.raises(ValueError, match="names"):
            system.optim.SGD([("weight", model.weight), model.bias], lr=0.1)
    assert groups[0] == groups[1] == [["weight", "bias"], ["more"]]
    assert "param_names" not in tg.optim.SGD([tg.ones(1)], lr=0.1).param_groups[0]


def loaded(w: Any, **parts: Any) -> None:
    tg.optim.Adam([w]).load_state_dict(tg.optim.Adam([w]).state_dict() | parts)


@checklist(104)
def test_a_matrix_learns_sum_and_difference() -> None:
    """The test that was commented out upstream: W learns [x0 + x1, x0 - x1] under the L1 loss."""
    w = tg.zeros(2, 2, requires_grad=True)
    optimizer = tg.optim.SGD([w], lr=0.02)
    x = tg.tensor(np.random.default_rng(0).uniform(-1, 1, (64, 2)).astype(np.float32))
    wanted = tg.stack([x[:, 0] + x[:, 1], x[:, 0] - x[:, 1]], 1)
    for _ in range(400):
        optimizer.zero_grad()
        (x @ w - wanted).abs().mean().backward()
        optimizer.step()
    np.testing.assert_allclose(w.detach().numpy(), [[1, 1], [1, -1]], atol=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda w: tg.optim.SGD([], lr=1), "layers in a plain list?"),
        (lambda w: tg.optim.SGD([w], lr=-1), "lr is -1"),
        (lambda w: tg.optim.SGD([w], nesterov=True), "needs a momentum"),
        (lambda w: tg.optim.SGD([w * 2]), "computed from other tensors"),
        (lambda w: tg.optim.SGD([w, w]), "in another group already"),
        (lambda w: tg.optim.SGD([3]), "parameter 0 is a int"),
        (lambda w: tg.optim.SGD([{"params": [w], "momentun": 1}]), "has no momentun"),
        (lambda w: loaded(w, param_groups=None), "'param_groups' is a list of dicts"),
        (lambda w: loaded(w, state=[1]), "'state' a dict of dicts"),
        (lambda w: loaded(w, state={0: {"exp_avg": "x"}}), r"has the shape str instead of \(1,\)"),
        (lambda w: loaded(w, state={0: {"step": "x"}}), "step of parameter 0 is 'x', no number"),
        (lambda w: loaded(w, param_groups=[{**tg.optim.Adam([w]).state_dict()["param_groups"][0], "lr": -1}]), "-1"),
        (lambda w: tg.optim.Adam([w], betas=(0.9, 1.0)), "betas"),
        (lambda w: tg.optim.SGD([w]).load_state_dict({"state": {}, "param_groups": []}), "groups here have"),
        (lambda w: tg.optim.SGD([w], differentiable=True), "tilegrad.grad"),
        (lambda w: tg.optim.RMSprop([w], alpha=2), "alpha is 2"),
        (lambda w: tg.optim.Adam([w], quick=True), "no argument quick"),
        (
            lambda w: tg.optim.Adam([w]).load_state_dict(
                tg.optim.Adam([w]).state_dict() | {"state": {0: {"exp_avg": np.ones(3)}}}
            ),
            r"exp_avg of parameter 0 has the shape \(3,\) instead of \(1,\)",
        ),
    ],
)
def test_what_makes_no_sense(make: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make(tg.tensor([1.0], requires_grad=True))
