"""Data sets, samplers, loaders, and transforms of images.

Type checkers read `__init__.pyi`, which `python tools/stubs.py` writes.
"""

from ..deferred import defer as _defer
from ..functions.declared import with_checked_constructor as _checked

_NAMES = {
    "idx": "MNIST read_idx",
    "dataset": (
        "ArrayDataset ChainDataset ConcatDataset Dataset IterableDataset StackDataset Subset TensorDataset random_split"
    ),
    "sampler": (
        "BatchSampler DistributedSampler RandomSampler Sampler SequentialSampler SubsetRandomSampler "
        "WeightedRandomSampler"
    ),
    "loader": "DataLoader",
    "digits": "Digits",
    "worker": "WorkerInfo get_worker_info",
    "collate": "default_collate default_convert",
}
"""The public names of each module."""

_defer(globals(), _NAMES, ("transforms",), _checked)
