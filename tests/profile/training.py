"""A small training step, for tests that profile it."""

from typing import Any

import tilegrad as tg


class Block(tg.nn.Module):
    def __init__(self, wide: int) -> None:
        super().__init__()
        self.layers = tg.nn.ModuleList([tg.nn.Linear(wide, wide), tg.nn.Linear(wide, wide)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x).relu()
        return x


class Net(tg.nn.Module):
    def __init__(self, wide: int = 64) -> None:
        super().__init__()
        self.block = Block(wide)
        self.head = tg.nn.Linear(wide, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.block(x))


def made(wide: int = 64, batch: int = 32) -> tuple[Any, Any, Any]:
    """A training step under jit, and its arguments."""
    net = Net(wide)
    update = tg.optim.SGD(net.parameters(), 0.01)

    @tg.jit
    def step(x: Any, y: Any) -> Any:
        update.zero_grad()
        loss = tg.nn.functional.cross_entropy(net(x), y)
        loss.backward()
        update.step()
        return loss

    return step, tg.rand(batch, wide).realize(), tg.randint(0, 10, (batch,)).realize()
