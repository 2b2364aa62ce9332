"""Networks that are trained for two steps; `torch` is PyTorch or tilegrad."""

from __future__ import annotations

from typing import Any

from bench import networks

from .session import Session


def _train(torch: Any, session: Session, model: Any, batch: tuple[Any, ...], optimizer: Any, steps: int = 2) -> None:
    """Take a few steps of classification, and look at each loss."""

    def step(x: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    step = session.jit(step)
    for _ in range(steps):
        session.look(step(*batch))


def _images(session: Session, count: int, side: int = 32) -> tuple[Any, Any]:
    count, side = (2, side) if session.small else (count, side)
    return session.normal(count, 3, side, side), session.integers(10, count)


def small_resnet(torch: Any, session: Session) -> None:
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)
            self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

        def forward(self, x: Any) -> Any:
            y = self.norm1(self.conv1(x)).relu()
            return (x + self.norm2(self.conv2(y))).relu()

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 32, 3, padding=1)
            self.blocks = nn.Sequential(*[Block(32) for _ in range(1 if session.small else 3)])
            self.last = nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            return self.last(self.blocks(self.first(x).relu()).mean((2, 3)))

    model = session.weights(Net())
    batch = _images(session, 32, 8 if session.small else 32)
    _train(torch, session, model, batch, torch.optim.AdamW(model.parameters(), lr=1e-3))


def alexnet(torch: Any, session: Session) -> None:
    model = session.weights(networks.alexnet(torch.nn))
    batch = session.normal(16, 1, 224, 224), session.integers(10, 16)
    _train(torch, session, model, batch, torch.optim.SGD(model.parameters(), lr=1e-3))


def gpt(torch: Any, session: Session) -> None:
    count, length, layers = (2, 8, 1) if session.small else (16, 128, 4)
    model = session.weights(networks.gpt(torch.nn, context=length, layers=layers))
    batch = session.integers(256, count, length), session.integers(256, count * length)
    _train(torch, session, model, batch, torch.optim.AdamW(model.parameters(), lr=1e-3))


def gpt2(torch: Any, session: Session) -> None:
    words, count, length, width, layers = (256, 2, 8, 48, 1) if session.small else (50257, 2, 1024, 768, 12)
    model = session.weights(networks.gpt(torch.nn, words, length, width, layers, 12))
    batch = session.integers(words, count, length), session.integers(words, count * length)
    _train(torch, session, model, batch, torch.optim.AdamW(model.parameters(), lr=1e-4), 1)


def lstm(torch: Any, session: Session) -> None:
    model = session.weights(networks.lstm(torch.nn))
    batch = session.integers(256, 32, 64), session.integers(256, 32 * 64)
    _train(torch, session, model, batch, torch.optim.AdamW(model.parameters(), lr=1e-3))


def vae(torch: Any, session: Session) -> None:
    nn, functional = torch.nn, torch.nn.functional

    class Vae(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.hidden, self.mean, self.log_variance = nn.Linear(784, 400), nn.Linear(400, 20), nn.Linear(400, 20)
            self.back, self.out = nn.Linear(20, 400), nn.Linear(400, 784)

        def forward(self, x: Any) -> Any:
            h = functional.relu(self.hidden(x))
            mean, log_variance = self.mean(h), self.log_variance(h)
            std = torch.exp(0.5 * log_variance)
            z = mean + session.noise(std) * std
            return torch.sigmoid(self.out(functional.relu(self.back(z)))), mean, log_variance

    model = session.weights(Vae())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        again, mean, log_variance = model(x)
        error = functional.binary_cross_entropy(again, x, reduction="sum")
        loss = error - 0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
        loss.backward()
        optimizer.step()
        return loss

    step, x = session.jit(step), torch.sigmoid(session.normal(128, 784))
    for _ in range(2):
        session.look(step(x))


def unet(torch: Any, session: Session) -> None:
    nn = torch.nn

    def double(i: int, o: int) -> Any:
        return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.ReLU(), nn.Conv2d(o, o, 3, padding=1), nn.ReLU())

    class UNet(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down1, self.down2, self.bottom = double(1, 16), double(16, 32), double(32, 64)
            self.pool = nn.MaxPool2d(2)
            self.up2, self.side2 = nn.ConvTranspose2d(64, 32, 2, stride=2), double(64, 32)
            self.up1, self.side1 = nn.ConvTranspose2d(32, 16, 2, stride=2), double(32, 16)
            self.out = nn.Conv2d(16, 1, 1)

        def forward(self, x: Any) -> Any:
            a = self.down1(x)
            b = self.down2(self.pool(a))
            c = self.bottom(self.pool(b))
            b = self.side2(torch.cat([self.up2(c), b], 1))
            return self.out(self.side1(torch.cat([self.up1(b), a], 1)))

    model = session.weights(UNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Any, wanted: Any) -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(x), wanted)
        loss.backward()
        optimizer.step()
        return loss

    step, x = session.jit(step), session.normal(8, 1, 64, 64)
    wanted = (x > 0).float()
    for _ in range(2):
        session.look(step(x, wanted))
