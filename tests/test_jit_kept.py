"""Constants hoisted from an inference (computed from weights alone) are reused, and never when they are out of date."""

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.runtime.device import device

BYTES = 64 * 48 * 2


class Case:
    """A layer in bfloat16, whose weight (float32) is converted once."""

    def __init__(self) -> None:
        tg.manual_seed(0)
        self.layer = tg.nn.Linear(64, 48)
        self.x = tg.randn(5, 64)
        layer = self.layer
        self.run = tg.jit(lambda x: layer(x))

    def __call__(self) -> Any:
        with tg.no_grad(), tg.autocast("cpu", tg.bfloat16):
            return self.run(self.x).float().numpy().copy()

    @property
    def kept(self) -> Any:
        return self.run.programs[0].hoisted

    def expected(self) -> Any:
        w, b = (p.detach().bfloat16().float().numpy() for p in (self.layer.weight, self.layer.bias))
        return self.x.bfloat16().float().numpy() @ w.T + b


def close(x: Any, y: Any) -> bool:
    return bool(np.allclose(x, y, rtol=2e-2, atol=2e-2))


def times(count: int, case: Case) -> Any:
    """The last of some results: what is looked at before a call is settled at the second one."""
    return [case() for _ in range(count)][-1]


@pytest.mark.parametrize("count", [1, 3])
def test_values_of_weights_alone_are_computed_once(count: int) -> None:
    case = Case()
    assert close(times(count, case), case.expected())
    before = case.kept._made
    assert close(case(), case.expected())
    assert case.kept._made is before
    assert case.kept.hoisted.bytes >= BYTES


def scaled(case: Case) -> None:
    with tg.no_grad():
        case.layer.weight.mul_(-2.0)


def scaled_unseen(case: Case) -> None:
    case.layer.weight.data.mul_(-2.0)


def part_assigned(case: Case) -> None:
    with tg.no_grad():
        case.layer.weight[3:7] = 1.5


def loaded(case: Case) -> None:
    case.layer.load_state_dict({name: -3 * x for name, x in case.layer.state_dict().items()})


def assigned(case: Case) -> None:
    case.layer.load_state_dict({name: -3 * x for name, x in case.layer.state_dict().items()}, assign=True)


def replaced(case: Case) -> None:
    case.layer.weight = tg.nn.Parameter(tg.randn(48, 64))


def trained(case: Case) -> None:
    optimizer = tg.optim.SGD(case.layer.parameters(), lr=1.0)
    optimizer.zero_grad()
    case.layer(case.x).square().sum().backward()
    optimizer.step()


def trained_in_a_program(case: Case) -> None:
    optimizer = tg.optim.Adam(case.layer.parameters(), lr=0.5)

    @tg.jit
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = case.layer(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):  # memory is written in place from the second step on
        step(case.x)
    assert step.programs[0].hoisted is None


CHANGES = [scaled, scaled_unseen, part_assigned, loaded, assigned, replaced, trained, trained_in_a_program]


@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("count", [1, 3])
def test_a_change_of_a_weight_is_seen(change: Callable[[Case], None], count: int) -> None:
    case = Case()
    before = times(count, case)
    change(case)
    after = times(count, case)
    assert close(after, case.expected())
    assert not close(after, before)


def test_many_changes_are_seen() -> None:
    case = Case()
    for _ in range(12):
        case()
        with tg.no_grad():
            case.layer.weight.neg_()
        assert close(case(), case.expected())


def test_writes_to_shared_memory_are_seen() -> None:
    case = Case()
    array = np.full((48, 64), 0.25, np.float32)
    case.layer.weight = tg.nn.Parameter(tg.from_numpy(array))
    for value in (1.0, -2.0):
        times(3, case)
        array[...] = value
        assert close(case(), case.expected())


def test_writes_to_what_was_given_out_are_seen() -> None:
    case = Case()
    times(3, case)
    weight = case.layer.weight.detach()
    weight.__dlpack__()
    for value in (1.0, -2.0):
        memory = device("cpu").view(weight.value.buffer, tg.float32, (48, 64))  # as another library sees it
        memory[...] = value
        assert close(case(), case.expected())


def test_it_is_freed_with_the_program() -> None:
    case = Case()
    times(3, case)
    gc.collect()
    live = device("cpu").statistics.live
    case.run.programs.clear()
    case.run.fast_call = None
    gc.collect()
    assert device("cpu").statistics.live <= live - BYTES


