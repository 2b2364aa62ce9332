"""Differentiation behaves as PyTorch's: each script runs with both libraries and must give the same."""

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad.errors import GradientError, InPlaceError, TilegradError


def close(x: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(x.detach()), expected, 1e-5, 1e-6)


def leaf(*data: float, dtype: Any = tg.float32) -> tg.Tensor:
    return tg.tensor(list(data), dtype=dtype, requires_grad=True)


@checklist(3)
def test_two_examples_of_the_lecture() -> None:
    rng = np.random.default_rng(0)
    x, y, z = (tg.tensor(rng.normal(size=(3, 4)), requires_grad=True) for _ in range(3))
    (x * y + z).sum().backward()
    np.testing.assert_allclose(x.grad, y.detach(), atol=1e-10)
    np.testing.assert_allclose(y.grad, x.detach(), atol=1e-10)
    np.testing.assert_allclose(z.grad, np.ones((3, 4)), atol=1e-10)
    v = tg.tensor(0.3, dtype=tg.float64, requires_grad=True)
    e = v.exp()
    s = e + e**2
    (s.exp() + s.sin()).backward()
    a = np.exp(0.3)
    t = a + a**2
    np.testing.assert_allclose(v.grad, (np.exp(t) + np.cos(t)) * (a + 2 * a**2), atol=1e-10, rtol=1e-10)


def test_gradients_add_up() -> None:
    x = leaf(1, 2)
    (x * x).sum().backward()
    first = x.grad
    (x * 3).sum().backward()
    close(x.grad, [5, 7])
    assert x.grad is first
    x.grad = None
    (x.sum() + x.sum()).backward()
    close(x.grad, [2, 2])


def test_retain_graph() -> None:
    x = leaf(1, 2)
    y = (x.exp() * x).sum()
    y.backward(retain_graph=True)
    once = x.grad.clone()
    y.backward()
    close(x.grad, 2 * once.numpy())
    with pytest.raises(GradientError, match="retain_graph"):
        y.backward()
    print(y)
    with pytest.raises(GradientError, match="retain_graph"):
        y.backward()
    z = x.sum()  # saves nothing
    z.backward()
    z.backward()


def test_second_order() -> None:
    x = leaf(2, 3, dtype=tg.float64)
    (g,) = tg.autograd.grad((x**3).sum(), x, create_graph=True)
    assert g.requires_grad
    (h,) = tg.autograd.grad(g.sum(), x)
    close(h, [12, 18])
    assert not h.requires_grad
    (x**4).sum().backward(create_graph=True)
    x.grad.sum().backward()
    close(x.grad, [4 * 8 + 12 * 4, 4 * 27 + 12 * 9])


def test_unused_inputs() -> None:
    x, y = leaf(1), leaf(2)
    with pytest.raises(GradientError, match="allow_unused"):
        tg.autograd.grad((x * 2).sum(), (x, y))
    assert tg.autograd.grad((x * 2).sum(), (x, y), allow_unused=True)[1] is None
    close(tg.autograd.grad((x * 2).sum(), (x, y), materialize_grads=True)[1], [0])


def test_inner_values() -> None:
    x = leaf(1, 2)
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    close(y.grad, [4, 8])
    z = x * 3
    close(tg.autograd.grad((z * z).sum(), z)[0], [6, 12])


def scaled_in_place(y: tg.Tensor) -> None:
    y.mul_(3)


def written_by_a_view(y: tg.Tensor) -> None:
    y[:1].mul_(5)


def hooked_later(y: tg.Tensor) -> None:
    y.register_hook(lambda g: g * 10)


def kept_twice(y: tg.Tensor) -> None:
    y.retain_grad()


