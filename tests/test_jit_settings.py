"""Settings of the process, of layers and of tensors are changed between calls: results stay those without jit."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import pytest

import tilegrad as tg
from tests.test_jit_state import outcome, plain
from tilegrad import nn

F = nn.functional
Change = Callable[[], Any]
Script = Callable[[Callable[..., Any]], list[Any]]
W = tg.tensor([[0.5, -1.0], [2.0, 0.25]], requires_grad=True)
WHOLE, REAL = tg.tensor([[1, 2], [3, 4]]), tg.tensor([[1.0, -2.0], [3.0, 0.5]])


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    tg.set_default_dtype(tg.float32)
    tg.set_float32_matmul_precision("highest")


# --- the process -------------------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[], Any]] = {
    "quotient": lambda: WHOLE / 2,
    "times a number": lambda: WHOLE * 0.5,
    "made": lambda: (tg.zeros(2), tg.tensor(1.5), tg.arange(0.0, 2.0), tg.full((2,), 0.5), tg.eye(2)),
    "mean": lambda: WHOLE.float().mean() + tg.ones(()),
    "root": lambda: WHOLE.sqrt() + tg.as_tensor([1.0, 2.0]),
    "drawn": lambda: tg.rand(2).dtype,
    "product": lambda: REAL @ W,
    "linear": lambda: F.softmax(F.linear(REAL, W), -1),
    "kept": lambda: (W.is_leaf, (W * 2).requires_grad, tg.is_grad_enabled(), tg.autograd.is_inference_mode_enabled()),
    "slope": lambda: tg.autograd.grad((W * W).sum(), W)[0] if tg.is_grad_enabled() else None,
    "precision": lambda: tg.get_float32_matmul_precision(),
    "type": lambda: tg.get_default_dtype(),
}
WITHIN: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": tg.no_grad,
    "inference": tg.inference_mode,
    "grad": tg.enable_grad,
    "autocast": lambda: tg.autocast("cpu", dtype=tg.bfloat16),
    "autocast to halves": lambda: tg.autocast("cpu", dtype=tg.float16),
    "no autocast": lambda: tg.autocast("cpu", enabled=False),
}
SET: dict[str, Callable[[], Any]] = {
    "float64": lambda: tg.set_default_dtype(tg.float64),
    "float32": lambda: tg.set_default_dtype(tg.float32),
    "bfloat16": lambda: tg.set_default_dtype(tg.bfloat16),
    "high": lambda: tg.set_float32_matmul_precision("high"),
    "medium": lambda: tg.set_float32_matmul_precision("medium"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_settings_of_the_process(name: str) -> None:
    fn = FUNCTIONS[name]
    jitted = tg.jit(lambda: fn())
    for change in ["", *SET, *WITHIN, "", *reversed(list(SET)), *reversed(list(WITHIN))]:
        SET.get(change, lambda: None)()
        with WITHIN.get(change, nullcontext)():
            found, expected = outcome(jitted), outcome(fn)
        assert found == expected, change
        if change in ("high", "medium"):
            tg.set_float32_matmul_precision("highest")


# --- layers ------------------------------------------------------------------------------------


def set_to(name: str, *values: Any) -> Callable[[Any], list[Change]]:
    return lambda layer: [lambda value=value: setattr(layer, name, value) for value in values]  # type: ignore[misc]


LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...], Callable[[Any], list[Change]]]] = {
    "p": (lambda: nn.Dropout(0.0), (4,), set_to("p", 1.0, 0.0)),
    "inplace": (lambda: nn.ReLU(), (4,), set_to("inplace", True, False)),
    "slope": (lambda: nn.LeakyReLU(0.1), (4,), set_to("negative_slope", 0.5, 0, 0.25)),
    "eps": (lambda: nn.LayerNorm(4), (2, 4), set_to("eps", 1.0, 2.0, 1e-5)),
    "momentum": (lambda: nn.BatchNorm1d(4), (3, 4), set_to("momentum", 0.9, None, 0.5)),
    "training": (lambda: nn.BatchNorm1d(4), (3, 4), lambda m: [m.eval, m.train, lambda: m.train(False)]),
    "statistics": (lambda: nn.BatchNorm1d(4), (3, 4), lambda m: [m.reset_running_stats, *set_to("eps", 0.5)(m)]),
    "stride": (lambda: nn.Conv1d(2, 2, 2), (1, 2, 6), set_to("stride", (2,), (1,))),
    "padding": (lambda: nn.Conv1d(2, 2, 2), (1, 2, 6), set_to("padding", (1,), (2,))),
    "window": (lambda: nn.MaxPool1d(2), (1, 2, 6), set_to("kernel_size", 3, 2)),
    "dim": (lambda: nn.Softmax(0), (2, 4), set_to("dim", 1, 0)),
    "groups": (lambda: nn.GroupNorm(2, 4), (2, 4), set_to("num_groups", 4, 1)),
    "alpha": (lambda: nn.ELU(), (4,), set_to("alpha", 0.5, 2)),
    "weight": (lambda: nn.Linear(4, 2), (3, 4), lambda m: [
        lambda: setattr(m, "weight", nn.Parameter(tg.ones(2, 4))),
        lambda: setattr(m, "bias", None),
        lambda: m.weight.requires_grad_(False),
        lambda: m.requires_grad_(True),
        lambda: m.weight.data.fill_(3.0),
        lambda: setattr(m.weight, "data", tg.full((2, 4), 2.0)),
        lambda: m.load_state_dict({"weight": tg.ones(2, 4) * 5}, strict=False),
        lambda: m.double().float(),
    ]),
    "parts": (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (3, 4), lambda m: [
        lambda: m.append(nn.Tanh()),
        lambda: m.__delitem__(1),
        lambda: m.__setitem__(0, nn.Identity()),
        lambda: m.insert(0, nn.LeakyReLU(0.5)),
        lambda: setattr(m[0], "negative_slope", 0.25),
    ]),
    "forward": (lambda: nn.Sequential(nn.ReLU()), (4,), lambda m: [
        lambda: setattr(m[0], "forward", lambda x: x * 3),
        lambda: delattr(m[0], "forward"),
    ]),
    "hooks": (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (3, 4), lambda m: hooks_of(m)),
    "parametrized": (lambda: nn.Sequential(nn.Linear(4, 4)), (3, 4), lambda m: [
        lambda: nn.utils.weight_norm(m[0]),
        lambda: nn.utils.remove_weight_norm(m[0]),
    ]),
    "frozen": (lambda: nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), (3, 4), lambda m: [
        lambda: m[0].requires_grad_(False),
        lambda: m[0].bias.requires_grad_(True),
        lambda: m.requires_grad_(True),
    ]),
}  # fmt: skip


def hooks_of(net: Any) -> list[Change]:
    """Hooks of all kinds come, and go."""
    handles: list[Any] = []
    added: list[Change] = [
        lambda: net[0].register_forward_hook(lambda m, args, y: y * 2),
        lambda: net.register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
        lambda: net[1].register_forward_hook(lambda m, args, y: y - 1),
        lambda: net[0].register_full_backward_hook(lambda m, i, o: tuple(g * 3 if g is not None else g for g in i)),
        lambda: net[1].register_full_backward_pre_hook(lambda m, o: tuple(g * 5 for g in o)),
        lambda: net[0].weight.register_hook(lambda g: g * 7),
        lambda: net[0].bias.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2)),
    ]
    steps: list[Change] = [lambda make=make: handles.append(make()) for make in added]  # type: ignore[misc]
    return [*steps, *[lambda n=n: handles[n].remove() for n in range(len(added))]]  # type: ignore[misc]


def used(name: str, wrap: Callable[..., Any], inside: bool) -> list[Any]:
    """The results of a layer before and after each change, with gradients taken inside the function or outside."""
    make, shape, changes = LAYERS[name]
    tg.manual_seed(0)
    layer = make()

    def call(x: Any) -> Any:
        y = layer(x)
        if inside:
            y.square().sum().backward()
            return y.detach()
        return y

    fn, found = wrap(call), []
    for change in [lambda: None, *changes(layer)]:
        change()
        for _ in range(2):
            layer.zero_grad()
            x = tg.arange(-4.0, 20.0)[: tg.zeros(shape).numel()].reshape(shape).clone().requires_grad_()
            y = fn(x * 1)
            if not inside:
                y.square().sum().backward()
            kept = [(p.grad if p.grad is None else p.grad.round(decimals=3)) for p in layer.parameters()]
            found.append(plain([y.detach().round(decimals=3), *kept, *layer.buffers()]))
    return found


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, inside: bool) -> None:
    found, expected = used(name, tg.jit, inside), used(name, lambda fn: fn, inside)
    for n, (jitted, own) in enumerate(zip(found, expected, strict=True)):
        assert jitted == own, n


# --- steps -------------------------------------------------------------------------------------


def trained(wrap: Callable[..., Any]) -> list[Any]:
    """Steps of an optimizer whose settings change."""
    p, q = (tg.tensor([1.0, -2.0], requires_grad=True) for _ in range(2))
    optimizer = tg.optim.SGD([p], lr=0.1, momentum=0.9)
    group = optimizer.param_groups[0]

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = ((p - x).square() + q * x).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    fn, found = wrap(step), []
    changes = [
        lambda: None, lambda: group.update(lr=1), lambda: group.update(lr=0.5), lambda: group.update(momentum=0.0),
        lambda: group.update(nesterov=True, momentum=0.5), lambda: group.update(weight_decay=0.1),
        lambda: group.update(maximize=True), lambda: optimizer.add_param_group({"params": [q], "lr": 0.2}),
        lambda: p.requires_grad_(False), lambda: p.requires_grad_(True),
        lambda: group.update(lr=tg.tensor(0.25)), lambda: group["lr"].fill_(0.125), lambda: setattr(q, "grad", None),
    ]  # fmt: skip
    for change in changes:
        change()
        found += [plain([fn(tg.tensor([0.5, 1.0])), p, p.grad, q, q.grad]) for _ in range(2)]
    return found


def test_steps() -> None:
    for n, (jitted, own) in enumerate(zip(trained(tg.jit), trained(lambda fn: fn), strict=True)):
        assert jitted == own, n


def test_methods_and_globals_that_are_replaced() -> None:
    class Thing:
        power = 2

        def of(self, x: Any) -> Any:
            return x**self.power

        @staticmethod
        def twice(x: Any) -> Any:
            return x * 2

        @classmethod
        def named(cls, x: Any) -> Any:
            return x * cls.power

    thing, box = Thing(), types.SimpleNamespace()
    module: Any = types.ModuleType("of_a_user")
    exec("def fn(x): return helper(x)\ndef helper(x): return x + 1", module.__dict__)

    def fn(x: Any) -> Any:
        more = [hook(x) for hook in hooks]
        return thing.of(x), thing.twice(x), thing.named(x), module.fn(x), len(vars(box)), more

    hooks: list[Any] = [tg.sin]
    jitted, x = tg.jit(fn), tg.tensor([2.0, 3.0])
    with ExitStack():
        for change in (
            lambda: None,
            lambda: setattr(Thing, "of", lambda self, x: x - self.power),
            lambda: setattr(Thing, "power", 3),
            lambda: setattr(thing, "power", 5),
            lambda: delattr(thing, "power"),
            lambda: setattr(thing, "of", lambda x: x * 10),
            lambda: setattr(Thing, "twice", staticmethod(lambda x: x * 20)),
            lambda: setattr(Thing, "named", classmethod(lambda cls, x: x - cls.power)),
            lambda: setattr(module, "helper", lambda x: x + 7),
            lambda: setattr(module, "fn", lambda x: x + 9),
            lambda: hooks.append(tg.cos),
            lambda: hooks.__setitem__(0, tg.tan),
        ):
            change()
            assert plain(jitted(x)) == plain(fn(x)) == plain(jitted(x))
