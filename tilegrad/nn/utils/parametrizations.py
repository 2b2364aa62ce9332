"""Define weight norm and spectral norm as parametrizations."""

from __future__ import annotations

from ...autograd.modes import no_grad
from ...errors import ArgumentError, ShapeError
from ...random import randn
from ...tensor import Tensor
from ..functional.norms import normalize
from ..module import Module
from .parametrize import register_parametrization

__all__ = ["spectral_norm", "weight_norm"]


class WeightNorm(Module):
    """Compute a weight from the lengths and the directions of its slices along an axis."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim
        self.whole = dim is None

    def _get_name(self) -> str:
        return "_WeightNorm"

    def _length(self, weight: Tensor) -> Tensor:
        if self.whole:
            return weight.norm()
        kept = self.dim % weight.dim()
        others = tuple(n for n in range(weight.dim()) if n != kept)
        return weight.norm(2, others, keepdim=True) if others else weight.abs()

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / self._length(weight_v))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return self._length(weight), weight


class SpectralNorm(Module):
    """Divide a weight by its largest singular value, tracked by one step of power iteration per training step."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if n_power_iterations < 1:
            raise ArgumentError(f"spectral_norm: n_power_iterations={n_power_iterations} must be 1 or more")
        if not -weight.dim() <= dim < weight.dim():
            raise ShapeError(f"spectral_norm: dim={dim} is no axis of a weight of the shape {tuple(weight.shape)}")
        self.dim = dim % weight.dim()
        self.n_power_iterations = n_power_iterations
        self.eps = eps
        if weight.dim() > 1:
            with no_grad():
                matrix = self._matrix(weight.detach())
                for name, length in zip(("_u", "_v"), matrix.shape, strict=True):
                    self.register_buffer(name, normalize(randn(length, dtype=weight.dtype), dim=0, eps=eps))
                self._iterate(matrix, 15)

    def _get_name(self) -> str:
        return "_SpectralNorm"

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).reshape(weight.shape[self.dim], -1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        for _ in range(times):
            self._u.copy_(normalize(matrix @ self._v, dim=0, eps=self.eps))
            self._v.copy_(normalize(matrix.t() @ self._u, dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            with no_grad():
                self._iterate(matrix.detach(), self.n_power_iterations)
        return weight / (self._u.clone() * (matrix @ self._v.clone())).sum()

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train the lengths of a weight's slices along `dim` (None: of the whole) separately from their directions.

    Salimans and Kingma (2016).
    """
    return register_parametrization(module, name, WeightNorm(dim), unsafe=True)


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Keep the largest singular value of a weight at 1 (Miyato et al., 2018)."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"spectral_norm: {type(module).__name__} has no parameter {name!r}")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return register_parametrization(module, name, SpectralNorm(weight, n_power_iterations, dim, eps))
