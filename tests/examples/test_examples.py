"""The examples at a tiny size: they learn, stop, go on with the identical losses, and say what is wrong."""

from __future__ import annotations

import gzip
import shlex
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from examples import generation, mnist, shakespeare, training
from tests.documents import blocks, commands
from tests.source import ROOT
from tests.test_documents import run_commands
from tilegrad.errors import ArgumentError, CheckpointError, DataError, NaNError

IMAGES = 160


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits inside the package, in the form of MNIST: each pixel three by three, with a margin."""
    folder = tmp_path_factory.mktemp("digits")
    for part, train in (("train", True), ("t10k", False)):
        data = tg.data.Digits(train=train)
        small = np.asarray(data.images)[:IMAGES].reshape(-1, 8, 8)
        images = np.pad(np.kron(small, np.ones((1, 3, 3))), ((0, 0), (2, 2), (2, 2)))
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", (images / images.max() * 255).astype(np.uint8))
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", np.asarray(data.labels)[:IMAGES].astype(np.uint8))
    return folder


def write_idx(path: Path, array: np.ndarray[Any, Any]) -> None:
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters")
    (folder / "input.txt").write_text((ROOT / "README.md").read_text() * 2)
    return folder


def read(digits: Path, *more: str) -> Any:
    return mnist.main(["--data", str(digits), "--test", "100", "--batch", "16", *more])


def written(letters: Path, *more: str) -> Any:
    tiny = "--context 8 --width 8 --layers 1 --batch 4 --steps 3 --test 5 --letters 5 --epochs 4".split()
    return shakespeare.main(["--data", str(letters), *tiny, *more])


def test_it_learns_to_read(digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = read(digits, "--model", "mlp", "--epochs", "12")
    assert np.mean(training.losses[-10:]) < 0.5 * np.mean(training.losses[:10])
    *_, before, last = capsys.readouterr().out.splitlines()
    assert before.startswith("epoch 12: mean loss ")
    assert last.startswith("mlp on MNIST: ")
    assert "learned from 160, after 12 epochs (120 steps); 109,386 parameters; training " in last


@pytest.mark.parametrize("model", ["logistic", "cnn"])
def test_reading_goes_on_as_if_it_had_not_stopped(
    model: str, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Covers dropout, running statistics, another order of images in each epoch, and a falling learning rate."""
    nn = tg.nn
    small = mnist.Recipe(lambda: nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.BatchNorm1d(10)), mnist.sgd, 0.1)
    monkeypatch.setitem(mnist.RECIPES, "logistic", small)
    settings = ["--model", model, "--train", "32", "--epochs", "3", "--checkpoint", str(tmp_path / "file.pt")]
    whole = read(digits, *settings)
    read(digits, *settings, "--stop", "1")
    tg.rand(5)  # whatever has happened in between
    resumed = read(digits, *settings, "--resume")
    assert len(whole.losses) == 6
    assert resumed.losses == whole.losses
    for name, value in whole.model.state_dict().items():
        np.testing.assert_array_equal(resumed.model.state_dict()[name].numpy(), value.numpy(), err_msg=name)


@pytest.mark.parametrize("model", ["gpt", "lstm"])
def test_writing_goes_on_as_if_it_had_not_stopped(
    model: str, letters: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--model", model, "--checkpoint", str(tmp_path / "file.pt")]
    whole = written(letters, *settings)
    text = capsys.readouterr().out.splitlines()
    written(letters, *settings, "--stop", "2")
    resumed = written(letters, *settings, "--resume")
    assert len(whole.losses) == 12
    assert resumed.losses == whole.losses
    assert "validation loss " in text[3]
    assert text[-1].startswith(f"{model} on Shakespeare: validation loss ")


def test_a_checkpoint_of_something_else(digits: Path, tmp_path: Path) -> None:
    file = tmp_path / "file.pt"
    read(digits, "--model", "logistic", "--train", "32", "--epochs", "1", "--checkpoint", str(file))
    with pytest.raises(ArgumentError, match="other settings: model 'logistic', not 'mlp', lr 0.1, not 0.05"):
        read(digits, "--model", "mlp", "--train", "32", "--checkpoint", str(file), "--resume")
    whole = tg.load(file)
    tg.save({name: part for name, part in whole.items() if name != "random"}, file)
    with pytest.raises(CheckpointError, match="is no checkpoint of this program"):
        read(digits, "--model", "mlp", "--checkpoint", str(file), "--resume")
    with pytest.raises(ArgumentError, match="--resume needs --checkpoint FILE"):
        read(digits, "--model", "mlp", "--resume")


def test_data_that_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match="curl"):
        mnist.main(["--data", str(tmp_path)])
    with pytest.raises(DataError, match="curl"):
        shakespeare.main(["--data", str(tmp_path)])


