"""Every layer of `nn` that the tests compare with PyTorch: how it is made, and the shapes of its inputs."""

from typing import NamedTuple


class Case(NamedTuple):
    """`made`: what stands behind `nn.`; `inputs`: shapes of float inputs, or what else a target needs."""

    made: str
    inputs: tuple[tuple[int, ...] | str, ...]


def each(inputs: tuple[tuple[int, ...] | str, ...], *made: str) -> list[Case]:
    return [Case(one, inputs) for one in made]


ACTIVATIONS = each(
    ((3, 4, 5),),
    *"ReLU() ReLU6() ELU(0.7) CELU(0.6) SELU() SiLU() Mish() GELU() GELU('tanh') Sigmoid() Tanh() Tanhshrink()".split(),
    *"LeakyReLU(0.2) PReLU() PReLU(4,0.1) Softplus() Softplus(2.0,3.0) Softsign() Softshrink(0.3) LogSigmoid()".split(),
    *"Hardshrink(0.7) Hardtanh(-2.0,1.0) Hardsigmoid() Hardswish() Threshold(0.1,-3.0) Softmax(dim=1)".split(),
    *"Softmin(0) LogSoftmax(2) Softmax2d() GLU(1) RReLU(0.2,0.2) Softmax() LogSoftmax() Identity(3)".split(),
)

NORMS = [
    *each(((4, 3),), "BatchNorm1d(3)", "BatchNorm1d(3, momentum=None)", "BatchNorm1d(3, affine=False)"),
    *each(((4, 3, 5),), "BatchNorm1d(3, eps=0.1, momentum=0.3)", "BatchNorm1d(3, track_running_stats=False)"),
    *each(((2, 3, 4, 5),), "BatchNorm2d(3)", "InstanceNorm2d(3)", "InstanceNorm2d(3, affine=True)"),
    *each(((2, 3, 4, 5),), "InstanceNorm2d(3, track_running_stats=True, momentum=0.3)"),
    *each(((2, 3, 2, 3, 2),), "BatchNorm3d(3)", "InstanceNorm3d(3, affine=True, track_running_stats=True)"),
    *each(((2, 3, 6),), "InstanceNorm1d(3)", "GroupNorm(3, 3)", "LayerNorm(6)", "RMSNorm(6)"),
    *each(((3, 6),), "InstanceNorm1d(3)", "LayerNorm(6, bias=False)", "LayerNorm(6, elementwise_affine=False)"),
    *each(((2, 6, 3, 4),), "GroupNorm(2, 6)", "GroupNorm(1, 6, eps=0.01, affine=False)", "GroupNorm(6, 6)"),
    *each(((2, 6, 3, 4),), "LayerNorm([3, 4], eps=0.1)", "RMSNorm((3, 4), eps=0.1)", "RMSNorm(4, None, False)"),
    *each(((2, 6, 3, 4),), "LocalResponseNorm(3)", "LocalResponseNorm(4, 0.5, 0.6, 2.0)", "BatchNorm2d(6, bias=False)"),
    *each(((2, 6, 5),), "LocalResponseNorm(2, 0.5)", "GroupNorm(2, 6, bias=False)"),
]

PADDINGS = [
    *each(
        ((2, 3, 5),), "ConstantPad1d((1, 2), 3.5)", "ZeroPad1d(2)", "ReflectionPad1d((2, 3))", "CircularPad1d((3, 0))"
    ),
    *each(((3, 5),), "ReplicationPad1d((4, 7))", "ReflectionPad1d(1)", "CircularPad1d((0, 5))", "ConstantPad1d(-1, 0)"),
    *each(
        ((2, 3, 4, 5),), "ConstantPad2d((1, 0, -1, 2), -1)", "ZeroPad2d((1, 2, 0, 3))", "CircularPad2d((1, 2, 3, 0))"
    ),
    *each(
        ((2, 3, 4, 5),),
        "ReflectionPad2d((1, 2, 3, 0))",
        "ReplicationPad2d((1, 2, 0, 6))",
        "ReplicationPad2d((-1, 2, 0, -2))",
    ),
    *each(
        ((1, 2, 3, 4, 3),),
        "ConstantPad3d((1, 0, 1, 1, 0, 2), 2)",
        "ZeroPad3d(1)",
        "ReflectionPad3d((1, 2, 1, 0, 2, 1))",
    ),
    *each(((1, 2, 3, 4, 3),), "ReplicationPad3d((1, 2, 0, 1, 3, 0))", "CircularPad3d((1, 2, 1, 0, 2, 1))"),
]

