"""Define normalisations as modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from ..autograd.modes import no_grad
from ..errors import ArgumentError, ShapeError
from ..functions.creation import ones, tensor, zeros
from ..ir.dtype import int64
from ..tensor import Tensor
from . import functional
from .module import Module
from .parameter import Parameter
from .wrapped import layer, layers_of_ranks


class _Running(Module):
    """The base of normalisations of channels, with optional running statistics as buffers."""

    axes: ClassVar[tuple[int, ...]]
    """Numbers of axes that inputs may have."""
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: Any,
        dtype: Any,
        bias: bool,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        options = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ones(num_features, **options)) if affine else None)
        self.register_parameter("bias", Parameter(zeros(num_features, **options)) if affine and bias else None)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, **options) if tracked else None)
        self.register_buffer("running_var", ones(num_features, **options) if tracked else None)
        self.register_buffer("num_batches_tracked", tensor(0, dtype=int64, device=device) if tracked else None)

    def reset_running_stats(self) -> None:
        with no_grad():
            for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
                if buffer is not None:
                    buffer.fill_(value)

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        with no_grad():
            for parameter, value in ((self.weight, 1), (self.bias, 0)):
                if parameter is not None:
                    parameter.fill_(value)

    def _check(self, input: Tensor) -> None:
        if input.dim() not in self.axes:
            wanted = " or ".join(str(n) for n in self.axes)
            raise ShapeError(
                f"{type(self).__name__}: needs an input of {wanted} axes, but its shape is {tuple(input.shape)}"
            )

    def _share(self) -> float | Tensor:
        """Return the weight of this batch in the running statistics, and count it; without a momentum all batches weigh
        alike.
        """
        if self.num_batches_tracked is None or not self.training:
            return self.momentum or 0.0
        with no_grad():
            self.num_batches_tracked.add_(1)
            if self.momentum is None and self.running_mean is not None:
                return 1.0 / self.num_batches_tracked.to(self.running_mean.dtype)
        return self.momentum or 0.0

    def extra_repr(self) -> str:
        kept = f"affine={self.affine}, bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, {kept}"


class _BatchNorm(_Running):
    """Normalise each channel by the statistics of the batch in training, else by the running ones."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        share = self._share()
        of_batch = self.training or (self.running_mean is None and self.running_var is None)
        kept = (self.running_mean, self.running_var) if not self.training or self.track_running_stats else (None, None)
        return functional.batch_norm(input, *kept, self.weight, self.bias, of_batch, share, self.eps)


BatchNorm1d, BatchNorm2d, BatchNorm3d = layers_of_ranks(
    "BatchNorm",
    _BatchNorm,
    """Normalise the channels of (N, C, {axes}) over the batch.

    It takes (N, C), too.

    >>> import tilegrad as tg
    >>> norm = BatchNorm1d(1)
    >>> _ = norm(tg.full((2, 1, 9), 5.0))
    >>> norm.running_mean, norm.num_batches_tracked
    (tensor([0.5000]), tensor(1))
    """,
    lambda rank: {"axes": (2, 3) if rank == 1 else (rank + 2,)},
)


class SyncBatchNorm(_BatchNorm):
    """Normalise the channels of (N, C, ...), with any number of axes. In one process it is a batch norm."""

    axes = (2, 3, 4, 5)

    def __init__(self, num_features: int, *args: Any, process_group: Any = None, **options: Any) -> None:
        if process_group is not None:
            raise ArgumentError("SyncBatchNorm: process_group is not there: statistics are those of this process")
        super().__init__(num_features, *args, **options)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """Replace every batch norm in a module by one of this class, with its parameters and statistics."""
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            made = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
            made.__dict__.update(module.__dict__)
            return made
        for name, child in module.named_children():
            module.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return module


class _InstanceNorm(_Running):
    """Normalise each channel of each instance."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check(input)
        single = input.dim() == self.axes[0]
        channels = input.shape[0 if single else 1]
        if channels != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}: {channels} channels in an input of the shape {tuple(input.shape)}, not the "
                f"{self.num_features} of num_features"
            )
        of_input = self.training or not self.track_running_stats
        result = functional.instance_norm(
            input.unsqueeze(0) if single else input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            of_input,
            self.momentum or 0.0,
            self.eps,
        )
        return result.squeeze(0) if single else result


InstanceNorm1d, InstanceNorm2d, InstanceNorm3d = layers_of_ranks(
    "InstanceNorm",
    _InstanceNorm,
    "Normalise each channel of each instance of (N, C, {axes}) or (C, {axes}).",
    lambda rank: {"axes": (rank + 1, rank + 2)},
)


class _Normalization(Module):
    """The base of modules with a weight that starts at 1 and a bias that starts at 0."""

    weight: Parameter | None
    bias: Parameter | None

    def _prepare(self, shape: Sequence[int], weight: bool, bias: bool, device: Any, dtype: Any) -> None:
        options = {"device": device, "dtype": dtype}
        self.register_parameter("weight", Parameter(ones(*shape, **options)) if weight else None)
        self.register_parameter("bias", Parameter(zeros(*shape, **options)) if bias else None)

    def reset_parameters(self) -> None:
        with no_grad():
            for name, value in (("weight", 1), ("bias", 0)):
                if self._parameters.get(name) is not None:
                    self._parameters[name].fill_(value)  # type: ignore[union-attr]


class GroupNorm(_Normalization):
    """Normalise groups of channels of each instance."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError(f"GroupNorm: {num_channels} channels cannot be divided into {num_groups} groups")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._prepare((num_channels,), affine, affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return functional.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"affine={self.affine}, bias={self.bias is not None}"
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, {affine}"


class LayerNorm(_Normalization):
    """Normalise over the last axes, then scale and shift."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._prepare(self.normalized_shape, elementwise_affine, elementwise_affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class RMSNorm(_Normalization):
    """Divide by the root mean square over the last axes, then scale."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._prepare(self.normalized_shape, elementwise_affine, False, device, dtype)
        del self._parameters["bias"]

    def forward(self, input: Tensor) -> Tensor:
        return functional.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


LocalResponseNorm = layer("LocalResponseNorm", functional.local_response_norm, unnamed=("size",))


class CrossMapLRN2d(LocalResponseNorm):  # type: ignore[misc, valid-type]
    """`LocalResponseNorm` under its old name (PyTorch's leaves the first channel in the sums of all later ones)."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__(size, alpha, beta, k)
