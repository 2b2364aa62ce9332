# Written by tools/stubs.py from tilegrad/nn/utils/__init__.py; a test compares it.

from tilegrad.nn.utils.clip_grad import clip_grad_norm_ as clip_grad_norm_
from tilegrad.nn.utils.clip_grad import clip_grad_value_ as clip_grad_value_
from tilegrad.nn.utils.clip_grad import clip_grads_with_norm_ as clip_grads_with_norm_
from tilegrad.nn.utils.clip_grad import get_total_norm as get_total_norm
from tilegrad.nn.utils.computed import remove_spectral_norm as remove_spectral_norm
from tilegrad.nn.utils.computed import remove_weight_norm as remove_weight_norm
from tilegrad.nn.utils.computed import skip_init as skip_init
from tilegrad.nn.utils.computed import spectral_norm as spectral_norm
from tilegrad.nn.utils.computed import weight_norm as weight_norm
from tilegrad.nn.utils.convert_parameters import parameters_to_vector as parameters_to_vector
from tilegrad.nn.utils.convert_parameters import vector_to_parameters as vector_to_parameters
from tilegrad.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from tilegrad.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from tilegrad.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from tilegrad.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights

from . import parametrizations as parametrizations
from . import parametrize as parametrize
from . import rnn as rnn
from . import stateless as stateless

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]
