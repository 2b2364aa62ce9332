"""Programs that update weights, gradients and statistics: see `ownership.py`."""

from __future__ import annotations

import copy
from typing import Any

from tests.programs.ownership import linear, numbers, seen, story, thrice


@story
def average_of_weights(T: Any, jit: Any) -> list[Any]:
    model, x = linear(T), numbers(T, 4, 3)
    average = copy.deepcopy(model)
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        with T.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.mul_(0.9).add_(p, alpha=0.1)

    return thrice(jit(step), model.weight, average.weight, average.bias)


@story
def average_by_data(T: Any, jit: Any) -> list[Any]:
    model, average = linear(T), linear(T)

    def step() -> None:
        for a, p in zip(average.parameters(), model.parameters()):
            p.data.add_(1)
            a.data = a.data * 0.5 + p.data * 0.5

    return thrice(jit(step), model.weight, average.weight)


@story
def average_by_lerp(T: Any, jit: Any) -> list[Any]:
    p, a = T.nn.Parameter(numbers(T, 4)), numbers(T, 4) * 0

    def step() -> None:
        p.data.mul_(2)
        a.lerp_(p.detach(), 0.25)

    return thrice(jit(step), p, a)


@story
def swapped_for_evaluation(T: Any, jit: Any) -> list[Any]:
    p = T.nn.Parameter(numbers(T, 3))
    average, found = numbers(T, 3) * 10, []
    optimizer = T.optim.SGD([p], lr=0.5)

    def step() -> None:
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()

    call, look = jit(step), jit(lambda: (p * 2).sum())
    for _ in range(3):
        call()
        backup, p.data = p.data, average
        found.append(seen(look(), p, backup))
        p.data = backup
        found.append(seen(look(), p, average))
    return found


