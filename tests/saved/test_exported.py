"""Exported programs compute what the model computes, in a process that has no source of it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tests.nn.test_record import NETWORKS, _equal
from tests.saved.networks import exported
from tilegrad import nn
from tilegrad.errors import ArgumentError, MissingFileError, ShapeError
from tilegrad.nn import functional as F
from tilegrad.nn import models
from tilegrad.saved.exported import ExportedProgram, export, load_program
from tilegrad.tree import flatten

IMAGES = {
    "alexnet": lambda: (models.AlexNet(classes=4), (1, 1, 224, 224)),
    "resnet": lambda: (models.ResNet18(classes=4, stem="small"), (2, 1, 32, 32)),
}


def _again(program: ExportedProgram, path: Path) -> ExportedProgram:
    program.save(path / "net.tgp")
    return load_program(path / "net.tgp")


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("name", NETWORKS)
def test_loaded_programs_have_equal_bits(name: str, tmp_path: Path) -> None:
    make, example, _ = NETWORKS[name]
    tg.manual_seed(3)
    model = make().eval()
    program = export(model, example(3))
    again = _again(program, tmp_path)
    assert not again.training
    with tg.no_grad():
        state = {key: x.clone() for key, x in model.state_dict().items()}
        wanted = tg.jit(model.__call__)(*example(3))
        model.load_state_dict(state)
        _equal(wanted, again(*example(3)))


@pytest.mark.parametrize("name", IMAGES)
def test_large_networks(name: str, tmp_path: Path) -> None:
    model, shape = IMAGES[name]()
    model.eval()
    x = tg.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    again = _again(export(model, x, dynamic={"images": {0: "n"}}), tmp_path)
    with tg.no_grad():
        _equal(model(x), again(x), 1e-5)


@pytest.mark.parametrize("name", ["lenet", "lstm", "batch norm", "containers"])
def test_one_program_serves_all_sizes(name: str) -> None:
    make, example, dynamic = NETWORKS[name]
    tg.manual_seed(3)
    model = make().eval()
    program = export(model, example(3), dynamic=dynamic)
    with tg.no_grad():
        for n in (5, 2, 9):
            _equal(model(*example(n)), program(*example(n)), 1e-5)
    compiled = program.__dict__["_compiled"]
    assert len(compiled.programs) == 1


class Ordered(nn.Module):
    """Operations with kernels of their own."""

    def forward(self, x: tg.Tensor) -> dict[str, Any]:
        values, order = x.sort(-1)
        return {"values": values, "order": order, "top": x.topk(2).values, "sums": x.cumsum(0), "most": x.max(1)}


class Resized(nn.Module):
    """Windows, paddings and grids."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Sequential(nn.ConvTranspose2d(2, 3, 3, 2), nn.Upsample(scale_factor=2))

    def forward(self, x: tg.Tensor) -> tuple[tg.Tensor, ...]:
        bilinear = F.interpolate(x, size=(7, 7), mode="bilinear")
        return F.adaptive_avg_pool2d(self.up(x), 3), F.avg_pool2d(x, 2), F.pad(x, (1, 1, 0, 0)), bilinear


def _encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)


MORE: dict[str, tuple[Callable[[], nn.Module], Callable[[int], tg.Tensor], dict[str, Any]]] = {
    "encoder": (_encoder, lambda n: tg.randn(n, n + 2, 8), {"src": {0: "n", 1: "t"}}),
    "bfloat16": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)).to(tg.bfloat16),
        lambda n: tg.randn(n, 4).to(tg.bfloat16),
        {"input": {0: "n"}},
    ),
    "bags": (lambda: nn.EmbeddingBag(10, 3), lambda n: tg.arange(2 * n).reshape(n, 2), {"input": {0: "n"}}),
    "order": (Ordered, lambda n: tg.randn(n, 6), {"x": {0: "n"}}),
    "sizes of images": (Resized, lambda n: tg.randn(n, 2, 8, 8), {"x": {0: "n"}}),
}


