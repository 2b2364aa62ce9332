"""Programs in which tensors share memory, and of loops around optimizers: see `ownership.py`."""

from __future__ import annotations

import copy
from typing import Any

from tests.programs.ownership import linear, numbers, seen, story, thrice


@story
def detached_in_place(T: Any, jit: Any) -> list[Any]:
    p, found = T.nn.Parameter(numbers(T, 3)), []

    def step() -> Any:
        h = p * 2
        h.detach_()
        h.add_(1)
        (h * p).sum().backward()
        return h

    call = jit(step)
    for _ in range(2):
        p.grad = None
        h = call()
        found.append([*seen(h, p.grad), h.requires_grad])
    return found


@story
def a_hidden_state_carried(T: Any, jit: Any) -> list[Any]:
    layer, x = linear(T, 3, 3), numbers(T, 3)
    state = T.zeros(3).double()

    def step() -> None:
        layer.zero_grad()
        new = T.tanh(layer(state + x))
        new.sum().backward()
        state.copy_(new.detach())

    return thrice(jit(step), state, layer.weight)


@story
def a_hidden_state_rebound(T: Any, jit: Any) -> list[Any]:
    layer, x, found = linear(T, 3, 3), numbers(T, 3), []
    state = T.zeros(3).double()
    call = jit(lambda s: T.tanh(layer(s + x)))
    for _ in range(3):
        state = call(state).detach()
        found.append(seen(state))
    return found


@story
def emptied_and_filled(T: Any, jit: Any) -> list[Any]:
    x = numbers(T, 3).requires_grad_()

    def step() -> None:
        y = x.clone()
        y.zero_()
        y[0] = x[1] * 2
        (y.sum() + x.clone().fill_(3).sum()).backward()

    return thrice(jit(step), x) + seen(x.grad)


@story
def flat_parameters(T: Any, jit: Any) -> list[Any]:
    model, x, start = linear(T), numbers(T, 2, 3), 0
    flat = T.cat([p.data.reshape(-1) for p in model.parameters()])
    for p in model.parameters():
        p.data = flat[start : start + p.numel()].view(p.shape)
        start += p.numel()
    optimizer = T.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        flat.mul_(0.5)

    return thrice(jit(step), flat, model.weight, model.bias, model.weight.grad)


