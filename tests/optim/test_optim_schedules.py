"""Schedules of learning rates against PyTorch."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.recorded import pytorch
from tilegrad.errors import ArgumentError, TraceError

Make = Callable[[Any, Any], Any]

SCHEDULES: dict[str, Make] = {
    "step": lambda s, o: s.StepLR(o, 3, gamma=0.3),
    "multi-step": lambda s, o: s.MultiStepLR(o, [2, 5, 5, 9], gamma=0.5),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.8),
    "linear": lambda s, o: s.LinearLR(o, 0.25, 0.75, total_iters=6),
    "constant": lambda s, o: s.ConstantLR(o, 0.5, total_iters=4),
    "polynomial": lambda s, o: s.PolynomialLR(o, total_iters=7, power=1.5),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 5, eta_min=0.01),
    "cosine to 0": lambda s, o: s.CosineAnnealingLR(o, 14),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 4),
    "longer restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, T_mult=2, eta_min=0.02),
    "one cycle": lambda s, o: s.OneCycleLR(o, 0.7, total_steps=30),
    "one cycle, linear": lambda s, o: s.OneCycleLR(
        o, [0.7, 0.3], epochs=5, steps_per_epoch=6, anneal_strategy="linear"
    ),
    "three phases": lambda s, o: s.OneCycleLR(o, 0.7, total_steps=30, three_phase=True, pct_start=0.25),
    "cycles": lambda s, o: s.CyclicLR(o, 0.1, 0.9, step_size_up=4, step_size_down=3),
    "lower cycles": lambda s, o: s.CyclicLR(o, 0.1, 0.9, step_size_up=4, mode="triangular2"),
    "exponential cycles": lambda s, o: s.CyclicLR(o, 0.1, 0.9, 4, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "own cycles": lambda s, o: s.CyclicLR(o, [0.1, 0.2], 0.9, 4, scale_fn=lambda x: 1 / x),
    "lambda": lambda s, o: s.LambdaLR(o, [lambda n: 0.9**n, lambda n: 1 / (n + 1)]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda n: 1 - 0.01 * n),
    "averaging": lambda s, o: getattr(s, "SWALR", None) and s.SWALR(o, [0.05, 0.03], anneal_epochs=6),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, total_iters=3), s.ExponentialLR(o, 0.9)]),
    "sequence": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=5), s.CosineAnnealingLR(o, 8), s.StepLR(o, 2)], [5, 12]
    ),
    "sequence of chains": lambda s, o: s.SequentialLR(
        o, [s.ChainedScheduler([s.LinearLR(o, 0.5, total_iters=3), s.StepLR(o, 2)]), s.ExponentialLR(o, 0.5)], [6]
    ),
    "restarts after warm-up": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=4), s.CosineAnnealingWarmRestarts(o, 5)], [4]
    ),
}


def optimizer(library: Any, kind: str = "SGD") -> Any:
    x, y = (library.tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    momentum = {"momentum": 0.9} if kind == "SGD" else {}
    return getattr(library.optim, kind)([{"params": [x]}, {"params": [y], "lr": 0.2}], lr=0.4, **momentum)


def schedules(library: Any) -> Any:
    if library is not tg:
        library.optim.lr_scheduler.SWALR = library.optim.swa_utils.SWALR
    return library.optim.lr_scheduler


def course(made: Any, schedule: Any, steps: int) -> list[Any]:
    """Learning rates and momenta before each of some steps."""
    seen = []
    for _ in range(steps):
        seen.append([(g["lr"], g.get("momentum", g.get("betas"))) for g in made.param_groups])
        made.step()
        schedule.step()
        assert schedule.get_last_lr() == [g["lr"] for g in made.param_groups]
    return seen


def flat(seen: Any) -> list[float]:
    return [x for y in seen for x in flat(y)] if isinstance(seen, (list, tuple)) else [float(seen)]


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule(name: str, kind: str) -> None:
    torch = pytorch()
    both = []
    for library in (tg, torch):
        made = optimizer(library, kind)
        both.append(flat(course(made, SCHEDULES[name](schedules(library), made), 25)))
    np.testing.assert_allclose(*both, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_goes_on_after_saving(name: str) -> None:
    """The state is saved after 9 steps, in PyTorch's form where it is loaded there."""
    whole = optimizer(tg)
    wanted = course(whole, SCHEDULES[name](schedules(tg), whole), 22)
    first = optimizer(tg)
    schedule = SCHEDULES[name](schedules(tg), first)
    course(first, schedule, 9)
    second = optimizer(tg)
    other = SCHEDULES[name](schedules(tg), second)
    second.load_state_dict(first.state_dict())
    other.load_state_dict(schedule.state_dict())
    assert flat(course(second, other, 13)) == flat(wanted[9:])


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_of_pytorch_goes_on_here(name: str) -> None:
    torch = pytest.importorskip("torch")
    theirs = optimizer(torch)
    schedule = SCHEDULES[name](schedules(torch), theirs)
    course(theirs, schedule, 7)
    ours = optimizer(tg)
    other = SCHEDULES[name](schedules(tg), ours)
    ours.load_state_dict(theirs.state_dict())
    other.load_state_dict(schedule.state_dict())
    np.testing.assert_allclose(flat(course(ours, other, 10)), flat(course(theirs, schedule, 10)), rtol=1e-9, atol=1e-12)
    schedule.load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mode": "max", "factor": 0.5, "patience": 1},
        {"patience": 0, "cooldown": 2, "threshold": 0.05},
        {"patience": 1, "threshold_mode": "abs", "threshold": 0.1, "min_lr": [0.1, 0.05]},
    ],
    ids=str,
)
def test_plateau(settings: dict[str, Any]) -> None:
    torch = pytorch()
    losses = np.abs(np.random.default_rng(0).standard_normal(40)).cumsum() % 3
    both = []
    for library in (tg, torch):
        made = optimizer(library)
        schedule = library.optim.lr_scheduler.ReduceLROnPlateau(made, **settings)
        seen = []
        for loss in losses:
            made.step()
            schedule.step(library.tensor(loss))
            seen.append(schedule.get_last_lr())
        both.append(flat(seen))
    np.testing.assert_allclose(*both, rtol=1e-12)


