"""Files of saved programs: what they hold, and that damaged ones are refused."""

import os
from pathlib import Path

import numpy as np
import pytest

import tilegrad as tg
from tests.saved.networks import exported, mutations
from tilegrad.errors import CheckpointError
from tilegrad.runtime import atomic_write
from tilegrad.saved import program_file
from tilegrad.saved.exported import load_program
from tilegrad.serialization import safetensors


def _saved(path: Path) -> bytes:
    exported("batch norm").save(path)
    return path.read_bytes()


def test_other_tools_read_the_tensors(tmp_path: Path) -> None:
    _saved(tmp_path / "net.tgp")
    found = tg.load_safetensors(tmp_path / "net.tgp")
    state = exported("batch norm").state_dict()
    assert {*found} == {*state}
    assert all(np.array_equal(found[name].numpy(), x.numpy()) for name, x in state.items())


def test_equal_networks_give_equal_bytes(tmp_path: Path) -> None:
    assert _saved(tmp_path / "a") == _saved(tmp_path / "b")


def test_tensors_are_those_of_the_file_and_the_file_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "net.tgp"
    before = _saved(path)
    net = load_program(path)
    with tg.no_grad():
        for x in net.parameters():
            x.add_(1)
    assert path.read_bytes() == before
    assert not np.array_equal(
        next(net.parameters()).detach().numpy(), next(load_program(path).parameters()).detach().numpy()
    )


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    """Each change is noticed, at any place: bits that are flipped, pieces that are missing or exchanged."""
    path = tmp_path / "net.tgp"
    data, network = _saved(path), str(exported("batch norm"))
    refused = 0
    for damaged in mutations(data, 400, 1):
        path.write_bytes(damaged)
        try:
            net = load_program(path)
        except CheckpointError as error:
            refused += 1
            assert str(path) in str(error)  # noqa: PT017
        else:  # spaces of the header, the version that wrote it
            assert str(net) == network
            assert safetensors.load(damaged).keys() == safetensors.load(data).keys()
    assert refused > 300


@pytest.mark.parametrize("length", [0, 7, 8, 100, -1])
def test_truncated_files_are_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "net.tgp"
    path.write_bytes(_saved(path)[:length])
    with pytest.raises(CheckpointError):
        load_program(path)


@pytest.mark.parametrize("key", [program_file.NETWORK, program_file.CHECKSUMS])
def test_files_of_tensors_alone_are_no_programs(tmp_path: Path, key: str) -> None:
    path = tmp_path / "net.tgp"
    _saved(path)
    with safetensors.safe_open(path) as file:
        metadata = {name: text for name, text in (file.metadata() or {}).items() if name != key}
    tg.save_safetensors(tg.load_safetensors(path), path, metadata)
    with pytest.raises(CheckpointError, match="no network|no checksums"):
        load_program(path)


def test_a_program_that_cannot_be_written_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.tgp"
    before = _saved(path)

    def full(*_: object, **options: object) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(atomic_write.os, "replace", full)
        with pytest.raises(CheckpointError, match="cannot be written: No space left"):
            exported("cuts").save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["net.tgp"]
