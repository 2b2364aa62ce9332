"""Memory, launches, streams and failures on a GPU."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilegrad as tg
from tests.backend.cuda.test_cuda_programs import ADD, WILD, program
from tilegrad import cuda
from tilegrad.backend.cuda.device import CudaDevice
from tilegrad.backend.cuda.memory import class_bytes
from tilegrad.config import changed
from tilegrad.errors import DeviceError, KernelError, LaunchError, OutOfMemoryError
from tilegrad.ir.dtype import float32, int8, int64
from tilegrad.ir.graph import TensorType
from tilegrad.ir.program import Launch, Program, ProgramBuffer, Tiles
from tilegrad.ir.tile_parser import parse

SPIN = parse("""
def spin(x: "*f32", out: "*f32", n: "i32"):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    v = tl.load(x + i)
    for k in range(0, n):
        v = tl.sin(v) + 0.5
    tl.store(out + i, v)
""")
Record = Callable[[str, object], None]


def test_ten_thousand_random_launches(gpu: CudaDevice, record_property: Record) -> None:
    """Tensors die at once, on three streams; all results are compared at the end."""
    random = np.random.default_rng(0)
    streams = [cuda.default_stream(), cuda.Stream(), cuda.Stream()]
    sizes = (1, 100, 4099, 70_000)
    tensors = {n: [tg.arange(n, dtype=float32).cuda() for _ in range(4)] for n in sizes}
    arrays = {n: [np.arange(n, dtype=np.float32) for _ in range(4)] for n in sizes}
    started = 0.0
    for launch in range(10_000):
        n, (i, j, k) = sizes[random.integers(0, 4)], random.integers(0, 4, 3)
        x, a = tensors[n], arrays[n]
        with cuda.stream(streams[random.integers(0, 3)]):
            match random.integers(0, 5):
                case 0:
                    x[k], a[k] = x[i] * 0.5 + x[j] * 0.25, a[i] * np.float32(0.5) + a[j] * np.float32(0.25)
                case 1:
                    x[k], a[k] = x[i].flip(0).abs(), np.abs(a[i][::-1])
                case 2:
                    x[k], a[k] = x[i].clone(), a[i].copy()
                    x[k] *= 0.5
                    a[k] *= np.float32(0.5)
                case 3:
                    x[k], a[k] = tg.maximum(x[i], x[j]), np.maximum(a[i], a[j])
                case _:
                    x[k], a[k] = tg.where(x[i] > 3, x[j], 1.0), np.where(a[i] > 3, a[j], np.float32(1))
            start = time.perf_counter()
            x[k].realize()
            started += (time.perf_counter() - start) * (launch >= 2000)  # by then everything is compiled
        if launch % 2500 == 0:
            np.testing.assert_array_equal(x[k].cpu().numpy(), a[k])
    cuda.synchronize()
    record_property("microseconds to start one of 10000 random launches on three streams", started * 125)
    for n in sizes:
        for y, b in zip(tensors[n], arrays[n], strict=True):
            np.testing.assert_array_equal(y.cpu().numpy(), b)


def test_a_thousand_replays_leave_memory_alone(gpu: CudaDevice, record_property: Record) -> None:
    model = tg.nn.Sequential(tg.nn.Linear(784, 128), tg.nn.ReLU(), tg.nn.Linear(128, 10)).cuda()
    optimizer = tg.optim.SGD(model.parameters(), lr=0.01)
    x, t = tg.rand(64, 784).cuda(), tg.randint(0, 10, (64,)).cuda()

    @tg.jit
    def step(x: tg.Tensor, t: tg.Tensor) -> tg.Tensor:
        optimizer.zero_grad()
        loss = tg.nn.functional.cross_entropy(model(x), t)
        loss.backward()
        optimizer.step()
        return loss

    first = step(x, t).item()
    for _ in range(9):
        loss = step(x, t)
    cuda.synchronize()
    before = gpu.statistics
    start = time.perf_counter()
    for _ in range(1000):
        loss = step(x, t)
    cuda.synchronize()
    record_property("microseconds of an MLP 784-128-10 training step, batch 64", (time.perf_counter() - start) * 1e3)
    after = gpu.statistics
    assert after.live == before.live
    assert after.held <= before.held + class_bytes(loss.nbytes), "one more loss, if the last was still held"
    assert loss.item() < first


def test_streams_overlap(gpu: CudaDevice, record_property: Record) -> None:
    """Two kernels of one block each take about as long as one, on two streams."""
    of = TensorType(float32, (128,))
    names = (ProgramBuffer("x", of, "input"), ProgramBuffer("z", of, "output"))
    spin = Program("spin", (), names, ("x",), ("z",), (Launch(SPIN, ("x", "z", 1_000_000), (Tiles(1, 1),)),))
    run, x = gpu.load(spin).bound(), gpu.from_host(np.ones(128, np.float32))
    streams = [cuda.Stream(), cuda.Stream()]

    def seconds(chosen: list[cuda.Stream]) -> float:
        cuda.synchronize()
        start = time.perf_counter()
        for stream in chosen:
            with cuda.stream(stream):
                run([x])
        cuda.synchronize()
        return time.perf_counter() - start

    seconds(streams)
    one, two, behind = seconds(streams[:1]), seconds(streams), seconds([streams[0], streams[0]])
    record_property("two streams: time of one kernel, of two beside each other, of two in a row, ms",
                    [round(s * 1e3, 3) for s in (one, two, behind)])  # fmt: skip
    assert two < 1.3 * one
    assert behind > 1.7 * one


def test_misconfigured_launches(gpu: CudaDevice) -> None:
    executable = gpu.load(program(64))
    digest = ADD.digest()
    real = executable.functions[digest]  # type: ignore[attr-defined]
    for change, text in (
        ({"threads": 1025}, "1025 threads in a block: .* allows 1 to 1024"),
        ({"threads": 0}, "0 threads"),
        ({"shared": 1 << 20}, "1048576 bytes of shared memory: .* allows 232448"),
    ):
        executable.functions = {digest: real._replace(binary=real.binary.replaced(**change))}  # type: ignore[attr-defined]
        executable._bindings.clear()  # type: ignore[attr-defined]
        with pytest.raises(LaunchError, match=text):
            executable.bound()
    executable.functions = {digest: real}  # type: ignore[attr-defined]
    (z, _) = executable.run([gpu.from_host(np.ones(64, np.float32)) for _ in range(2)])
    np.testing.assert_array_equal(gpu.to_host(z, float32, (64,)), np.full(64, 3))


def test_out_of_bounds_names_the_kernel(gpu: CudaDevice) -> None:
    """Runs in a separate process, because such a failure loses the device."""
    for setting in ("", "synchronous"):
        code = Path(__file__).with_name("outside.py")
        made = subprocess.run([sys.executable, str(code), setting], capture_output=True, text=True, timeout=120)
        for wanted in (
            "an illegal memory access",
            "in kernel far (model.py:9) of program two",
            "cannot be used any more",
        ):
            assert wanted in made.stdout, made.stdout + made.stderr


def test_checked_runs_name_the_index(gpu: CudaDevice) -> None:
    bad = gpu.load(program(64, WILD))
    given = [gpu.from_host(np.ones(64, np.float32)) for _ in range(2)]
    with changed(cuda="checked"), pytest.raises(KernelError, match="index 1000000 is outside x, which has 64 elements"):
        bad.run(given)


def test_out_of_memory(gpu: CudaDevice) -> None:
    count = (1 << 28) + 31  # a size that no other test uses
    kept = tg.zeros(count, device="cuda").realize()
    with pytest.raises(OutOfMemoryError, match="smaller batch") as caught:
        gpu.allocate(gpu.properties.total_memory)
    assert "1.00 GiB" in str(caught.value)
    assert kept.sum().item() == 0


def test_the_largest_tensors_are_named(gpu: CudaDevice) -> None:
    count = (1 << 28) + 31  # a size that no other test uses
    kept = tg.zeros(count, device="cuda").realize()
    with pytest.raises(OutOfMemoryError) as caught:
        tg.ones(1 << 37, device="cuda").realize()
    (line,) = (line for line in str(caught.value).split("\n") if f"float32[{count}]" in line)
    assert line.split()[:2] == ["1.00", "GiB"]
    assert "test_gpu_execution.py:" in line
    assert kept[-1].item() == 0
    assert (tg.ones(1 << 20, device="cuda") + kept[: 1 << 20]).sum().item() == 1 << 20, "work goes on afterwards"


def test_copies_overlap_kernels(gpu: CudaDevice, record_property: Record) -> None:
    """A copy from pinned memory finishes while a kernel of one block is still running."""
    of = TensorType(float32, (128,))
    names = (ProgramBuffer("x", of, "input"), ProgramBuffer("z", of, "output"))
    spin = Program("spin", (), names, ("x",), ("z",), (Launch(SPIN, ("x", "z", 1_000_000), (Tiles(1, 1),)),))
    run, x = gpu.load(spin).bound(), gpu.from_host(np.ones(128, np.float32))
    pinned, streams = tg.arange(1 << 22).pin_memory(), [cuda.Stream(), cuda.Stream()]
    run([x])
    cuda.synchronize()
    with cuda.stream(streams[0]):
        run([x])
        done = streams[0].record_event()
    with cuda.stream(streams[1]):
        moved = pinned.to("cuda", non_blocking=True)
        back = moved.cpu()
    assert not done.query(), "the kernel takes a tenth of a second, the copies some milliseconds"
    assert (back == pinned).all()
    cuda.synchronize()
    assert done.query()


def test_missing_device_and_mixed_devices() -> None:
    with pytest.raises(DeviceError, match="no device 'cuda:77' here. This machine has: cpu, cuda:0"):
        tg.ones(3, device="cuda:77")
    with pytest.raises(DeviceError, match="on cuda:0 and float32 .* on cpu; move one, as in y.to"):
        tg.ones(3, device="cuda") + tg.ones(3)
    with pytest.raises(DeviceError, match="on cpu and float32 .* on cuda:0"):
        tg.nn.Linear(3, 3).cuda()(tg.ones(2, 3))


def test_copies_are_exact_and_fast(gpu: CudaDevice, record_property: Record) -> None:
    array = np.random.default_rng(0).integers(0, 255, 1 << 28).astype(np.uint8)
    x = tg.tensor(array)
    pinned = x.pin_memory()
    for name, given in (("pageable", x), ("pinned", pinned)):
        given.to("cuda")
        cuda.synchronize()
        start = time.perf_counter()
        moved = given.to("cuda", non_blocking=True)
        cuda.synchronize()
        record_property(f"GB/s to the GPU, {name}", array.size / (time.perf_counter() - start) / 1e9)
    start = time.perf_counter()
    back = moved.cpu().numpy()
    record_property("GB/s from the GPU", array.size / (time.perf_counter() - start) / 1e9)
    assert (back == array).all()


def test_costs(gpu: CudaDevice, record_property: Record) -> None:
    """Measure the launch cost on the host, and the gaps between small kernels."""
    x = tg.ones(1000).cuda()
    add = tg.jit(lambda x: x + 1)
    chain = tg.jit(lambda x: tg.cat([(x + k).sum(0, keepdim=True) for k in range(8)]).cumsum(0))
    for name, work in (("one kernel", add), ("several kernels", chain), ("eager", lambda x: (x + 1).realize())):
        for _ in range(10):
            work(x)
        cuda.synchronize()
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        begin.record()
        start = time.perf_counter()
        for _ in range(1000):
            work(x)
        started = time.perf_counter() - start
        end.record()
        record_property(f"microseconds to start {name}", started * 1e3)
        record_property(f"microseconds of the GPU for {name}", begin.elapsed_time(end))


def test_gaps_between_kernels(gpu: CudaDevice, record_property: Record) -> None:
    """Run a thousand small kernels behind a long one, to hide the launch cost."""
    of = TensorType(float32, (128,))
    names = (ProgramBuffer("x", of, "input"), ProgramBuffer("z", of, "output"))
    spin = Program("spin", (), names, ("x",), ("z",), (Launch(SPIN, ("x", "z", 300_000), (Tiles(1, 1),)),))
    tiny = Program("tiny", (), names, ("x",), ("z",), (Launch(SPIN, ("x", "z", 1), (Tiles(1, 1),)),))
    x = gpu.from_host(np.ones(128, np.float32))
    waiting, small = gpu.load(spin).bound(), gpu.load(tiny).bound()
    waiting([x]), small([x])
    call, driver, queue = small.plan.steps[0].call, gpu.driver, gpu.default  # type: ignore[attr-defined]
    for name, marks in (("alone", False), ("with marks", True)):
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        waiting([x])
        begin.record()
        start = time.perf_counter()
        for _ in range(1000):
            driver.launch(call, queue.handle)
            if marks:
                driver.mark(queue.handle, queue.progress, queue.submitted)
        started = (time.perf_counter() - start) * 1e3
        end.record()
        record_property(f"launches {name}: microseconds of the host, of the GPU", [started, begin.elapsed_time(end)])


def test_branches_run_concurrently(gpu: CudaDevice, record_property: Record) -> None:
    """Four independent kernels of one block each run concurrently in a graph."""
    of = TensorType(float32, (128,))
    names = (ProgramBuffer("x", of, "input"), *(ProgramBuffer(f"z{n}", of, "output") for n in range(4)))
    steps = tuple(Launch(SPIN, ("x", f"z{n}", 100_000), (Tiles(1, 1),)) for n in range(4))
    run = gpu.load(Program("four", (), names, ("x",), ("z0", "z1", "z2", "z3"), steps)).bound()
    x = gpu.from_host(np.ones(128, np.float32))
    times = []
    for _ in range(5):
        cuda.synchronize()
        start = time.perf_counter()
        run([x])
        cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    record_property("four kernels in a row, and as a graph, ms", [times[1], times[4]])
    assert times[4] < 0.4 * times[1]


def test_more_elements_than_int32_counts(gpu: CudaDevice) -> None:
    n = 2**31 + 16
    x = tg.ones(n, dtype=int8, device="cuda").realize()
    x[-1] = 5
    assert x.sum(dtype=int64).item() == n + 4
    assert [int(y.item()) for y in (x[-1], (x + 1)[-1], x.flip(0)[0], x.argmax())] == [5, 6, 5, n - 1]
