"""Fixtures and options of all tests."""

import gc
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from tests import recorded
from tests.verifier import net

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("ci", derandomize=True, deadline=None, max_examples=16, suppress_health_check=SLOW)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=10, suppress_health_check=SLOW)
settings.register_profile("thorough", deadline=None, max_examples=1000, suppress_health_check=SLOW)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in jobs in the background; children would not hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

gc.set_threshold(20_000, 10, 10)  # looking for garbage after each 700 objects took an eighth of the time of all tests


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="accept what the code prints now")
    parser.addoption(
        "--target",
        choices=("cpu", "gpu"),
        default="cpu",
        help="schedule kernels that run on the CPU for this target",
    )
    parser.addoption("--record", action="store_true", help="record what tests read from PyTorch (tests/recorded.py)")


@pytest.fixture
def compiled() -> Iterator[None]:
    """Run what is recorded in the compiled tier from its first meeting on: for tests of programs, and of equal bits."""
    from tilegrad import config

    with config.changed(tier="compiled"):
        yield


def pytest_configure(config: pytest.Config) -> None:
    recorded.State.recording = config.getoption("--record")
    if recorded.State.recording and config.getoption("numprocesses", None):
        raise pytest.UsageError("--record writes one file for each test file: run it without -n")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    recorded.begin(item)
    if _compares(item.path):
        _draw_anew(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    result = yield
    if problem := recorded.end(item):
        pytest.fail(problem)
    return result


PEERS = re.compile(
    r"""importorskip\(\s*["'](torch|jax|onnx|onnxruntime|tensorboard|uvicorn|httptools|uvloop)\b"""
    r"""|\bpytorch\(\)|needs PyTorch"""
)


@cache
def _compares(path: Path) -> bool:
    return PEERS.search(path.read_text()) is not None


def _draw_anew(item: pytest.Item) -> None:
    """Reseed random numbers, so that comparisons with recorded numbers do not depend on earlier tests."""
    from tilegrad import manual_seed

    manual_seed(0)
    for generator in vars(getattr(item, "module", None) or object).values():
        if isinstance(generator, np.random.Generator):
            generator.bit_generator.state = _first_states.setdefault(id(generator), generator.bit_generator.state)


_first_states: dict[int, dict[str, object]] = {}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of files that compare with other libraries, for `-m peers`; skip tests of CPU schedules
    where kernels are scheduled for a GPU.
    """
    for item in items:
        if _compares(item.path):
            item.add_marker("peers")
        tests_cpu_schedule = item.get_closest_marker("cpu_schedule") or "golden" in getattr(item, "fixturenames", ())
        if tests_cpu_schedule and config.getoption("--target") == "gpu":
            item.add_marker(pytest.mark.skip("tests schedules for a CPU"))


def pytest_collection_finish() -> None:
    """Freeze what was imported and collected, so that the garbage collector does not traverse it."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def nobody_measures_time() -> Iterator[None]:
    """A test that has looked at a clock leaves no watch behind: others count what is computed, and what lives."""
    yield
    handle = sys.modules.get("tilegrad.lazy.handle")
    if handle is not None:
        handle.watch_with(None)


@pytest.fixture(scope="session", autouse=True)
def same_target(request: pytest.FixtureRequest) -> None:
    """Schedule for the same CPU on every machine, so that kernels and golden files do not depend on it."""
    from tests.target_models import GPU
    from tilegrad.runtime.device import device
    from tilegrad.runtime.target_model import TargetModel

    device("cpu").__dict__["target"] = GPU if request.config.getoption("--target") == "gpu" else TargetModel()


@pytest.fixture(scope="session", autouse=True)
def verified() -> Iterator[None]:
    """Prove that everything the compiler makes is in range and written before it is read (`verifier/net.py`)."""
    with net.watching():
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    """Collect what an xdist worker has verified."""
    net.SEEN.add(getattr(node, "workeroutput", {}).get("verified", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    if recorded.State.recording:
        recorded.write()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["verified"] = net.SEEN.as_lists()
    elif len(net.kernels()) > net.allowed() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in net.summary():
        terminalreporter.write_line(line)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[object], None]:
    """Compare a printed form with golden/<test file>/<test>.txt next to the test."""
    name = re.sub(r"[^\w.,=\[\]-]", "_", request.node.name)
    path = Path(request.node.path).parent / "golden" / request.node.path.stem / f"{name}.txt"

    def check(actual: object) -> None:
        text = f"{actual}\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no {path}: run pytest --update-golden, and read the diff"
        assert text == path.read_text()

    return check


@pytest.fixture
def small_heap() -> None:
    """Makes `gc.collect` quick: it looks only at what the test has made."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_leak() -> Iterator[None]:
    """The memory that live tensors hold is the same after the test as before it."""
    from tilegrad import get_rng_state, live_bytes

    get_rng_state().realize()  # the state of the default generator is made once, and stays
    gc.collect()
    gc.freeze()
    before = live_bytes()
    yield
    gc.collect()
    after = live_bytes()
    assert after == before, f"{after - before:,} bytes of tensors made in this test are still alive"


@pytest.fixture
def shared_data() -> Path:
    """The folder of data sets next to the repository; the test skips without it."""
    for folder in Path(__file__).resolve().parents:
        if (folder / "shared" / "data").is_dir():
            return folder / "shared" / "data"
    pytest.skip("no folder shared/data beside the repository")