def hooked_then_scaled(y: tg.Tensor) -> None:
    hooked_later(y)
    y.mul_(3)
    y.register_hook(lambda g: g + 1)


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(
    ("meanwhile", "kept", "arrived"),
    [
        (scaled_in_place, [12, 24], [72, 144]),
        (written_by_a_view, [20, 8], [200, 16]),
        (hooked_later, [40, 80], [80, 160]),
        (kept_twice, [4, 8], [8, 16]),
        (hooked_then_scaled, [13, 25], [780, 1500]),
    ],
)
def test_a_kept_gradient_is_that_of_the_elements_there_are(
    meanwhile: Callable[[tg.Tensor], None], kept: list[int], arrived: list[int], jitted: bool
) -> None:
    """As in PyTorch, `retain_grad` runs after all hooks and sees later in-place writes."""

    def gradients(x: tg.Tensor) -> tuple[tg.Tensor | None, tg.Tensor | None]:
        x = x.detach().requires_grad_()
        y = x * 2
        y.retain_grad()
        meanwhile(y)
        (y * y).sum().backward()
        return y.grad, x.grad

    of_y, of_x = (tg.jit(gradients) if jitted else gradients)(tg.tensor([1.0, 2.0]))
    close(of_y, kept)
    close(of_x, arrived)


def test_hooks() -> None:
    x = leaf(1, 2)
    y = x * 2
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    handle = y.register_hook(lambda g: g * 10)
    x.register_hook(lambda g: g + 1)
    y.sum().backward()
    assert seen == [[1, 1]]
    close(x.grad, [21, 21])
    handle.remove()
    x.grad = None
    (x * 2).sum().backward()
    close(x.grad, [3, 3])
    arrived = []
    x.register_post_accumulate_grad_hook(lambda t: arrived.append(t.grad.tolist()))
    x.sum().backward()
    assert arrived == [[5, 5]]


def test_hooks_beside_the_path_to_what_is_asked_for_do_not_run() -> None:
    x, w = (tg.tensor([1.0, 2.0], requires_grad=True) for _ in "xw")
    beside = w.sin()
    beside.register_hook(lambda g: pytest.fail("nobody asked for this gradient"))
    (gradient,) = tg.autograd.grad((x.exp() * beside).sum(), [x])
    np.testing.assert_allclose(gradient.numpy(), np.exp([1.0, 2.0]) * np.sin([1.0, 2.0]), 1e-6)


def test_a_hook_differentiates_something_else() -> None:
    """As in PyTorch, a hook records nothing unless asked to."""
    x, y = tg.tensor([1.0, 2.0], requires_grad=True), tg.tensor([3.0], requires_grad=True)

    def hook(gradient: tg.Tensor) -> tg.Tensor:
        with tg.enable_grad():
            (y * gradient.sum()).sum().backward()
        return gradient

    x.register_hook(hook)
    (x * x).sum().backward()
    assert x.grad is not None
    assert y.grad is not None
    assert (x.grad.tolist(), y.grad.tolist()) == ([2, 4], [6])


def test_modes() -> None:
    x = leaf(1, 2)
    with tg.no_grad():
        y = x * 2
        with tg.enable_grad():
            z = x * 2
        assert not y.requires_grad
        assert z.requires_grad
        assert not tg.is_grad_enabled()

    @tg.no_grad()
    def silent(t: tg.Tensor) -> tg.Tensor:
        return t * 2

    @tg.no_grad
    def bare(t: tg.Tensor) -> tg.Tensor:
        return t * 2

    @tg.inference_mode()
    def inferred(t: tg.Tensor) -> tg.Tensor:
        return t * 2

    assert not any(f(x).requires_grad for f in (silent, bare, inferred))
    assert (x * 2).requires_grad
    with tg.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    tg.set_grad_enabled(False)
    assert not (x * 2).requires_grad
    tg.set_grad_enabled(True)
    assert (x * 2).requires_grad
    assert x.detach().requires_grad is False
    with pytest.raises(ZeroDivisionError), tg.no_grad():
        raise ZeroDivisionError
    assert tg.is_grad_enabled()


