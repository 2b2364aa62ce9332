# Written by tools/stubs.py from tilegrad/nn/__init__.py; a test compares it.

from collections.abc import Sequence
from typing import Any

from tilegrad.nn.activation import PReLU as PReLU
from tilegrad.nn.activation import Softmax2d as Softmax2d
from tilegrad.nn.attention import MultiheadAttention as MultiheadAttention
from tilegrad.nn.cells import GRUCell as GRUCell
from tilegrad.nn.cells import LSTMCell as LSTMCell
from tilegrad.nn.cells import RNNCell as RNNCell
from tilegrad.nn.cells import RNNCellBase as RNNCellBase
from tilegrad.nn.container import Sequential as Sequential
from tilegrad.nn.conv import _Conv, _ConvTranspose
from tilegrad.nn.dropout import _DropoutBase
from tilegrad.nn.embedding import Embedding as Embedding
from tilegrad.nn.embedding import EmbeddingBag as EmbeddingBag
from tilegrad.nn.functional.fractional import Ratio
from tilegrad.nn.functional.geometry import Each
from tilegrad.nn.functional.poolings import Sizes
from tilegrad.nn.layers import Bilinear as Bilinear
from tilegrad.nn.layers import Flatten as Flatten
from tilegrad.nn.layers import Identity as Identity
from tilegrad.nn.layers import Linear as Linear
from tilegrad.nn.layers import PairwiseDistance as PairwiseDistance
from tilegrad.nn.layers import Unflatten as Unflatten
from tilegrad.nn.lazy import LazyLinear as LazyLinear
from tilegrad.nn.lazy import UninitializedBuffer as UninitializedBuffer
from tilegrad.nn.lazy import UninitializedParameter as UninitializedParameter
from tilegrad.nn.lazy import _Lazy, _LazyInstanceNorm
from tilegrad.nn.lists import ModuleDict as ModuleDict
from tilegrad.nn.lists import ModuleList as ModuleList
from tilegrad.nn.lists import ParameterDict as ParameterDict
from tilegrad.nn.lists import ParameterList as ParameterList
from tilegrad.nn.loss import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
from tilegrad.nn.module import Module as Module
from tilegrad.nn.norm import CrossMapLRN2d as CrossMapLRN2d
from tilegrad.nn.norm import GroupNorm as GroupNorm
from tilegrad.nn.norm import LayerNorm as LayerNorm
from tilegrad.nn.norm import RMSNorm as RMSNorm
from tilegrad.nn.norm import SyncBatchNorm as SyncBatchNorm
from tilegrad.nn.norm import _BatchNorm, _InstanceNorm
from tilegrad.nn.padding import _ConstantPad, _PaddingModule
from tilegrad.nn.parameter import Buffer as Buffer
from tilegrad.nn.parameter import Parameter as Parameter
from tilegrad.nn.pool import _FractionalMaxPool, _MaxPooling, _Pooling
from tilegrad.nn.recurrent import GRU as GRU
from tilegrad.nn.recurrent import LSTM as LSTM
from tilegrad.nn.recurrent import RNN as RNN
from tilegrad.nn.recurrent import RNNBase as RNNBase
from tilegrad.nn.transformer import Transformer as Transformer
from tilegrad.nn.transformer import TransformerDecoder as TransformerDecoder
from tilegrad.nn.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from tilegrad.nn.transformer import TransformerEncoder as TransformerEncoder
from tilegrad.nn.transformer import TransformerEncoderLayer as TransformerEncoderLayer
from tilegrad.nn.upsample import Upsample as Upsample
from tilegrad.nn.upsample import UpsamplingBilinear2d as UpsamplingBilinear2d
from tilegrad.nn.upsample import UpsamplingNearest2d as UpsamplingNearest2d
from tilegrad.nn.vocabulary import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
from tilegrad.nn.vocabulary import LinearCrossEntropyLoss as LinearCrossEntropyLoss
from tilegrad.nn.wrapped import FunctionModule, Loss
from tilegrad.tensor import Tensor

from . import functional as functional
from . import init as init
from . import models as models
from . import utils as utils

