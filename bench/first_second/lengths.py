"""Programs whose lengths are new each time, after two that were met; `torch` is PyTorch or tilegrad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .session import Session

LENGTHS = (5, 9, 12, 7, 21, 14, 17, 30)
MET = 2
"""The lengths that are met before the clock starts."""


def _each(session: Session, work: Any, lengths: tuple[int, ...] = LENGTHS) -> None:
    """Do the work for each length, and time those after the first ones."""
    for n, length in enumerate(lengths):
        if n == MET:
            session.begin(len(lengths) - MET)
        session.look(work(length))


def linear(torch: Any, session: Session) -> None:
    """Forward and backward through a layer."""
    layer = session.weights(torch.nn.Linear(64, 32))

    def work(length: int) -> Any:
        layer.zero_grad()
        loss = layer(session.normal(length, 64)).relu().pow(2).mean()
        loss.backward()
        return layer.weight.grad.abs().sum() + loss

    _each(session, work)


def gru(torch: Any, session: Session) -> None:
    """Forward and backward through a GRU."""
    net = session.weights(torch.nn.GRU(16, 32))

    def work(length: int) -> Any:
        net.zero_grad()
        out, _ = net(session.normal(length, 4, 16))
        loss = out.pow(2).mean()
        loss.backward()
        return net.weight_hh_l0.grad.abs().sum() + loss

    _each(session, work)


def gpt_tokens(torch: Any, session: Session) -> None:
    """Text, token by token, each from all before it."""
    nn, width, heads = torch.nn, 64, 4

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).split(width, dim=2)
            q, k, v = (y.view(b, t, heads, width // heads).transpose(1, 2) for y in (q, k, v))
            scores = q @ k.transpose(-2, -1) / (width // heads) ** 0.5
            scores = scores.masked_fill(torch.tril(torch.ones(t, t)) == 0, float("-inf"))
            y = torch.softmax(scores, -1) @ v
            x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
            return x + self.mlp(self.norm2(x))

    class Gpt(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(65, width), nn.Embedding(64, width)
            self.blocks = nn.Sequential(*[Block() for _ in range(2)])
            self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, 65, bias=False)

        def forward(self, tokens: Any) -> Any:
            x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
            return self.scores(self.norm(self.blocks(x)))

    model = session.weights(Gpt())
    tokens = torch.tensor([[1, 5, 7]])
    with torch.no_grad():
        for n in range(MET + (4 if session.small else 12)):
            if n == MET:
                session.begin(4 if session.small else 12)
            following = model(tokens)[:, -1, :].argmax(-1, keepdim=True)
            tokens = torch.cat([tokens, following], 1)
            session.look(following)


def reinforce(torch: Any, session: Session) -> None:
    """Episodes of policy gradients."""
    nn = torch.nn
    policy = session.weights(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2)))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    chance = session.generator

    def episode(length: int) -> Any:
        chosen, rewards = [], []
        for _ in range(length):
            logits = policy(session.normal(4))
            logs = torch.log_softmax(logits, -1)
            action = int(chance.random() > torch.softmax(logits, -1)[0].item())
            chosen.append(logs[action])
            rewards.append(float(chance.random()))
        total = 0.0
        returns: list[float] = []
        for reward in reversed(rewards):
            total = reward + 0.99 * total
            returns.insert(0, total)
        gains = torch.tensor(returns)
        gains = (gains - gains.mean()) / (gains.std() + 1e-6)
        loss = -(torch.stack(chosen) * gains).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    _each(session, episode, LENGTHS[: MET + 2])


def structures(torch: Any, session: Session) -> None:
    """Expressions that were never seen: each is looked at once."""
    x, y = session.normal(32, 48), session.normal(48)
    session.look((x + y).sum())
    lines: list[Callable[[], Any]] = [
        lambda: (x * y).exp().mean(),
        lambda: torch.softmax(x, 1)[3].max(),
        lambda: (x @ x.T).diagonal().sum(),
        lambda: x.cumsum(0)[-1].std(),
        lambda: torch.where(x > y, x, -y).abs().sum(),
        lambda: x.reshape(4, 8, 48).permute(2, 0, 1).amax(0).sum(),
        lambda: (x - x.mean(0)).pow(2).sqrt().sum(),
        lambda: x.sort(1).values[:, 5].sum(),
        lambda: torch.tanh(x[::2] * 3 - 1).prod(1).sum(),
        lambda: torch.cat([x[:3], x[5:9]]).argmax().float(),
    ]
    session.begin(len(lines))
    for line in lines:
        session.look(line())
