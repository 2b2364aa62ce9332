"""Threads, forks, signals, failing compilations, foreign files, and long runs: the process stays usable and right.

What may bring a process down runs in a child.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilegrad as tg
from tilegrad.errors import CompileError

pytest.importorskip("llvmlite")

ROOT = Path(__file__).parent.parent
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def started(code: str, cache: Path | None = None) -> subprocess.Popen[str]:
    """A child process that runs some lines."""
    settings = {"TILEGRAD_CACHE": str(cache)} if cache is not None else {}
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env=os.environ | settings,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(child: subprocess.Popen[str]) -> str:
    """The output of a child that ended normally."""
    try:
        out, err = child.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        child.kill()
        raise
    assert child.returncode == 0, err
    return out


# --- threads -----------------------------------------------------------------------------------


def test_threads_write_to_parts_of_one_tensor() -> None:
    whole = tg.zeros(8, 2)

    def write(row: int) -> None:
        for _ in range(40):
            whole[row : row + 1].add_(1)

    threads = [threading.Thread(target=write, args=(row,)) for row in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(whole.numpy(), 40)


def eager(seed: int) -> None:
    """Random sizes, gradients, writes through views, indices."""
    rng = np.random.default_rng(seed)
    for turn in range(15):
        n = int(rng.integers(1, 40)) if turn % 3 else 20_000
        a, b = rng.standard_normal((n, 5)).astype(np.float32), rng.standard_normal(5).astype(np.float32)
        x = tg.tensor(a, requires_grad=True)
        ((x * tg.tensor(b)).tanh().sum(0) ** 2).sum().backward()
        assert x.grad is not None
        t = np.tanh(a.astype(np.float64) * b)
        np.testing.assert_allclose(x.grad.numpy(), 2 * t.sum(0) * (1 - t * t) * b, rtol=5e-3, atol=5e-2)
        written = tg.zeros(n, 5)
        written[1:] = x.detach()[1:]
        written.add_(1)
        wanted = np.ones((n, 5), np.float32)
        wanted[1:] += a[1:]
        np.testing.assert_allclose(written.numpy(), wanted, rtol=1e-5)
        index = rng.integers(0, n, 7)
        np.testing.assert_array_equal(x.detach()[tg.tensor(index)].numpy(), a[index])


def jitted(seed: int) -> None:
    """A function of this thread, with captured state."""
    rng = np.random.default_rng(seed)
    weight = tg.ones(5) * (seed + 1)
    run = tg.jit(lambda x: (x * weight + seed).sum(0))
    for turn in range(15):
        a = rng.standard_normal((int(rng.integers(2, 60)) if turn % 2 else 30_000, 5)).astype(np.float32)
        wanted = (a.astype(np.float64) * (seed + 1) + seed).sum(0)
        np.testing.assert_allclose(run(tg.tensor(a)).numpy(), wanted, rtol=1e-2, atol=0.5)


@tg.jit
def product(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
    return (x @ y).relu().sum(1)


def shared(seed: int) -> None:
    """One jitted function in all threads."""
    rng = np.random.default_rng(seed)
    for turn in range(15):
        n = int(rng.integers(2, 60)) if turn % 2 else 300
        a, b = rng.standard_normal((n, 16)).astype(np.float32), rng.standard_normal((16, n)).astype(np.float32)
        found = product(tg.tensor(a), tg.tensor(b)).numpy()
        np.testing.assert_allclose(found, np.maximum(a @ b, 0).sum(1), rtol=1e-3, atol=1e-3)


def training(seed: int) -> None:
    """A network of this thread, whose steps are traced in every other thread."""
    net = tg.nn.Sequential(tg.nn.Linear(4, 8), tg.nn.Tanh(), tg.nn.Dropout(0.5 * (seed % 2)), tg.nn.Linear(8, 1))
    with tg.no_grad():
        for p in net.parameters():
            p.copy_(tg.linspace(-1, 1, p.numel()).reshape(p.shape))
    optimizer = tg.optim.SGD(net.parameters(), lr=0.1)
    x = tg.linspace(-1, 1, 32).reshape(8, 4)

    def step(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    run: Callable[..., tg.Tensor] = tg.jit(step) if seed % 4 < 2 else step
    losses = [run(x, x.sum(1, keepdim=True)).item() for _ in range(15)]
    assert np.isfinite(losses).all()
    if seed % 2 == 0:  # without dropout, nothing is left to chance
        assert losses[-1] < losses[0]
        assert abs(losses[-1] - 0.4312) < 0.2, losses


def drawing(seed: int) -> None:
    """Numbers from the generator that all threads share: the ones that a gradient needs are still there."""

    def masked(x: tg.Tensor) -> tuple[tg.Tensor, tg.Tensor, tg.Tensor]:
        kept = tg.nn.functional.dropout(x, 0.5)
        (gradient,) = tg.autograd.grad(kept.sum(), x)
        return kept, gradient, tg.rand(8, dtype=tg.float64)

    run: Callable[..., Any] = tg.jit(masked) if seed % 2 else masked
    for _ in range(15):
        kept, gradient, numbers = run(tg.ones(3000, requires_grad=True))
        np.testing.assert_array_equal(gradient.numpy(), kept.detach().numpy())
        drawn.extend(numbers.tolist())


drawn: list[float] = []
"""Everything that `drawing` drew, in any thread."""


@pytest.mark.parametrize(
    "kinds", [[eager], [jitted], [shared], [training], [drawing], [eager, jitted, shared, training]]
)
def test_threads(kinds: list[Callable[[int], None]]) -> None:
    failures: list[BaseException] = []
    drawn.clear()

    def run(seed: int) -> None:
        try:
            kinds[seed % len(kinds)](seed // len(kinds) if len(kinds) > 1 else seed)
        except BaseException as e:
            failures.append(e)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, args=(seed,)) for seed in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(before)
    assert failures == []
    assert len(set(drawn)) == len(drawn)  # no two threads were given the same number


# --- forks and signals -------------------------------------------------------------------------


@needs_fork
def test_fork_after_use() -> None:
    code = """
        import os
        import tilegrad as tg
        x = tg.rand(1 << 20)
        wave = tg.jit(lambda x: (x.sin() + 1).sum())
        total, wanted = (x * 2).sum().item(), [wave(x).item() for _ in range(8)][-1]
        child = os.fork()
        if child == 0:
            other = tg.jit(lambda x: (x.cos() * 3).sum())
            ok = abs((x * 2).sum().item() - total) < 1 and abs(wave(x).item() - wanted) < 1
            ok = ok and (tg.ones(500, 500) @ tg.ones(500, 500)).sum().item() == 125e6
            ok = ok and all(other(x).item() > 0 for _ in range(8))
            os._exit(0 if ok else 3)
        print(os.waitpid(child, 0)[1], abs(wave(x).item() - wanted) < 1)
    """
    assert finished(started(code)) == "0 True\n"


@needs_fork
def test_fork_while_threads_compute() -> None:
    """A lock that another thread holds would never be free in the child."""
    code = """
        import os, threading, time
        import tilegrad as tg
        (tg.ones(3) * 2).tolist()
        done = False
        def busy():
            turn = 0
            while not done:
                turn += 1
                (tg.rand(3 + turn % 50, 7) * turn).sum(0).tolist()
        threads = [threading.Thread(target=busy) for _ in range(2)]
        for t in threads: t.start()
        codes = []
        for n in range(8):
            time.sleep(0.05)
            child = os.fork()
            if child == 0:
                threading.Timer(20, lambda: os._exit(9)).start()
                os._exit(0 if (tg.ones(100 + n) * 2).sum().item() == 200 + 2 * n else 3)
            codes.append(os.waitpid(child, 0)[1])
        done = True
        for t in threads: t.join()
        print(codes)
    """
    assert finished(started(code)) == "[0, 0, 0, 0, 0, 0, 0, 0]\n"


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("jit", [True, False])
def test_interrupt_ends_everything(jit: bool) -> None:
    child = started(f"""
        import tilegrad as tg
        batches = tg.data.DataLoader(tg.data.TensorDataset(tg.rand(4000, 100)), 500, shuffle=True, num_workers=2)
        net = tg.nn.Linear(100, 100)
        optimizer = tg.optim.SGD(net.parameters(), lr=1e-3)
        def step(x):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss
        step = tg.jit(step) if {jit} else step
        turn = 0
        while True:
            for x, in batches:
                step(x).item()
            turn += 1
            if turn == 3:
                print("training", flush=True)
    """)
    assert child.stdout is not None
    assert child.stdout.readline() == "training\n"
    assert len(os.listdir(f"/proc/{child.pid}/task")) > 1
    child.send_signal(signal.SIGINT)
    try:
        _, err = child.communicate(timeout=20)
    finally:
        child.kill()
    assert "KeyboardInterrupt" in err
    assert child.returncode in (1, 130, -signal.SIGINT)
    assert not Path(f"/proc/{child.pid}").exists()


# --- compilation -------------------------------------------------------------------------------


@pytest.mark.usefixtures("compiled")
def test_a_failing_compilation(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The error names the kernel and the line of the op; what comes later works."""
    from tilegrad.backend.cpu import build

    x = tg.linspace(0, 1, 23)
    with monkeypatch.context() as broken:
        broken.setattr(build, "kernel_object", _broken_kernel(build.kernel_object))
        y = (x * 0.625).atanh()
        with pytest.raises(CompileError) as caught:
            y.tolist()
        assert "atanh" in str(caught.value)
        assert "LLVM does not take" in str(caught.value)
        assert "test_robustness.py" in str(caught.value)
    np.testing.assert_allclose(y.numpy(), np.arctanh(x.numpy() * 0.625), rtol=1e-5)
    assert (x * 3.0625).sum().item() == pytest.approx(3.0625 * 11.5, rel=1e-5)


