"""Call operators on PyTorch tensors through DLPack, without copies, with gradients in PyTorch's autograd."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import OperatorError
from ..language.dlpack import wrap_dlpack
from ..lazy.handle import Handle
from ..transforms import vjp

if TYPE_CHECKING:
    from .operator import Operator


def for_torch(op: Operator) -> Callable[..., Any]:
    """Return the operator as a function of PyTorch tensors."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        raise OperatorError(f"{op.name}: as_torch() is for those who have imported torch")

    def taken(x: Any) -> Any:
        if isinstance(x, tuple | list):
            return tuple(map(taken, x))
        return wrap_dlpack(x.detach().contiguous(), op.name) if isinstance(x, torch.Tensor) else x

    def given(y: Any) -> Any:
        return torch.from_dlpack(y.detach().contiguous())

    with_gradient = _autograd_function(torch, op, taken, given)

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs:
            args = tuple(op.declaration.by_name(args, kwargs))
        if torch.is_grad_enabled():
            places = [n for n, x in enumerate(args) if isinstance(x, torch.Tensor) and x.requires_grad]
            if places:
                return with_gradient.apply(args, places, *[args[n] for n in places])
        made = op(*map(taken, args))
        return given(made) if isinstance(made, Handle) else tuple(map(given, made))

    call.__name__, call.__doc__ = op.name, op.__doc__
    return call


def _autograd_function(torch: Any, op: Operator, taken: Callable[[Any], Any], given: Callable[[Any], Any]) -> Any:
    """Make the autograd function of PyTorch that calls the operator and its gradient."""

    class WithGradient(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(saved: Any, arguments: Any, places: Any, *floats: Any) -> Any:
            values = list(arguments)
            tensors = [taken(x) for x in floats]

            def single(*given: Any) -> Any:
                for n, x in zip(places, given, strict=True):
                    values[n] = x
                return op(*map(taken, values))

            made, saved.pull = vjp(single, *tensors)
            saved.several = isinstance(made, tuple)
            return tuple(map(given, made)) if saved.several else given(made)

        @staticmethod
        def backward(saved: Any, *upstreams: Any) -> Any:
            flowing = tuple(map(taken, upstreams))
            return None, None, *map(given, saved.pull(flowing if saved.several else flowing[0]))

    return WithGradient