def test_leaves_and_history() -> None:
    x = leaf(1, 2)
    y = x * 2
    assert x.is_leaf
    assert x.grad_fn is None
    assert not y.is_leaf
    assert y.grad_fn.name() == "MulBackward0"
    assert y.grad_fn.next_functions[0][0] is not None
    assert y.detach().is_leaf
    assert not y.detach().requires_grad
    with pytest.raises(GradientError, match="detach"):
        y.requires_grad_(False)
    x.requires_grad_(False)
    assert not (x * 2).requires_grad
    w = tg.ones(2)
    w.requires_grad = True
    assert w.is_leaf
    assert w.requires_grad


# --- in place ----------------------------------------------------------------------------------


def test_in_place_is_recorded() -> None:
    x = leaf(1, 2, 3)
    y = x * 2
    y.mul_(x)
    y[0] = 5
    y[1:] += x[:2]
    y.sum().backward()
    close(x.grad, [1, 9, 12])


def test_leaf_is_protected() -> None:
    x = leaf(1, 2)
    for change in (
        lambda: x.add_(1),
        lambda: x[0:1].zero_(),
        lambda: x.__setitem__(0, 1),
        lambda: x.view(2, 1).mul_(2),
    ):
        with pytest.raises(InPlaceError, match="no_grad"):
            change()
    with tg.no_grad():
        x.add_(1)
        x[0] = 7
    x.data.mul_(2)
    close(x, [14, 6])
    assert x.is_leaf
    assert x.requires_grad
    (x * x).sum().backward()
    close(x.grad, [28, 12])


@checklist(35, 73)
def test_changed_saved_value() -> None:
    def attempts() -> Any:
        x, w = leaf(1, 2), leaf(3, 4)
        y = x.exp()
        y.add_(1)
        yield y.sum(), "exp"
        y = x * 2
        z = y * w
        y.mul_(2)
        yield z.sum(), "mul_"
        y = x * 2
        z = y[0] * w
        y.zero_()
        yield z.sum(), "zero_"
        y = x * 1
        view = y.view(2, 1)
        z = y.sin()
        view.add_(1)
        yield z.sum(), "add_"
        z = x * w
        with tg.no_grad():
            w.sub_(1)
        yield z.sum(), "sub_"

    for output, name in attempts():
        with pytest.raises(InPlaceError, match=name) as error:
            output.backward()
        assert "test_autograd.py" in str(error.value)
        assert "clone" in str(error.value)


def test_a_number_does_not_change_with_a_tensor_that_had_it() -> None:
    x = tg.tensor([1.0, 2.0], requires_grad=True)
    tg.zeros(()).fill_(3.0).add_(1)
    tg.full((), 3.0).mul_(2)
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_harmless_changes() -> None:
    x, w = leaf(1, 2), leaf(3, 4)
    y = x * 2
    z = y + w
    y.zero_()  # an addition needs no operand
    z.sum().backward()
    y = x * 2
    y.exp_()
    z = y * 2
    z.sum().backward()
    y = x * 2
    y.sin_()  # the sine saved what was there before
    z = y * 3
    y.mul_(2)  # z needs the number 3, not y
    (z.sum() + y.sum()).backward()
    frozen = tg.tensor([1.0, 2.0])
    z = frozen * w
    w.data.add_(1)  # hidden from the check
    z.sum().backward()
    copied = (x * 2).clone()
    z = copied * w
    z.sum().backward()


def test_detached_writes_reach_the_original() -> None:
    x = leaf(1, 2)
    y = x * 2
    with tg.no_grad():
        y.detach().fill_(10)
    close(y, [10, 10])
    y.sum().backward()  # the history is that of y
    close(x.grad, [2, 2])


# --- wrong use ---------------------------------------------------------------------------------


def test_wrong_use() -> None:
    x = leaf(1, 2)
    with pytest.raises(GradientError, match="one element"):
        (x * 2).backward()
    with pytest.raises(GradientError, match="does not require"):
        tg.ones(1).sum().backward()
    with pytest.raises(GradientError, match="int64"):
        tg.ones(2, dtype=tg.int64).requires_grad_()
    with pytest.raises(GradientError, match="int64"):
        (x > 1).long().sum().backward()
    with pytest.raises(TilegradError, match="equal"):
        (x * 2).backward(tg.ones(3))
    with pytest.raises(TilegradError, match="equal"):
        x.grad = tg.ones(3)
    with pytest.raises(GradientError, match="detach"):
        x.numpy()
    with pytest.raises(GradientError):
        tg.autograd.grad((x * 2).sum(), tg.ones(2))


