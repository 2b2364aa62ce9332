"""Write and read the file of a saved program: a safetensors file whose metadata hold the network.

The tensors lie in the layout of safetensors, so that they are mapped, and that other tools read them. The metadata are
texts: `tilegrad.network` is the network (`network_printer.py`), `tilegrad.version` the version that wrote it,
`tilegrad.checksums` the CRC-32 of each tensor and the SHA-256 of the network. Stored machine code (`machine_code.py`)
is one more tensor, which is read only where the user trusts the file.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ..config import VERSION
from ..errors import CheckpointError
from ..functions.creation import tensor
from ..lazy.evaluation import array_of
from ..serialization import safetensors
from ..serialization.files import File, named
from ..tensor import Tensor
from ..tree import LEAF, Tree, unflatten
from .network_parser import parse_network
from .network_printer import Network

NETWORK, VERSION_KEY, CHECKSUMS = "tilegrad.network", "tilegrad.version", "tilegrad.checksums"
CODE = "tilegrad:code"
"""Name of the tensor that holds machine code: no parameter has a colon in its name."""
CHECKING_THREADS = 4
"""Threads that compute checksums: `zlib` releases the GIL, and reading the file takes longer than the sums."""


def write(file: File, network: Network, tensors: Mapping[str, Tensor], code: bytes = b"") -> None:
    """Write a network with its tensors, and the machine code of some calls."""
    stored = {name: tensors[name].detach() for name, t in network.tensors.items() if t.type is not None}
    text = str(network)
    sums = {name: checksum(array_of(x)) for name, x in stored.items()}
    hashes = {"network": hashlib.sha256(text.encode()).hexdigest()}
    if code:
        hashes["code"] = hashlib.sha256(code).hexdigest()
        stored[CODE] = tensor(np.frombuffer(code, np.uint8))
    checksums = json.dumps({**hashes, "tensors": sums})
    safetensors.save_file(stored, file, {NETWORK: text, VERSION_KEY: VERSION, CHECKSUMS: checksums})


def read(file: File, trust_code: bool = False) -> tuple[Network, dict[str, Tensor]]:
    """Read a network with its tensors, whose memory is that of the file; with `trust_code` its machine code is used."""
    name = named(file)
    with safetensors.safe_open(file) as opened:
        metadata = opened.metadata() or {}
        text = metadata.get(NETWORK)
        if text is None:
            raise CheckpointError(
                f"{name} is no saved program: it has tensors, but no network; tilegrad.load_safetensors reads those"
            )
        sums = _checksums(metadata.get(CHECKSUMS, ""), name)
        if sums.get("network") != hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest():
            raise CheckpointError(f"{name} is damaged: its network has another checksum")
        network = parse_network(text, name)
        names = [key for key in opened.keys() if key != CODE]  # noqa: SIM118
        tensors = {key: opened.get_tensor(key) for key in _stored(network, names, name)}
        if trust_code and len(names) < len(opened.keys()):
            _provide_code(array_of(opened.get_tensor(CODE)).tobytes(), sums.get("code"), name)
    for key, x in tensors.items():
        declared = network.tensors[key].type
        if x.own_value().type != declared:
            raise CheckpointError(f"{name}: the tensor {key!r:.60} is {x.own_value().type}, not {declared}")
    _compare(tensors, sums["tensors"], name)
    return network, tensors


def _provide_code(code: bytes, checksum: object, name: str) -> None:
    from .machine_code import provide

    if hashlib.sha256(code).hexdigest() != checksum:
        raise CheckpointError(f"{name} is damaged: its machine code has another checksum")
    provide(code, name)


def _stored(network: Network, found: list[str], name: str) -> list[str]:
    wanted = {key for key, t in network.tensors.items() if t.type is not None}
    if wanted != set(found):
        wrong = min(wanted ^ set(found))
        raise CheckpointError(f"{name}: the tensor {wrong!r:.60} is {'missing' if wrong in wanted else 'unknown'}")
    return found


def _checksums(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("tensors"), dict):
        raise CheckpointError(f"{name} is damaged: it has no checksums")
    return found


def _compare(tensors: Mapping[str, Tensor], sums: Mapping[str, Any], name: str) -> None:
    """Raise if the elements of a tensor are not those that were written."""
    largest = sorted(tensors, key=lambda key: -tensors[key].nbytes)
    with ThreadPoolExecutor(CHECKING_THREADS) as threads:
        found = list(threads.map(lambda key: checksum(array_of(tensors[key])), largest))
    for key, now in zip(largest, found, strict=True):
        if sums.get(key) != now:
            raise CheckpointError(f"{name} is damaged: the tensor {key!r:.60} has another checksum")


def checksum(array: np.ndarray[Any, Any]) -> int:
    """Return the CRC-32 of the elements."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def decoded(text: bytes, name: str) -> str:
    """Decode a text file."""
    try:
        return text.decode()
    except UnicodeDecodeError as why:
        raise CheckpointError(f"{name} is no text: {why.reason} at byte {why.start}") from None


def filled(tree: Tree, leaves: Iterator[Tensor]) -> Any:
    """Build an argument of its tensors, taken from `leaves`."""
    return unflatten(tree, leaves) if tree != LEAF else next(leaves)
