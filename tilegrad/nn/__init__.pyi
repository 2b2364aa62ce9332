# Written by tools/stubs.py from tilegrad/nn/__init__.py; a test compares it.

from tilegrad.nn.activation import CELU as CELU
from tilegrad.nn.activation import ELU as ELU
from tilegrad.nn.activation import GELU as GELU
from tilegrad.nn.activation import GLU as GLU
from tilegrad.nn.activation import SELU as SELU
from tilegrad.nn.activation import Hardshrink as Hardshrink
from tilegrad.nn.activation import Hardsigmoid as Hardsigmoid
from tilegrad.nn.activation import Hardswish as Hardswish
from tilegrad.nn.activation import Hardtanh as Hardtanh
from tilegrad.nn.activation import LeakyReLU as LeakyReLU
from tilegrad.nn.activation import LogSigmoid as LogSigmoid
from tilegrad.nn.activation import LogSoftmax as LogSoftmax
from tilegrad.nn.activation import Mish as Mish
from tilegrad.nn.activation import PReLU as PReLU
from tilegrad.nn.activation import ReLU as ReLU
from tilegrad.nn.activation import ReLU6 as ReLU6
from tilegrad.nn.activation import RReLU as RReLU
from tilegrad.nn.activation import Sigmoid as Sigmoid
from tilegrad.nn.activation import SiLU as SiLU
from tilegrad.nn.activation import Softmax as Softmax
from tilegrad.nn.activation import Softmax2d as Softmax2d
from tilegrad.nn.activation import Softmin as Softmin
from tilegrad.nn.activation import Softplus as Softplus
from tilegrad.nn.activation import Softshrink as Softshrink
from tilegrad.nn.activation import Softsign as Softsign
from tilegrad.nn.activation import Tanh as Tanh
from tilegrad.nn.activation import Tanhshrink as Tanhshrink
from tilegrad.nn.activation import Threshold as Threshold
from tilegrad.nn.attention import MultiheadAttention as MultiheadAttention
from tilegrad.nn.cells import GRUCell as GRUCell
from tilegrad.nn.cells import LSTMCell as LSTMCell
from tilegrad.nn.cells import RNNCell as RNNCell
from tilegrad.nn.cells import RNNCellBase as RNNCellBase
from tilegrad.nn.container import ModuleDict as ModuleDict
from tilegrad.nn.container import ModuleList as ModuleList
from tilegrad.nn.container import ParameterDict as ParameterDict
from tilegrad.nn.container import ParameterList as ParameterList
from tilegrad.nn.container import Sequential as Sequential
from tilegrad.nn.conv import Conv1d as Conv1d
from tilegrad.nn.conv import Conv2d as Conv2d
from tilegrad.nn.conv import Conv3d as Conv3d
from tilegrad.nn.conv import ConvTranspose1d as ConvTranspose1d
from tilegrad.nn.conv import ConvTranspose2d as ConvTranspose2d
from tilegrad.nn.conv import ConvTranspose3d as ConvTranspose3d
from tilegrad.nn.conv import Fold as Fold
from tilegrad.nn.conv import Unfold as Unfold
from tilegrad.nn.dropout import AlphaDropout as AlphaDropout
from tilegrad.nn.dropout import Dropout as Dropout
from tilegrad.nn.dropout import Dropout1d as Dropout1d
from tilegrad.nn.dropout import Dropout2d as Dropout2d
from tilegrad.nn.dropout import Dropout3d as Dropout3d
from tilegrad.nn.dropout import FeatureAlphaDropout as FeatureAlphaDropout
from tilegrad.nn.embedding import Embedding as Embedding
from tilegrad.nn.embedding import EmbeddingBag as EmbeddingBag
from tilegrad.nn.layers import Bilinear as Bilinear
from tilegrad.nn.layers import CosineSimilarity as CosineSimilarity
from tilegrad.nn.layers import Flatten as Flatten
from tilegrad.nn.layers import Identity as Identity
from tilegrad.nn.layers import Linear as Linear
from tilegrad.nn.layers import PairwiseDistance as PairwiseDistance
from tilegrad.nn.layers import Unflatten as Unflatten
from tilegrad.nn.lazy import LazyBatchNorm1d as LazyBatchNorm1d
from tilegrad.nn.lazy import LazyBatchNorm2d as LazyBatchNorm2d
from tilegrad.nn.lazy import LazyBatchNorm3d as LazyBatchNorm3d
from tilegrad.nn.lazy import LazyConv1d as LazyConv1d
from tilegrad.nn.lazy import LazyConv2d as LazyConv2d
from tilegrad.nn.lazy import LazyConv3d as LazyConv3d
from tilegrad.nn.lazy import LazyConvTranspose1d as LazyConvTranspose1d
from tilegrad.nn.lazy import LazyConvTranspose2d as LazyConvTranspose2d
from tilegrad.nn.lazy import LazyConvTranspose3d as LazyConvTranspose3d
from tilegrad.nn.lazy import LazyInstanceNorm1d as LazyInstanceNorm1d
from tilegrad.nn.lazy import LazyInstanceNorm2d as LazyInstanceNorm2d
from tilegrad.nn.lazy import LazyInstanceNorm3d as LazyInstanceNorm3d
from tilegrad.nn.lazy import LazyLinear as LazyLinear
from tilegrad.nn.lazy import UninitializedBuffer as UninitializedBuffer
from tilegrad.nn.lazy import UninitializedParameter as UninitializedParameter
from tilegrad.nn.loss import BCELoss as BCELoss
from tilegrad.nn.loss import BCEWithLogitsLoss as BCEWithLogitsLoss
from tilegrad.nn.loss import CosineEmbeddingLoss as CosineEmbeddingLoss
from tilegrad.nn.loss import CrossEntropyLoss as CrossEntropyLoss
from tilegrad.nn.loss import CTCLoss as CTCLoss
from tilegrad.nn.loss import GaussianNLLLoss as GaussianNLLLoss
from tilegrad.nn.loss import HingeEmbeddingLoss as HingeEmbeddingLoss
from tilegrad.nn.loss import HuberLoss as HuberLoss
from tilegrad.nn.loss import KLDivLoss as KLDivLoss
from tilegrad.nn.loss import L1Loss as L1Loss
from tilegrad.nn.loss import MarginRankingLoss as MarginRankingLoss
from tilegrad.nn.loss import MSELoss as MSELoss
from tilegrad.nn.loss import MultiLabelMarginLoss as MultiLabelMarginLoss
from tilegrad.nn.loss import MultiLabelSoftMarginLoss as MultiLabelSoftMarginLoss
from tilegrad.nn.loss import MultiMarginLoss as MultiMarginLoss
from tilegrad.nn.loss import NLLLoss as NLLLoss
from tilegrad.nn.loss import PoissonNLLLoss as PoissonNLLLoss
from tilegrad.nn.loss import SmoothL1Loss as SmoothL1Loss
from tilegrad.nn.loss import SoftMarginLoss as SoftMarginLoss
from tilegrad.nn.loss import TripletMarginLoss as TripletMarginLoss
from tilegrad.nn.loss import TripletMarginWithDistanceLoss as TripletMarginWithDistanceLoss
from tilegrad.nn.module import Module as Module
from tilegrad.nn.norm import BatchNorm1d as BatchNorm1d
from tilegrad.nn.norm import BatchNorm2d as BatchNorm2d
from tilegrad.nn.norm import BatchNorm3d as BatchNorm3d
from tilegrad.nn.norm import CrossMapLRN2d as CrossMapLRN2d
from tilegrad.nn.norm import GroupNorm as GroupNorm
from tilegrad.nn.norm import InstanceNorm1d as InstanceNorm1d
from tilegrad.nn.norm import InstanceNorm2d as InstanceNorm2d
from tilegrad.nn.norm import InstanceNorm3d as InstanceNorm3d
from tilegrad.nn.norm import LayerNorm as LayerNorm
from tilegrad.nn.norm import LocalResponseNorm as LocalResponseNorm
from tilegrad.nn.norm import RMSNorm as RMSNorm
from tilegrad.nn.norm import SyncBatchNorm as SyncBatchNorm
from tilegrad.nn.padding import CircularPad1d as CircularPad1d
from tilegrad.nn.padding import CircularPad2d as CircularPad2d
from tilegrad.nn.padding import CircularPad3d as CircularPad3d
from tilegrad.nn.padding import ConstantPad1d as ConstantPad1d
from tilegrad.nn.padding import ConstantPad2d as ConstantPad2d
from tilegrad.nn.padding import ConstantPad3d as ConstantPad3d
from tilegrad.nn.padding import ReflectionPad1d as ReflectionPad1d
from tilegrad.nn.padding import ReflectionPad2d as ReflectionPad2d
from tilegrad.nn.padding import ReflectionPad3d as ReflectionPad3d
from tilegrad.nn.padding import ReplicationPad1d as ReplicationPad1d
from tilegrad.nn.padding import ReplicationPad2d as ReplicationPad2d
from tilegrad.nn.padding import ReplicationPad3d as ReplicationPad3d
from tilegrad.nn.padding import ZeroPad1d as ZeroPad1d
from tilegrad.nn.padding import ZeroPad2d as ZeroPad2d
from tilegrad.nn.padding import ZeroPad3d as ZeroPad3d
from tilegrad.nn.parameter import Buffer as Buffer
from tilegrad.nn.parameter import Parameter as Parameter
from tilegrad.nn.pool import AdaptiveAvgPool1d as AdaptiveAvgPool1d
from tilegrad.nn.pool import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from tilegrad.nn.pool import AdaptiveAvgPool3d as AdaptiveAvgPool3d
from tilegrad.nn.pool import AdaptiveMaxPool1d as AdaptiveMaxPool1d
from tilegrad.nn.pool import AdaptiveMaxPool2d as AdaptiveMaxPool2d
from tilegrad.nn.pool import AdaptiveMaxPool3d as AdaptiveMaxPool3d
from tilegrad.nn.pool import AvgPool1d as AvgPool1d
from tilegrad.nn.pool import AvgPool2d as AvgPool2d
from tilegrad.nn.pool import AvgPool3d as AvgPool3d
from tilegrad.nn.pool import FractionalMaxPool2d as FractionalMaxPool2d
from tilegrad.nn.pool import FractionalMaxPool3d as FractionalMaxPool3d
from tilegrad.nn.pool import LPPool1d as LPPool1d
from tilegrad.nn.pool import LPPool2d as LPPool2d
from tilegrad.nn.pool import LPPool3d as LPPool3d
from tilegrad.nn.pool import MaxPool1d as MaxPool1d
from tilegrad.nn.pool import MaxPool2d as MaxPool2d
from tilegrad.nn.pool import MaxPool3d as MaxPool3d
from tilegrad.nn.pool import MaxUnpool1d as MaxUnpool1d
from tilegrad.nn.pool import MaxUnpool2d as MaxUnpool2d
from tilegrad.nn.pool import MaxUnpool3d as MaxUnpool3d
from tilegrad.nn.recurrent import GRU as GRU
from tilegrad.nn.recurrent import LSTM as LSTM
from tilegrad.nn.recurrent import RNN as RNN
from tilegrad.nn.recurrent import RNNBase as RNNBase
from tilegrad.nn.transformer import Transformer as Transformer
from tilegrad.nn.transformer import TransformerDecoder as TransformerDecoder
from tilegrad.nn.transformer import TransformerDecoderLayer as TransformerDecoderLayer
from tilegrad.nn.transformer import TransformerEncoder as TransformerEncoder
from tilegrad.nn.transformer import TransformerEncoderLayer as TransformerEncoderLayer
from tilegrad.nn.upsample import ChannelShuffle as ChannelShuffle
from tilegrad.nn.upsample import PixelShuffle as PixelShuffle
from tilegrad.nn.upsample import PixelUnshuffle as PixelUnshuffle
from tilegrad.nn.upsample import Upsample as Upsample
from tilegrad.nn.upsample import UpsamplingBilinear2d as UpsamplingBilinear2d
from tilegrad.nn.upsample import UpsamplingNearest2d as UpsamplingNearest2d
from tilegrad.nn.vocabulary import AdaptiveLogSoftmaxWithLoss as AdaptiveLogSoftmaxWithLoss
from tilegrad.nn.vocabulary import LinearCrossEntropyLoss as LinearCrossEntropyLoss

from . import functional as functional
from . import init as init
from . import models as models
from . import utils as utils

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
