"""Layers, activations and losses as functions, under PyTorch's names: expressions of tensors, which the compiler fuses.

Type checkers read `__init__.pyi`, which `python tools/stubs.py` writes.
"""

from typing import Any as _Any

from ...deferred import defer as _defer
from ...functions.declared import checking_arguments as _checking_arguments
from .arguments import tensors_only as _tensors_only

_FUNCTIONS = {
    "activations": (
        "relu relu6 threshold leaky_relu prelu rrelu elu celu selu hardtanh hardsigmoid hardswish hardshrink "
        "softshrink sigmoid tanh tanhshrink silu gelu softplus softsign mish logsigmoid glu softmax softmin "
        "log_softmax gumbel_softmax relu_ elu_ celu_ selu_ leaky_relu_ rrelu_ hardtanh_ threshold_"
    ),
    "alignment": "ctc_loss",
    "attending": "scaled_dot_product_attention causal_mask",
    "convolutions": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc unfold fold",
    "distances": "linear bilinear cosine_similarity pairwise_distance pdist",
    "dropouts": "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout",
    "embeddings": "embedding embedding_bag",
    "fractional": "fractional_max_pool2d fractional_max_pool3d",
    "heads": "multi_head_attention_forward",
    "indexed_poolings": (
        "adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices "
        "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices max_pool1d_with_indices "
        "max_pool2d_with_indices max_pool3d_with_indices"
    ),
    "poolings": (
        "avg_pool1d max_pool1d max_pool2d max_pool3d avg_pool2d avg_pool3d adaptive_max_pool1d adaptive_max_pool2d "
        "adaptive_max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d lp_pool1d lp_pool2d lp_pool3d"
    ),
    "losses": (
        "cross_entropy linear_cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
        "binary_cross_entropy_with_logits kl_div"
    ),
    "margins": (
        "margin_ranking_loss hinge_embedding_loss soft_margin_loss cosine_embedding_loss triplet_margin_loss "
        "triplet_margin_with_distance_loss multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss "
        "poisson_nll_loss gaussian_nll_loss"
    ),
    "norms": "batch_norm instance_norm group_norm layer_norm rms_norm local_response_norm normalize",
    "paddings": "pad",
    "resizing": "interpolate upsample upsample_nearest upsample_bilinear pixel_shuffle pixel_unshuffle channel_shuffle",
    "sampling": "affine_grid grid_sample",
    "unpooling": "max_unpool1d max_unpool2d max_unpool3d",
    "..functions.selecting": "one_hot",
}
"""The public functions of each module."""


def _published(name: str, function: _Any) -> _Any:
    return _tensors_only(name, _checking_arguments(function))


_defer(globals(), _FUNCTIONS, publish=_published)
