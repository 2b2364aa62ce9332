"""Load networks from files as engines.

A file is copied before it is mapped: whoever writes over it, rather than replacing it, does not change, or tear, the
weights of a model that answers.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..engines import Engine, engine
from ..engines import TensorSpec as EngineTensor
from ..errors import ArgumentError, DataError, MissingFileError, ShapeError
from ..tree import flatten
from .batching import BatchSettings, Inferencer
from .model import LoadedNetwork
from .tensor_data import ServedTensor


def engine_loader(instances: int = 1) -> Callable[[Path, BatchSettings], LoadedNetwork]:
    """Return a loader that makes so many inferencers of each engine."""
    if not 1 <= instances <= 256:
        raise ArgumentError(f"{instances} instances: a model has 1 to 256 inferencers")
    return lambda path, settings: network_of_engine(engine_of_file(path, settings.max_batch), instances)


def engine_of_file(path: Path, max_batch: int) -> Engine:
    """Make an engine of a file, by way of a copy of it."""
    if not path.is_file():
        raise MissingFileError(f"there is no file {path}")
    with tempfile.TemporaryDirectory(prefix="tilegrad-serve-") as folder:
        copy = Path(folder) / path.name
        shutil.copyfile(path, copy)
        try:
            return _engine(copy, max_batch)
        except Exception as problem:
            if path.suffix == ".onnx":
                return _engine(path, max_batch)  # its elements may be in other files, beside the original
            raise DataError(
                str(problem.args[0] if problem.args else problem).replace(os.fspath(copy), str(path))
            ) from None


def _engine(path: Path, max_batch: int) -> Engine:
    try:
        return engine(path, max_batch=max_batch, batches=[1 << n for n in range(max_batch.bit_length())])
    except ShapeError:  # the network was recorded for batches of one size
        return engine(path)


def network_of_engine(made: Engine, instances: int = 1) -> LoadedNetwork:
    """Adapt an engine to the server; it is run once, so that its first request does not wait for a compiler."""
    network = LoadedNetwork(
        tuple(map(served_tensor, made.inputs)),
        tuple(map(served_tensor, made.outputs)),
        tuple(_caller(made) for _ in range(instances)),
    )
    rows = {1, *made.batches} if network.row_size is not None else {1}
    for call in network.inferencers:
        for count in sorted(rows):
            try:
                call(*network.example(count, 0))
            except Exception:  # random elements may be wrong for a network: requests will say so, or be right
                break
    return network


def _caller(made: Engine) -> Inferencer:
    infer = made.inferencer()

    def call(*arrays: Any) -> list[Any]:
        return [np.asarray(x) for x in flatten(infer(*arrays))[0]]

    return call


def served_tensor(spec: EngineTensor) -> ServedTensor:
    """Describe a tensor of an engine in the protocol's terms."""
    return ServedTensor(spec.name, spec.dtype.numpy, spec.shape)
