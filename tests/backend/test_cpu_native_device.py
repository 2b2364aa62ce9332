"""The CPU device: memory, programs with temporaries, varying sizes, in-place updates; compiling and its cache."""

import gc
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import itertools

from tests.backend.native_programs import in_child
from tilegrad import config
from tilegrad.backend.cpu import build, ir_modules, objects
from tilegrad.backend.cpu.buffer_factory import buffer_factory, small_buffer
from tilegrad.backend.cpu.memory import PoolBuffer
from tilegrad.backend.cpu.pool import CHUNK_BYTES, MIN_MAPPED_BYTES, MemoryPool
from tilegrad.backend.cpu.target import target
from tilegrad.errors import CompileError, OutOfMemoryError, RuntimeFault
from tilegrad.ir.dtype import bfloat16, float32, uint8
from tilegrad.ir.graph import TensorType
from tilegrad.ir.program import Copy, Launch, Program, ProgramBuffer, Tiles
from tilegrad.ir.size import Dim, Size
from tilegrad.ir.tile import Kernel, TileParameter
from tilegrad.runtime import events
from tilegrad.runtime.device import device

ADD = Kernel("add", tuple(TileParameter(name, float32) for name in "xyz"), (), "a kernel of this test")
ADD_IR = """
; An instance adds sixteen elements.
define void @add(ptr %a, i64 %begin, i64 %end) {
entry:
  %x = load ptr, ptr %a
  %y.slot = getelementptr i64, ptr %a, i64 1
  %y = load ptr, ptr %y.slot
  %z.slot = getelementptr i64, ptr %a, i64 2
  %z = load ptr, ptr %z.slot
  br label %test
test:
  %i = phi i64 [ %begin, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %end
  br i1 %more, label %body, label %leave
body:
  %x.at = getelementptr <16 x float>, ptr %x, i64 %i
  %y.at = getelementptr <16 x float>, ptr %y, i64 %i
  %z.at = getelementptr <16 x float>, ptr %z, i64 %i
  %x.v = load <16 x float>, ptr %x.at, align 4
  %y.v = load <16 x float>, ptr %y.at, align 4
  %sum = fadd <16 x float> %x.v, %y.v
  store <16 x float> %sum, ptr %z.at, align 4
  %next = add i64 %i, 1
  br label %test
leave:
  ret void
}
"""
N = Size.named("n")
cpu = device("cpu")


@pytest.fixture(autouse=True, scope="module")
def add_is_compiled() -> objects.LinkedCode:
    code = ir_modules.compile_kernels([("add", ADD_IR)], objects.host())
    build._linked[ADD.form(), target().matrix_unit] = code
    return code


def chain(n: Dim, depth: int, work: float = 16.0) -> Program:
    """z = x + y + y + ...; temporaries alternate between two places."""
    of = TensorType(float32, (n,))
    names = ["x", *(f"t{k}" for k in range(depth - 1)), "z"]
    temporaries = [ProgramBuffer(name, of, "temporary", n * 4 * (k % 2)) for k, name in enumerate(names[1:-1])]
    buffers = (
        ProgramBuffer("x", of, "input"),
        ProgramBuffer("y", of, "input"),
        *temporaries,
        ProgramBuffer("z", of, "output"),
    )
    tiles = Tiles(n, 16)
    steps = tuple(Launch(ADD, (a, "y", b), (tiles,), 0, work) for a, b in itertools.pairwise(names))
    sizes = ("n",) if isinstance(n, Size) else ()
    return Program("chain", sizes, buffers, ("x", "y"), ("z",), steps, n * 8 if depth > 1 else 0)


@pytest.mark.parametrize("n, depth, work", [(16, 1, 16), (64, 30, 16), (1 << 16, 7, 16), (4096, 9, 1e6)])
def test_a_chain_is_right_for_every_partition(n: int, depth: int, work: float) -> None:
    run = cpu.load(chain(n, depth, work)).bound()
    x, y = np.random.rand(2, n).astype(np.float32)
    given = (cpu.from_host(x), cpu.from_host(y))
    wanted = x.copy()
    for _ in range(depth):
        wanted += y
    for _ in range(12):
        (z,) = run(given)
        np.testing.assert_array_equal(cpu.to_host(z, float32, (n,)), wanted)


def test_the_steady_state_allocates_nothing() -> None:
    programs = [(cpu.load(chain(n, depth)).bound(), cpu.from_host(np.ones(n, np.float32))) for n, depth in
                ((16, 3), (1 << 15, 4), (1 << 20, 3))]  # fmt: skip
    for run, x in programs:
        for _ in range(6):
            run((x, x))
    before = cpu.statistics
    for _ in range(100):
        for run, x in programs:
            run((x, x))
    assert cpu.statistics == before