def _broken_kernel(whole: Callable[..., bytes]) -> Callable[..., bytes]:
    from tilegrad.backend.cpu import build, objects

    def kernel_object(kernel: Any, *others: Any) -> bytes:
        try:
            wrong = f"define void @{kernel.name}(ptr %a) {{ ret i32 0 }}"
            return objects.compile_object(kernel.name, wrong, objects.host())
        except CompileError as e:
            raise CompileError(f"{e}\n{kernel.origin}") from e

    assert build.kernel_object is whole
    return kernel_object


WORK = """
    import tilegrad as tg
    net = tg.nn.Sequential(tg.nn.Linear(7, 5), tg.nn.Tanh(), tg.nn.Linear(5, 3))
    with tg.no_grad():
        for p in net.parameters():
            p.copy_(tg.linspace(-1, 1, p.numel()).reshape(p.shape))
    x = tg.linspace(-2, 2, 77).reshape(11, 7)
    loss = tg.nn.functional.cross_entropy(net(x), tg.arange(11) % 3)
    loss.backward()
    print(round(loss.item(), 5), [round(p.grad.sum().item(), 4) for p in net.parameters()])
"""


@pytest.mark.parametrize("damage", ["empty", "torn", "foreign", "swapped", "folder"])
def test_damaged_cache(tmp_path: Path, damage: str) -> None:
    """Damaged files count as absent and are written again."""
    wanted = finished(started(WORK, tmp_path))
    entries = sorted(tmp_path.rglob("*.entry"))
    assert entries
    whole = {entry: entry.read_bytes() for entry in entries}
    for entry, other in zip(entries, entries[1:] + entries[:1], strict=True):
        match damage:
            case "empty":
                entry.write_bytes(b"")
            case "torn":
                entry.write_bytes(whole[entry][:-7])
            case "foreign":
                entry.write_bytes(os.urandom(len(whole[entry])))
            case "swapped":
                entry.write_bytes(whole[other])
            case "folder":
                entry.unlink()
                entry.mkdir()
    assert finished(started(WORK, tmp_path)) == wanted
    if damage != "folder":
        assert all(entry.read_bytes()[:17] == whole[entry][:17] for entry in entries)
        assert all(len(entry.read_bytes()) > 100 for entry in entries)


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_text("in the way")
    assert finished(started(WORK, file)) == finished(started(WORK, tmp_path / "fresh"))


