# Written by tools/stubs.py from tilegrad/__init__.py; a test compares it.

from tilegrad.amp import autocast as autocast
from tilegrad.autograd.modes import enable_grad as enable_grad
from tilegrad.autograd.modes import inference_mode as inference_mode
from tilegrad.autograd.modes import is_grad_enabled as is_grad_enabled
from tilegrad.autograd.modes import no_grad as no_grad
from tilegrad.autograd.modes import set_grad_enabled as set_grad_enabled
from tilegrad.control import cond as cond
from tilegrad.control import scan as scan
from tilegrad.control import while_loop as while_loop
from tilegrad.custom.operator import op as op
from tilegrad.engines.create import engine as engine
from tilegrad.functions.autocasting import get_float32_matmul_precision as get_float32_matmul_precision
from tilegrad.functions.autocasting import set_float32_matmul_precision as set_float32_matmul_precision
from tilegrad.functions.promotion import can_cast as can_cast
from tilegrad.functions.promotion import get_default_dtype as get_default_dtype
from tilegrad.functions.promotion import promote_types as promote_types
from tilegrad.functions.promotion import result_type as result_type
from tilegrad.functions.promotion import set_default_dtype as set_default_dtype
from tilegrad.ir.dtype import DType as DType
from tilegrad.ir.dtype import DType as dtype
from tilegrad.jacobians import hessian as hessian
from tilegrad.jacobians import jacfwd as jacfwd
from tilegrad.jacobians import jacobian as jacobian
from tilegrad.jacobians import jacrev as jacrev
from tilegrad.jitted.function import jit as jit
from tilegrad.language.kernel import kernel as kernel
from tilegrad.language.tuning import Config as Config
from tilegrad.language.tuning import autotune as autotune
from tilegrad.language.tuning import cdiv as cdiv
from tilegrad.language.tuning import heuristics as heuristics
from tilegrad.language.tuning import next_power_of_2 as next_power_of_2
from tilegrad.lazy.evaluation import compute as compute
from tilegrad.lazy.evaluation import live_bytes as live_bytes
from tilegrad.lazy.timing import synchronize as synchronize
from tilegrad.nn.functional.activations import celu as celu
from tilegrad.nn.functional.activations import hardshrink as hardshrink
from tilegrad.nn.functional.activations import prelu as prelu
from tilegrad.nn.functional.activations import rrelu as rrelu
from tilegrad.nn.functional.activations import selu as selu
from tilegrad.nn.functional.activations import threshold as threshold
from tilegrad.nn.functional.convolutions import conv1d as conv1d
from tilegrad.nn.functional.convolutions import conv2d as conv2d
from tilegrad.nn.functional.convolutions import conv3d as conv3d
from tilegrad.nn.functional.convolutions import conv_transpose1d as conv_transpose1d
from tilegrad.nn.functional.convolutions import conv_transpose2d as conv_transpose2d
from tilegrad.nn.functional.convolutions import conv_transpose3d as conv_transpose3d
from tilegrad.nn.functional.distances import bilinear as bilinear
from tilegrad.nn.functional.distances import cosine_similarity as cosine_similarity
from tilegrad.nn.functional.distances import pairwise_distance as pairwise_distance
from tilegrad.nn.functional.distances import pdist as pdist
from tilegrad.nn.functional.dropouts import alpha_dropout as alpha_dropout
from tilegrad.nn.functional.norms import group_norm as group_norm
from tilegrad.nn.functional.norms import layer_norm as layer_norm
from tilegrad.nn.functional.norms import rms_norm as rms_norm
from tilegrad.nn.functional.poolings import adaptive_avg_pool1d as adaptive_avg_pool1d
from tilegrad.nn.functional.poolings import adaptive_max_pool1d as adaptive_max_pool1d
from tilegrad.nn.functional.poolings import avg_pool1d as avg_pool1d
from tilegrad.nn.functional.poolings import max_pool1d as max_pool1d
from tilegrad.nn.functional.poolings import max_pool2d as max_pool2d
from tilegrad.nn.functional.poolings import max_pool3d as max_pool3d
from tilegrad.nn.functional.resizing import channel_shuffle as channel_shuffle
from tilegrad.nn.functional.resizing import pixel_shuffle as pixel_shuffle
from tilegrad.nn.functional.resizing import pixel_unshuffle as pixel_unshuffle
from tilegrad.printing import set_printoptions as set_printoptions
from tilegrad.profile.explanation import explain as explain
from tilegrad.profile.first_nan import first_nan as first_nan
from tilegrad.profile.progress import progress as progress
from tilegrad.runtime.device import Device as Device
from tilegrad.runtime.device import device as device
from tilegrad.runtime.device import devices as devices
from tilegrad.saved.exported import export as export
from tilegrad.saved.exported import load_program as load_program
from tilegrad.serialization.checkpoint import load as load
from tilegrad.serialization.checkpoint import save as save
from tilegrad.serialization.safetensors import load_file as load_safetensors
from tilegrad.serialization.safetensors import save_file as save_safetensors
from tilegrad.tensor import Tensor as Tensor
from tilegrad.transforms import checkpoint as checkpoint
from tilegrad.transforms import grad as grad
from tilegrad.transforms import jvp as jvp
from tilegrad.transforms import value_and_grad as value_and_grad
from tilegrad.transforms import vjp as vjp
from tilegrad.transforms import vmap as vmap