def test_sizes_may_vary_from_call_to_call() -> None:
    program = cpu.load(chain(N, 5))
    code = program.code  # type: ignore[attr-defined]
    for n in (32, 16, 48, 1 << 16, 32):
        x = cpu.from_host(np.arange(n, dtype=np.float32))
        y = cpu.from_host(np.ones(n, np.float32))
        for _ in range(6):
            (z,) = program.run([x, y], {"n": n})
            assert z.bytes == 4 * n
            np.testing.assert_array_equal(cpu.to_host(z, float32, (n,)), np.arange(n) + 5)
    assert program.code is code  # type: ignore[attr-defined]
    with pytest.raises(RuntimeFault, match="size n"):
        program.run([x, y])


def test_outputs_may_be_inputs_written_in_place() -> None:
    """x += y through an alias, w = x copied, y returned unchanged."""
    of = TensorType(float32, (16,))
    buffers = (
        ProgramBuffer("x", of, "input"),
        ProgramBuffer("y", of, "input"),
        ProgramBuffer("w", of, "output"),
        ProgramBuffer("x_new", of, "output", alias="x"),
    )
    steps = (Launch(ADD, ("x", "y", "x_new"), (Tiles(16, 16),)), Copy("x_new", "w"))
    program = cpu.load(Program("update", (), buffers, ("x", "y"), ("w", "x_new", "y", "w"), steps))
    x, y = cpu.from_host(np.ones(16, np.float32)), cpu.from_host(np.full(16, 2, np.float32))
    for n in range(8):
        results = program.run([x, y])
        assert results[1] is x
        assert results[2] is y
        assert results[3] is results[0]
        assert cpu.to_host(results[0], float32, (16,)).tolist() == [3.0 + 2 * n] * 16


def test_a_large_copy_is_split_into_chunks() -> None:
    n = 3_000_001
    of = TensorType(float32, (n,))
    program = Program(
        "copy",
        (),
        (ProgramBuffer("x", of, "input"), ProgramBuffer("y", of, "output")),
        ("x",),
        ("y",),
        (Copy("x", "y"),),
    )
    x = np.random.rand(n).astype(np.float32)
    loaded, given = cpu.load(program), [cpu.from_host(x)]
    for _ in range(6):
        (y,) = loaded.run(given)
        np.testing.assert_array_equal(cpu.to_host(y, float32, (n,)), x)


def test_empty_tensors_launch_nothing() -> None:
    (z,) = cpu.load(chain(0, 1)).run([cpu.allocate(0), cpu.allocate(0)])
    assert z.bytes == 0


def test_events_time_each_launch() -> None:
    run, x = cpu.load(chain(64, 4)).bound(), cpu.from_host(np.ones(64, np.float32))
    seen: list[events.TimedEvent] = []
    for _ in range(6):
        with events.listening(seen.append):
            run((x, x))
        run((x, x))
    launches = [e for e in seen if e.kind == "launch"]
    assert [e.name for e in launches] == ["add"] * 24
    assert all(0 <= e.stop - e.start < 1e9 for e in launches)
    assert len([e for e in seen if e.kind == "run"]) == 6


def test_threads_share_a_program() -> None:
    program = cpu.load(chain(1 << 14, 6))
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            x = np.random.default_rng(seed).random(1 << 14, np.float32)
            given = (cpu.from_host(x), cpu.from_host(np.ones_like(x)))
            wanted = x.copy()
            for _ in range(6):
                wanted += 1
            for _ in range(100):
                (z,) = program.run(given)
                np.testing.assert_array_equal(cpu.to_host(z, float32, x.shape), wanted)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures


def test_programs_die_with_their_last_user() -> None:
    before = len(gc.get_objects())
    for _ in range(20):
        program = cpu.load(chain(N, 3))
        for n in (16, 32):
            x = cpu.from_host(np.ones(n, np.float32))
            for _ in range(6):
                program.run([x, x], {"n": n})
    del program, x
    gc.collect()
    assert len(gc.get_objects()) < before + 500


# ----------------------------------------------------------------------------------------------------- memory


def test_blocks_are_aligned_and_reused() -> None:
    pool = MemoryPool()
    for bytes in (1, 64, 100, 5000, MIN_MAPPED_BYTES, 3 << 20):
        blocks = pool.blocks(bytes)
        address = pool.take(blocks)
        assert address % (CHUNK_BYTES if bytes >= CHUNK_BYTES else 64) == 0
        blocks.append(address)
        assert pool.take(pool.blocks(bytes)) == address


def test_free_memory_is_bounded() -> None:
    pool = MemoryPool(keep=8 << 20)
    blocks = pool.blocks(2 << 20)
    taken = [pool.take(blocks) for _ in range(10)]
    assert pool.statistics.live == 20 << 20
    while taken:
        blocks.append(taken.pop())
        pool.trim_excess()
    assert pool.free <= 8 << 20
    pool.trim()
    assert pool.statistics.held == 0
    assert pool.statistics.peak == 20 << 20