class ReLU(FunctionModule):
    def __init__(self, inplace: bool = False) -> None: ...

class ReLU6(FunctionModule):
    def __init__(self, inplace: bool = False) -> None: ...

class Threshold(FunctionModule):
    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None: ...

class RReLU(FunctionModule):
    def __init__(self, lower: float = 0.125, upper: float = 0.3333333333333333, inplace: bool = False) -> None: ...

class Sigmoid(FunctionModule):
    def __init__(self) -> None: ...

class Tanh(FunctionModule):
    def __init__(self) -> None: ...

class Tanhshrink(FunctionModule):
    def __init__(self) -> None: ...

class SiLU(FunctionModule):
    def __init__(self, inplace: bool = False) -> None: ...

class Mish(FunctionModule):
    def __init__(self, inplace: bool = False) -> None: ...

class GELU(FunctionModule):
    def __init__(self, approximate: str = "none") -> None: ...

class ELU(FunctionModule):
    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None: ...

class CELU(FunctionModule):
    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None: ...

class SELU(FunctionModule):
    def __init__(self, inplace: bool = False) -> None: ...

class LeakyReLU(FunctionModule):
    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None: ...

class Softplus(FunctionModule):
    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None: ...

class Softsign(FunctionModule):
    def __init__(self) -> None: ...

class Softshrink(FunctionModule):
    def __init__(self, lambd: float = 0.5) -> None: ...

class Hardshrink(FunctionModule):
    def __init__(self, lambd: float = 0.5) -> None: ...

class LogSigmoid(FunctionModule):
    def __init__(self) -> None: ...

class Hardtanh(FunctionModule):
    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None: ...

class Hardsigmoid(FunctionModule):
    def __init__(self, inplace: bool = False) -> None: ...

class Hardswish(FunctionModule):
    def __init__(self, inplace: bool = False) -> None: ...

class GLU(FunctionModule):
    def __init__(self, dim: int = -1) -> None: ...

class Softmax(FunctionModule):
    def __init__(self, dim: int | None = None) -> None: ...

class Softmin(FunctionModule):
    def __init__(self, dim: int | None = None) -> None: ...

class LogSoftmax(FunctionModule):
    def __init__(self, dim: int | None = None) -> None: ...

class Conv1d(_Conv):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Each,
        stride: Each = 1,
        padding: Each | str = 0,
        dilation: Each = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None: ...

class Conv2d(_Conv):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Each,
        stride: Each = 1,
        padding: Each | str = 0,
        dilation: Each = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None: ...

class Conv3d(_Conv):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Each,
        stride: Each = 1,
        padding: Each | str = 0,
        dilation: Each = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None: ...

class ConvTranspose1d(_ConvTranspose):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Each,
        stride: Each = 1,
        padding: Each = 0,
        output_padding: Each = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Each = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None: ...

class ConvTranspose2d(_ConvTranspose):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Each,
        stride: Each = 1,
        padding: Each = 0,
        output_padding: Each = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Each = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None: ...

class ConvTranspose3d(_ConvTranspose):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Each,
        stride: Each = 1,
        padding: Each = 0,
        output_padding: Each = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Each = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None: ...

class Unfold(FunctionModule):
    def __init__(self, kernel_size: Each, dilation: Each = 1, padding: Each = 0, stride: Each = 1) -> None: ...

class Fold(FunctionModule):
    def __init__(
        self, output_size: Each, kernel_size: Each, dilation: Each = 1, padding: Each = 0, stride: Each = 1
    ) -> None: ...

class Dropout(_DropoutBase):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...

class Dropout1d(_DropoutBase):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...

class Dropout2d(_DropoutBase):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...

class Dropout3d(_DropoutBase):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...

class AlphaDropout(_DropoutBase):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...

class FeatureAlphaDropout(_DropoutBase):
    def __init__(self, p: float = 0.5, inplace: bool = False) -> None: ...

class CosineSimilarity(FunctionModule):
    def __init__(self, dim: int = 1, eps: float = 1e-08) -> None: ...

