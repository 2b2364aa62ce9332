"""Optimizer: groups of parameters, the state that belongs to each, and the step that updates them all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from ..autograd.modes import enable_grad, no_grad
from ..creation import as_tensor, zeros, zeros_like
from ..errors import ArgumentError
from ..evaluation import compute
from ..ir.dtype import float32
from ..jitted import host_scalar, tracing
from ..promotion import kind_of
from ..tensor import Tensor

Group = dict[str, Any]
Params = Iterable[Any]
"""Tensors, or groups of them as dicts with settings of their own, or pairs of a name and a tensor."""


class Optimizer(ABC):
    """The base of all optimizers, with PyTorch's interface.

    A subclass names its state and writes the update of one parameter as tensor expressions. The whole
    step then runs at once: as few kernels as the compiler can make of it, or as a part of a `jit`ted
    function. State is made with the optimizer, not at the first step, so that a traced step finds it there.
    """

    state_names: ClassVar[tuple[str, ...]] = ()
    """What is kept for each parameter, in its shape, 0 at first."""

    def __init__(self, params: Params, defaults: Group) -> None:
        self.defaults = defaults
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self.param_groups: list[Group] = []
        if not isinstance(params, Iterable):
            raise ArgumentError(f"{self.name} takes tensors, as model.parameters() gives, not {kind_of(params)}")
        given: list[Any] = [params] if isinstance(params, Tensor) else list(params)
        if not given:
            raise ArgumentError(f"{self.name} got no parameters: was the generator of parameters used before?")
        for group in given if isinstance(given[0], dict) else [{"params": given}]:
            self.add_param_group(group)

    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Updates some more tensors, with settings of their own where the group has them."""
        params = param_group.get("params")
        if not isinstance(params, Iterable):
            raise ArgumentError(f"{self.name}: a group is a dict with 'params': tensors, not {kind_of(params)}")
        members = [params] if isinstance(params, Tensor) else [p[1] if isinstance(p, tuple) else p for p in params]
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for n, parameter in enumerate(members):
            self._check_parameter(n, parameter, known)
            known.add(id(parameter))
        unknown = sorted(set(param_group) - set(self.defaults) - {"params"})
        if unknown:
            raise ArgumentError(f"{self.name} has no {', '.join(unknown)}; it has {', '.join(self.defaults)}")
        group = {**self.defaults, **param_group, "params": members}
        self.check(group)
        self.param_groups.append(group)
        for parameter in members:
            self.state[parameter] = self.first_state(parameter, group)

    def _check_parameter(self, n: int, parameter: Any, known: set[int]) -> None:
        if not isinstance(parameter, Tensor):
            raise ArgumentError(f"{self.name} updates tensors, but parameter {n} is a {type(parameter).__name__}")
        if not parameter.is_leaf:
            raise ArgumentError(
                f"{self.name}: parameter {n} of the shape {tuple(parameter.shape)} is computed from other tensors: "
                "give those, or detach() it"
            )
        if id(parameter) in known:
            raise ArgumentError(f"{self.name}: parameter {n} is in another group already")

    @property
    def name(self) -> str:
        return type(self).__name__

    def check(self, group: Group) -> None:
        """Raises if a setting makes no sense."""
        for name in ("lr", "weight_decay", "eps", "momentum"):
            if name in group and not (isinstance(group[name], (int, float)) and group[name] >= 0):
                raise ArgumentError(f"{self.name}: {name} is {group[name]!r}: it must be a number, 0 or more")

    def first_state(self, parameter: Tensor, group: Group) -> dict[str, Tensor]:
        return {name: zeros_like(parameter.detach()) for name in self.kept(group)}

    def kept(self, group: Group) -> tuple[str, ...]:
        """The names of the state that this group needs."""
        return self.state_names

    @abstractmethod
    def update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], group: Group, lr: Tensor) -> None:
        """Changes one parameter and its state in place."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient. `closure` computes the loss anew, if it is given."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        changed: list[Tensor] = []
        with no_grad():
            for group in self.param_groups:
                lr = host_scalar(lambda group=group: group["lr"])  # type: ignore[misc]
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        state = self.state[parameter]
                        gradient = -parameter.grad if group["maximize"] else parameter.grad
                        self.update(parameter, gradient, state, group, lr)
                        # a gradient that somebody still holds must not keep the old parameters alive
                        changed += [parameter, *state.values(), parameter.grad]
        if changed and not tracing():
            compute(*changed)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients; with `set_to_none=False` they become zeros."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none or parameter.grad is None:
                    parameter.grad = None
                else:
                    parameter.grad = zeros_like(parameter.grad.detach())

    def state_dict(self) -> dict[str, Any]:
        """State and settings, with numbers in place of the parameters, as PyTorch writes them."""
        order = [p for group in self.param_groups for p in group["params"]]
        numbers = {id(p): n for n, p in enumerate(order)}
        groups = [g | {"params": [numbers[id(p)] for p in g["params"]]} for g in self.param_groups]
        state = {n: {k: t.detach() for k, t in self.state[p].items()} for n, p in enumerate(order) if self.state[p]}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` gave, here or in PyTorch; the parameters must come in the same order."""
        if not isinstance(state_dict, Mapping) or not {"state", "param_groups"} <= set(state_dict):
            raise ArgumentError(
                f"{self.name}.load_state_dict: takes a dict with 'state' and 'param_groups', as state_dict() gives, "
                f"not {state_dict!r:.60}"
            )
        groups = state_dict["param_groups"]
        sizes, given = [len(g["params"]) for g in self.param_groups], [len(g["params"]) for g in groups]
        if sizes != given:
            raise ArgumentError(
                f"{self.name}.load_state_dict: the groups here have {sizes} parameters, those given {given}"
            )
        for own, other in zip(self.param_groups, groups, strict=True):
            own.update({k: v for k, v in other.items() if k in self.defaults})
        order = [p for group in self.param_groups for p in group["params"]]
        numbers = [n for group in groups for n in group["params"]]
        with no_grad():
            for parameter, number in zip(order, numbers, strict=True):
                for name, value in state_dict["state"].get(number, {}).items():
                    if name in self.state[parameter] and value is not None:
                        self.state[parameter][name].copy_(as_tensor(value))

    def __repr__(self) -> str:
        lines = [f"{self.name} ("]
        for n, group in enumerate(self.param_groups):
            settings = [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
            lines += [f"Parameter Group {n}", *settings]
        return "\n".join([*lines, ")"])


def step_count(parameter: Tensor) -> Tensor:
    """How many updates there have been: a tensor, so that a traced step counts on."""
    return zeros((), dtype=float32, device=parameter.device)