def test_no_memory_says_so() -> None:
    with pytest.raises(OutOfMemoryError, match="no memory for a tensor of"):
        cpu.allocate(1 << 60)


def test_a_view_keeps_its_buffer() -> None:
    buffer = cpu.from_host(np.arange(100_000, dtype=np.float32))
    live = cpu.statistics.live
    view = cpu.view(buffer, float32, (100, 1000))
    assert view is not None
    view[0, 0] = 7
    assert cpu.to_host(buffer, float32, (100_000,))[0] == 7
    del buffer
    assert cpu.statistics.live == live
    assert view[0, 1] == 1
    del view
    assert cpu.statistics.live < live


def test_arrays_come_and_go() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for given in (array, array.T, array[::2, ::-1]):
        np.testing.assert_array_equal(cpu.to_host(cpu.from_host(given), float32, given.shape), given)
    half = array.astype(bfloat16.numpy)
    np.testing.assert_array_equal(cpu.to_host(cpu.from_host(half), bfloat16, half.shape), half)
    borrowed = cpu.adopt(array)
    assert borrowed is not None
    array[0, 0] = 5
    assert cpu.to_host(borrowed, float32, (12,))[0] == 5
    assert cpu.adopt(array.T) is None
    empty = cpu.from_host(np.empty((0, 3), np.float32))
    assert cpu.to_host(empty, float32, (0, 3)).shape == (0, 3)


def test_buffers_made_natively_are_buffers() -> None:
    make = buffer_factory(cpu, 100)
    buffer = make()
    assert isinstance(buffer, PoolBuffer)
    assert (buffer.bytes, buffer.device, buffer.memory) == (100, cpu, None)
    assert repr(buffer) == "<100 bytes on cpu>"
    watched, address = weakref.ref(buffer), buffer.address
    cpu.view(buffer, uint8, (100,))[:] = 3  # type: ignore[index]
    del buffer
    assert watched() is None
    assert make().address == address
    before = cpu.statistics.live
    kept = [make() for _ in range(1000)]
    assert len({b.address for b in kept}) == 1000
    assert cpu.statistics.live == before + 128_000
    cycle: list[object] = [make()]
    cycle.append(cycle)
    del kept, cycle
    gc.collect()
    assert cpu.statistics.live == before
    with pytest.raises(RuntimeFault, match="no memory"):
        buffer_factory(cpu, 1 << 60)()


def test_reference_counts_are_balanced() -> None:
    """Neither the class, the device, nor the free list gains or loses references; addresses do not leak."""
    make, blocks = buffer_factory(cpu, 300), cpu.pool.blocks(300)  # type: ignore[attr-defined]
    watched = (small_buffer(), cpu, blocks)
    for _ in range(10):
        make()
    before = [sys.getrefcount(x) for x in watched]
    for _ in range(1000):
        make()
    assert [sys.getrefcount(x) for x in watched] == before
    address = make().address
    assert sys.getrefcount(address) <= 4


def test_buffers_may_outlive_everything() -> None:
    printed = in_child("""
        import builtins, sys
        from tilegrad.runtime.device import device
        from tilegrad.backend.cpu.buffer_factory import buffer_factory
        make = buffer_factory(device("cpu"), 64)
        builtins.kept = [make() for _ in range(3)]
        sys.kept = make()
        class Cycle: pass
        cycle = Cycle(); cycle.itself, cycle.kept = cycle, make()
        def later(kept=make()): pass
        import atexit; atexit.register(later)
        print("end")
    """)
    assert printed == "end\n"


# -------------------------------------------------------------------------------------------------- compiling


def test_code_is_compiled_once_and_then_found(tmp_path: Path) -> None:
    seen: list[events.TimedEvent] = []
    with config.changed(cache=str(tmp_path)), events.listening(seen.append):
        for _ in range(3):
            assert ir_modules.compile_kernels([("add", ADD_IR)], objects.host()).addresses["add"]
        assert [e.name for e in seen] == ["add"]
        (entry,) = (tmp_path / "objects").glob("*.entry")
        entry.write_bytes(entry.read_bytes()[:-1])
        ir_modules.compile_kernels([("add", ADD_IR)], objects.host())
        assert len(seen) == 2


@pytest.mark.parametrize(
    "ir, message",
    [
        ("define void @broken(ptr %a) { ret i32 0 }", "LLVM does not take"),
        ("nonsense", "LLVM does not take"),
        (
            "declare void @nobody_has_this()\ndefine void @broken() { call void @nobody_has_this()\nret void }",
            "not link",
        ),
    ],
)
def test_a_kernel_that_does_not_compile_is_named(ir: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CompileError, match=f"broken.*{message}"):
        ir_modules.compile_kernels([("broken", ir)], objects.host())
    assert ir_modules.compile_kernels([("add", ADD_IR)], objects.host()).addresses["add"]


def test_assembly_is_shown() -> None:
    assert "add" in ir_modules.assembly("add", ADD_IR, objects.host())
