"""Owners of memory: parameters, gradients, optimizer state, activations, tensors; each once, none left out."""

import gc

import pytest

import tilegrad as tg


@pytest.mark.usefixtures("compiled")
def test_each_kind_of_owner() -> None:
    class Net(tg.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = tg.nn.Linear(301, 101)
            self.norm = tg.nn.BatchNorm1d(101)

        def forward(self, x: tg.Tensor) -> tg.Tensor:
            return self.norm(self.head(x))

    net = Net()
    update = tg.optim.Adam(net.parameters(), 0.01)
    x = tg.rand(53, 301).realize()
    net(x).square().sum().backward()
    update.step()
    tg.compute(*net.parameters())
    found = tg.memory.snapshot("cpu")
    mine = {(o.kind, o.name): o for o in found.owners if o.shape in ((101, 301), (101,), (53, 301))}
    weight = mine["parameter", "head.weight"]
    assert (weight.bytes, weight.dtype, weight.shape) == (101 * 301 * 4, "float32", (101, 301))
    assert ("gradient", "of head.weight") in mine
    assert ("optimizer state", "exp_avg of head.weight") in mine
    assert ("buffer", "norm.running_mean") in mine
    inputs = [o for o in found.owners if o.shape == (53, 301)]
    assert [(o.kind, o.bytes) for o in inputs] == [("tensor", 53 * 301 * 4)]
    assert inputs[0].line.startswith("test_memory.py:")
    assert sum(found.by_kind.values()) == sum(o.bytes for o in found.owners) <= found.live
    assert found.peak >= found.live <= found.held
    text = tg.memory.summary("cpu")
    assert "optimizer state" in text
    assert len(text.splitlines()) < 40


def test_views_are_counted_once() -> None:
    x = tg.rand(71, 73).realize()
    views = [x.t(), x[1:], x.reshape(-1), x.detach()]
    gc.collect()
    owners = [o for o in tg.memory.snapshot("cpu").owners if o.bytes == 71 * 73 * 4]
    assert len(owners) == 1
    assert len(views) == 4


def test_what_is_dropped_is_gone() -> None:
    x = tg.rand(77, 79).realize()
    assert any(o.shape == (77, 79) for o in tg.memory.snapshot().owners)
    del x
    gc.collect()
    assert not any(o.shape == (77, 79) for o in tg.memory.snapshot().owners)
