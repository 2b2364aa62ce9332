"""Layers, losses and containers, under PyTorch's names.

Type checkers read `__init__.pyi`, which `python tools/stubs.py` writes.
"""

from ..deferred import defer as _defer
from ..functions.declared import with_checked_constructor as _checked

_CLASSES = {
    "activation": (
        "ReLU ReLU6 Threshold RReLU Sigmoid Tanh Tanhshrink SiLU Mish GELU ELU CELU SELU LeakyReLU Softplus Softsign "
        "Softshrink Hardshrink LogSigmoid Hardtanh Hardsigmoid Hardswish GLU Softmax Softmin LogSoftmax Softmax2d PReLU"
    ),
    "attention": "MultiheadAttention",
    "cells": "RNNCellBase RNNCell GRUCell LSTMCell",
    "container": "Sequential",
    "lists": "ModuleList ModuleDict ParameterList ParameterDict",
    "conv": "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d Unfold Fold",
    "dropout": "Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout",
    "embedding": "Embedding EmbeddingBag",
    "layers": "Identity Linear Bilinear CosineSimilarity PairwiseDistance Flatten Unflatten",
    "lazy": (
        "UninitializedParameter UninitializedBuffer LazyLinear LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d "
        "LazyConvTranspose2d LazyConvTranspose3d LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyInstanceNorm1d "
        "LazyInstanceNorm2d LazyInstanceNorm3d"
    ),
    "loss": (
        "MSELoss L1Loss SmoothL1Loss HuberLoss KLDivLoss BCELoss BCEWithLogitsLoss NLLLoss CrossEntropyLoss "
        "MarginRankingLoss HingeEmbeddingLoss CosineEmbeddingLoss TripletMarginLoss TripletMarginWithDistanceLoss "
        "MultiMarginLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss SoftMarginLoss PoissonNLLLoss GaussianNLLLoss "
        "CTCLoss"
    ),
    "module": "Module",
    "norm": (
        "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d GroupNorm "
        "LayerNorm RMSNorm LocalResponseNorm CrossMapLRN2d"
    ),
    "padding": (
        "ConstantPad1d ConstantPad2d ConstantPad3d ZeroPad1d ZeroPad2d ZeroPad3d ReflectionPad1d ReflectionPad2d "
        "ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d CircularPad1d CircularPad2d CircularPad3d"
    ),
    "parameter": "Buffer Parameter",
    "pool": (
        "MaxPool1d MaxPool2d MaxPool3d AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d "
        "AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d LPPool1d LPPool2d LPPool3d "
        "FractionalMaxPool2d FractionalMaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d"
    ),
    "recurrent": "RNNBase RNN GRU LSTM",
    "transformer": "TransformerEncoderLayer TransformerDecoderLayer TransformerEncoder TransformerDecoder Transformer",
    "upsample": "Upsample UpsamplingNearest2d UpsamplingBilinear2d PixelShuffle PixelUnshuffle ChannelShuffle",
    "vocabulary": "LinearCrossEntropyLoss AdaptiveLogSoftmaxWithLoss",
}
"""The public classes of each module."""

_defer(globals(), _CLASSES, ("functional", "init", "models", "utils"), _checked)