@story
def a_flat_leaf_and_its_views(T: Any, jit: Any) -> list[Any]:
    flat, x = T.nn.Parameter(numbers(T, 8)), numbers(T, 2, 3)
    optimizer = T.optim.Adam([flat], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        T.nn.functional.linear(x, flat[:6].view(2, 3), flat[6:]).square().mean().backward()
        optimizer.step()

    return thrice(jit(step), flat)


@story
def vectors_and_parameters(T: Any, jit: Any) -> list[Any]:
    model = linear(T)
    vector = T.nn.utils.parameters_to_vector(model.parameters()).detach()

    def step() -> None:
        T.nn.utils.vector_to_parameters(vector * 2, model.parameters())
        vector.add_(1)

    return thrice(jit(step), model.weight, model.bias, vector)


@story
def parts_that_are_parameters(T: Any, jit: Any) -> list[Any]:
    table = numbers(T, 4, 2)
    first, rest = T.nn.Parameter(table[0]), T.nn.Parameter(table[1:])
    optimizer = T.optim.SGD([{"params": [first], "lr": 0.5}, {"params": [rest]}], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        (first * rest).square().sum().backward()
        optimizer.step()

    return thrice(jit(step), table, first, rest, rest.grad)


@story
def a_parameter_of_a_tensor(T: Any, jit: Any) -> list[Any]:
    x = numbers(T, 3)
    p = T.nn.Parameter(x)

    def step() -> None:
        with T.no_grad():
            p.add_(1)
        x.mul_(2)

    return thrice(jit(step), p, x)


@story
def only_a_part_is_learned(T: Any, jit: Any) -> list[Any]:
    whole = numbers(T, 4)
    free = whole[1:3].requires_grad_()
    optimizer = T.optim.SGD([free], lr=0.25, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        ((free - 3) ** 2).sum().backward()
        optimizer.step()
        whole[0] += whole[1]

    return thrice(jit(step), whole, free)


@story
def batches_of_a_data_set(T: Any, jit: Any) -> list[Any]:
    data, found = numbers(T, 6, 2), []
    call = jit(lambda batch: batch.sub_(batch.mean(0)))
    for batch in data.split(2):
        call(batch)
        found.append(seen(batch, data))
    return found


@story
def chunks_that_are_updated(T: Any, jit: Any) -> list[Any]:
    x = numbers(T, 2, 6)
    a, b, c = x.chunk(3, 1)

    def step() -> None:
        a.add_(b)
        c.copy_(a)
        b.unbind(0)[1].zero_()

    return thrice(jit(step), x, a, b, c)


@story
def results_that_share(T: Any, jit: Any) -> list[Any]:
    call, found = jit(lambda x: (y := x * 2, y[1:], y.t())), []
    for n in range(3):
        y, part, turned = call(numbers(T, 3, 2) + n)
        part.add_(100)
        turned[0].zero_()
        found.append(seen(y, part, turned))
    return found


@story
def an_argument_given_back(T: Any, jit: Any) -> list[Any]:
    call, x, found = jit(lambda x: (x, x[0], x.detach())), numbers(T, 3), []
    for _ in range(2):
        same, first, other = call(x)
        x.add_(1)
        found.append([same is x, *seen(first, other)])
    return found


@story
def copies_follow_nothing(T: Any, jit: Any) -> list[Any]:
    p = T.zeros(3).double()
    call = jit(lambda: p.add_(1))
    call()
    kept = [p.clone(), p.detach().clone(), copy.deepcopy(p), p + 0, p.contiguous(), p.to(T.float32), p.reshape(3)]
    call()
    call()
    return seen(p, *kept)


@story
def expanded_views_are_read(T: Any, jit: Any) -> list[Any]:
    x = numbers(T, 3, 1)
    wide = x.expand(3, 2)
    return thrice(jit(lambda: x.mul_(2).add_(wide[:, :1] * 0.5)), x, wide)


@story
def operators_in_place_on_attributes(T: Any, jit: Any) -> list[Any]:
    holder = T.nn.Module()
    holder.register_buffer("x", numbers(T, 3))
    before = holder.x

    def step() -> None:
        holder.x += 1
        holder.x *= 2
        holder.x[1:] -= 3

    return thrice(jit(step), holder.x, before)


@story
def exchanged_by_a_copy(T: Any, jit: Any) -> list[Any]:
    a, b = numbers(T, 3), numbers(T, 3) * 10

    def step() -> None:
        old = a.clone()
        a.copy_(b)
        b.copy_(old)
        a[0], b[0] = b[0].clone(), a[0].clone()

    return thrice(jit(step), a, b)


@story
def exchanged_by_data(T: Any, jit: Any) -> list[Any]:
    a, b, found = T.nn.Parameter(numbers(T, 3)), T.nn.Parameter(numbers(T, 3) * 10), []
    call = jit(lambda: a.data.add_(1))
    for _ in range(3):
        a.data, b.data = b.data, a.data
        call()
        found.append(seen(a, b))
    return found


@story
def moments_by_hand(T: Any, jit: Any) -> list[Any]:
    p = T.nn.Parameter(numbers(T, 3))
    m, v = T.zeros_like(p), T.zeros_like(p)

    def step() -> None:
        (g,) = T.autograd.grad((p * p).sum(), [p])
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        p.data.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.1)

    return thrice(jit(step), p, m, v)


@story
def state_of_an_optimizer_kept(T: Any, jit: Any) -> list[Any]:
    p = T.nn.Parameter(numbers(T, 3))
    optimizer, found = T.optim.Adam([p], lr=0.1), []

    def step() -> None:
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()

    call = jit(step)
    call()
    kept = copy.deepcopy(optimizer.state_dict())
    call()
    found.append(seen(p, kept["state"][0]["exp_avg"]))
    optimizer.load_state_dict(kept)
    call()
    return [*found, seen(p)]


@story
def hooks_that_change_gradients(T: Any, jit: Any) -> list[Any]:
    p = T.nn.Parameter(numbers(T, 3))
    p.register_hook(lambda g: g * 0.5)

    def step() -> None:
        p.grad = None
        (p * p).sum().backward()
        p.data -= p.grad

    return thrice(jit(step), p)


@story
def parameters_in_lists(T: Any, jit: Any) -> list[Any]:
    ps = T.nn.ParameterList([T.nn.Parameter(numbers(T, 2) + n) for n in range(3)])
    optimizer = T.optim.SGD(ps.parameters(), lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        (ps[0] * ps[1] + ps[2]).sum().backward()
        optimizer.step()
        ps[2].data = ps[0].data + 1

    return thrice(jit(step), *[ps[n] for n in range(3)])


@story
def a_mask_applied_after_steps(T: Any, jit: Any) -> list[Any]:
    layer, x = linear(T), numbers(T, 2, 3)
    mask = (layer.weight.detach().abs() > 0.3).double()
    optimizer = T.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        layer.weight.grad.mul_(mask)
        optimizer.step()
        layer.weight.data.mul_(mask)

    return thrice(jit(step), layer.weight, layer.weight.grad)


@story
def filled_by_masks(T: Any, jit: Any) -> list[Any]:
    x = numbers(T, 3, 4)

    def step() -> None:
        x[x < 0] = 4
        x.masked_fill_(x > 3, -1)
        x[:, 1].masked_fill_(x[:, 1] > 0, 1)

    return thrice(jit(step), x)


@story
def averaged_over_workers(T: Any, jit: Any) -> list[Any]:
    models = [linear(T) for _ in range(3)]

    def step() -> None:
        with T.no_grad():
            for n, model in enumerate(models):
                model.weight.mul_(n)
            mean = T.stack([m.weight for m in models]).mean(0)
            for model in models:
                model.weight.copy_(mean)
                mean.add_(1)

    return thrice(jit(step), *[m.weight for m in models])


@story
def initialised_again(T: Any, jit: Any) -> list[Any]:
    layer, found = linear(T), []
    shared = layer.weight.detach()
    call = jit(lambda: layer.weight.data.add_(1))
    for n in range(2):
        call()
        T.nn.init.constant_(layer.weight, n)
        T.nn.init.eye_(layer.weight) if n else None
        found.append(seen(layer.weight, shared))
    return found


@story
def converted_in_place(T: Any, jit: Any) -> list[Any]:
    layer, x, found = linear(T), numbers(T, 2, 3), []
    weight, old = layer.weight, layer.weight.detach()
    call = jit(lambda: layer(x.to(layer.weight.dtype)).sum())
    for dtype in (T.float64, T.float32, T.float64):
        layer.to(dtype)
        with T.no_grad():
            layer.weight.add_(1)
        found.append(seen(call(), layer.weight, weight, old))
    return found


@story
def lookahead(T: Any, jit: Any) -> list[Any]:
    fast, found = T.nn.Parameter(numbers(T, 3)), []
    slow = fast.detach().clone()
    optimizer = T.optim.SGD([fast], lr=0.2)

    def step() -> None:
        optimizer.zero_grad()
        (fast**2).sum().backward()
        optimizer.step()

    call = jit(step)
    for n in range(4):
        call()
        if n % 2:
            slow.add_(fast.detach() - slow, alpha=0.5)
            fast.data.copy_(slow)
        found.append(seen(fast, slow))
    return found


@story
def sharpness_aware_steps(T: Any, jit: Any) -> list[Any]:
    p, x = T.nn.Parameter(numbers(T, 3)), numbers(T, 2, 3)
    optimizer = T.optim.SGD([p], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        (x @ p).square().sum().backward()
        with T.no_grad():
            shift = p.grad * (0.05 / (p.grad.norm() + 1))
            p.add_(shift)
        p.grad = None
        (x @ p).square().sum().backward()
        with T.no_grad():
            p.sub_(shift)
        optimizer.step()

    return thrice(jit(step), p)


@story
def adversarial_examples(T: Any, jit: Any) -> list[Any]:
    layer, x = linear(T), numbers(T, 2, 3)
    delta = T.zeros_like(x, requires_grad=True)

    def step() -> None:
        layer(x + delta).square().sum().backward()
        delta.data = (delta + 0.1 * delta.grad.detach().sign()).clamp(-0.25, 0.25)
        delta.grad.zero_()

    return thrice(jit(step), delta, x)
