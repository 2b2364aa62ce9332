"""Programs that share data by atomic operations: right ones raise no alarm, each fault is found."""

import pytest

import tilegrad as tg
from tests.language.kernel_texts import made
from tests.locking import TILES, drawn
from tilegrad.errors import KernelFault

PROGRAMS = 5


@pytest.mark.parametrize("seed", range(80))
def test_order_by_atomics(seed: int) -> None:
    one = drawn(seed, TILES)
    k = made(f"p = tl.program_id(0)\nprograms = tl.num_programs(0)\n{one.body}", "lock, data, out")
    lock, data, out = tg.zeros(16, dtype=tg.int32), tg.zeros(16), tg.zeros(16)
    run = k.check if seed % 3 == 0 and not one.fault else k.race
    if one.fault:
        with pytest.raises(KernelFault, match="another instance of the kernel|deadlock"):
            run[(PROGRAMS,)](lock, data, out)
    else:
        run[(PROGRAMS,)](lock, data, out)
        assert (data.sum() + out.sum()).item() == one.total(PROGRAMS)


def test_sums_of_rows_under_a_lock() -> None:
    """The tutorial of layer_norm: rows are added up by whoever has the lock, a count says who is the first."""
    k = made(
        "i = tl.arange(0, 16)\n"
        "v = tl.load(x + tl.program_id(0) * 16 + i)\n"
        "group = tl.program_id(0) % 2\n"
        "while tl.atomic_cas(lock + group, 0, 1) == 1:\n"
        "    pass\n"
        "if tl.load(lock + 2 + group) == 0:\n"
        "    tl.atomic_xchg(lock + 2 + group, 1)\n"
        "else:\n"
        "    v += tl.load(out + group * 16 + i)\n"
        "tl.store(out + group * 16 + i, v)\n"
        "tl.debug_barrier()\n"
        "tl.atomic_xchg(lock + group, 0)",
        "lock, x, out",
    )
    x, out = tg.rand(6, 16), tg.zeros(2, 16)
    k.race[(6,)](tg.zeros(4, dtype=tg.int32), x, out)
    assert tg.allclose(out, x.view(3, 2, 16).sum(0), atol=1e-5)
