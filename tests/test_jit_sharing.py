"""Results and effects of a jitted function share memory and history as without jit.

Functions of a table modify their arguments and captured tensors, and return views; arguments are leaves, computed from
leaves, views, or plain tensors. Afterwards everything is written to, and everything is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilegrad as tg
from tests.test_jit_state import plain
from tilegrad.errors import TilegradError

Do = Callable[[Any, Any], Any]


def within(fn: Callable[[], Any]) -> None:
    with tg.no_grad():
        fn()


WRITES: dict[str, Do] = {
    "nothing": lambda x, y: None,
    "add_": lambda x, y: x.add_(y),
    "a row": lambda x, y: x[0].mul_(2),
    "an item": lambda x, y: x.__setitem__((0, 1), 5.0),
    "data": lambda x, y: x.data.mul_(2),
    "data of a view": lambda x, y: x.view(-1).data[1:].add_(1),
    "detached": lambda x, y: x.detach().add_(1),
    "without gradients": lambda x, y: within(lambda: x.add_(y)),
    "copy_": lambda x, y: within(lambda: x.copy_(y)),
    "both": lambda x, y: (within(lambda: x.mul_(2)), within(lambda: y.add_(x))),
    "data, given": lambda x, y: setattr(x, "data", y.data * 2),
    "shape": lambda x, y: within(lambda: x.t_()),
    "axis": lambda x, y: within(lambda: x.unsqueeze_(0).squeeze_(0)),
    "gradients": lambda x, y: (x * x).sum().backward() if x.requires_grad else None,
    "gradients, read": lambda x, y: ((x * y).sum().backward(), x.grad.mul_(2)) if x.requires_grad else None,
    "flag": lambda x, y: x.requires_grad_() if not x.requires_grad else None,
}
GIVES: dict[str, Do] = {
    "it": lambda x, y: x,
    "both": lambda x, y: (x, y, x),
    "views": lambda x, y: (x[0], x.view(-1), x.t()),
    "parts": lambda x, y: tuple((x * 2).unbind(0)),
    "new, and views of it": lambda x, y: (lambda z: (z, z[1], z.detach(), z.T, z))(x * y),
    "a part twice": lambda x, y: (lambda z: (lambda part: (part, part, z))(z[1]))(x * y),
    "detached, then itself": lambda x, y: (lambda z: (z.detach(), z, z.detach()[1]))(x * y),
    "a detached part, then another": lambda x, y: (lambda z: (z.detach()[:1], z[1]))(x * y),
    "without history": lambda x, y: (x.detach(), x.data, y.detach()[0]),
    "a view of the other": lambda x, y: (y[:, 1:], x.sum()),
    "a copy": lambda x, y: (x.clone(), x + 0),
    "a number": lambda x, y: (x * y).sum(),
}
ARGUMENTS: dict[str, Callable[[], Any]] = {
    "plain": lambda: (tg.ones(2, 2), tg.full((2, 2), 3.0)),
    "leaf": lambda: (tg.ones(2, 2, requires_grad=True), tg.full((2, 2), 3.0)),
    "computed": lambda: (tg.ones(2, 2, requires_grad=True) * 2, tg.full((2, 2), 3.0)),
    "view": lambda: (tg.ones(3, 2)[1:], tg.full((2, 2), 3.0)),
    "same": lambda: (lambda x: (x, x))(tg.ones(2, 2)),
    "leaves": lambda: (tg.ones(2, 2, requires_grad=True), tg.full((2, 2), 3.0, requires_grad=True)),
}


def listed(made: Any) -> list[Any]:
    return [made] if isinstance(made, tg.Tensor) else list(made)


def seen(things: list[Any]) -> list[Any]:
    """Everything that can be seen of tensors: elements, gradients, and which are the same."""
    same = [[x is y for y in things] for x in things]
    return [plain([x, x.grad, x.is_leaf, x.requires_grad, list(x.shape)]) for x in things] + same


def story(
    wrap: Callable[..., Any], write: Do, give: Do, make: Callable[[], Any], outside: bool, early: bool
) -> list[Any]:
    """Calls, and writes to what they gave and were given; what is given is made after what is written, or `early`."""
    found: list[Any] = []
    kept = make()

    def both(x: Any, y: Any) -> Any:
        made = give(x, y) if early else None
        write(x, y)
        return made if early else give(x, y)

    fn = wrap((lambda: both(*kept)) if outside else both)
    for _ in range(2):
        given = kept if outside else make()
        try:
            made = listed(fn(*(() if outside else given)))
            found.append(seen([*made, *given]))
            for n, x in enumerate([*made, *given]):
                if not x.requires_grad or not x.is_leaf:
                    x.data.add_(n + 1)
                    found.append(seen([*made, *given]))
            for x in made:
                if x.requires_grad:
                    (tg.stack([(z * z).sum() for z in made if z.requires_grad]).sum()).backward()
                    break
            found.append(seen([*made, *given]))
        except (TilegradError, AttributeError) as error:
            found.append(type(error).__name__)
    return found


@pytest.mark.parametrize("outside", [False, True], ids=["arguments", "outside"])
@pytest.mark.parametrize("write", WRITES)
def test_memory_is_shared_as_without_jit(write: str, outside: bool) -> None:
    gives, arguments = list(GIVES), list(ARGUMENTS)
    shift = list(WRITES).index(write) + outside
    for n, name in enumerate(arguments):
        if outside and name == "computed" and write.startswith("gradients"):
            continue  # a second gradient through a history outside is refused plainly, as it was used up
        for k in range(3):
            give = gives[(shift + n + 3 * k) % len(gives)]
            told = (WRITES[write], GIVES[give], ARGUMENTS[name], outside, k == 1)
            want = story(lambda fn: fn, *told)
            if "InPlaceError" in want:  # saved for a gradient, then changed: jit computes with what it was
                want = want[: want.index("InPlaceError")]
            assert story(tg.jit, *told)[: len(want)] == want, (give, name)
