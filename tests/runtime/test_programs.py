"""Compiled programs are found on the disk: the same program, and only for the same graph."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import tilegrad as tg
from tilegrad import compiler, config
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import Graph, Input, TensorType, Value
from tilegrad.ops.arithmetic import Add, Mul, mul
from tilegrad.ops.pooling import MaxPool
from tilegrad.ops.reduction import Sum
from tilegrad.ops.sliding import Adaptive, Sliding, WindowAxis
from tilegrad.runtime import programs
from tilegrad.runtime.private_folder import SUFFIX

from ..ops.registry import all_examples


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.changed(cache=str(tmp_path)):
        yield tmp_path


def graph_of(build: Callable[[Value], Value], *shape: int) -> Graph:
    x = Input(TensorType(float32, shape), "x")
    return Graph((x,), (build(x),))


def scaled(x: Value) -> Value:
    return Sum(mul(x, 2.0), (1,), False)


def test_a_program_is_read_as_it_was_written(folder: Path) -> None:
    first = compiler.compile(graph_of(scaled, 4, 5))
    assert len(list((folder / "programs").glob("*.entry"))) == 1
    again = compiler.compile(graph_of(scaled, 4, 5))
    assert again.program == first.program
    assert again.program is not first.program
    assert str(again.program) == str(first.program)
    assert [stage.name for stage in again.stages.made] == [stage.name for stage in first.stages.made]


def test_each_graph_has_its_own(folder: Path) -> None:
    def name(build: Callable[[Value], Value], updates: dict[int, int] = {}, title: str = "p", rows: int = 4) -> object:
        found = programs.name_of(graph_of(build, rows, 5), updates, title)
        return found and found.key

    names = [
        name(scaled),
        name(scaled, {0: 0}),
        name(scaled, title="q"),
        name(scaled, rows=3),
        name(lambda x: Sum(mul(x, 2.0), (0,), False)),
        name(lambda x: Sum(mul(x, 3.0), (1,), False)),
        name(lambda x: Add(x, x)),
        name(lambda x: Mul(x, x)),
    ]
    assert None not in names
    assert len(set(names)) == len(names)
    assert name(scaled) == name(scaled)
    x = Input(TensorType(float32, (2,)))
    plus, minus = (programs.name_of(Graph((x,), (mul(x, zero),)), {}, "p") for zero in (0.0, -0.0))
    assert plus != minus


WITHOUT_KEY = {"Batched": "an op is its attribute", "ExternalCall": "the source of its function is unknown"}


def test_every_op_has_a_key(folder: Path) -> None:
    """Else programs with it are compiled anew in each process."""
    missing = {
        e.name.split("#")[0]
        for e in all_examples()
        if e.op is not None and programs.name_of(e.graph(), {}, "p") is None
    }
    assert missing == set(WITHOUT_KEY)


def test_structures_are_part_of_the_key(folder: Path) -> None:
    def name(axis: WindowAxis) -> object:
        x = Input(TensorType(float32, (2, 6)))
        return programs.name_of(Graph((x,), (MaxPool(x, (axis,)),)), {}, "p")

    axes = [Sliding(6, 3, 2, 2, 0, 1), Sliding(6, 3, 2, 2, 1, 1), Sliding(6, 5, 2, 1, 0, 1), Adaptive(6, 3)]
    found = [name(axis) for axis in axes]
    assert None not in found
    assert all(found[n] != found[m] for n in range(4) for m in range(n))
    assert found[0] == name(Sliding(6, 3, 2, 2, 0, 1))


class Bomb:
    def __reduce__(self) -> object:
        return pytest.fail, ("it was executed",)


def test_ops_of_a_user_are_compiled_anew() -> None:
    class Doubled(Add):
        pass

    assert programs.name_of(graph_of(lambda x: Doubled(x, x), 3), {}, "p") is None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"no text",
        b"[" * 100_000,
        b'[[],["no program"],[]]',
        b'[["Program"],[],[[0]]]',
        b'[["Path"],["/"],[[0,0]]]',
        b'[["Any"],["/"],[[0,0]]]',
        b'[["named"],["no work"],[[0,0]]]',
        pickle.dumps(Bomb()),
    ],
    ids=lambda payload: str(payload[:12]),
)
def test_a_wrong_file_is_written_anew(folder: Path, payload: bytes) -> None:
    """No code in it is executed."""
    graph = graph_of(scaled, 4, 5)
    compiler.compile(graph)
    (entry,) = (folder / "programs").glob("*.entry")
    name = programs.ProgramKey(entry.name.removesuffix(SUFFIX), {})
    assert programs.read(name) is not None
    programs.shared("programs").write(name.key, payload)
    assert programs.read(name) is None
    program = compiler.compile(graph).program
    assert programs.read(name) == program


SCRIPT = """
import sys, tilegrad as tg
@tg.jit
def f(x): return (x * 3.0).softmax(-1).sum(0)
print(*f(tg.arange(12.0).reshape(3, 4)).tolist())
print(*sorted(m for m in sys.modules if m.startswith(("tilegrad.schedule.", "tilegrad.transform.pipeline"))))
"""


def test_the_next_process_passes_over_the_compiler(folder: Path) -> None:
    def run() -> list[str]:
        command = [sys.executable, "-c", SCRIPT]
        environment = {**os.environ, "TILEGRAD_CACHE": str(folder)}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split("\n")

    (first, compiled, _), (second, loaded, _) = run(), run()
    assert first == second
    assert compiled
    assert not loaded
    expected = tg.softmax(tg.arange(12.0).reshape(3, 4) * 3.0, -1).sum(0).numpy()
    np.testing.assert_allclose([float(x) for x in second.split()], expected, rtol=1e-6)
