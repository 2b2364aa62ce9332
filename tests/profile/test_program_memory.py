"""The owners of a program's memory at its peak, and what `fit=` would save; the counters under PyTorch's names."""

import gc
import re
from typing import Any

import pytest

import tilegrad as tg
from tests.profile.training import Net, made
from tilegrad.errors import ArgumentError
from tilegrad.profile.memory import KINDS


@pytest.fixture(scope="module")
def peak() -> Any:
    step, x, y = made(299, 51)
    step(x, y)
    return tg.memory.peak(step), step, x, y


def test_owners_at_the_peak(peak: Any) -> None:
    found = peak[0]
    owners = {(o.kind, o.name): o for o in found.owners}
    weight = owners["parameter", "block.layers.0.weight"]
    assert (weight.shape, weight.dtype, weight.bytes, weight.device) == ((299, 299), "float32", 4 * 299 * 299, "cpu")
    assert ("gradient", "of block.layers.0.weight") in owners
    activations = {o.name for o in found.owners if o.kind == "activation"}
    assert {"contract in block.layers.0", "contract in block.layers.1"} <= activations
    assert owners["tensor", "argument 0"].shape == (51, 299)
    assert all(o.kind in KINDS for o in found.owners)
    assert all(o.line.startswith(("training.py:", "test_program_memory.py:")) for o in found.owners)


def test_what_the_owners_hold_is_the_peak(peak: Any) -> None:
    found = peak[0]
    assert sum(o.bytes for o in found.owners) == sum(found.by_kind.values()) == found.bytes
    assert found.bytes == max(bytes for _, bytes in found.timeline) == found.timeline[found.at][1]
    assert found.bytes <= int(peak[1].memory.peak), "an arena has gaps"
    assert [name for name, _ in found.timeline].count("contract") >= 2


def test_optimizer_state_is_named() -> None:
    net = Net(32)
    update = tg.optim.Adam(net.parameters(), 0.01)

    @tg.jit
    def step(x: Any) -> None:
        update.zero_grad()
        net(x).square().sum().backward()
        update.step()

    x = tg.rand(4, 32).realize()
    for _ in range(3):
        step(x)
    found = {(o.kind, o.name) for o in tg.memory.peak(step).owners}
    assert ("optimizer state", "exp_avg_sq of head.weight") in found
    assert ("parameter", "head.weight") in found


def test_what_a_budget_would_save_and_cost() -> None:
    layers = tg.nn.Sequential(*[part for _ in range(8) for part in (tg.nn.Linear(16, 16), tg.nn.Tanh())])
    gradient = tg.grad(lambda x: layers(x).square().sum())
    step = tg.jit(gradient)
    x = tg.rand(4096, 16).realize()
    found = tg.memory.peak(step, x)
    assert found.budgets
    for bytes, saved, share in found.budgets:
        assert saved > 0
        assert share > 0
        fitted = tg.jit(gradient, fit=bytes)
        assert int(tg.memory.peak(fitted, x).bytes) <= bytes
    assert "would save" in str(found)
    assert "more operations" in str(found)


def test_nothing_is_run_and_bad_input_is_reported(peak: Any) -> None:
    fn = tg.jit(lambda x: x + 1)
    with pytest.raises(ArgumentError, match="no program yet"):
        tg.memory.peak(fn)
    with pytest.raises(ArgumentError, match=r"that tilegrad\.jit has made"):
        tg.memory.peak(lambda x: x)
    assert tg.memory.peak(fn, tg.ones(4)).bytes == 32
    assert str(tg.memory.peak(peak[1], peak[2], peak[3])).startswith("1.7 MB at the peak in launch")


def test_counters_under_pytorchs_names() -> None:
    """`torch.cuda` counts the CPU's memory where there is no GPU."""
    import tilegrad.torch as torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    gc.collect()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    lowest = torch.cuda.max_memory_allocated()
    assert before <= lowest <= torch.cuda.memory_reserved(), "the arena counts"
    x = tg.ones(1 << 20).realize()
    assert torch.cuda.memory_allocated() - before >= 4 << 20
    del x
    gc.collect()
    assert torch.cuda.max_memory_allocated() - before >= 4 << 20
    assert torch.cuda.max_memory_reserved() >= torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    stats = torch.cuda.memory_stats()
    assert stats["reserved_bytes.all.peak"] == torch.cuda.max_memory_reserved()
    text = torch.cuda.memory_summary()
    assert re.match(r"\S+ \w+ allocated \(peak .*\), .* reserved \(peak .*\) on cpu, by [\d,]+ allocations\n", text)
    assert "; the largest tensors:" in text
    assert "\n" not in torch.cuda.memory_summary(abbreviated=True)
    assert "memory_summary" in dir(torch.cuda)