IMAGES = [
    *each(((1, 8, 3, 4),), "PixelShuffle(2)", "ChannelShuffle(4)", "ChannelShuffle(2)"),
    *each(((2, 4, 6),), "PixelUnshuffle(2)", "Upsample(scale_factor=2)", "Upsample(9)", "Upsample(4, mode='linear')"),
    *each(((2, 4, 6),), "Upsample(scale_factor=2.5, mode='linear')", "Upsample(scale_factor=0.4, mode='nearest')"),
    *each(
        ((2, 4, 6),),
        "Upsample(11, mode='linear', align_corners=True)",
        "Upsample(1, mode='linear', align_corners=True)",
    ),
    *each(((1, 2, 4, 5),), "Upsample(scale_factor=(2, 3))", "Upsample((3, 7))", "UpsamplingNearest2d(scale_factor=2)"),
    *each(
        ((1, 2, 4, 5),),
        "UpsamplingBilinear2d((7, 3))",
        "Upsample((7, 9), mode='bilinear')",
        "Upsample((2, 3), mode='bicubic')",
    ),
    *each(
        ((1, 2, 4, 5),),
        "Upsample(scale_factor=1.7, mode='bicubic')",
        "Upsample((9, 8), mode='bicubic', align_corners=True)",
    ),
    *each(((1, 2, 4, 5),), "Upsample(scale_factor=1.5, mode='bilinear', recompute_scale_factor=True)"),
    *each(((1, 2, 3, 4, 2),), "Upsample((5, 3, 4), mode='trilinear')", "Upsample(scale_factor=2, mode='nearest')"),
    *each(((2, 6, 3),), "Flatten()", "Flatten(0, 1)", "Unflatten(1, (2, 3))", "Unflatten(-2, (2, -1))"),
]

PRODUCTS = [
    *each(((4, 3),), "Linear(3, 5)", "Linear(3, 5, bias=False)"),
    *each(((4, 3), (4, 6)), "Bilinear(3, 6, 5)"),
    *each(((2, 4, 3), (2, 4, 6)), "Bilinear(3, 6, 2, bias=False)"),
    *each(((4, 3, 5), (4, 3, 5)), "CosineSimilarity()", "CosineSimilarity(-1, 0.1)"),
    *each(((4, 5), (4, 5)), "PairwiseDistance()", "PairwiseDistance(1.0, 0.1, True)", "PairwiseDistance(3)"),
    *each(
        ("numbers 3 4",),
        "Embedding(6, 2)",
        "Embedding(6, 2, padding_idx=-5)",
        "Embedding(6, 3, scale_grad_by_freq=True)",
    ),
    *each(("numbers 3 4",), "Embedding(6, 3, max_norm=1.5)", "Embedding(6, 3, 2, max_norm=1.0, norm_type=1.0)"),
    *each(
        ("numbers 3 4",),
        "EmbeddingBag(6, 3)",
        "EmbeddingBag(6, 3, mode='sum', padding_idx=1)",
        "EmbeddingBag(6, 3, mode='max')",
    ),
    *each(("numbers 3 4", None, (3, 4)), "EmbeddingBag(6, 3, mode='sum')"),  # type: ignore[arg-type]
    *each(
        ("numbers 7", "offsets 0 2 2 5"),
        "EmbeddingBag(6, 3)",
        "EmbeddingBag(6, 3, mode='sum')",
        "EmbeddingBag(6, 3, mode='max')",
    ),
    *each(("numbers 7", "offsets 0 2 7"), "EmbeddingBag(6, 3, include_last_offset=True, padding_idx=2)"),
    *each(("numbers 7", "offsets 0 2 5", (7,)), "EmbeddingBag(6, 3, mode='sum', max_norm=1.0)"),
]

