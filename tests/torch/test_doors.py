"""PyTorch's names: which there are, what is said of others, and scripts that are run as they are."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tilegrad as tg
import tilegrad.torch as torch
from tests.checklist import checklist
from tilegrad import errors
from tilegrad.torch import datasets, digits, doors, loading, pictures, profiler, transforms
from tilegrad.torch.cuda import Event

NAMES = """
Tensor tensor nn.Module nn.Parameter nn.functional.relu optim.Adadelta optim.lr_scheduler.StepLR autograd.Function
autograd.Variable autograd.profiler.profile autograd.gradcheck no_grad device cuda.is_available cuda.Event manual_seed
utils.data.DataLoader utils.data.TensorDataset save load flatten profiler.profile profiler.ProfilerActivity float32
utils.cpp_extension.load_inline utils.cpp_extension.CUDAExtension backends.cudnn version.cuda compile
""".split()


@pytest.mark.parametrize("name", NAMES)
def test_names(name: str) -> None:
    found: Any = torch
    for part in name.split("."):
        found = getattr(found, part)


WRONG_NAMES = {
    "tilegrad.backends": (lambda: tg.backends, "`import tilegrad.torch as torch` has more"),  # type: ignore[attr-defined]
    "torch.zeross": (lambda: torch.zeross, r"no torch.zeross \(did you mean torch.zeros"),
    "torch.fft": (lambda: torch.fft, r"no torch.fft: dir\(torch\) lists"),
    "torch.cuda.strem": (lambda: torch.cuda.strem, "did you mean torch.cuda.stream"),
    "torch.utils.mobile_optimizer": (lambda: torch.utils.mobile_optimizer, "no torch.utils.mobile_optimizer"),
    "torch.utils.data.DataLoadr": (lambda: torch.utils.data.DataLoadr, "did you mean torch.utils.data.DataLoader"),
    "torch.autograd.Functon": (lambda: torch.autograd.Functon, "did you mean torch.autograd.Function"),
    "datasets.CIFAR10": (lambda: datasets.CIFAR10, "no torchvision.datasets.CIFAR10"),
    "transforms.ToTensr": (lambda: transforms.ToTensr, "did you mean torchvision.transforms.ToTensor"),
    "utils.save_image": (lambda: pictures.save_image, "no torchvision.utils.save_image"),
    "cpp_extension.load_inlin": (lambda: torch.utils.cpp_extension.load_inlin, "did you mean .*load_inline"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_wrong_names(name: str) -> None:
    ask, message = WRONG_NAMES[name]
    with pytest.raises(AttributeError, match=message):
        ask()


SCRIPT = """
import argparse, sys
import torch, torchvision
import torch.nn as nn, torch.nn.functional as F, torch.optim as optim
import torch.utils.cpp_extension
from torch.autograd import Variable, Function
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

assert __name__ == "__main__" and sys.argv[1:] == ["--epochs", "3"], sys.argv
weight = nn.Parameter(torch.Tensor(3, 2))
weight.data.uniform_(-0.1, 0.1)
assert Variable(torch.ones(2), requires_grad=True).requires_grad
print(torch.__name__, torch.nn.__name__, weight.shape, torch.cuda.is_available())
try:
    import torch.fx
except ModuleNotFoundError as problem:
    print(problem)
torch.ones(2, device="cuda")
"""


def test_a_script_is_run_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "tilegrad.torch", str(tmp_path / "script.py"), "--epochs", "3"]
    ran = subprocess.run(command, capture_output=True, text=True, env=None)
    first, second, *_ = ran.stdout.splitlines()
    if not tg.cuda.is_available():
        assert first == "tilegrad.torch tilegrad.nn (3, 2) False"
        assert "there is no device 'cuda' here" in ran.stderr
        assert "python -m tilegrad.torch --simulate" in ran.stderr
    assert second.startswith("tilegrad.torch has no torch.fx")


def test_doors_that_are_closed_leave_nothing_behind() -> None:
    """Modules that were imported before are the same ones after it, and those of the time in between are gone."""
    before, stand_in, part = {**sys.modules}, ModuleType("torch"), ModuleType("torch._C")
    finders = [*sys.meta_path]
    try:
        sys.modules.update({"torch": stand_in, "torch._C": part})
        sys.modules.pop("torch.optim", None)
        doors.opened()
        assert importlib.import_module("torch.optim") is tg.optim
        assert "torch._C" not in sys.modules
        doors.closed()
        assert (sys.modules["torch"], sys.modules["torch._C"]) == (stand_in, part)
        assert "torch.optim" not in sys.modules
    finally:
        doors.closed()
        for name in [x for x in sys.modules if x.partition(".")[0] in doors.TOPS]:
            del sys.modules[name]
        sys.modules.update(before)
    assert sys.meta_path == finders


def test_names_that_tilegrad_has_too() -> None:
    """`tilegrad.transforms`, which grad and vmap are from, does not answer for torchvision's."""
    importlib.import_module("tilegrad.transforms")
    assert torch.transforms is transforms
    assert transforms.__name__ == "tilegrad.torch.transforms"