@pytest.mark.parametrize("wrong", ["--epochs 0", "--batch -2", "--train 0", "--stop 0", "--lr 0", "--test x"])
def test_numbers_that_make_no_sense(wrong: str, digits: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read(digits, *wrong.split())
    assert f"argument {wrong.split()[0]}" in capsys.readouterr().err


def test_what_cannot_be_trained(digits: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="--batch 16 is more than there are images to learn from: 8"):
        read(digits, "--train", "8")
    with pytest.raises(ArgumentError, match="there is no folder"):
        read(digits, "--model", "logistic", "--checkpoint", str(tmp_path / "none" / "file.pt"))


def test_what_is_wrong_is_said_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command line prints no traceback."""
    (tmp_path / "input.txt").write_text("too short")
    with pytest.raises(SystemExit) as end:
        training.command(lambda: shakespeare.main(["--data", str(tmp_path)]))
    assert end.value.code == 2
    assert "has no piece of 128 and one more" in capsys.readouterr().err


@pytest.mark.parametrize("given", [[], ["--checkpoint", "digits.safetensors"]])
def test_who_stops_a_training_is_told_how_it_goes_on(
    given: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["mnist", *given])
    with pytest.raises(SystemExit) as stop:
        training.command(interrupted)
    assert stop.value.code == 130
    assert ("with --checkpoint FILE and --resume it" in capsys.readouterr().err) == (not given)


def test_several_texts_are_continued_together(letters: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An answer does not depend on which others are asked for, nor on how many."""
    tiny = "--context 16 --width 8 --layers 1 --batch 4 --steps 3 --test 5 --letters 5 --epochs 1".split()
    alone = generation.main(["--data", str(letters), *tiny, "--prompts", "An"])
    assert alone[0] in capsys.readouterr().out
    prompts = ["An", "import", "x" * 14]
    together = generation.main(["--data", str(letters), *tiny, "--prompts", *prompts])
    assert together[0] == alone[0]
    assert [len(answer) for answer in together] == [5, 5, 2]
    with pytest.raises(ArgumentError, match="the prompt has 30 tokens"):
        generation.main(["--data", str(letters), *tiny, "--prompts", "x" * 30])


def test_a_loss_that_is_no_number(digits: Path) -> None:
    with pytest.raises(NaNError, match="try a smaller --lr"):
        read(digits, "--model", "mlp", "--epochs", "5", "--lr", "1e20")


def test_what_the_document_says_to_type() -> None:
    """Its commands that are not run are understood: running them takes minutes."""
    shown = [block for block in blocks(ROOT / "examples" / "README.md") if block.note.startswith("skip:")]
    typed = [c.line for block in shown for c in commands(block)]
    assert len(typed) >= 3
    for line in typed:
        python, option, program, *words = line.split()
        assert (python, option) == ("python", "-m")
        programs = {"examples.mnist": mnist, "examples.shakespeare": shakespeare, "examples.generation": generation}
        programs[program].parser().parse_args(shlex.split(" ".join(words)))


def test_short_programs_print_what_the_document_says(tmp_path: Path) -> None:
    shown = [b for b in blocks(ROOT / "examples" / "README.md") if b.language == "console" and not b.note]
    assert shown
    for block in shown:
        run_commands(block, tmp_path, ROOT)


def test_the_shared_data(shared_data: Path) -> None:
    if not (shared_data / "mnist").is_dir() or not (shared_data / "tinyshakespeare").is_dir():
        pytest.skip("no mnist or no tinyshakespeare in shared/data")
    text = shakespeare.read(shared_data / "tinyshakespeare")
    assert len(text.letters) == 65
    assert text.written(text.learned[:5].tolist()) == "First"
    training = read(shared_data / "mnist", "--model", "logistic", "--train", "2000", "--epochs", "3")
    assert training.losses[-1] < 1.0
