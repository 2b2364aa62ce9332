"""Files for TensorBoard: what was added is read back by a reader of its own, and by TensorBoard's where it is there."""

import struct
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad import nn
from tilegrad.errors import ArgumentError, ShapeError
from tilegrad.serialization.event_files import checksum
from tilegrad.tensorboard import SummaryWriter

Message = dict[int, list[Any]]


def records(folder: Path) -> Iterator[bytes]:
    (path,) = folder.glob("events.out.tfevents.*")
    data = path.read_bytes()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == checksum(data[:8])
        message = data[12 : 12 + length]
        assert struct.unpack("<I", data[12 + length : 16 + length])[0] == checksum(message)
        yield message
        data = data[16 + length :]


def number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while data[at] & 128:
        value, shift, at = value | (data[at] & 127) << shift, shift + 7, at + 1
    return value | data[at] << shift, at + 1


def message(data: bytes) -> Message:
    found: Message = {}
    at = 0
    while at < len(data):
        head, at = number(data, at)
        part: Any
        if head & 7 == 0:
            part, at = number(data, at)
        elif head & 7 == 2:
            length, at = number(data, at)
            part, at = data[at : at + length], at + length
        else:
            width, code = (8, "<d") if head & 7 == 1 else (4, "<f")
            (part,), at = struct.unpack(code, data[at : at + width]), at + width
        found.setdefault(head >> 3, []).append(part)
    return found


def values(folder: Path) -> list[tuple[int, str, Message]]:
    """Step, tag and contents of every value."""
    made = []
    for event in map(message, records(folder)):
        for summary in event.get(5, []):
            value = message(message(summary)[1][0])
            made.append((event.get(2, [0])[0], value[1][0].decode(), value))
    return made


