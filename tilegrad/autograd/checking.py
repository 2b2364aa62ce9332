"""Check gradients against finite differences, as in PyTorch: first order (`gradcheck`) and second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import GradientError
from ..lazy.evaluation import array_of, compute
from ..lazy.handle import Handle
from ..ops.broadcasting import shown
from .engine import grad
from .modes import enable_grad
from .numerical import jacobian


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    **_: Any,
) -> bool:
    """Check that the gradients of a function agree with finite differences, for all inputs that require gradients.

    The inputs should be float64: in float32 differences are too coarse.
    """
    given = (inputs,) if isinstance(inputs, Handle) else tuple(inputs)
    checked = [n for n, x in enumerate(given) if isinstance(x, Handle) and x.requires_grad]  # type: ignore[attr-defined]
    if not checked:
        raise GradientError("gradcheck: no input requires gradients; make them with requires_grad=True")
    try:
        with enable_grad():
            for n in checked:
                _check_input(func, given, n, eps, atol, rtol)
    except GradientError:
        if raise_exception:
            raise
        return False
    return True


def _check_input(func: Callable[..., Any], given: Sequence[Any], n: int, eps: float, atol: float, rtol: float) -> None:
    outputs = [y for y in _tensors(func(*given)) if y.value.dtype.is_float]
    numerical = jacobian(func, given, n, eps)
    for k, y in enumerate(outputs):
        analytical = _by_rows(y, given[n])
        expected = numerical[k] if numerical else np.zeros_like(analytical)
        if not np.allclose(analytical, expected, rtol, atol, equal_nan=True):
            worst = np.unravel_index(np.argmax(np.abs(np.nan_to_num(analytical - expected))), expected.shape)
            raise GradientError(
                f"gradcheck: the gradient of output {k}, of shape {shown(y.shape)}, by input {n}, of shape "
                f"{shown(given[n].shape)}, is wrong. Element {int(worst[1])} of the output by element "
                f"{int(worst[0])} of the "
                f"input: {analytical[worst]:g}, but differences say {expected[worst]:g}.\nnumerical:\n{expected}\n"
                f"analytical:\n{analytical}"
            )


def _tensors(made: Any) -> list[Any]:
    return [made] if isinstance(made, Handle) else list(made)


def _by_rows(y: Any, x: Any) -> np.ndarray[Any, Any]:
    """Return the Jacobian of y by x; one row per element of x."""
    columns: list[Any] = []
    if not y.requires_grad:
        return np.zeros((x.numel(), y.numel()))
    for place in range(y.numel()):
        one = np.zeros(y.numel())
        one[place] = 1
        upstream = y.new_tensor(one.reshape(tuple(y.shape)), dtype=y.dtype)
        (g,) = grad(y, x, upstream, retain_graph=True, allow_unused=True, materialize_grads=True)
        assert g is not None
        compute(g)  # one by one: the program of the first computes the others too
        columns.append(g)
    found = [array_of(g).astype(np.float64).ravel() for g in columns]
    return np.stack(found, 1) if found else np.zeros((x.numel(), 0))


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    **_: Any,
) -> bool:
    """Check that second derivatives agree with finite differences of the gradients."""
    given = (inputs,) if isinstance(inputs, Handle) else tuple(inputs)
    outputs = [y for y in _tensors(func(*given)) if y.requires_grad]
    if grad_outputs is None:
        ups: tuple[Any, ...] = tuple(_flowing(y, n) for n, y in enumerate(outputs))
    else:
        ups = (grad_outputs,) if isinstance(grad_outputs, Handle) else tuple(grad_outputs)

    def gradients(*args: Any) -> Any:
        own, flowing = args[: len(given)], args[len(given) :]
        made = [y for y in _tensors(func(*own)) if y.requires_grad]
        wanted: list[Any] = [x for x in own if isinstance(x, Handle) and x.requires_grad]  # type: ignore[attr-defined]
        return grad(made, wanted, flowing, create_graph=True, allow_unused=True, materialize_grads=True)

    checks = {"eps": eps, "atol": atol, "rtol": rtol}
    return gradcheck(gradients, (*given, *ups), raise_exception=raise_exception, **checks)


def _flowing(y: Any, n: int) -> Any:
    """Return an upstream gradient that is the same in every run."""
    numbers = np.random.default_rng(n).uniform(0.5, 1.5, tuple(y.shape))
    return y.new_tensor(numbers, dtype=y.dtype).requires_grad_()