@pytest.mark.parametrize("name", MORE)
def test_other_networks(name: str, tmp_path: Path) -> None:
    make, example, dynamic = MORE[name]
    tg.manual_seed(0)
    model = make().eval()
    again = _again(export(model, example(3), dynamic=dynamic), tmp_path)
    with tg.no_grad():
        for n in (3, 5, 1):
            x = example(n)
            for a, b in zip(flatten(model(x))[0], flatten(again(x))[0], strict=True):
                np.testing.assert_allclose(a.float().numpy(), b.float().numpy(), 1e-2, 1e-5)


def test_it_is_trained_after_loading(tmp_path: Path) -> None:
    """Each step gives the gradients and the running statistics of the model that was exported."""
    make, example, dynamic = NETWORKS["batch norm"]
    model = make().train()
    again = _again(export(model, example(3), dynamic=dynamic), tmp_path).train()
    x = example(6)
    for net in (model, again):
        optimizer = tg.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        for step in range(3):
            tg.manual_seed(step)
            optimizer.zero_grad()
            F.mse_loss(net(*x), tg.ones(6, 3, 3, 3)).backward()
            optimizer.step()
    _equal(model.state_dict(), again.state_dict(), 1e-5)
    with tg.no_grad():
        _equal(model.eval()(*x), again.eval()(*x), 1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int8", "uint8", "bool_"])
def test_elements_of_all_types_are_kept(dtype: str, tmp_path: Path) -> None:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", tg.tensor([[1, 0, 3]]).to(getattr(tg, dtype)))
            self.register_buffer("none", tg.zeros(0, 2, dtype=getattr(tg, dtype)))

        def forward(self, x: tg.Tensor) -> tuple[tg.Tensor, ...]:
            return x, self.kept.float() + x, self.none

    x = tg.tensor([[1.0, 2.0, 3.0]])
    model = Holds()
    again = _again(export(model, x), tmp_path)
    with tg.no_grad():
        _equal(model(x), again(x))
    assert again.kept.dtype is getattr(tg, dtype)


def test_a_frozen_parameter_stays_frozen(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[0].requires_grad_(False)
    again = _again(export(model, tg.ones(1, 2)), tmp_path)
    assert [p.requires_grad for p in again.parameters()] == [False, False, True, True]


SCRIPT = """
import sys
import numpy as np
import tilegrad as tg
program = tg.load_program("net.tgp")
with tg.no_grad():
    np.save("made.npy", program(np.load("x.npy")).numpy())
assert not any(name.startswith(("tests", "tilegrad.nn.models")) for name in sys.modules)
"""


def test_a_fresh_process_needs_no_source_of_the_model(tmp_path: Path) -> None:
    exported("lenet").save(tmp_path / "net.tgp")
    x = np.random.default_rng(0).standard_normal((4, 1, 28, 28)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, check=True)
    with tg.no_grad():
        np.testing.assert_allclose(np.load(tmp_path / "made.npy"), exported("lenet")(x).numpy(), 1e-6, 1e-6)


def test_an_exported_program_is_exported_again(tmp_path: Path) -> None:
    net = exported("containers")
    example = NETWORKS["containers"][1](3)
    assert str(export(net, example, dynamic=NETWORKS["containers"][2])) == str(net)


HOSTILE = """tilegrad network 1
tensors:
evaluate(x: float32[n]) -> tensor:
  y = slice(x, starts=(0), steps=(1), sizes=(1))
  return y
"""


def test_a_view_outside_its_input_is_refused_for_the_sizes_of_the_call(tmp_path: Path) -> None:
    """For a few sizes a start may be inside, and for others at any distance."""
    start = "n*n*n + -106*n*n + 511*n + -606"  # 0 for 2, 3 and 101
    (tmp_path / "net.txt").write_text(HOSTILE.replace("starts=(0)", f"starts=({start})"))
    net = load_program(tmp_path / "net.txt")
    for record in (True, False):
        with tg.set_grad_enabled(record):
            assert net(tg.ones(3)).tolist() == [1]
            with pytest.raises(ShapeError, match="are asked for on an axis of 50"):
                net(tg.ones(50))


def test_what_is_no_model_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="a module is wanted, not function"):
        export(lambda x: x, tg.ones(1))
    with pytest.raises(MissingFileError):
        load_program(tmp_path / "none.tgp")
