"""Programs on a GPU: eager and jitted, as graphs, on several streams, with in-place updates, profiled and checked."""

from collections.abc import Callable

import numpy as np
import pytest

import tilegrad as tg
from tests.backend.cuda.conftest import Maker
from tilegrad import cuda
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.cuda.driver import KernelCall
from tilegrad.backend.cuda.plan import LaunchPlan, PlannedCall
from tilegrad.backend.places import Span
from tilegrad.config import changed
from tilegrad.errors import DeviceError, KernelError, LaunchError, RuntimeFault
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import TensorType
from tilegrad.ir.program import Copy, Launch, Program, ProgramBuffer, Tiles
from tilegrad.ir.size import Size
from tilegrad.ir.tile import Kernel
from tilegrad.ir.tile_parser import parse
from tilegrad.lazy.handle import StoredGradient
from tilegrad.runtime import events

ADD = parse("""
def add(x: "*f32", y: "*f32", out: "*f32", n: "i32"):
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)
""").replaced(origin="model.py:7")
WILD = parse("""
def wild(x: "*f32", out: "*f32"):
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    tl.store(out + i, tl.load(x + i + 1000000))
""").replaced(origin="model.py:9")
N = Size.named("n")


def program(n: int | Size, kernel: Kernel = ADD, copies: bool = False) -> Program:
    """z = (x + y) + y."""
    of = TensorType(float32, (n,))
    names = [ProgramBuffer("x", of, "input"), ProgramBuffer("y", of, "input"), ProgramBuffer("t", of, "temporary", 0)]
    names += [ProgramBuffer("u", of, "output"), ProgramBuffer("z", of, "output")]
    steps: tuple[Launch | Copy, ...] = (
        Launch(ADD, ("x", "y", "t", n), (Tiles(n, 16),)),
        Launch(kernel, ("t", "y", "z", n) if kernel is ADD else ("x", "z"), (Tiles(n, 16),)),
        Copy("t", "u"),
    )
    sizes = ("n",) if isinstance(n, Size) else ()
    return Program("two", sizes, tuple(names), ("x", "y"), ("z", "u"), steps, n * 4)


def run(gpu: CudaDevice, executable: object, n: int, times: int = 1) -> None:
    x, y = np.arange(n, dtype=np.float32), np.full(n, 2, np.float32)
    given = [gpu.from_host(x), gpu.from_host(y)]
    for _ in range(times):
        z, u = executable.run(given, {"n": n} if executable.program.sizes else {})  # type: ignore[attr-defined]
        np.testing.assert_array_equal(gpu.to_host(z, float32, (n,)), x + 4)
        np.testing.assert_array_equal(gpu.to_host(u, float32, (n,)), x + 2)


@pytest.mark.parametrize("n", [1, 16, 1000])
def test_runs_direct_and_as_a_graph(gpu: CudaDevice, n: int) -> None:
    run(gpu, gpu.load(program(n)), n, times=5)
    counts = gpu.driver.counts  # type: ignore[attr-defined]
    assert (counts["launch"], counts["launch_graph"], counts["instantiate"]) == (6, 3, 1)


def test_sizes_that_vary(gpu: CudaDevice) -> None:
    executable = gpu.load(program(N))
    for n in (5, 100, 5, 0, 100, 5, 5):
        run(gpu, executable, n)
    assert gpu.driver.counts["built"] == 1  # type: ignore[attr-defined]


def test_kernels_with_equal_structure_share_code(gpu: CudaDevice) -> None:
    """Layers of one shape share code, but errors name each with its own line."""
    text = str(ADD).replace("y", "other").replace("model.pother", "model.py")
    same = parse(text).replaced(origin="model.py:8")
    assert same.digest() != ADD.digest()
    gpu.start()
    found = gpu.functions.of([ADD, same])
    assert gpu.driver.counts["built"] == 1  # type: ignore[attr-defined]
    assert [found[kernel.digest()].origin for kernel in (ADD, same)] == ["model.py:7", "model.py:8"]
    assert found[ADD.digest()].handle == found[same.digest()].handle
    run(gpu, gpu.load(program(20, ADD)), 20)