def test_processes_share_a_cold_cache(tmp_path: Path) -> None:
    children = [started(WORK, tmp_path) for _ in range(3)]
    assert len({finished(child) for child in children}) == 1
    assert not list(tmp_path.rglob("*.aside"))


# --- long runs ---------------------------------------------------------------------------------


def test_dropped_tensors_leave_nothing(no_leak: None) -> None:
    """Ten thousand small operations, of which most are never looked at."""
    rng = np.random.default_rng(0)
    x = tg.rand(6, 5)
    for turn in range(2500):
        y = x * 2.0 if turn % 3 else x.tanh()
        y = y[rng.integers(0, 6) :] if turn % 5 == 0 else y.t()
        z = y.sum(0) + 1
        if turn % 7 == 0:
            z[0] = 4.0
            z.tolist()
    del x, y, z


def test_chain_of_5000() -> None:
    x = tg.ones(3, requires_grad=True)
    y = x
    for _ in range(5000):
        y = y * 1.0001
    y.sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 1.0001**5000, rtol=1e-3)


def test_chain_of_functions() -> None:
    """Too long for a recursion over what is fused."""
    y = tg.tensor([0.5])
    wanted = np.float32(0.5)
    for _ in range(700):
        y, wanted = (y * 1.001).sin(), np.sin(wanted * np.float32(1.001))
    assert y.item() == pytest.approx(wanted, rel=1e-4)