def test_weights_that_are_arguments_or_trained_are_not_kept() -> None:
    case = Case()
    given = tg.jit(lambda x, w: (x.bfloat16() @ w.bfloat16().T).float())
    with tg.no_grad():
        given(case.x, case.layer.weight)
    assert given.programs[0].hoisted is None
    recorded = tg.jit(lambda x: (x.bfloat16() @ case.layer.weight.bfloat16().T).float())
    recorded(case.x).sum().backward()
    assert recorded.programs[0].hoisted is None


def test_what_is_no_smaller_than_its_sources_is_computed_in_each_call() -> None:
    w, x = tg.randn(64, 48).bfloat16(), tg.randn(5, 64)
    wide = tg.jit(lambda x: x[0, 0] + w.float().exp())
    assert close(wide(x).numpy(), x[0, 0].item() + np.exp(w.float().numpy()))
    assert wide.programs[0].hoisted is None


def test_explain_says_what_is_kept() -> None:
    case = Case()
    with tg.no_grad(), tg.autocast("cpu", tg.bfloat16):
        e = tg.explain(case.run, case.x)
    assert "made of weights kept from call to call" in e.summary()
    assert "materialised" in e["kept"]
    assert "not in each call" in e["kept"]
    assert "are made of captured tensors, and kept" in str(case.run.memory)
    assert len(e.groups) == len(e.kernels)
    assert e["choices"]


def test_threads_that_call_one_function_share_it() -> None:
    case = Case()
    case()
    expected = case.expected()
    wrong: list[int] = []

    def call(n: int) -> None:
        for _ in range(20):
            if not close(case(), expected):
                wrong.append(n)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        with tg.no_grad():
            case.layer.weight.mul_(1.0)  # another version, with the same elements
    for thread in threads:
        thread.join()
    assert not wrong
    assert close(case(), expected)


LINEAR = [(m, k, n) for m in (2, 3, 13, 33) for k, n in ((64, 48), (257, 131), (7, 300))] + [(300, 520, 100)]


@pytest.mark.parametrize(("m", "k", "n"), LINEAR)
@pytest.mark.parametrize("turned", [False, True])
def test_packed_weights_give_the_same_products(m: int, k: int, n: int, turned: bool) -> None:
    x, w = tg.randn(m, k), tg.randn(k, n) if turned else tg.randn(n, k)
    bias = tg.randn(n)
    assert_alike(lambda x, w: (x @ (w if turned else w.T) + bias).relu(), x, w)


CONVOLUTIONS = [
    ((2, 3, 20, 21), (16, 3, 5, 3), {"stride": 2, "padding": 1}),
    ((1, 16, 9, 9), (40, 16, 3, 3), {"padding": 1}),
    ((3, 8, 11, 12), (14, 4, 3, 3), {"groups": 2}),
    ((1, 32, 17), (70, 32, 4), {"dilation": 2}),
    ((2, 5, 6, 6), (5, 9, 3, 3), {}),
]


@pytest.mark.parametrize(("x", "w", "options"), CONVOLUTIONS)
def test_packed_filters_give_the_same_convolutions(x: Any, w: Any, options: Any) -> None:
    if len(w) == 4 and not options:
        assert_alike(lambda x, w: tg.nn.functional.conv_transpose2d(x, w), tg.randn(x), tg.randn(w))
        return
    convolve = tg.nn.functional.conv1d if len(w) == 3 else tg.nn.functional.conv2d
    assert_alike(lambda x, w: convolve(x, w, **options), tg.randn(x), tg.randn(w))


def assert_alike(fn: Callable[[Any, Any], Any], x: Any, w: Any) -> None:
    """A captured weight is packed once, an argument in each call, with the same arithmetic."""
    captured, given = tg.jit(lambda x: fn(x, w)), tg.jit(fn)
    for _ in range(2):
        assert np.array_equal(captured(x).numpy(), given(x, w).numpy(), equal_nan=True)
    assert captured.programs[0].hoisted is not None
    assert given.programs[0].hoisted is None


@pytest.mark.parametrize("parameter", [False, True])
@pytest.mark.parametrize("calls", [1, 2, 6])
def test_values_of_a_tensor_that_moved_to_other_memory_are_computed_anew(parameter: bool, calls: int) -> None:
    w = tg.randn(256, 256).realize()
    w = tg.nn.Parameter(w) if parameter else w
    x = tg.randn(64, 256).realize()
    product = tg.jit(lambda x: x @ w)
    with tg.no_grad():
        for _ in range(3):
            for _ in range(calls):
                np.testing.assert_allclose(product(x).numpy(), x.numpy() @ w.detach().numpy(), rtol=1e-3, atol=1e-3)
            assert product.programs[0].hoisted is not None
            w.data = tg.randn(256, 256).realize()
    assert len(product.programs) == 1
