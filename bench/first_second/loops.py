"""Loops in plain Python over small tensors; `torch` is PyTorch or tilegrad."""

from __future__ import annotations

from typing import Any

from .session import Session


def item_products(torch: Any, session: Session) -> None:
    """A matrix product, element by element."""
    n = 3 if session.small else 6
    a, b, t = session.normal(n, n), session.normal(n, n), torch.zeros(n, n)
    session.begin(n**3)
    for i in range(n):
        for j in range(n):
            for k in range(n):
                t[i, j] += a[i, k] * b[k, j]
    session.look(t.abs().sum())


def item_products_seen(torch: Any, session: Session) -> None:
    """The same, and each element is printed when it is complete."""
    n = 3 if session.small else 6
    a, b, t = session.normal(n, n), session.normal(n, n), torch.zeros(n, n)
    session.begin(n**3)
    for i in range(n):
        for j in range(n):
            for k in range(n):
                t[i, j] += a[i, k] * b[k, j]
            session.look(t[i, j])


def item_reads(torch: Any, session: Session) -> None:
    x, total, count = session.normal(1000), 0.0, 50 if session.small else 1000
    session.begin(count)
    for i in range(count):
        total += x[i].item() * 2
    session.look(total)


def item_writes(torch: Any, session: Session) -> None:
    y = torch.zeros(250)
    session.begin()
    for i in range(250):
        y[i] = i
    session.look(y.sum())


def varied_batches(torch: Any, session: Session) -> None:
    """Batches of sequences of different lengths, padded by hand."""
    batches = 3 if session.small else 12
    session.begin(batches)
    for _ in range(batches):
        x, mask = torch.zeros(8, 24, dtype=torch.int64), torch.zeros(8, 24)
        for row in range(8):
            n = int(session.generator.integers(3, 20))
            ix = session.integers(50, n)
            x[row, 1 : 1 + n] = ix
            mask[row, : 1 + n] = 1
        session.look((x * mask).sum())


def recurrence(torch: Any, session: Session) -> None:
    """A recurrence, forward and backward."""
    steps = 20 if session.small else 1000
    w = (session.normal(16, 16) / 4).requires_grad_()
    x, h = session.normal(steps, 8, 16), torch.zeros(8, 16)
    session.begin()
    for t in range(steps):
        h = torch.tanh(h @ w + x[t])
    loss = h.pow(2).sum()
    loss.backward()
    session.look(loss)
    session.look(w.grad.abs().sum())


def lstm_cells(torch: Any, session: Session) -> None:
    """Two layers of LSTM cells, forward and backward."""
    nn, steps = torch.nn, 5 if session.small else 1000
    first, second = session.weights(nn.ModuleList([nn.LSTMCell(16, 32), nn.LSTMCell(32, 32)]))
    x = session.normal(steps, 8, 16)
    h1 = c1 = h2 = c2 = torch.zeros(8, 32)
    loss = torch.zeros(())
    session.begin()
    for t in range(steps):
        h1, c1 = first(x[t], (h1, c1))
        h2, c2 = second(h1, (h2, c2))
        loss = loss + h2.pow(2).mean()
    loss.backward()
    session.look(loss)
    session.look(first.weight_hh.grad.abs().sum())


def truncated(torch: Any, session: Session) -> None:
    """Truncated back-propagation: the state goes on from batch to batch, its history does not."""
    nn, batches = torch.nn, 4 if session.small else 30
    cell, out = session.weights(nn.ModuleList([nn.RNNCell(16, 32), nn.Linear(32, 1)]))
    optimizer = torch.optim.SGD([*cell.parameters(), *out.parameters()], lr=0.002)
    h = torch.zeros(4, 32)
    session.begin(batches)
    for _ in range(batches):
        h = h.detach()
        x, loss = session.normal(5, 4, 16), torch.zeros(())
        for t in range(5):
            h = cell(x[t], h)
            loss = loss + (out(h) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        session.look(loss)


def cat_pieces(torch: Any, session: Session) -> None:
    pieces = [session.normal(n % 7 + 1) for n in range(50 if session.small else 4000)]
    session.begin()
    session.look(torch.cat(pieces).abs().sum())


def stacked(torch: Any, session: Session) -> None:
    session.begin()
    rows = [torch.tensor([float(n), n / 2, -n]) for n in range(50 if session.small else 1000)]
    session.look(torch.stack(rows).std(0).sum())


def _count(session: Session) -> int:
    return 50 if session.small else 10_000


def elements_once(torch: Any, session: Session) -> None:
    """Operations on 16 elements."""
    x, count = session.normal(16), _count(session)
    session.begin(count)
    for _ in range(count // 2):
        x = x * 0.999 + 0.1
    session.look(x.sum())


def elements_each(torch: Any, session: Session) -> None:
    x, count = session.normal(16), _count(session)
    session.begin(count)
    for _ in range(count // 4):
        x = x * 0.999 + 0.1
        session.look(x.sum())


def scalars_once(torch: Any, session: Session) -> None:
    """Operations on single numbers."""
    x, count = torch.tensor(0.5), _count(session)
    session.begin(count)
    for _ in range(count // 2):
        x = x * 0.999 + 0.1
    session.look(x)


def scalars_each(torch: Any, session: Session) -> None:
    x, count = torch.tensor(0.5), _count(session)
    session.begin(count)
    for _ in range(count // 2):
        x = x * 0.999 + 0.1
        session.look(x)


def items_once(torch: Any, session: Session) -> None:
    """Elements that are read and written."""
    x, count = session.normal(16), _count(session)
    session.begin(count)
    for n in range(count // 2):
        x[n % 16] = x[(n + 1) % 16]
    session.look(x.sum())


def items_each(torch: Any, session: Session) -> None:
    x, count = session.normal(16), _count(session)
    session.begin(count)
    for n in range(count // 2):
        x[n % 16] = n % 5
        session.look(x[(n + 1) % 16])


def unseen(torch: Any, session: Session) -> None:
    """Operations that nobody looks at."""
    x, total, count = session.normal(1000), torch.zeros(1000), 500 if session.small else 100_000
    session.begin(count)
    for _ in range(count // 2):
        total = total + x * 2
    session.look(total.abs().sum())
