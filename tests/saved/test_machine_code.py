"""Machine code in files of saved programs: who trusts it compiles nothing, all others and other machines do."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tilegrad as tg
from tests.saved.networks import LENET
from tests.source import ROOT
from tilegrad.__main__ import main
from tilegrad.errors import CheckpointError, ShapeError
from tilegrad.runtime import cache
from tilegrad.saved import machine_code, program_file
from tilegrad.saved.exported import ExportedProgram, load_program

EXAMPLE = np.linspace(-1, 1, 3 * 28 * 28, dtype=np.float32).reshape(3, 1, 28, 28)
CALL = """
import sys
import numpy as np
import tilegrad as tg
from tilegrad.runtime import events

compiled = []
with events.listening(lambda e: compiled.append(e.name) if e.kind == "compile" else None), tg.no_grad():
    net = tg.load_program(sys.argv[1], trust_code=sys.argv[2] == "trusted")
    scores = net(np.load(sys.argv[3])).numpy()
np.save(sys.argv[4], scores)
print(len(compiled), "llvmlite" in sys.modules)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a network, and one with its machine code for three images."""
    made = tmp_path_factory.mktemp("code")
    (made / "net.txt").write_text(LENET)
    tg.manual_seed(0)
    network = load_program(made / "net.txt")
    network.save(made / "plain.tgp")
    network.save(made / "net.tgp", code_for=[EXAMPLE])
    np.save(made / "x.npy", EXAMPLE)
    return made


@pytest.fixture(autouse=True)
def nothing_provided() -> Iterator[None]:
    before = dict(cache.provided)
    yield
    cache.provided.clear()
    cache.provided.update(before)


def called(
    folder: Path, trusted: str, **settings: str
) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.float32]], str]:
    """Call the network in a fresh process without a cache on disk: its scores, and what it compiled."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TILEGRAD_")}
    environment |= {"TILEGRAD_CACHE": "off", "PYTHONPATH": str(ROOT)} | settings
    command = [sys.executable, "-c", CALL, "net.tgp", trusted, "x.npy", "y.npy"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return np.load(folder / "y.npy"), done.stdout


def test_who_trusts_a_file_compiles_nothing(folder: Path) -> None:
    with tg.no_grad():
        expected = load_program(folder / "plain.tgp")(EXAMPLE).numpy()
    trusted, without = called(folder, "trusted"), called(folder, "not")
    assert trusted[1] == "0 False\n"
    assert int(without[1].split()[0]) > 3
    assert trusted[0].tobytes() == without[0].tobytes()
    np.testing.assert_allclose(trusted[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the setting is for x86")
def test_another_kind_of_machine_compiles_from_the_graph(folder: Path) -> None:
    other = called(folder, "trusted", TILEGRAD_VECTORS="sse")
    assert int(other[1].split()[0]) > 3
    np.testing.assert_allclose(other[0], called(folder, "trusted")[0], rtol=1e-4, atol=1e-5)


def test_code_is_not_read_unless_the_file_is_trusted(folder: Path) -> None:
    load_program(folder / "net.tgp")
    assert not cache.provided
    load_program(folder / "net.tgp", trust_code=True)
    assert cache.provided
    assert {*tg.load_safetensors(folder / "plain.tgp")} < {*tg.load_safetensors(folder / "net.tgp")}


def code_in(folder: Path) -> bytes:
    return tg.load_safetensors(folder / "net.tgp")[program_file.CODE].numpy().tobytes()


def test_damaged_code_is_refused(folder: Path, tmp_path: Path) -> None:
    data, code = (folder / "net.tgp").read_bytes(), code_in(folder)
    at = data.index(code)
    for offset in (0, 1, len(code) // 2, len(code) - 1):
        damaged = bytearray(data)
        damaged[at + offset] ^= 1
        (tmp_path / "net.tgp").write_bytes(damaged)
        with pytest.raises(CheckpointError, match="its machine code has another checksum"):
            load_program(tmp_path / "net.tgp", trust_code=True)
        load_program(tmp_path / "net.tgp")


@pytest.mark.parametrize(
    "code", [b"", b"x", machine_code.zlib.compress(b"[]"), machine_code.zlib.compress(b'{"a": 1}')]
)
def test_what_is_no_code_is_refused(code: bytes) -> None:
    with pytest.raises(CheckpointError, match="net is damaged: its machine code cannot be read"):
        machine_code.provide(code, "net")


@pytest.mark.parametrize("change", ["version", "contents", "sources"])
def test_code_of_another_tilegrad_is_left_alone(folder: Path, change: str) -> None:
    stored = json.loads(machine_code.zlib.decompress(code_in(folder)))
    if change == "sources":
        next(iter(stored["sources"].values())).append("/ops/not_there.py")
    else:
        stored[change] = "other"
    assert machine_code.provide(machine_code.zlib.compress(json.dumps(stored).encode()), "net") == 0
    assert not cache.provided


def test_examples_are_checked_before_anything_is_written(tmp_path: Path, folder: Path) -> None:
    network = load_program(folder / "net.txt")
    with pytest.raises(ShapeError, match="the network takes"):
        network.save(tmp_path / "net.tgp", code_for=[np.zeros((3, 28, 28), np.float32)])
    assert not (tmp_path / "net.tgp").exists()


def test_the_same_program_serves_calls_from_all_lines(folder: Path) -> None:
    """Its key names no line of the user, who calls it from anywhere."""
    keys: list[str] = []

    class Names(dict[str, bytes]):
        def __contains__(self, key: object) -> bool:
            keys.append(str(key))
            return super().__contains__(key)

    def looked_up(network: ExportedProgram, line: str) -> list[str]:
        keys.clear()
        scope = {"network": network, "x": EXAMPLE, "tg": tg}
        exec(compile(f"{line}with tg.no_grad(): network(x).numpy()", f"user{len(line)}.py", "exec"), scope)
        return [*keys]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cache, "provided", Names())
        first = looked_up(load_program(folder / "net.tgp"), "")
        assert looked_up(load_program(folder / "net.tgp"), "\n\n")[:1] == first[:1]


def test_on_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    code = code_in(folder)
    monkeypatch.setattr(machine_code, "code_of", lambda *_: code)
    assert main(["export", "plain.tgp", "made.tgp", "x.npy", "--code"]) == 0
    assert program_file.CODE in tg.load_safetensors("made.tgp")
    capsys.readouterr()
    assert main(["run", "made.tgp", "x.npy", "--trust-code"]) == 0
    assert capsys.readouterr().out.startswith("float32 [3, 10]\n")
    for wrong in (["other.txt", "x.npy"], ["other.tgp"]):
        assert main(["export", "plain.tgp", *wrong, "--code"]) != 0
        assert "for arrays like the inputs: name some" in capsys.readouterr().err
