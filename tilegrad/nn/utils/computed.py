"""Compute weights before each forward, under the names of PyTorch's older checkpoints.

`parametrizations` has the same with other names; what is computed is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.modes import no_grad
from ...errors import ArgumentError
from ...functions.declared import publish
from ...tensor import Tensor
from ..functional.norms import normalize
from ..hooks import RemovableHandle
from ..module import Module
from ..parameter import Parameter
from .parametrizations import SpectralNorm, WeightNorm


class _LegacySpectralNorm(SpectralNorm):
    """Spectral norm whose power iteration updates the right vector before the left, as older checkpoints expect."""

    def _iterate(self, matrix: Tensor, times: int) -> None:
        for _ in range(times):
            self._v.copy_(normalize(matrix.t() @ self._u, dim=0, eps=self.eps))
            self._u.copy_(normalize(matrix @ self._v, dim=0, eps=self.eps))


class _Computed:
    """A hook that sets a weight; the state of its rule belongs to the module, so that it is saved, moved and copied."""

    def __init__(self, name: str, parts: Sequence[str], rule: Module) -> None:
        self.name, self.parts, self.rule = name, tuple(parts), rule
        self.handles: list[RemovableHandle] = []

    def value(self, module: Module) -> Tensor:
        self.rule.train(module.training)
        if isinstance(self.rule, SpectralNorm) and f"{self.name}_u" in module._buffers:
            for own in ("_u", "_v"):
                self.rule._buffers[own] = module._buffers[self.name + own]
        return self.rule(*(getattr(module, part) for part in self.parts))  # type: ignore[no-any-return]

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.value(module))

    def after(self, module: Module, inputs: Any, output: Any) -> None:
        """Remove what one step left in the module, so that the module can be copied."""
        setattr(module, self.name, None)


def _compute(module: Module, name: str, parts: dict[str, Tensor], rule: Module) -> Module:
    """Replace a parameter by those that it is computed from, and compute it before each forward."""
    delattr(module, name)
    for part, value in parts.items():
        module.register_parameter(part, Parameter(value.detach().clone()))
    hook = _Computed(name, list(parts), rule)
    if isinstance(rule, SpectralNorm):
        for own, vector in list(rule._buffers.items()):
            module.register_buffer(name + own, vector)
    setattr(module, name, None)
    hook.handles = [module.register_forward_pre_hook(hook), module.register_forward_hook(hook.after)]
    return module


def _given(module: Module, name: str, op: str) -> Tensor:
    weight = module._parameters.get(name)
    if weight is None:
        there = ", ".join(module._parameters) or "none"
        raise ArgumentError(f"{op}: {type(module).__name__} has no parameter {name!r}; there are {there}")
    return weight


def _removed(module: Module, name: str, kind: type[Module], op: str) -> Module:
    """Make the weight an ordinary parameter with its present value."""
    hooks = [hook.function for hook in module._hooks.get("before", {}).values()]
    found = next((h for h in hooks if isinstance(h, _Computed) and h.name == name and type(h.rule) is kind), None)
    if found is None:
        raise ArgumentError(f"{op}: {type(module).__name__}.{name} is not computed by it")
    with no_grad():
        value = found.value(module).detach().clone()
    for handle in found.handles:
        handle.remove()
    for part in (*found.parts, *(f"{name}_u", f"{name}_v")):
        if part in module._parameters or part in module._buffers:
            delattr(module, part)
    delattr(module, name)
    module.register_parameter(name, Parameter(value))
    return module


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train a weight as lengths `weight_g` and directions `weight_v`.

    >>> from tilegrad.nn import Linear
    >>> sorted(weight_norm(Linear(2, 3)).state_dict())
    ['bias', 'weight_g', 'weight_v']
    """
    weight = _given(module, name, "weight_norm")
    rule = WeightNorm(dim)
    length, direction = rule.right_inverse(weight.detach())
    return _compute(module, name, {f"{name}_g": length, f"{name}_v": direction}, rule)


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make a weight that `weight_norm` computes an ordinary parameter again."""
    return _removed(module, name, WeightNorm, "remove_weight_norm")


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divide a weight `weight_orig` by its largest singular value, tracked by `weight_u` and `weight_v`.

    >>> from tilegrad.nn import Linear
    >>> sorted(spectral_norm(Linear(2, 3)).state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    weight = _given(module, name, "spectral_norm")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return _compute(module, name, {f"{name}_orig": weight}, _LegacySpectralNorm(weight, n_power_iterations, dim, eps))


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make a weight that `spectral_norm` computes an ordinary parameter again."""
    return _removed(module, name, _LegacySpectralNorm, "remove_spectral_norm")


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """Construct a module. Initial values are computed lazily, so nothing has to be skipped before a state is loaded."""
    return module_cls(*args, **kwargs)


publish(globals())
