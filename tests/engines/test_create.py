"""Engines from modules, saved programs and ONNX files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.engines.networks import NETWORKS, expected, network
from tilegrad import nn
from tilegrad.errors import ShapeError, TilegradError
from tilegrad.ops.recurrence import Recurrence
from tilegrad.tree import flatten


@pytest.mark.parametrize("source", ["module", "shapes", "program", "onnx"])
@pytest.mark.parametrize("name", NETWORKS)
def test_engines_compute_what_the_network_computes(name: str, source: str, tmp_path: Path) -> None:
    model, example = network(name)
    args = example(4)
    names = {"convolutions": ["input"], "pair": ["x", "y"], "tokens": ["tokens"]}[name]
    if source == "module":
        engine = tg.engine(model, args, max_batch=4)
    elif source == "shapes":
        shapes = {n: f"{x.dtype}[n, {', '.join(map(str, x.shape[1:]))}]" for n, x in zip(names, args, strict=True)}
        engine = tg.engine(model, shapes=shapes, max_batch=4)
    elif source == "program":
        tg.export(model, args, dynamic={n: {0: "n"} for n in names}).save(tmp_path / "net.tgp")
        engine = tg.engine(tmp_path / "net.tgp", max_batch=4)
    else:
        path, axes = str(tmp_path / "net.onnx"), {n: {0: "n"} for n in names}
        tg.onnx.export(model, tuple(map(tg.tensor, args)), path, input_names=names, dynamic_axes=axes)
        engine = tg.engine(path, max_batch=4)
    assert ([x.name for x in engine.inputs], engine.max_batch) == (names, 4)
    infer = engine.inferencer()
    for rows in (4, 2, 1):
        args = example(rows)
        for found in (infer(*args), infer(**dict(zip(names, args, strict=True)))):
            for have, wanted in zip(flatten(found)[0], expected(model, args), strict=True):
                np.testing.assert_allclose(have, wanted, 1e-4, 1e-5)


@pytest.mark.parametrize(("rows", "steps"), [(1, 5), (8, 3), (9, 5), (2, 129)])
@pytest.mark.parametrize("kind", ["LSTM"])
def test_recurrent_layers_on_few_sequences_run_step_by_step(kind: str, rows: int, steps: int) -> None:
    model = getattr(nn, kind)(4, 6, batch_first=True).eval()
    x = np.random.default_rng(rows).standard_normal((rows, steps, 4)).astype(np.float32)
    engine = tg.engine(model, x)
    found = engine.inferencer()(x)[0]
    with tg.no_grad():
        np.testing.assert_allclose(found, model(tg.tensor(x))[0].numpy(), 1e-4, 1e-6)
    is_fused = any(isinstance(v, Recurrence) for v in engine.network.graph.values())
    assert is_fused == (rows > 8 or steps > 128)
    assert not model.unrolled


def test_errors_name_the_layer_and_both_shapes() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Sequential(nn.Flatten(), nn.Linear(8 * 36, 5))).eval()
    with pytest.raises(ShapeError, match=r"layer '0' \(Conv2d\): .*\(n, 1, 8, 8\).*\(8, 3, 3, 3\)"):
        tg.engine(model, tg.ones(4, 1, 8, 8), max_batch=8)
    with pytest.raises(ShapeError, match=r"layer '2.1' \(Linear\): .*\(n, 392\).*\(5, 288\)"):
        tg.engine(model, shapes=[("n", 3, 9, 9)])
    assert not model.training


BAD: list[tuple[str, Callable[[nn.Module], Any], str]] = [
    ("no example", lambda m: tg.engine(m), "needs either an example or shapes"),
    ("a number", lambda m: tg.engine(3), "a module or the path of a file is wanted, not int"),
    ("no file", lambda m: tg.engine("nowhere.tgp"), "there is no file"),
    ("an empty batch", lambda m: tg.engine(m, tg.ones(1, 6), max_batch=0), "at least 1, not 0"),
    ("a number as example", lambda m: tg.engine(m, tg.tensor(1.0), max_batch=4), "no axis 0"),
    ("a shape of words", lambda m: tg.engine(m, shapes={"input": ("n", "3 4")}), "a tuple of sizes and of names"),
    ("a wrong text", lambda m: tg.engine(m, shapes={"input": "float32 n"}), "a type is written as"),
    ("an unknown input", lambda m: tg.engine(m, shapes={"x": (3, 6)}), "the inputs are input"),
    ("too many", lambda m: tg.engine(m, shapes=[(3, 6), (3, 6)]), "by name or in order: input"),
    ("both", lambda m: tg.engine(m, tg.ones(1, 6), shapes=[(3, 6)]), "either an example or shapes"),
    ("recorded already", lambda m: tg.engine(tg.export(m, tg.ones(1, 6)), tg.ones(1, 6)), "has shapes already"),
    ("one batch", lambda m: tg.engine(tg.export(m, tg.ones(3, 6)), max_batch=4), "batches of one size.*has 3 rows"),
]


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_sources_are_refused(make: Callable[[nn.Module], Any], message: str) -> None:
    with pytest.raises(TilegradError, match=message):
        make(nn.Linear(6, 2).eval())