@story
def tied_weights(T: Any, jit: Any) -> list[Any]:
    a, b, x = linear(T, 3, 3), linear(T, 3, 3), numbers(T, 2, 3)
    b.weight = a.weight
    optimizer = T.optim.SGD([a.weight, a.bias, b.bias], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        b(a(x)).mean().backward()
        optimizer.step()

    return thrice(jit(step), a.weight, b.weight, a.weight.grad)


@story
def tied_by_data(T: Any, jit: Any) -> list[Any]:
    a, b, x = linear(T, 3, 3), linear(T, 3, 3), numbers(T, 2, 3)
    b.weight.data = a.weight.data
    optimizer = T.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        b(a(x)).mean().backward()
        optimizer.step()

    return thrice(jit(step), a.weight, b.weight, a.weight.grad, b.weight.grad)


@story
def tied_to_the_transposed(T: Any, jit: Any) -> list[Any]:
    a, b, x = linear(T, 2, 3, False), linear(T, 3, 2, False), numbers(T, 2, 3)
    b.weight.data = a.weight.data.t()
    optimizer = T.optim.SGD(a.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        b(a(x)).square().mean().backward()
        optimizer.step()

    return thrice(jit(step), a.weight, b.weight, a.weight.grad)


@story
def clipped_by_hand(T: Any, jit: Any) -> list[Any]:
    model, x = linear(T), numbers(T, 4, 3)
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        norm = sum(p.grad.pow(2).sum() for p in model.parameters()).sqrt()
        for p in model.parameters():
            p.grad.mul_(1 / (norm + 1))
            p.grad.data.clamp_(-0.5, 0.5)
        optimizer.step()

    return thrice(jit(step), model.weight, model.weight.grad)


@story
def clipped_norm(T: Any, jit: Any) -> list[Any]:
    model, x = linear(T), numbers(T, 4, 3)
    optimizer = T.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().sum().backward()
        T.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()

    return thrice(jit(step), model.weight, model.weight.grad)


@story
def gradients_zeroed_by_hand(T: Any, jit: Any) -> list[Any]:
    p = T.nn.Parameter(numbers(T, 3))

    def step() -> None:
        (p * p * p).sum().backward()
        with T.no_grad():
            p.sub_(p.grad, alpha=0.05)
        p.grad.zero_()

    return [*thrice(jit(step), p), seen(p.grad)]


@story
def gradients_set_to_none(T: Any, jit: Any) -> list[Any]:
    p, found = T.nn.Parameter(numbers(T, 3)), []

    def step() -> None:
        (p * p * p).sum().backward()
        with T.no_grad():
            p.copy_(p - 0.05 * p.grad)
        p.grad = None

    call = jit(step)
    for _ in range(3):
        call()
        found.append([*seen(p), p.grad is None])
    return found


@story
def gradients_kept_by_others(T: Any, jit: Any) -> list[Any]:
    p, found = T.nn.Parameter(numbers(T, 3)), []
    call = jit(lambda: (p * p).sum().backward())
    call()
    kept = p.grad
    for _ in range(2):
        call()
        found.append(seen(kept, p.grad))
    p.grad = None
    call()
    return [*found, seen(kept, p.grad)]


@story
def gradients_accumulated(T: Any, jit: Any) -> list[Any]:
    model, x = linear(T), numbers(T, 6, 3)
    optimizer = T.optim.Adam(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        for n in range(0, 6, 2):
            (model(x[n : n + 2]).square().mean() / 3).backward()
        optimizer.step()

    return thrice(jit(step), model.weight, model.bias.grad)


@story
def gradients_assigned(T: Any, jit: Any) -> list[Any]:
    p, g = T.nn.Parameter(numbers(T, 3)), numbers(T, 3) * 0 + 1
    optimizer = T.optim.SGD([p], lr=0.5)
    p.grad = g

    def step() -> None:
        optimizer.step()
        g.mul_(2)

    return thrice(jit(step), p, p.grad, g)


@story
def gradients_with_noise(T: Any, jit: Any) -> list[Any]:
    p = T.nn.Parameter(numbers(T, 3))

    def step() -> None:
        p.grad = None
        (p * p).sum().backward()
        p.grad += p.detach() * 0.5
        p.grad[0] = 0
        p.data -= 0.1 * p.grad

    return thrice(jit(step), p)


@story
def copies_of_a_state_dict(T: Any, jit: Any) -> list[Any]:
    model = linear(T)
    shared, best = model.state_dict(), copy.deepcopy(model.state_dict())
    cloned = {k: v.clone() for k, v in model.state_dict().items()}

    def step() -> None:
        with T.no_grad():
            for p in model.parameters():
                p.add_(1)

    found = thrice(jit(step), model.weight, shared["weight"], best["weight"], cloned["weight"])
    model.load_state_dict(best)
    return [*found, *thrice(jit(step), model.weight, shared["weight"], best["weight"])]


@story
def a_state_dict_written_to(T: Any, jit: Any) -> list[Any]:
    model = linear(T)

    def step() -> None:
        for v in model.state_dict().values():
            v.mul_(2)

    return thrice(jit(step), model.weight, model.bias)


@story
def a_state_dict_assigned(T: Any, jit: Any) -> list[Any]:
    model, given = linear(T), {"weight": numbers(T, 2, 3), "bias": numbers(T, 2)}
    call = jit(lambda: model.weight.data.add_(1))
    call()
    model.load_state_dict(given, assign=True)
    return [*thrice(call, model.weight, given["weight"]), *seen(given["bias"])]


@story
def frozen_and_thawed(T: Any, jit: Any) -> list[Any]:
    model, x, found = T.nn.Sequential(linear(T, 3, 3), linear(T)), numbers(T, 2, 3), []
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    call = jit(step)
    for wanted in (True, False, True):
        for p in model[0].parameters():
            p.requires_grad = wanted
            p.grad = None
        call()
        found.append(seen(model[0].weight, model[1].weight, model[0].weight.grad))
    return found


@story
def a_target_network(T: Any, jit: Any) -> list[Any]:
    online, target, x = linear(T), linear(T), numbers(T, 2, 3)
    target.requires_grad_(False)
    optimizer = T.optim.SGD(online.parameters(), lr=0.1)

    def step() -> None:
        with T.no_grad():
            goal = target(x) * 0.9
        optimizer.zero_grad()
        (online(x) - goal).square().mean().backward()
        optimizer.step()

    call, found = jit(step), []
    for n in range(4):
        call()
        if n % 2:
            target.load_state_dict(online.state_dict())
        found.append(seen(online.weight, target.weight))
    return found


@story
def a_target_network_softly(T: Any, jit: Any) -> list[Any]:
    online, target = linear(T), linear(T)

    def step() -> None:
        for t, p in zip(target.parameters(), online.parameters()):
            p.data.mul_(2)
            t.data.copy_(0.1 * p.data + 0.9 * t.data)

    return thrice(jit(step), online.weight, target.weight)


@story
def slices_updated(T: Any, jit: Any) -> list[Any]:
    p = T.nn.Parameter(numbers(T, 4, 2))

    def step() -> None:
        with T.no_grad():
            p[1:3] += 1
            p[0] = p[3] * 2
            p[:, 1].mul_(0.5)

    return thrice(jit(step), p)


@story
def a_row_kept_at_zero(T: Any, jit: Any) -> list[Any]:
    table = T.nn.Parameter(numbers(T, 4, 2))
    optimizer = T.optim.SGD([table], lr=0.5)
    index = T.tensor([0, 1, 1, 3])

    def step() -> None:
        optimizer.zero_grad()
        table[index].square().sum().backward()
        table.grad[0].zero_()
        optimizer.step()
        with T.no_grad():
            table[0].fill_(0)

    return thrice(jit(step), table)


@story
def rows_of_unit_length(T: Any, jit: Any) -> list[Any]:
    layer = linear(T)

    def step() -> None:
        with T.no_grad():
            layer.weight.add_(1)
            layer.weight.div_(layer.weight.norm(dim=1, keepdim=True))

    return thrice(jit(step), layer.weight)


@story
def weights_clamped(T: Any, jit: Any) -> list[Any]:
    layer, x = linear(T), numbers(T, 2, 3)
    optimizer = T.optim.RMSprop(layer.parameters(), lr=0.3)
    found = []

    def step() -> None:
        optimizer.zero_grad()
        (-layer(x).mean()).backward()
        optimizer.step()

    call = jit(step)
    for _ in range(3):
        call()
        for p in layer.parameters():
            p.data = p.data.clamp(-0.4, 0.4)
        found.append(seen(layer.weight, layer.bias))
    return found


@story
def running_statistics(T: Any, jit: Any) -> list[Any]:
    norm, x = T.nn.BatchNorm1d(3).double(), numbers(T, 4, 3)
    mean = norm.running_mean

    def step() -> None:
        norm(x + norm.num_batches_tracked)

    return thrice(jit(step), norm.running_mean, mean, norm.running_var, norm.num_batches_tracked)


@story
def running_statistics_by_hand(T: Any, jit: Any) -> list[Any]:
    holder, x = T.nn.Module(), numbers(T, 4, 3)
    holder.register_buffer("mean", T.zeros(3).double())
    holder.register_buffer("count", T.zeros(()).double())
    x.requires_grad_()

    def step() -> None:
        y = x * 2 + holder.count
        with T.no_grad():
            holder.count += 1
            holder.mean += (y.mean(0) - holder.mean) / holder.count
        (y - holder.mean).square().sum().backward()

    return thrice(jit(step), holder.mean, holder.count)


@story
def a_buffer_replaced(T: Any, jit: Any) -> list[Any]:
    holder = T.nn.Module()
    holder.register_buffer("history", numbers(T, 3))

    def step() -> None:
        holder.history = T.cat([holder.history[1:], holder.history[:1] + 1])

    found = []
    for _ in range(3):
        step()
        found.append(seen(holder.history))
    return found


@story
def a_ring_of_rows(T: Any, jit: Any) -> list[Any]:
    ring, place = T.zeros(3, 2).double(), T.zeros(1).long()

    def step() -> None:
        ring[place] = (place + 1).double().expand(1, 2)
        place.add_(1).remainder_(3)

    return thrice(jit(step), ring, place)


@story
def views_of_views(T: Any, jit: Any) -> list[Any]:
    x = numbers(T, 4, 6)
    middle = x[1:3].t()[::2]
    corner = middle[1:, 0]

    def step() -> None:
        corner.add_(10)
        middle[0].mul_(2)
        x[2].sub_(1)

    return thrice(jit(step), x, middle, corner)


@story
def views_of_what_requires_gradients(T: Any, jit: Any) -> list[Any]:
    x = numbers(T, 2, 3).requires_grad_()

    def step() -> None:
        y = x * 2
        row = y[0]
        row.mul_(3)
        y[1, 1:].add_(row[1:])
        y.t()[0] = 5
        (y * y.detach()).sum().backward()

    return thrice(jit(step), x) + seen(x.grad)
