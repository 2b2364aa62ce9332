"""Programs as courses write them, by hand and without layers, for either library: state, and a step that changes it.

A program takes the library and `draw`, which makes a tensor of numbers that all runs have in common; it gives its
step, its parameters, and what else it keeps. All axes have `N` elements, so that no two of them can be told apart by
their extents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

N = 4
Step = Callable[..., Any]
Made = tuple[Step, list[Any], list[Any]]
Draw = Callable[..., Any]


def descend(t: Any, parameters: list[Any], loss: Any, rate: float = 0.1) -> Any:
    """Steepest descent by hand, with what Karpathy's lectures do to `.data`."""
    for p in parameters:
        p.grad = None
    loss.backward()
    for p in parameters:
        p.data += -rate * p.grad
    return loss


def batch_norm_by_hand(t: Any, draw: Draw) -> Made:
    """Running statistics under no_grad, loss by picking elements, gradients of what is between kept."""
    table, w, v, gain = draw(N, N), draw(2 * N, N), draw(N, N), draw(1, N)
    mean, std = t.zeros(1, N), t.ones(1, N)

    def step(x: Any, places: Any) -> Any:
        h = table[places[:, :2]].view(N, -1) @ w
        here, spread = h.mean(0, keepdim=True), h.std(0, keepdim=True)
        with t.no_grad():
            mean.mul_(0.9).add_(0.1 * here)
            std.mul_(0.9).add_(0.1 * spread)
        logits = t.tanh(gain * (h - here) / spread) @ v
        logits.retain_grad()
        loss = -logits.log_softmax(1)[t.arange(N), places[:, 2]].mean()
        return descend(t, [table, w, v, gain], loss), logits.grad, mean.clone()

    return step, [table, w, v, gain], [mean, std]


def adam_by_hand(t: Any, draw: Draw) -> Made:
    """A counter in Python, which decides the corrections."""
    w, count = draw(N, N), {"steps": 0}
    m, v = t.zeros_like(w), t.zeros_like(w)

    def step(x: Any, places: Any) -> Any:
        loss = ((x @ w.softmax(0)) ** 2).mean() + (w.exp().sum(0).log() * w.sum(1)).sum()
        loss.backward()
        count["steps"] += 1
        with t.no_grad():
            m.mul_(0.9).add_(w.grad, alpha=0.1)
            v.mul_(0.99).addcmul_(w.grad, w.grad, value=0.01)
            n = count["steps"]
            w.sub_(0.05 * (m / (1 - 0.9**n)) / ((v / (1 - 0.99**n)).sqrt() + 1e-8))
            w.grad.zero_()
        return loss

    return step, [w], [m, v]


def adversaries(t: Any, draw: Draw) -> Made:
    """Two optimizers, generated numbers that are detached for one of them, and a penalty on a gradient."""
    g, d, e = draw(N, N), draw(N, N), draw(N, 1)
    first, second = t.optim.Adam([g], 0.02), t.optim.RMSprop([d, e], 0.02)

    def judge(x: Any) -> Any:
        return t.nn.functional.leaky_relu(x @ d, 0.2) @ e

    def step(x: Any, places: Any) -> Any:
        made = t.tanh(x.flip(0) @ g)
        mixed = (0.3 * x + 0.7 * made.detach()).requires_grad_()
        (slope,) = t.autograd.grad(judge(mixed).sum(), mixed, create_graph=True)
        lost = judge(made.detach()).mean() - judge(x).mean() + 10 * ((slope.norm(2, dim=1) - 1) ** 2).mean()
        second.zero_grad()
        lost.backward()
        second.step()
        won = -judge(made).mean()
        first.zero_grad()
        won.backward()
        first.step()
        return lost, won, slope

    return step, [g, d, e], []