def test_steady_state_allocates_nothing(gpu: CudaDevice) -> None:
    executable = gpu.load(program(64))
    given = [gpu.from_host(np.ones(64, np.float32)) for _ in range(2)]
    for _ in range(4):
        executable.run(given)
    held, renewed = gpu.statistics, gpu.driver.counts["renew_node"]  # type: ignore[attr-defined]
    for _ in range(100):
        executable.run(given)
    gpu.synchronize()
    assert gpu.statistics == held
    assert gpu.driver.counts["renew_node"] == renewed  # type: ignore[attr-defined]
    assert gpu.driver.counts["instantiate"] == 1  # type: ignore[attr-defined]


def span(begin: int, end: int, datum: int = 9) -> Span:
    return Span(datum, begin, end)


def step(reads: tuple[Span, ...], writes: tuple[Span, ...]) -> PlannedCall:
    return PlannedCall(KernelCall("k", 0, 1, 1, 0, []), "", reads, writes, (), 0, 0.0, None)


def test_dependences_follow_memory() -> None:
    steps = [
        step((span(0, 1, 0),), (span(0, 8),)),
        step((span(0, 1, 0),), (span(8, 16),)),
        step((span(0, 8),), (span(16, 24),)),
        step((span(8, 16), span(16, 24)), (span(0, 8),)),
        step((span(0, 1, 1),), (span(0, 1, 0),)),
    ]
    plan = LaunchPlan(steps, [], 2, [], [], [0], 24)
    assert plan.dependences(distinct=True) == [[], [], [0], [2, 1], [1, 0]]
    assert plan.dependences(distinct=False) == [[], [], [0], [2, 1], [1, 0]]
    readers = [step((span(0, 1, 1),), (span(0, 8),)), step((span(0, 1, 1),), (span(0, 1, 0),))]
    plan = LaunchPlan(readers, [], 2, [], [], [0], 24)
    assert plan.dependences(distinct=True) == [[], []]
    assert plan.dependences(distinct=False) == [[], [0]]