class LazyConv1d(_Lazy):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class LazyConv2d(_Lazy):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class LazyConv3d(_Lazy):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class LazyConvTranspose1d(_Lazy):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class LazyConvTranspose2d(_Lazy):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class LazyConvTranspose3d(_Lazy):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class LazyBatchNorm1d(_Lazy):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class LazyBatchNorm2d(_Lazy):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class LazyBatchNorm3d(_Lazy):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class LazyInstanceNorm1d(_LazyInstanceNorm):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class LazyInstanceNorm2d(_LazyInstanceNorm):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class LazyInstanceNorm3d(_LazyInstanceNorm):
    def __init__(self, *args: Any, **options: Any) -> None: ...

class MSELoss(Loss):
    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None: ...

class L1Loss(Loss):
    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None: ...

class SmoothL1Loss(Loss):
    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean", beta: float = 1.0
    ) -> None: ...

class HuberLoss(Loss):
    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None: ...

class KLDivLoss(Loss):
    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None: ...

class BCELoss(Loss):
    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None: ...

class BCEWithLogitsLoss(Loss):
    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None: ...

class NLLLoss(Loss):
    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None: ...

class CrossEntropyLoss(Loss):
    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None: ...

class MarginRankingLoss(Loss):
    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None: ...

class HingeEmbeddingLoss(Loss):
    def __init__(
        self, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None: ...

class CosineEmbeddingLoss(Loss):
    def __init__(
        self, margin: float = 0.0, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None: ...

class TripletMarginLoss(Loss):
    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-06,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None: ...

class MultiMarginLoss(Loss):
    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None: ...

class MultiLabelMarginLoss(Loss):
    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None: ...

class MultiLabelSoftMarginLoss(Loss):
    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None: ...

class SoftMarginLoss(Loss):
    def __init__(
        self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean"
    ) -> None: ...

class PoissonNLLLoss(Loss):
    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-08,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None: ...

class GaussianNLLLoss(Loss):
    def __init__(self, *, full: bool = False, eps: float = 1e-06, reduction: str = "mean") -> None: ...

class CTCLoss(Loss):
    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None: ...

class BatchNorm1d(_BatchNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None: ...

class BatchNorm2d(_BatchNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None: ...

class BatchNorm3d(_BatchNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None: ...

class InstanceNorm1d(_InstanceNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None: ...

class InstanceNorm2d(_InstanceNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None: ...

class InstanceNorm3d(_InstanceNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-05,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None: ...

class LocalResponseNorm(FunctionModule):
    def __init__(self, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0) -> None: ...

class ConstantPad1d(_ConstantPad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None: ...

class ConstantPad2d(_ConstantPad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None: ...

class ConstantPad3d(_ConstantPad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None: ...

class ZeroPad1d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class ZeroPad2d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class ZeroPad3d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class ReflectionPad1d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class ReflectionPad2d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class ReflectionPad3d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class ReplicationPad1d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class ReplicationPad2d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class ReplicationPad3d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class CircularPad1d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class CircularPad2d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class CircularPad3d(_PaddingModule):
    def __init__(self, padding: int | Sequence[int]) -> None: ...

class MaxPool1d(_MaxPooling):
    def __init__(
        self,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        dilation: Each = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None: ...

class MaxPool2d(_MaxPooling):
    def __init__(
        self,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        dilation: Each = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None: ...

class MaxPool3d(_MaxPooling):
    def __init__(
        self,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        dilation: Each = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None: ...

class AvgPool1d(_Pooling):
    def __init__(
        self,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None: ...

class AvgPool2d(_Pooling):
    def __init__(
        self,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None: ...

class AvgPool3d(_Pooling):
    def __init__(
        self,
        kernel_size: Each,
        stride: Each | None = None,
        padding: Each = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None: ...

class AdaptiveAvgPool1d(FunctionModule):
    def __init__(self, output_size: Sizes) -> None: ...

class AdaptiveAvgPool2d(FunctionModule):
    def __init__(self, output_size: Sizes) -> None: ...

class AdaptiveAvgPool3d(FunctionModule):
    def __init__(self, output_size: Sizes) -> None: ...

class AdaptiveMaxPool1d(FunctionModule):
    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None: ...

class AdaptiveMaxPool2d(FunctionModule):
    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None: ...

class AdaptiveMaxPool3d(FunctionModule):
    def __init__(self, output_size: Sizes, return_indices: bool = False) -> None: ...

class LPPool1d(FunctionModule):
    def __init__(
        self, norm_type: float, kernel_size: Each, stride: Each | None = None, ceil_mode: bool = False
    ) -> None: ...

class LPPool2d(FunctionModule):
    def __init__(
        self, norm_type: float, kernel_size: Each, stride: Each | None = None, ceil_mode: bool = False
    ) -> None: ...

class LPPool3d(FunctionModule):
    def __init__(
        self, norm_type: float, kernel_size: Each, stride: Each | None = None, ceil_mode: bool = False
    ) -> None: ...

class FractionalMaxPool2d(_FractionalMaxPool):
    def __init__(
        self,
        kernel_size: Each,
        output_size: Each | None = None,
        output_ratio: Ratio = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None: ...

class FractionalMaxPool3d(_FractionalMaxPool):
    def __init__(
        self,
        kernel_size: Each,
        output_size: Each | None = None,
        output_ratio: Ratio = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None: ...

class MaxUnpool1d(_Pooling):
    def __init__(self, kernel_size: Each, stride: Each | None = None, padding: Each = 0) -> None: ...

class MaxUnpool2d(_Pooling):
    def __init__(self, kernel_size: Each, stride: Each | None = None, padding: Each = 0) -> None: ...

class MaxUnpool3d(_Pooling):
    def __init__(self, kernel_size: Each, stride: Each | None = None, padding: Each = 0) -> None: ...

class PixelShuffle(FunctionModule):
    def __init__(self, upscale_factor: int) -> None: ...

class PixelUnshuffle(FunctionModule):
    def __init__(self, downscale_factor: int) -> None: ...

class ChannelShuffle(FunctionModule):
    def __init__(self, groups: int) -> None: ...

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AdaptiveLogSoftmaxWithLoss",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "AlphaDropout",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "Bilinear",
    "Buffer",
    "CELU",
    "CTCLoss",
    "ChannelShuffle",
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "CosineEmbeddingLoss",
    "CosineSimilarity",
    "CrossEntropyLoss",
    "CrossMapLRN2d",
    "Dropout",
    "Dropout1d",
    "Dropout2d",
    "Dropout3d",
    "ELU",
    "Embedding",
    "EmbeddingBag",
    "FeatureAlphaDropout",
    "Flatten",
    "Fold",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "GELU",
    "GLU",
    "GRU",
    "GRUCell",
    "GaussianNLLLoss",
    "GroupNorm",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "HingeEmbeddingLoss",
    "HuberLoss",
    "Identity",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "KLDivLoss",
    "L1Loss",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "LSTM",
    "LSTMCell",
    "LayerNorm",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "LazyBatchNorm3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
    "LazyInstanceNorm1d",
    "LazyInstanceNorm2d",
    "LazyInstanceNorm3d",
    "LazyLinear",
    "LeakyReLU",
    "Linear",
    "LinearCrossEntropyLoss",
    "LocalResponseNorm",
    "LogSigmoid",
    "LogSoftmax",
    "MSELoss",
    "MarginRankingLoss",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MaxUnpool1d",
    "MaxUnpool2d",
    "MaxUnpool3d",
    "Mish",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "MultiheadAttention",
    "NLLLoss",
    "PReLU",
    "PairwiseDistance",
    "Parameter",
    "ParameterDict",
    "ParameterList",
    "PixelShuffle",
    "PixelUnshuffle",
    "PoissonNLLLoss",
    "RMSNorm",
    "RNN",
    "RNNBase",
    "RNNCell",
    "RNNCellBase",
    "RReLU",
    "ReLU",
    "ReLU6",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "SELU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "SoftMarginLoss",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "SyncBatchNorm",
    "Tanh",
    "Tanhshrink",
    "Threshold",
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
    "Unflatten",
    "Unfold",
    "UninitializedBuffer",
    "UninitializedParameter",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
    "functional",
    "init",
    "models",
    "utils",
]