PLAIN_LOSSES = [
    *each(((4, 5), (4, 5)), "MSELoss(", "L1Loss(", "SmoothL1Loss(beta=0.7, ", "HuberLoss(delta=0.6, "),
    *each(
        ((4, 5), "shares 4 5"),
        "KLDivLoss(",
        "PoissonNLLLoss(",
        "PoissonNLLLoss(full=True, ",
        "MultiLabelSoftMarginLoss(",
    ),
    *each(("shares 4 5", "counts 4 5"), "PoissonNLLLoss(log_input=False, full=True, "),
    *each(("shares 4 5", "shares 4 5"), "BCELoss("),
    *each(((4, 5), "shares 4 5"), "BCEWithLogitsLoss(", "CrossEntropyLoss(label_smoothing=0.1, "),
    *each(
        ((4, 5), "classes 4 5"),
        "CrossEntropyLoss(",
        "CrossEntropyLoss(ignore_index=1, label_smoothing=0.2, ",
        "NLLLoss(",
    ),
    *each(((4, 5), "classes 4 5"), "MultiMarginLoss(", "MultiMarginLoss(2, 0.7, "),
    *each(((4, 5), "lists 4 5"), "MultiLabelMarginLoss("),
    *each(((4, 5), "signs 4 5"), "SoftMarginLoss(", "HingeEmbeddingLoss(", "HingeEmbeddingLoss(0.4, "),
    *each(((4, 5), (4, 5), "signs 4 5"), "MarginRankingLoss(", "MarginRankingLoss(0.5, "),
    *each(((4, 5), (4, 5), "signs 4"), "CosineEmbeddingLoss(", "CosineEmbeddingLoss(0.2, "),
    *each(((5,), (5,), "signs"), "CosineEmbeddingLoss("),
    *each(((4, 5), (4, 5), (4, 5)), "TripletMarginLoss(", "TripletMarginLoss(0.5, 3.0, swap=True, "),
    *each(((4, 5), (4, 5), (4, 5)), "TripletMarginWithDistanceLoss(swap=True, "),
    *each(((4, 5), (4, 5), "shares 4 5"), "GaussianNLLLoss(", "GaussianNLLLoss(full=True, eps=0.5, "),
    *each(((4, 5), (4, 5), "shares 4"), "GaussianNLLLoss("),
]

LOSSES = [
    Case(f"{made}reduction={reduction!r})", inputs)
    for made, inputs in PLAIN_LOSSES
    for reduction in ("none", "mean", "sum")
]

RANDOM = each(
    ((3, 4, 5),),
    "Dropout(0.3)",
    "Dropout1d(0.3)",
    "Dropout2d(0.3)",
    "Dropout3d()",
    "AlphaDropout(0.2)",
    "FeatureAlphaDropout(0.2)",
    "RReLU()",
)

PRINTED = [
    *"ReLU(inplace=True) ELU(0.5,True) Threshold(1,2,True) Hardtanh(inplace=True) RReLU(inplace=True)".split(),
    *"Hardswish(True) Hardsigmoid(True) SELU(True) Mish(True) SiLU(True) LeakyReLU(0.1,True) Dropout(0.1,True)".split(),
    "Embedding(4, 3, padding_idx=1, max_norm=2.0, norm_type=1, scale_grad_by_freq=True, sparse=True)",
    "EmbeddingBag(4, 3, max_norm=2.0, mode='sum', padding_idx=1)",
    "CTCLoss()",
    "CrossMapLRN2d(5, 0.3)",
    "ModuleList([Linear(2, 3), Linear(2, 3), ReLU(), ReLU(), Linear(2, 3)])",
    "Sequential(Linear(2, 3), Sequential(ReLU(), Tanh()))",
]