def test_aliased_inputs(gpu: CudaDevice) -> None:
    """A graph built for distinct inputs is not used when they alias."""

    @tg.jit
    def both(x: tg.Tensor, y: tg.Tensor) -> tg.Tensor:
        x += y.sum()
        return x * 2 + y

    def wanted(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        x += y.sum()
        return x * 2 + y

    for k in range(12):
        a, b = np.arange(6.0) + k, np.arange(6.0) * 2
        x, y = tg.tensor(a).to(gpu.name), tg.tensor(b).to(gpu.name)
        if k % 3 == 2:
            assert both(x, x).cpu().tolist() == wanted(a, a).tolist()
        else:
            assert both(x, y).cpu().tolist() == wanted(a, b).tolist()
        assert x.cpu().tolist() == a.tolist()


@pytest.mark.parametrize("jitted", [False, True])
def test_a_network_trains_as_on_the_cpu(gpu: CudaDevice, jitted: bool) -> None:
    def losses(place: str) -> list[float]:
        tg.manual_seed(3)
        layers = [tg.nn.Linear(6, 8), tg.nn.ReLU(), tg.nn.Linear(8, 3)]
        model = tg.nn.Sequential(*layers).to(place)
        optimizer = tg.optim.Adam(model.parameters(), lr=0.05)
        x, t = tg.rand(8, 6).to(place), tg.tensor(np.arange(8) % 3).to(place)

        def step() -> tg.Tensor:
            optimizer.zero_grad()
            loss = tg.nn.functional.cross_entropy(model(x), t)
            loss.backward()
            optimizer.step()
            return loss

        run = tg.jit(step) if jitted else step
        return [run().item() for _ in range(5)]

    np.testing.assert_allclose(losses(gpu.name), losses("cpu"), rtol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_streams_synchronise_on_shared_memory(make_gpus: Maker, seed: int) -> None:
    """Streams wait for each other without user synchronisation, tensors die at once, the driver runs streams in any
    order.
    """
    (gpu,) = make_gpus(seed=seed)
    streams = [cuda.Stream(gpu), cuda.Stream(gpu), cuda.default_stream(gpu)]
    random = np.random.default_rng(seed)
    tensors = [tg.arange(40, dtype=float32).to(gpu.name) for _ in range(3)]
    arrays = [np.arange(40, dtype=np.float32) for _ in range(3)]
    for _ in range(40):
        i, j, k = random.integers(0, 3, 3)
        with cuda.stream(streams[random.integers(0, 3)]):
            match random.integers(0, 4):
                case 0:
                    tensors[k] = (tensors[i] + tensors[j] * 0.5).realize()
                    arrays[k] = arrays[i] + arrays[j] * np.float32(0.5)
                case 1:
                    tensors[k] = tensors[i].clone().realize()
                    arrays[k] = arrays[i].copy()
                    tensors[k] *= 0.5
                    tensors[k].realize()
                    arrays[k] *= np.float32(0.5)
                case 2:
                    new = random.integers(0, 9, 40).astype(np.float32)
                    tensors[k], arrays[k] = tg.tensor(new).to(gpu.name), new
                case _:
                    assert tensors[i].cpu().tolist() == arrays[i].tolist()
    for x, y in zip(tensors, arrays):
        assert x.cpu().tolist() == y.tolist()


def test_events_and_streams(gpu: CudaDevice) -> None:
    start, stop = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    side = cuda.Stream(gpu)
    with cuda.device(gpu), cuda.stream(side):
        assert cuda.current_stream() == side != cuda.default_stream()
        start.record()
        x = (tg.ones(5).to(gpu.name) * 3).realize()
        stop.record()
    assert not stop.query()
    assert start.elapsed_time(stop) > 0
    assert stop.query()
    cuda.default_stream(gpu).wait_event(stop)
    cuda.default_stream(gpu).wait_stream(side)
    assert x.cpu().tolist() == [3.0] * 5
    side.synchronize()
    assert side.query()
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        start.elapsed_time(cuda.Event())


def test_streams_are_a_pool(gpu: CudaDevice) -> None:
    streams = [cuda.Stream(gpu) for _ in range(40)]
    assert len(set(streams)) == 31
    assert gpu.driver.counts["new_stream"] == 32  # type: ignore[attr-defined]


def test_launches_are_checked_against_limits(gpu: CudaDevice) -> None:
    driver = gpu.driver
    cases: list[tuple[Callable[[], None], str]] = [
        (lambda: setattr(driver, "threads", 1025), "wants 1025 threads in a block: Simulated allows 1 to 1024"),
        (lambda: setattr(driver, "threads", 0), "wants 0 threads in a block"),
        (lambda: setattr(driver, "shared", 300_000), "wants 300000 bytes of shared memory: Simulated allows 232448"),
    ]
    for n, (misconfigure, text) in enumerate(cases):
        driver.threads, driver.shared = 128, 0  # type: ignore[attr-defined]
        misconfigure()
        with pytest.raises(LaunchError, match=text):
            gpu.load(program(16, ADD.replaced(name=f"add{n}")))
    driver.threads, driver.shared = 128, 0  # type: ignore[attr-defined]
    large = Program(
        "large",
        (),
        (
            ProgramBuffer("x", TensorType(float32, (16,)), "input"),
            ProgramBuffer("z", TensorType(float32, (16,)), "output"),
        ),
        ("x",),
        ("z",),
        (Launch(ADD, ("x", "x", "z", 16), (Tiles(1 << 16, 1), Tiles(1 << 16, 1))),),
    )
    with pytest.raises(LaunchError, match=r"add \(model.py:7\) wants a grid of 4294967296 blocks: Simulated allows 1"):
        gpu.load(large).bound()
    assert gpu.driver.counts["launch"] == 0  # type: ignore[attr-defined]


def test_failure_names_the_kernel(gpu: CudaDevice) -> None:
    good, bad = gpu.load(program(64)), gpu.load(program(64, WILD))
    given = [gpu.from_host(np.ones(64, np.float32)) for _ in range(2)]
    good.run(given)
    gpu.synchronize()
    bad.run(given)
    good.run(given)
    with pytest.raises(RuntimeFault, match=r"in kernel wild \(model.py:9\) of program two") as caught:
        gpu.synchronize()
    assert "TILEGRAD_CUDA=checked" in str(caught.value)
    with pytest.raises(DeviceError, match="cannot be used any more"):
        gpu.allocate(10)


def test_late_failure_names_kernels_since_the_last_mark(gpu: CudaDevice) -> None:
    """Programs that have run before are not distinguished from others in flight, because marks cost time."""
    of = TensorType(float32, (64,))
    names = (ProgramBuffer("x", of, "input"), ProgramBuffer("z", of, "output"))
    wild = gpu.load(Program("late", (), names, ("x",), ("z",), (Launch(WILD, ("x", "z"), (Tiles(64, 16),)),))).bound()
    good = gpu.load(program(64)).bound()
    wild.runs = 2  # type: ignore[attr-defined]
    given = [gpu.from_host(np.ones(64, np.float32)) for _ in range(2)]
    for _ in range(3):
        good(given)
    wild(given[:1])
    with pytest.raises(RuntimeFault, match=r"in program two, late, in one of the kernels add \(model.py:7\), copy"):
        gpu.synchronize()


@pytest.mark.checklist(79)
def test_synchronous_runs_name_the_kernel(gpu: CudaDevice) -> None:
    bad = gpu.load(program(64, WILD))
    given = [gpu.from_host(np.ones(64, np.float32)) for _ in range(2)]
    with (
        changed(cuda="synchronous"),
        pytest.raises(RuntimeFault, match=r"in kernel wild \(model.py:9\) of program two"),
    ):
        bad.run(given)


def test_checked_runs_name_the_index(gpu: CudaDevice) -> None:
    good, bad = gpu.load(program(64)), gpu.load(program(64, WILD))
    given = [gpu.from_host(np.ones(64, np.float32)) for _ in range(2)]
    with changed(cuda="checked"):
        z, _ = good.run(given)
        with pytest.raises(KernelError, match="index 1000000 is outside x, which has 64 elements") as caught:
            bad.run(given)
    assert f"on {gpu.name}, where x is x, out is z; of model.py:9" in str(caught.value)
    np.testing.assert_array_equal(gpu.to_host(z, float32, (64,)), np.full(64, 3))


def test_profiled_runs(gpu: CudaDevice) -> None:
    executable = gpu.load(program(64))
    given = [gpu.from_host(np.ones(64, np.float32)) for _ in range(2)]
    seen: list[events.TimedEvent] = []
    for _ in range(4):
        executable.run(given)
    with events.listening(seen.append):
        executable.run(given)
    run(gpu, executable, 64)
    assert [(e.kind, e.name, e.bytes) for e in seen] == [
        ("launch", "add", 768), ("launch", "add", 768), ("copy", "u", 512), ("run", "two", 0)
    ]  # fmt: skip
    assert all(e.stop > e.start for e in seen)


def test_users_kernel(gpu: CudaDevice) -> None:
    scale = parse("""
def scale(x: "*f32", out: "*f32", by: "f32", n: "i32"):
    i = tl.program_id(0) * 16 + tl.arange(0, 16)
    tl.store(out + i, tl.load(x + i, mask=i < n) * by, mask=i < n)
""")
    launch = gpu.compile(scale)
    x, out = gpu.from_host(np.arange(40, dtype=np.float32)), gpu.allocate(160)
    for by in (0.5, -2.0, 0.5):
        launch([x, out, by, 40], (3,))  # type: ignore[list-item]
        np.testing.assert_array_equal(gpu.to_host(out, float32, (40,)), np.arange(40, dtype=np.float32) * by)
    launch([x, out, 9.0, 40], (0,))  # type: ignore[list-item]
    with pytest.raises(LaunchError, match="wants a grid of 4294967296 blocks"):
        launch([x, out, 1.0, 40], (65536, 65536))  # type: ignore[list-item]
    with changed(cuda="checked"), pytest.raises(KernelError, match="index 40 is outside x, which has 40 elements"):
        launch([x, out, 1.0, 50], (4,))  # type: ignore[list-item]
    np.testing.assert_array_equal(gpu.to_host(out, float32, (40,)), np.arange(40, dtype=np.float32) * 0.5)


def test_fork_during_use_is_an_error(gpu: CudaDevice) -> None:
    gpu.allocate(10)
    gpu._forked()
    with pytest.raises(DeviceError, match="spawn"):
        gpu.allocate(10)


def test_host_scalars_allow_the_fast_path(gpu: CudaDevice) -> None:
    """A scalar is a new input each time, copied once; results reuse the memory of the previous call."""
    rate, weight = tg.tensor(2.0), tg.ones(64, 8, device=gpu.name)

    def step(x: tg.Tensor) -> tg.Tensor:
        return (x * rate) @ (weight + 1.0).T

    quick = tg.jit(step)
    x = tg.full((16, 8), 3.0, device=gpu.name)
    for _ in range(4):
        result = quick(x)
        assert result.cpu().numpy()[0, 0] == 96.0
        del result
    assert quick.fast_call is not None
    counts = gpu.driver.counts  # type: ignore[attr-defined]
    before = counts["renew_node"]
    for _ in range(5):
        assert quick(x).shape == (16, 64)
    assert counts["renew_node"] == before


def test_weight_only_values_are_computed_once_per_version(gpu: CudaDevice) -> None:
    random = np.random.default_rng(0)
    weight, x = (tg.tensor(random.standard_normal(s, np.float32)).to(gpu.name) for s in ((48, 64), (5, 64)))
    quick = tg.jit(lambda x: x @ weight.exp().T)

    def wanted() -> np.ndarray:
        return x.cpu().numpy() @ np.exp(weight.cpu().numpy()).T

    for _ in range(4):
        np.testing.assert_allclose(quick(x).cpu().numpy(), wanted(), rtol=1e-5, atol=1e-5)
    kept = quick.programs[0].hoisted
    assert kept is not None
    before = kept._made
    quick(x)
    assert kept._made is before
    for _ in range(4):
        weight.mul_(0.5)
        np.testing.assert_allclose(quick(x).cpu().numpy(), wanted(), rtol=1e-5, atol=1e-5)
    assert kept._made is not before


def test_gradients_are_written_to_the_memory_of_those_before_unless_somebody_has_them(gpu: CudaDevice) -> None:
    weight = tg.nn.Parameter(tg.ones(8, 4, device=gpu.name))

    @tg.jit
    def step(x: tg.Tensor) -> tg.Tensor:
        weight.grad = None
        loss = (x @ weight).sum()
        loss.backward()
        with tg.no_grad():
            weight.sub_(weight.grad)
        return loss

    held: list[tuple[int, tg.Tensor]] = []
    addresses = set()
    for n in range(1, 9):
        step(tg.full((3, 8), float(n), device=gpu.name).realize())
        if isinstance(weight._gradient, StoredGradient) and weight._gradient.owned is not None:
            addresses.add(weight._gradient.owned.address)
        if n == 6:
            held.append((n, weight.grad))
    assert step.fast_call is not None
    assert 1 <= len(addresses) <= 3
    for n, gradient in [*held, (8, weight.grad)]:
        np.testing.assert_array_equal(gradient.cpu().numpy(), np.full((8, 4), 3.0 * n, np.float32))
    np.testing.assert_array_equal(weight.detach().cpu().numpy(), np.full((8, 4), 1 - 3.0 * 36, np.float32))
