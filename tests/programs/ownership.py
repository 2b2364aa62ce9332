"""Small programs of owning, sharing and updating, as people write them for PyTorch: `STORIES`, by name,
from `updating.py` and `sharing.py`.

Each takes a library and `jit` (for PyTorch: nothing), runs its step three times, and gives the numbers that it saw.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Story = Callable[[Any, Any], list[Any]]
STORIES: dict[str, Story] = {}


def story(fn: Story) -> Story:
    """Keeps a program under its name."""
    STORIES[fn.__name__] = fn
    return fn


def linear(T: Any, rows: int = 2, columns: int = 3, bias: bool = True) -> Any:
    """A layer with known weights."""
    layer = T.nn.Linear(columns, rows, bias=bias).double()
    with T.no_grad():
        layer.weight.copy_(T.arange(rows * columns).reshape(rows, columns) * 0.25 - 0.5)
        if bias:
            layer.bias.copy_(T.arange(rows) * 0.5 - 0.25)
    return layer


def numbers(T: Any, *shape: int) -> Any:
    """Numbers that differ, as float64."""
    count = 1
    for n in shape:
        count *= n
    return (T.arange(count).reshape(*shape) * 0.5 - 1).double()


def seen(*tensors: Any) -> list[Any]:
    """The elements of tensors; None for None."""
    return [None if x is None else x.detach().tolist() for x in tensors]


def thrice(step: Callable[[], Any], *tensors: Any) -> list[Any]:
    """Runs a step three times, and looks at tensors after each."""
    found = []
    for _ in range(3):
        step()
        found.append(seen(*tensors))
    return found
