"""The arena of temporaries: buffers that live at the same time are apart, in hardly more memory than they need."""

from hypothesis import given
from hypothesis import strategies as st

from tilegrad.ir.size import Size, known
from tilegrad.runtime import Lifetime, plan_arena
from tilegrad.runtime.arena import ALIGNMENT

lives = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 20), st.integers(0, 6)), max_size=15)


@given(lives, st.booleans())
def test_buffers_that_live_at_the_same_time_are_apart(drawn: list[tuple[int, int, int]], dynamic: bool) -> None:
    n = Size({("n",): 4})
    lifetimes = [
        Lifetime(f"b{k}", n * bytes if dynamic and bytes else bytes, first, first + more)
        for k, (bytes, first, more) in enumerate(drawn)
    ]
    offsets, arena = plan_arena(lifetimes)
    sizes = {"n": 3}
    spans = [(known(offsets[x.name], sizes), known(x.bytes, sizes), x) for x in lifetimes]
    assert all(start % ALIGNMENT == 0 and start + bytes <= known(arena, sizes) for start, bytes, _ in spans)
    for k, (a, a_bytes, one) in enumerate(spans):
        for b, b_bytes, other in spans[:k]:
            at_once = one.first <= other.last and other.first <= one.last
            assert not at_once or a + a_bytes <= b or b + b_bytes <= a