def learned_to_learn(t: Any, draw: Draw) -> Made:
    """MAML: two inner steps whose gradients are differentiated again."""
    w, v = draw(N, N), draw(N, N)
    outer = t.optim.SGD([w, v], 0.05, momentum=0.9)

    def step(x: Any, places: Any) -> Any:
        total = 0.0
        for task in (x, x.roll(1, 0)):
            fast = [w, v]
            for _ in range(2):
                loss = ((t.tanh(task @ fast[0]) @ fast[1] - task.cos()) ** 2).mean()
                slopes = t.autograd.grad(loss, fast, create_graph=True)
                fast = [p - 0.1 * s for p, s in zip(fast, slopes, strict=True)]
            total = total + ((t.tanh(task.T @ fast[0]) @ fast[1] - task.T.cos()) ** 2).mean()
        outer.zero_grad()
        total.backward()  # type: ignore[attr-defined]
        outer.step()
        return total

    return step, [w, v], []


def equation(t: Any, draw: Draw) -> Made:
    """A network that solves an equation: its own second derivatives are in the loss."""
    w, b, v = draw(N, N), draw(N), draw(N, 1)
    optimizer = t.optim.Adam([w, b, v], 0.02)

    def step(x: Any, places: Any) -> Any:
        at = x.detach().clone().requires_grad_()
        u = t.tanh(at @ w + b) @ v
        (slope,) = t.autograd.grad(u.sum(), at, create_graph=True)
        curved = sum(t.autograd.grad(slope[:, n].sum(), at, create_graph=True)[0][:, n] for n in range(2))
        loss = ((curved - slope.sum(1) * u[:, 0]) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, slope, curved

    return step, [w, b, v], []


def long_memory(t: Any, draw: Draw) -> Made:
    """An LSTM by hand; its state is kept from batch to batch, detached."""
    w, u, b = draw(4 * N, N), draw(4 * N, N), draw(4 * N)
    kept = [t.zeros(N, N), t.zeros(N, N)]

    def step(x: Any, places: Any) -> Any:
        h, c = (state.clone() for state in kept)
        seen = []
        for _ in range(2):
            i, f, g, o = (x @ w.t() + h @ u.t() + b).chunk(4, 1)
            c = t.sigmoid(f) * c + t.sigmoid(i) * t.tanh(g)
            h = t.sigmoid(o) * t.tanh(c)
            seen.append(h)
        for state, now in zip(kept, (h, c), strict=True):
            state.copy_(now.detach())
        loss = t.nn.functional.cross_entropy(t.stack(seen, 1).reshape(2 * N, N), places[:, :2].reshape(2 * N))
        return descend(t, [w, u, b], loss, 0.5)

    return step, [w, u, b], kept


def codebook(t: Any, draw: Draw) -> Made:
    """VQ-VAE: straight-through gradients, a codebook by moving averages."""
    w, v, book = draw(N, N), draw(N, N), draw(N, N).detach()
    count, total = t.ones(N), book.clone()

    def step(x: Any, places: Any) -> Any:
        z = x @ w
        far = z.pow(2).sum(1, keepdim=True) + book.pow(2).sum(1) - 2 * z @ book.t()
        near = t.nn.functional.one_hot(far.argmin(1), N).to(z.dtype)
        found = near @ book
        with t.no_grad():
            count.mul_(0.9).add_(near.sum(0), alpha=0.1)
            total.mul_(0.9).add_(near.t() @ z, alpha=0.1)
            book.copy_(total / count.unsqueeze(1))
        loss = (((z + (found - z).detach()) @ v - x) ** 2).mean() + 0.25 * ((z - found.detach()) ** 2).mean()
        return descend(t, [w, v], loss), near

    return step, [w, v], [book, count, total]


def paths(t: Any, draw: Draw) -> Made:
    """CTC's sums over paths, a table that is filled in place, and a beam that takes the best."""
    w = draw(N, N)

    def step(x: Any, places: Any) -> Any:
        chances = (x @ w).log_softmax(1)
        a = t.cat([chances[0, :2], t.full((N - 2,), -1e9)])
        for row in range(1, N):
            a = t.logaddexp(a, t.nn.functional.pad(a[:-1], (1, 0), value=-1e9)) + chances[row, places[:, 0]]
        table = t.zeros(N + 1, N + 1)
        for n in range(1, 3):
            table[n, 1:] = table[n - 1, :-1] + chances[n]
        score, best = (table[2, 1:, None] + chances).view(-1).topk(N)
        loss = -a.logsumexp(0) - table[2].sum() * 0.1 - score.sum() * 0.1
        return descend(t, [w], loss), best // N, best % N

    return step, [w], []


def flows(t: Any, draw: Draw) -> Made:
    """Couplings by halves, a determinant by sums, Newton's iteration for an inverse, and what a filter keeps."""
    s, k = draw(N // 2, N), draw(N, N)
    state = t.eye(N)

    def step(x: Any, places: Any) -> Any:
        before = state.clone()
        a, b = x.chunk(2, 1)
        scale, shift = (a @ s).chunk(2, 1)
        z = t.cat([b * t.tanh(scale).exp() + shift, a], 1)
        covered = k @ before @ k.T + t.eye(N) + t.diag(z.var(0))
        inverse = covered.T / (covered.abs().sum(0).max() * covered.abs().sum(1).max())
        for _ in range(8):
            inverse = inverse @ (2 * t.eye(N) - covered @ inverse)
        gained = before @ k.T @ inverse
        loss = (
            (z**2).mean()
            - t.tanh(scale).sum(1).mean()
            + t.trace(gained @ k) / N
            + (gained / gained.exp().sum(0)).mean()
        )
        now = (t.eye(N) - gained @ k) @ before
        state.copy_((0.5 * (now + now.T) + 0.1 * t.eye(N)).detach())
        return descend(t, [s, k], loss), gained

    return step, [s, k], [state]


def neighbours(t: Any, draw: Draw) -> Made:
    """A graph: degrees of both sides, attention over edges, sums at places that repeat."""
    w, a, b = draw(N, N), draw(N), draw(N)

    def step(x: Any, places: Any) -> Any:
        begin, end = places.reshape(-1), places.T.reshape(-1)
        near = t.zeros(N, N).index_put((begin, end), t.ones(N * N), accumulate=True) + t.eye(N)
        h = (near / near.sum(0)) @ (near / near.sum(1)).T @ (x @ w)
        score = t.nn.functional.leaky_relu((h[begin] * a).sum(-1) + (h[end] * b).sum(-1), 0.2)
        top = t.full((N,), -1e9).scatter_reduce(0, end, score.detach(), "amax")
        weight = (score - top[end]).exp()
        weight = weight / t.zeros(N).index_add(0, end, weight)[end]
        out = t.zeros(N, N).index_add_(0, end, h[begin] * weight.unsqueeze(-1))
        return descend(t, [w, a, b], t.nn.functional.cross_entropy(out, places[:, 3])), weight

    return step, [w, a, b], []


def followed(t: Any, draw: Draw) -> Made:
    """Q-learning: a target that follows slowly, a table of rewards that is written by rows, a rate that falls."""
    w, slow, best = draw(N, N), draw(N, N).detach(), t.zeros(N, N)
    optimizer = t.optim.AdamW([w], 0.05, amsgrad=True)

    def step(x: Any, places: Any) -> Any:
        value = (x @ w).gather(1, places[:, :1])
        with t.no_grad():
            ahead = (x.roll(1, 0) @ slow).max(1).values
            best[places[:, 1]] = ahead[:, None] * x
        loss = t.nn.functional.smooth_l1_loss(value, 0.9 * ahead.unsqueeze(1) + x[:, :1])
        optimizer.zero_grad()
        loss.backward()
        t.nn.utils.clip_grad_norm_([w], 0.3)
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 0.5
        slow.mul_(0.8).add_(w.detach(), alpha=0.2)
        return loss, ahead

    return step, [w], [slow, best]


COURSES = {
    made.__name__: made
    for made in (
        batch_norm_by_hand, adam_by_hand, adversaries, learned_to_learn, equation, long_memory, codebook, paths, flows,
        neighbours, followed,
    )
}  # fmt: skip