def test_no_script(capfd: pytest.CaptureFixture[str]) -> None:
    from tilegrad.torch.__main__ import main

    try:
        assert main(["nowhere.py"]) == 2
        with pytest.raises(SystemExit):
            main([])
    finally:
        doors.closed()
    assert "there is no script nowhere.py" in capfd.readouterr().err


@checklist(39)
def test_an_uninitialised_tensor() -> None:
    weight = torch.nn.Parameter(torch.Tensor(10, 128))
    assert weight.shape == (10, 128)
    assert weight.requires_grad


# --- torchvision ---------------------------------------------------------------------------------


def test_mnist_from_files(tmp_path: Path) -> None:
    digits.write(tmp_path, 20, 10)
    prepare = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    train = datasets.MNIST(str(tmp_path), train=True, download=True, transform=prepare)
    image, label = train[0]
    assert (len(train), image.shape, isinstance(label, int)) == (20, (1, 28, 28), True)
    assert datasets.MNIST(tmp_path, train=False)[0][0].shape == (28, 28)
    batches = loading.DataLoader(train, batch_size=8)
    data, target = iter(batches).next()  # type: ignore[attr-defined]
    assert (data.shape, target.dtype) == ((8, 1, 28, 28), tg.int64)
    assert tg.allclose(data[0], image), "a batch is transformed at once, as each image is"
    one_by_one = datasets.MNIST(tmp_path, transform=transforms.Lambda(lambda x: prepare(x)))
    assert tg.allclose(next(iter(loading.DataLoader(one_by_one, batch_size=8)))[0], data)


def test_mnist_without_files(tmp_path: Path) -> None:
    with pytest.raises(errors.MissingFileError, match=r"(?s)train-images-idx3-ubyte.gz.*curl .*MNIST/raw"):
        datasets.MNIST(tmp_path, download=True)
    with pytest.raises(errors.MissingFileError, match=r"(?s)FashionMNIST.*fashion-mnist"):
        datasets.FashionMNIST(tmp_path)


def test_a_grid_of_images() -> None:
    grid = pictures.make_grid(tg.ones(3, 1, 2, 2), nrow=2, padding=1)
    assert grid.shape == (3, 7, 7)
    assert grid[0].tolist()[1] == [0, 1, 1, 0, 1, 1, 0]
    assert grid[0].tolist()[4] == [0, 1, 1, 0, 0, 0, 0]


# --- events and profiles -------------------------------------------------------------------------


@checklist(106)
def test_events_without_a_gpu() -> None:
    if tg.cuda.is_available():
        pytest.skip("there is a GPU")
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    with pytest.raises(errors.ArgumentError, match="both events must have been recorded"):
        start.elapsed_time(end)
    start.record()
    end.record()
    torch.cuda.synchronize()
    assert 0 <= start.elapsed_time(end) < 1000
    with pytest.raises(errors.ArgumentError, match="enable_timing=True"):
        Event().elapsed_time(end)


@checklist(108, 109)
def test_a_profile() -> None:
    x, w = tg.randn(8, 6), tg.randn(5, 6)
    with torch.autograd.profiler.profile(use_cuda=False) as found, profiler.record_function("forward"):
        (x @ w.t()).relu()
        x.relu()
    rows = {row.key: row for row in found.key_averages()}
    assert rows["relu"].count == 2
    assert rows["matmul"].count == rows["forward"].count == 1
    assert rows["forward"].cpu_time_total == pytest.approx(sum(r.self_cpu_time_total for r in rows.values()))
    table = found.key_averages().table(sort_by="count", row_limit=1)
    assert "relu" in table
    assert "matmul" not in table
    assert str(found) == found.table()
    with pytest.raises(errors.ArgumentError, match="sort_by is 'size'"):
        found.table(sort_by="size")


@checklist(112, 113, 115)
def test_a_schedule() -> None:
    seen: list[tuple[int, int]] = []
    plan = profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    ready = lambda p: seen.append((p.step_num, len(p.key_averages())))  # noqa: E731
    x = tg.ones(3)
    with profiler.profile(activities=[profiler.ProfilerActivity.CPU], schedule=plan, on_trace_ready=ready) as p:
        for _ in range(10):
            x.exp()
            p.step()
    assert seen == [(4, 2)], "once, with exp and the steps"


@checklist(111, 114)
def test_a_trace(tmp_path: Path) -> None:
    import json

    with profiler.profile(on_trace_ready=profiler.tensorboard_trace_handler(str(tmp_path))):
        tg.ones(3).exp()
    (path,) = tmp_path.glob("*.pt.trace.json")
    (event,) = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert (event["name"], event["ph"]) == ("exp", "X")


def test_tensorboard_is_found_under_pytorchs_name(tmp_path: Path) -> None:
    from tilegrad.torch import cpu, tensorboard

    with tensorboard.SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 1.0, 0)
    assert list(tmp_path.iterdir())
    with pytest.raises(AttributeError, match="SumaryWriter"):
        _ = tensorboard.SumaryWriter
    assert cpu.is_available()
    assert (cpu.device_count(), cpu.current_device()) == (1, "cpu")