def test_many_joined() -> None:
    parts = [tg.tensor([float(n)]) for n in range(600)]
    np.testing.assert_array_equal(tg.cat(parts).numpy(), np.arange(600))


def test_views_of_views() -> None:
    """Writes through chains of views, against the same on numpy's memory."""
    rng = np.random.default_rng(3)
    for _ in range(25):
        wholes = tg.arange(60.0).reshape(3, 4, 5).clone(), np.arange(60, dtype=np.float32).reshape(3, 4, 5)
        views: list[tuple[tg.Tensor, Any]] = [wholes]
        for turn in range(12):
            x, y = views[rng.integers(len(views))]
            match rng.integers(7):
                case 0 if y.ndim:
                    views.append((x[-1:], y[-1:]))
                case 1 if y.ndim:
                    views.append((x.transpose(0, -1), y.swapaxes(0, -1)))
                case 2 if y.ndim > 1:
                    views.append((x[..., -1], y[..., -1]))
                case 3:
                    x.add_(turn)
                    y += turn
                case 4 if y.ndim:
                    x[::2] = turn + 0.5
                    y[::2] = turn + 0.5
                case 5:
                    x.mul_(-0.5)
                    y *= -0.5
                case 6:
                    views.append((x.unsqueeze(0), y[None]))
        for x, y in views:
            np.testing.assert_array_equal(x.numpy(), y)


@pytest.mark.parametrize("true", [True, False])
def test_single_number_by_a_mask(true: bool) -> None:
    x = tg.tensor(3.0)
    mask = x > 2 if true else x > 5
    assert x[mask].tolist() == [3.0] * true
    x[mask] = 7
    assert x.item() == (7 if true else 3)
    assert tg.ones(2, 3)[mask].shape == (int(true), 2, 3)