def test_fractions_of_an_epoch() -> None:
    torch = pytorch()
    both = []
    for library in (tg, torch):
        made = optimizer(library)
        schedule = library.optim.lr_scheduler.CosineAnnealingWarmRestarts(made, 2, 3)
        made.step()
        seen = []
        for n in range(30):
            schedule.step(n / 3)
            seen.append(schedule.get_last_lr())
        both.append(flat(seen))
    np.testing.assert_allclose(*both, rtol=1e-9)


@pytest.mark.parametrize("name", ["cosine", "one cycle", "cycles", "sequence"])
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_a_jitted_step_is_compiled_once(name: str, kind: str) -> None:
    """Learning rates and momenta that change are inputs of the program, not parts of it."""

    def training(jit: bool) -> tuple[list[float], Any]:
        w = tg.tensor([1.0, -2.0, 3.0], requires_grad=True)
        b = tg.tensor([0.5], requires_grad=True)
        momentum = {"momentum": 0.9} if kind == "SGD" else {}
        made = getattr(tg.optim, kind)([{"params": [w]}, {"params": [b], "lr": 0.01}], lr=0.02, **momentum)
        schedule = SCHEDULES[name](schedules(tg), made)

        def step(x: Any) -> Any:
            made.zero_grad()
            loss = (w * x).sum().tanh() + (b - 2).square().sum() + w.square().sum()
            loss.backward()
            made.step()
            return loss

        run = tg.jit(step) if jit else step
        losses = []
        for n in range(10):
            losses.append(run(tg.tensor([0.1 * n, 0.2, -0.3])).item())
            schedule.step()
        return losses, run

    eager, _ = training(jit=False)
    traced, run = training(jit=True)
    np.testing.assert_allclose(traced, eager, rtol=1e-5)
    assert len(run.programs) == 1


def test_a_scheduler_within_a_jitted_function_is_refused() -> None:
    made = optimizer(tg)
    schedule = tg.optim.lr_scheduler.StepLR(made, 2)

    @tg.jit
    def step(x: Any) -> Any:
        schedule.step()
        return x + 1

    with pytest.raises(TraceError, match="call it after the function"):
        step(tg.ones(2))


