# Written by tools/stubs.py from tilegrad/data/__init__.py; a test compares it.

from tilegrad.data.collate import default_collate as default_collate
from tilegrad.data.collate import default_convert as default_convert
from tilegrad.data.dataset import ArrayDataset as ArrayDataset
from tilegrad.data.dataset import ChainDataset as ChainDataset
from tilegrad.data.dataset import ConcatDataset as ConcatDataset
from tilegrad.data.dataset import Dataset as Dataset
from tilegrad.data.dataset import IterableDataset as IterableDataset
from tilegrad.data.dataset import StackDataset as StackDataset
from tilegrad.data.dataset import Subset as Subset
from tilegrad.data.dataset import TensorDataset as TensorDataset
from tilegrad.data.dataset import random_split as random_split
from tilegrad.data.digits import Digits as Digits
from tilegrad.data.idx import MNIST as MNIST
from tilegrad.data.idx import read_idx as read_idx
from tilegrad.data.loader import DataLoader as DataLoader
from tilegrad.data.sampler import BatchSampler as BatchSampler
from tilegrad.data.sampler import DistributedSampler as DistributedSampler
from tilegrad.data.sampler import RandomSampler as RandomSampler
from tilegrad.data.sampler import Sampler as Sampler
from tilegrad.data.sampler import SequentialSampler as SequentialSampler
from tilegrad.data.sampler import SubsetRandomSampler as SubsetRandomSampler
from tilegrad.data.sampler import WeightedRandomSampler as WeightedRandomSampler
from tilegrad.data.worker import WorkerInfo as WorkerInfo
from tilegrad.data.worker import get_worker_info as get_worker_info

from . import transforms as transforms

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "Digits",
    "DistributedSampler",
    "IterableDataset",
    "MNIST",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerInfo",
    "default_collate",
    "default_convert",
    "get_worker_info",
    "random_split",
    "read_idx",
    "transforms",
]
