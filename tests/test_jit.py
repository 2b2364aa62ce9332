"""`tg.jit`: one program per kind of call, state updated in place, nothing silently frozen."""

from __future__ import annotations

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import nn
from tilegrad.errors import TraceError

factor = 0.5


def small_net() -> tuple[nn.Module, tg.Tensor, tg.Tensor]:
    tg.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    rng = np.random.default_rng(0)
    return net, tg.tensor(rng.standard_normal((8, 6)).astype(np.float32)), tg.tensor(rng.integers(0, 3, 8))


def training_step(net: nn.Module, optimizer: tg.optim.Optimizer):
    def step(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


@pytest.mark.checklist(5)
@pytest.mark.parametrize(
    "make", [lambda p: tg.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: tg.optim.AdamW(p, lr=0.01)]
)
def test_a_jitted_training_step_is_the_step(make) -> None:
    """The same losses and parameters as without jit; a new learning rate costs no compilation."""
    net, x, y = small_net()
    start = {k: v.numpy().copy() for k, v in net.state_dict().items()}
    optimizer = make(net.parameters())
    step = training_step(net, optimizer)
    wanted = [step(x, y).item() for _ in range(4)]
    optimizer.param_groups[0]["lr"] = 0.05
    wanted += [step(x, y).item() for _ in range(2)]

    net.load_state_dict({k: tg.tensor(v) for k, v in start.items()})
    optimizer = make(net.parameters())
    jitted = tg.jit(training_step(net, optimizer))
    got = [jitted(x, y).item() for _ in range(4)]
    optimizer.param_groups[0]["lr"] = 0.05
    got += [jitted(x, y).item() for _ in range(2)]

    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    assert len(jitted.programs) == 1


def test_gradients_given_inside_are_there_afterwards() -> None:
    net, x, y = small_net()
    jitted = tg.jit(training_step(net, tg.optim.SGD(net.parameters(), lr=0.0)))
    jitted(x, y)
    jitted(x * 2, y)
    got = [p.grad.numpy().copy() for p in net.parameters()]

    net.zero_grad()
    nn.functional.cross_entropy(net(x * 2), y).backward()
    for have, p in zip(got, net.parameters()):
        np.testing.assert_allclose(have, p.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_a_batch_that_varies_becomes_a_symbol(capsys: pytest.CaptureFixture[str]) -> None:
    net, _, _ = small_net()
    jitted = tg.jit(lambda x: net(x).relu().sum(1))
    with tg.no_grad():
        for rows in (8, 5, 11, 64, 2):
            x = tg.randn(rows, 6)
            np.testing.assert_allclose(jitted(x).numpy(), net(x).relu().sum(1).numpy(), rtol=1e-5, atol=1e-6)

    assert len(jitted.programs) == 2
    assert capsys.readouterr().err.count("varies (8, 5)") == 1


def test_a_number_that_varies_becomes_an_input() -> None:
    global factor
    scaled = tg.jit(lambda x, a: x * a * factor)
    x = tg.tensor([1.0, 2.0])
    for a in (2.0, 3.0, 4.0, 5.0):
        assert scaled(x, a).tolist() == [a * 0.5, a]
    before = len(scaled.programs)
    for factor in (0.25, 0.125, 1.0):
        assert scaled(x, 2.0).tolist() == [2 * factor, 4 * factor]
    factor = 0.5

    assert before == 2
    assert len(scaled.programs) <= 4


def test_a_number_that_decides_gets_programs_of_its_own() -> None:
    powers = tg.jit(lambda x, n: sum([x] * n))
    x = tg.tensor([1.0, 2.0])

    assert [powers(x, n).tolist() for n in (1, 2, 3, 2)] == [[1, 2], [2, 4], [3, 6], [2, 4]]  # type: ignore[attr-defined]


def test_captured_tensors_are_updated_in_place() -> None:
    counter = tg.zeros(2)
    view = counter[0:1]

    @tg.jit
    def count(x: tg.Tensor) -> tg.Tensor:
        counter.add_(x)
        return counter * 2

    recorded = counter * 10
    x = tg.tensor([1.0, 2.0])
    results = [count(x).tolist() for _ in range(3)]

    assert results == [[2, 4], [4, 8], [6, 12]]
    assert counter.tolist() == [3, 6]
    assert view.tolist() == [3]
    assert recorded.tolist() == [0, 0]  # what was recorded before sees the elements of then


def test_arguments_that_are_changed() -> None:
    @tg.jit
    def double(x: tg.Tensor) -> tg.Tensor:
        x.mul_(2)
        return x.sum()

    x = tg.tensor([1.0, 2.0])
    assert [double(x).item() for _ in range(3)] == [6, 12, 24]
    assert x.tolist() == [8, 16]


def test_results_have_a_way_back() -> None:
    w = tg.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    x = tg.tensor([[0.1, 0.2], [0.3, 0.4]], requires_grad=True)
    tg.jit(lambda x: (x @ w).tanh().sum())(x).backward()
    got = x.grad.numpy().copy(), w.grad.numpy().copy()
    x.grad = w.grad = None
    (x @ w).tanh().sum().backward()

    np.testing.assert_allclose(got[0], x.grad.numpy(), rtol=1e-5)  # type: ignore[attr-defined]
    np.testing.assert_allclose(got[1], w.grad.numpy(), rtol=1e-5)  # type: ignore[attr-defined]


def test_a_module_that_stops_training_is_traced_anew() -> None:
    net = nn.Dropout(0.5)
    jitted = tg.jit(lambda x: net(x))
    x = tg.ones(64)
    assert 0.0 in jitted(x).tolist()
    net.eval()
    assert jitted(x).tolist() == [1.0] * 64
    net.train()
    assert 0.0 in jitted(x).tolist()
    assert len(jitted.programs) == 2


def test_random_numbers_advance() -> None:
    noise = tg.jit(lambda x: x + tg.rand(4))
    x = tg.zeros(4)
    tg.manual_seed(3)
    first, second = noise(x).tolist(), noise(x).tolist()
    tg.manual_seed(3)

    assert first != second
    assert noise(x).tolist() == first


def test_containers_go_in_and_out() -> None:
    both = tg.jit(lambda pair, extra=None: {"sum": pair["x"] + pair["y"][0], "one": 1, "none": extra})
    result = both({"x": tg.ones(2), "y": [tg.ones(2)]})

    assert result["sum"].tolist() == [2, 2]
    assert (result["one"], result["none"]) == (1, None)


@pytest.mark.checklist(5)
def test_a_choice_that_depends_on_data_is_refused_with_the_line_and_the_remedy() -> None:
    @tg.jit
    def choose(x: tg.Tensor) -> tg.Tensor:
        if x.sum() > 3:
            return x
        return -x

    with pytest.raises(TraceError, match=r"tilegrad\.where"):
        choose(tg.ones(4))
    assert (tg.ones(2) + 1).tolist() == [2, 2]


def test_control_flow() -> None:
    x = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)

    def doubled(x: tg.Tensor) -> tg.Tensor:
        return tg.while_loop(lambda v: v.sum() < 100, lambda v: v * 2, x, max_steps=10)

    def chosen(x: tg.Tensor) -> tg.Tensor:
        return tg.cond(x.sum() > 3, lambda x: (x * x).sum(), lambda x: x.sum(), x)

    assert doubled(x).tolist() == tg.jit(doubled)(x).tolist() == [32, 64, 96]
    assert chosen(x).item() == tg.jit(chosen)(x).item() == 14
    carry, ys = tg.scan(lambda c, v: (c + v, c * v), tg.tensor(0.0), x)
    assert (carry.item(), ys.tolist()) == (6, [0, 2, 9])
    tg.jit(doubled)(x).sum().backward()
    assert x.grad.tolist() == [32, 32, 32]


@pytest.mark.usefixtures("compiled")
def test_structures_that_change_keep_a_program_each() -> None:
    layers = [nn.Linear(4, 4) for _ in range(3)]

    @tg.jit
    def net(x: tg.Tensor, order: tuple[int, ...]) -> tg.Tensor:
        for n in order:
            x = layers[n](x).relu()
        return x

    x = tg.randn(2, 4)
    with tg.no_grad():
        for _ in range(2):
            for order in ((0, 1), (2,), (1, 0, 2)):
                want = x
                for n in order:
                    want = layers[n](want).relu()
                np.testing.assert_allclose(net(x, order).numpy(), want.numpy(), rtol=1e-5)
    assert len(net.programs) >= 3