# --- memory ------------------------------------------------------------------------------------


def test_history_is_dropped_when_it_is_not_needed() -> None:
    x = tg.ones(1000) + 1
    inner = x * 2
    watched = weakref.ref(inner.value)
    y = inner + 1
    del inner
    y.realize()
    gc.collect()
    assert watched() is None
    w = tg.ones(3, requires_grad=True)
    for _ in range(5):
        loss = (w * w).sum()
        loss.backward()
        loss.item()
        with tg.no_grad():
            w.sub_(w.grad * 0.1)
        w.realize()
        w.grad = None
    assert not w.value.inputs[0].inputs


def test_threads() -> None:
    import threading

    found: list[Any] = []

    def work(seed: float) -> None:
        x = tg.tensor([seed, seed + 1], requires_grad=True)
        with tg.no_grad() if seed % 2 else tg.enable_grad():
            y = x * x
        found.append((seed, y.requires_grad, (x * x).sum().item()))

    threads = [threading.Thread(target=work, args=(float(n),)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == [(n, n % 2 == 0, n**2 + (n + 1) ** 2) for n in map(float, range(8))]


def test_gradients_are_computed_together() -> None:
    """Whatever is looked at first, the loss or one gradient: nothing is computed a second time for the others."""
    from tilegrad.lazy.realize import compiled_programs

    w, v = leaf(1, 2), leaf(3, 4)
    loss = ((w * v).tanh() ** 2).sum()
    loss.backward()
    before = len(compiled_programs())
    assert v.grad is not None
    assert w.grad is not None
    v.grad.tolist()
    assert w.grad.value.buffer is not None
    assert loss.value.buffer is not None
    assert len(compiled_programs()) - before <= 1
    loss = (w * v).sum()
    loss.backward()
    w.grad = None  # what nobody has any more is not computed
    loss.item()
    assert v.grad.value.buffer is not None
    gradients = tg.autograd.grad((w * v).tanh().sum(), [w, v])
    gradients[1].tolist()
    assert gradients[0].value.buffer is not None
    value, gradient = tg.value_and_grad(lambda x: (x**3).sum())(w.detach())
    gradient.tolist()
    assert value.value.buffer is not None


WRITES: dict[str, Callable[[Any], None]] = {
    "in place": lambda w: w.add_(1),
    "through data": lambda w: w.data.add_(1),
    "other data": lambda w: setattr(w, "data", tg.tensor([4.0, 5.0, 6.0])),
    "by item": lambda w: w.__setitem__(0, 7.0),
    "by a jitted function": lambda w: tg.jit(lambda: w.add_(1).shape)(),
    "switched off and on": lambda w: w.requires_grad_(False).requires_grad_(True),
    "looked at": lambda w: str(w.add_(1)),  # type: ignore[dict-item, return-value]
    "nothing": lambda w: None,
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
@pytest.mark.parametrize("times", [1, 2])
def test_a_leaf_keeps_what_was_recorded_before_it_was_written_to(write: Callable[[Any], None], times: int) -> None:
    for ask in range(4):
        w = tg.tensor([1.0, 2.0, 3.0], requires_grad=True)
        total = (w[:2] * 2).sum()
        for n in range(times):
            with tg.no_grad():
                write(w)
            total = total + (w * (3.0 + n)).sum()
        more = sum(3.0 + n for n in range(times))
        if ask == 0:
            (found,) = tg.autograd.grad(total, w)
        elif ask == 1:
            total.backward()
            found = w.grad
        elif ask == 2:
            total.backward(inputs=[w])
            found = w.grad
        else:
            (found,) = tg.autograd.grad(total, w, create_graph=True)
        assert found.tolist() == [2 + more, 2 + more, more]
