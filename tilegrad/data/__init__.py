"""Data sets, samplers and the loader that makes batches of them."""

from .dataset import ArrayDataset, ConcatDataset, Dataset, Subset, TensorDataset, random_split
from .digits import Digits
from .idx import MNIST, read_idx
from .loader import DataLoader, default_collate
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler

__all__ = [
    "MNIST",
    "ArrayDataset",
    "BatchSampler",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "Digits",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "default_collate",
    "random_split",
    "read_idx",
]
