"""The collector's thresholds are those of the user outside of all blocks, whatever their order."""

import gc
from contextlib import ExitStack

from tilegrad.runtime.garbage_collection import MIN_NODES_COLLECTED, collected_seldom


def test_blocks_of_threads_overlap() -> None:
    before = gc.get_threshold()
    first, second = ExitStack(), ExitStack()
    first.enter_context(collected_seldom())
    second.enter_context(collected_seldom())
    assert gc.get_threshold()[0] == MIN_NODES_COLLECTED
    first.close()  # the one that began first ends first
    assert gc.get_threshold()[0] == MIN_NODES_COLLECTED
    second.close()
    assert gc.get_threshold() == before


def test_a_collector_that_is_off_stays_off() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with collected_seldom():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