from . import amp as amp
from . import autograd as autograd
from . import backend as backend
from . import cpp as cpp
from . import cuda as cuda
from . import custom as custom
from . import data as data
from . import engines as engines
from . import errors as errors
from . import functional
from . import generation as generation
from . import language as language
from . import linalg as linalg
from . import logging as logging
from . import memory as memory
from . import nn as nn
from . import onnx as onnx
from . import optim as optim
from . import profile as profile
from . import profiler as profiler
from . import runtime as runtime
from . import serialization as serialization
from . import tensorboard as tensorboard
from . import testing as testing
from . import utils as utils
from .functional import *

bfloat16: DType
bool_: DType
float8_e4m3fn: DType
float8_e5m2: DType
float16: DType
float32: DType
float64: DType
int8: DType
int16: DType
int32: DType
int64: DType
uint8: DType
uint16: DType
uint32: DType
uint64: DType
bool: DType
half: DType
float: DType
double: DType
short: DType
int: DType
long: DType

__all__ = [
    "Config",
    "DType",
    "Device",
    "Tensor",
    "adaptive_avg_pool1d",
    "adaptive_max_pool1d",
    "alpha_dropout",
    "amp",
    "autocast",
    "autograd",
    "autotune",
    "avg_pool1d",
    "backend",
    "bfloat16",
    "bilinear",
    "bool",
    "bool_",
    "can_cast",
    "cdiv",
    "celu",
    "channel_shuffle",
    "checkpoint",
    "compute",
    "cond",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_similarity",
    "cpp",
    "cuda",
    "custom",
    "data",
    "device",
    "devices",
    "double",
    "dtype",
    "enable_grad",
    "engine",
    "engines",
    "errors",
    "explain",
    "export",
    "first_nan",
    "float",
    "float16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "generation",
    "get_default_dtype",
    "get_float32_matmul_precision",
    "grad",
    "group_norm",
    "half",
    "hardshrink",
    "hessian",
    "heuristics",
    "inference_mode",
    "int",
    "int16",
    "int32",
    "int64",
    "int8",
    "is_grad_enabled",
    "jacfwd",
    "jacobian",
    "jacrev",
    "jit",
    "jvp",
    "kernel",
    "language",
    "layer_norm",
    "linalg",
    "live_bytes",
    "load",
    "load_program",
    "load_safetensors",
    "logging",
    "long",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "memory",
    "next_power_of_2",
    "nn",
    "no_grad",
    "onnx",
    "op",
    "optim",
    "pairwise_distance",
    "pdist",
    "pixel_shuffle",
    "pixel_unshuffle",
    "prelu",
    "profile",
    "profiler",
    "progress",
    "promote_types",
    "result_type",
    "rms_norm",
    "rrelu",
    "runtime",
    "save",
    "save_safetensors",
    "scan",
    "selu",
    "serialization",
    "set_default_dtype",
    "set_float32_matmul_precision",
    "set_grad_enabled",
    "set_printoptions",
    "short",
    "synchronize",
    "tensorboard",
    "testing",
    "threshold",
    "uint16",
    "uint32",
    "uint64",
    "uint8",
    "utils",
    "value_and_grad",
    "vjp",
    "vmap",
    "while_loop",
]
__all__ += functional.__all__
