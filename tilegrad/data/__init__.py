"""Data sets, samplers, the loader that makes batches of them, and transforms of images."""

from . import transforms
from .collate import default_collate
from .dataset import ArrayDataset, ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, random_split
from .digits import Digits
from .idx import MNIST, read_idx
from .loader import DataLoader
from .sampler import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from .worker import WorkerInfo, get_worker_info

__all__ = [
    "MNIST",
    "ArrayDataset",
    "BatchSampler",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "Digits",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "get_worker_info",
    "random_split",
    "read_idx",
    "transforms",
]