@checklist(114)
def test_what_is_added_is_in_the_file(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("Train/loss", tg.tensor([0.5]).sum(), 7)
        writer.add_scalars("accuracy", {"train": 0.25, "test": 0.125}, 3)
        writer.add_text("note", "hello", 1)
        writer.add_histogram("weights", tg.arange(10).float(), 2, bins=5)
        writer.add_image("picture", tg.ones(1, 2, 3) * 0.5)
        writer.add_images("pictures", tg.ones(9, 1, 4, 4))
    (scalar, text, histogram, picture, pictures) = values(tmp_path)
    assert (*scalar[:2], scalar[2][2]) == (7, "Train/loss", [0.5])
    assert [values(tmp_path / f"accuracy_{name}")[0][2][2] for name in ("train", "test")] == [[0.25], [0.125]]
    assert (text[1], message(text[2][8][0])[8]) == ("note/text_summary", [b"hello"])
    found = message(histogram[2][5][0])
    assert [found[n][0] for n in range(1, 6)] == [0, 9, 10, 45, 285]
    assert struct.unpack("<5d", found[7][0]) == (2, 2, 2, 2, 2)
    image = message(picture[2][4][0])
    assert [image[n] for n in (1, 2, 3)] == [[2], [3], [1]]
    packed = image[4][0].split(b"IDAT")[1].split(b"IEND")[0][:-8]
    assert zlib.decompress(packed) == b"\0\x7f\x7f\x7f" * 2
    assert message(pictures[2][4][0])[2] == [8 * 6 + 2]


@checklist(114)
def test_the_graph_of_a_network(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(net, tg.ones(5, 3))
    (graph,) = [message(x[4][0]) for x in map(message, records(tmp_path)) if 4 in x]
    nodes = {n[1][0].decode(): n for n in map(message, graph[1])}
    assert {"0/weight", "0/bias", "2/weight", "2/bias", "input0"} <= nodes.keys()
    assert all(read.decode() in nodes for n in nodes.values() for read in n.get(3, []))
    assert b"relu" in {n[2][0] for n in nodes.values()} or b"maximum" in {n[2][0] for n in nodes.values()}


def test_mistakes_are_told(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        with pytest.raises(ArgumentError, match=r"add_scalar: 'loss' is float32 of shape \(2,\)"):
            writer.add_scalar("loss", tg.ones(2))
        with pytest.raises(ShapeError, match=r"add_image: 'x' has shape \(2, 2\), which is not CHW"):
            writer.add_image("x", np.ones((2, 2)))
        with pytest.raises(ArgumentError, match="no elements"):
            writer.add_histogram("x", tg.zeros(0))
        with pytest.raises(ArgumentError, match="give it an input"):
            writer.add_graph(nn.Linear(1, 1))
        with pytest.raises(AttributeError, match="no add_mesh here: write a picture"):
            writer.add_mesh("x", tg.ones(2))
        with pytest.raises(AttributeError, match="did you mean"):
            writer.add_scaler("x", 1)


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "a matrix of sound": (lambda w: w.add_audio("x", np.ones((2, 3))), ShapeError, "one row of samples"),
    "labels for others": (lambda w: w.add_pr_curve("x", [1, 0], [0.5]), ShapeError, "2 labels for 1 predictions"),
    "probabilities over 1": (lambda w: w.add_pr_curve("x", [1, 0], [0.5, 1.5]), ArgumentError, "from 0 to 1"),
    "one threshold": (lambda w: w.add_pr_curve("x", [1], [0.5], num_thresholds=1), ArgumentError, "at least 2"),
    "a list of settings": (lambda w: w.add_hparams(["rate"], {}), ArgumentError, "two dicts"),
    "a setting that is a list": (lambda w: w.add_hparams({"a": [1]}, {}), ArgumentError, "'a' is a list"),
    "points in space": (lambda w: w.add_embedding(np.ones((2, 2, 2))), ShapeError, "is a matrix"),
    "labels of other points": (lambda w: w.add_embedding(np.ones((2, 2)), ["a"]), ShapeError, "1 entries for 2"),
    "a figure that is none": (lambda w: w.add_figure("x", 7), ArgumentError, "is a int, and not a figure"),
    "images of three axes": (lambda w: w.add_images("x", np.ones((2, 2, 2))), ShapeError, "which is not NCHW"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str, tmp_path: Path) -> None:
    fn, error, words = WRONG[name]
    with SummaryWriter(tmp_path) as writer, pytest.raises(error, match=words):
        fn(writer)


def test_settings_and_curves_and_points(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_pr_curve("quality", tg.tensor([1, 0, 1, 1]), tg.tensor([0.9, 0.8, 0.7, 0.1]), num_thresholds=5)
        writer.add_audio("tone", np.sin(np.arange(100)), sample_rate=8000)
        writer.add_hparams({"rate": 0.1, "net": "deep", "wide": True}, {"accuracy": 0.5}, run_name="first")
        writer.add_embedding(tg.rand(3, 4), ["a", "b", "c"], tg.rand(3, 1, 5, 5), 7, 'odd "name"')
    quality, tone = values(tmp_path)
    numbers = np.frombuffer(message(quality[2][8][0])[5][0], np.float32).reshape(6, 5)
    np.testing.assert_allclose(numbers[4], [0.75, 2 / 3, 2 / 3, 0.5, 0], rtol=1e-6)
    np.testing.assert_allclose(numbers[5], [1, 2 / 3, 2 / 3, 1 / 3, 0], rtol=1e-6)
    assert message(tone[2][6][0])[4][0][:4] == b"RIFF"
    tags = [tag for _, tag, _ in values(tmp_path / "first")]
    assert tags == [f"_hparams_/{x}" for x in ("experiment", "session_start_info", "session_end_info")] + ["accuracy"]
    place = tmp_path / "00007" / 'odd "name"'
    assert [len(line.split("\t")) for line in (place / "tensors.tsv").read_text().splitlines()] == [4, 4, 4]
    assert (place / "metadata.tsv").read_text() == "a\nb\nc\n"
    assert (place / "sprite.png").read_bytes()[:4] == b"\x89PNG"
    assert 'tensor_path: "00007/odd \\"name\\"/tensors.tsv"' in (tmp_path / "projector_config.pbtxt").read_text()


def test_the_graph_has_the_modules(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Linear(4, 2))
    with SummaryWriter(tmp_path) as writer:
        writer.add_graph(net, tg.ones(5, 3))
    (graph,) = [message(x[4][0]) for x in map(message, records(tmp_path)) if 4 in x]
    names = {message(n)[1][0].decode() for n in graph[1]}
    assert any(name.startswith("0/0/") and not name.endswith(("weight", "bias")) for name in names)
    assert any(name.startswith("0/1/") for name in names)


@checklist(114)
def test_tensorboard_reads_it(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", 1 / (step + 1), step)
        writer.add_histogram("weights", np.arange(10.0), 2)
        writer.add_image("picture", np.ones((3, 2, 2)))
        writer.add_graph(nn.Linear(2, 2), tg.ones(1, 2))
        writer.add_text("note", "**hello**", 1)
        writer.add_audio("tone", np.sin(np.arange(100)), sample_rate=8000)
        writer.add_pr_curve("quality", np.array([1, 0]), np.array([0.9, 0.2]), 1)
        writer.add_hparams({"rate": 0.1, "net": "deep", "wide": True}, {"accuracy": 0.5}, run_name="first")
        writer.add_embedding(np.eye(3), metadata=["a", "b", "c"], tag="words")
    found = EventAccumulator(str(tmp_path), size_guidance={"histograms": 0, "images": 0})
    found.Reload()
    assert [e.step for e in found.Scalars("loss")] == [0, 1, 2]
    assert found.Histograms("weights")[0].histogram_value.num == 10
    assert found.Images("picture")[0].width == 2
    assert {n.name for n in found.Graph().node} >= {"weight", "bias", "input0"}
    assert found.Audio("tone")[0].sample_rate == 8000
    assert found.Tensors("note/text_summary")[0].tensor_proto.string_val == [b"**hello**"]
    assert [d.size for d in found.Tensors("quality")[0].tensor_proto.tensor_shape.dim] == [6, 127]
    run = EventAccumulator(str(tmp_path / "first"))
    run.Reload()
    assert run.Scalars("accuracy")[0].value == 0.5
    from google.protobuf import text_format
    from tensorboard.plugins.hparams import plugin_data_pb2
    from tensorboard.plugins.projector import projector_config_pb2

    projector = text_format.Parse(
        (tmp_path / "projector_config.pbtxt").read_text(), projector_config_pb2.ProjectorConfig()
    )
    (embedding,) = projector.embeddings
    assert (tmp_path / embedding.tensor_path).read_text().split() == ["1", "0", "0", "0", "1", "0", "0", "0", "1"]
    assert (tmp_path / embedding.metadata_path).read_text().split() == ["a", "b", "c"]
    content = run.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    start = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info
    assert {k: v.WhichOneof("kind") for k, v in start.hparams.items()} == {
        "rate": "number_value", "net": "string_value", "wide": "bool_value"
    }  # fmt: skip


def test_a_figure(tmp_path: Path) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure(figsize=(2, 1), dpi=50)
    figure.subplots().plot([1, 2, 3])
    with SummaryWriter(tmp_path) as writer:
        writer.add_figure("curve", figure, 3)
    ((step, tag, value),) = values(tmp_path)
    image = message(value[4][0])
    assert (step, tag, image[1], image[2]) == (3, "curve", [50], [100])


def test_under_pytorchs_name(tmp_path: Path) -> None:
    import subprocess

    script = tmp_path / "script.py"
    script.write_text(
        "from torch.utils.tensorboard import SummaryWriter\n"
        "writer = SummaryWriter('logs')\n"
        "writer.add_scalar('loss', 1.0, 0)\n"
        "writer.flush()\n"
        "writer.close()\n"
        "print(SummaryWriter.__module__)\n"
    )
    command = [sys.executable, "-m", "tilegrad.torch", str(script)]
    environment = {"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environment)
    assert done.stdout == "tilegrad.profile.summary_writer\n"
    assert [e[1] for e in values(tmp_path / "logs")] == ["loss"]
