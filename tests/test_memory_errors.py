"""Too large allocations raise an error that is also Python's MemoryError, and everything goes on afterwards."""

import gc
import io
import math
import re
from collections.abc import Callable

import pytest

import tilegrad as tg
from tilegrad.errors import OutOfMemoryError

HUGE = 1 << 46
ROW = tg.ones(1 << 12)
CUBE = (-1, 1, 1, 1), (1, -1, 1, 1), (1, 1, -1, 1), (1, 1, 1, -1)
TOO_LARGE: dict[str, Callable[[], object]] = {
    "zeros": lambda: tg.zeros(HUGE).numpy(),
    "more than addresses": lambda: tg.zeros(1 << 62).realize(),
    "empty": lambda: tg.empty(HUGE).realize(),
    "random": lambda: tg.rand(HUGE).realize(),
    "arange": lambda: tg.arange(HUGE).realize(),
    "a product": lambda: math.prod([ROW.reshape(shape) for shape in CUBE], start=tg.ones(())).realize(),
    "in a jitted function": lambda: tg.jit(lambda x: x.expand(1 << 34, -1) * x)(ROW),
    "a temporary": lambda: tg.zeros(1).expand(HUGE).sort()[1].sum().item(),
    "a copy": lambda: tg.zeros(1).expand(HUGE).clone().realize(),
    "joined": lambda: tg.cat([tg.zeros(1).expand(HUGE)] * 2).realize(),
    "in place": lambda: tg.zeros(HUGE).index_fill_(0, tg.tensor([3]), 1.0).realize(),
    "saved": lambda: tg.save(tg.zeros(1).expand(HUGE), io.BytesIO()),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_no_memory_is_a_memory_error_and_all_goes_on(name: str) -> None:
    ROW.realize()
    gc.collect()
    live = tg.live_bytes()
    for _ in range(2):
        with pytest.raises(OutOfMemoryError, match="no memory for a tensor of") as caught:
            TOO_LARGE[name]()
        assert isinstance(caught.value, MemoryError)
        del caught
    assert (ROW + 1).sum().item() == 2 << 12
    gc.collect()
    assert tg.live_bytes() <= live + 4096


def test_the_error_names_the_largest_tensors_and_what_helps() -> None:
    large = tg.rand(1021, 1031).realize()
    with pytest.raises(OutOfMemoryError) as caught:
        tg.zeros(HUGE).realize()
    text = str(caught.value)
    assert "the largest tensors:" in text
    assert re.search(r"4\.02 MiB  tensor +\S+  float32\[1021, 1031\]  test_memory_errors\.py:", text)
    assert "tilegrad.memory.summary()" in text
    assert large.shape == (1021, 1031)