def test_a_tensor_as_learning_rate() -> None:
    w = tg.tensor([1.0], requires_grad=True)
    rate = tg.tensor(0.5)
    made = tg.optim.SGD([w], lr=rate)
    schedule = tg.optim.lr_scheduler.ExponentialLR(made, 0.5)
    w.grad = tg.ones(1)
    made.step()
    assert w.item() == 0.5
    schedule.step()
    assert math.isclose(rate.item(), 0.25)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s, o: s.StepLR(o, 0), "step_size is 0"),
        (lambda s, o: s.StepLR(3, 1), "optimizer is 3 .int., not an optimizer"),
        (lambda s, o: s.ConstantLR(o, 2.0), "factor is 2.0"),
        (lambda s, o: s.LinearLR(o, 0.0), "start_factor=0.0 must be above 0"),
        (lambda s, o: s.StepLR(o, 1, last_epoch=4), "no 'initial_lr'"),
        (lambda s, o: s.LambdaLR(o, [abs]), "1 values for 2 groups"),
        (lambda s, o: s.OneCycleLR(o, 1.0), "needs total_steps"),
        (lambda s, o: s.CyclicLR(o, 0.1, 1.0, mode="square"), "mode is 'square'"),
        (lambda s, o: s.OneCycleLR(tg.optim.Adagrad([tg.ones(1)]), 1.0, total_steps=3), "cycle_momentum=False"),
        (lambda s, o: s.CosineAnnealingWarmRestarts(o, 0), "whole numbers"),
        (lambda s, o: s.SequentialLR(o, [s.StepLR(o, 1)], [3]), "need 0 milestones"),
        (lambda s, o: s.ChainedScheduler([]), "at least one scheduler"),
        (lambda s, o: s.ChainedScheduler([s.StepLR(o, 1), s.StepLR(optimizer(tg), 1)]), "another optimizer"),
        (lambda s, o: s.ReduceLROnPlateau(o, "least"), "mode='least'"),
        (lambda s, o: s.LambdaLR(o, None), "lr_lambda"),
        (lambda s, o: s.StepLR(o, 1).load_state_dict(None), "takes a dict"),
        (lambda s, o: s.StepLR(o, 1).load_state_dict(s.ExponentialLR(o, 1.0).state_dict()), "has no step_size"),
        (
            lambda s, o: s.ChainedScheduler([s.StepLR(o, 1)]).load_state_dict({"_schedulers": []}),
            "of 0 schedulers; there are 1",
        ),
        (lambda s, o: s.SWALR(o, 0.1, anneal_strategy="sine"), "'cos' or 'linear'"),
    ],
)
def test_what_makes_no_sense(make: Make, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make(tg.optim.lr_scheduler, optimizer(tg))


def step_of(optimizer: Any, w: Any, jitted: bool) -> Callable[[], None]:
    """One step down a cubic."""

    def step() -> None:
        optimizer.zero_grad()
        (w**3).sum().backward()
        optimizer.step()

    return tg.jit(step) if jitted else step


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("dampening", [0.0, 0.3])
def test_a_momentum_that_is_0_at_first(dampening: float, jitted: bool) -> None:
    """CyclicLR does so of itself, where the optimizer was made without one."""
    torch = pytorch()
    moved = []
    for library in (tg, torch):
        w = library.tensor([1.0, -2.0, 0.5], requires_grad=True)
        optimizer = library.optim.SGD([w], lr=0.1, dampening=dampening)
        step = step_of(optimizer, w, jitted and library is tg)
        for momentum in (0.0, 0.0, 0.9, 0.8, 0.0, 0.5):
            optimizer.param_groups[0]["momentum"] = momentum
            step()
        moved.append(w.detach().numpy())
    np.testing.assert_allclose(*moved, rtol=1e-5)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(
    ("name", "later"),
    [
        ("SGD", {"momentum": 0.9}),
        ("RMSprop", {"momentum": 0.9}),
        ("RMSprop", {"centered": True}),
        ("Adam", {"amsgrad": True}),
    ],
    ids=str,
)
def test_state_that_a_later_setting_needs_starts_at_0(name: str, later: dict[str, Any], jitted: bool) -> None:
    """It starts as if it had always been there, unused."""
    ends = []
    for known in (False, True):
        w = tg.tensor([1.0, -2.0, 0.5], requires_grad=True)
        optimizer = getattr(tg.optim, name)([w], **({"lr": 0.1} | (later if known else {})))
        optimizer.param_groups[0].update({key: type(value)(0) for key, value in later.items()})
        step = step_of(optimizer, w, jitted)
        for n in range(5):
            optimizer.param_groups[0].update(later if n > 1 else {})
            step()
        ends.append(w.detach().numpy())
    np.testing.assert_array_equal(*ends)
