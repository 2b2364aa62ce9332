"""Reading takes time in proportion to the file: counted in operations, and where C does the work, by a limit that
work with the square of the size exceeds a hundred times.
"""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilegrad as tg
from tests.serialization.amplified import KINDS, REFUSED, Amplified, load, zipped
from tilegrad.errors import ArgumentError, CheckpointError, TilegradError
from tilegrad.lazy import handle

ROOT = Path(__file__).parents[2]
SECONDS = 100
"""Limit of the processor time of all kinds together, in seconds; they take about ten."""


def operations(kind: Amplified, data: bytes) -> int:
    """Calls of functions, those of C among them, while a file is read."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1

    gc.collect()
    gc.disable()  # what other tests left would be finalised meanwhile, or computed, and counted
    handle.watch_with(None)
    sys.setprofile(counted)
    try:
        kind.read(data)
    except REFUSED:
        pass
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize("name", KINDS)
def test_operations_grow_with_the_file(name: str) -> None:
    kind = KINDS[name]
    small, large = (kind.make(n) for n in (500, 2000))
    operations(kind, small)  # what is imported and made at first
    few, many = (min(operations(kind, data) for _ in range(3)) for data in (small, large))  # now and then one sweeps
    assert many <= 1000 + 1.3 * few * max(1.0, len(large) / len(small)), f"{few:,} and {many:,} operations"


@pytest.mark.skipif(os.name == "nt", reason="there is no limit of time for a process")
def test_no_file_takes_forever() -> None:
    import resource

    done = subprocess.run(
        [sys.executable, "-m", "tests.serialization.amplified"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS)),
    )
    assert done.returncode == 0, f"{done.stdout[-200:]}\n{done.stderr[-2000:]}"
    assert len(done.stdout.splitlines()) == len(KINDS)


LONG = [
    b"X\0\1\0\0" + b"a" * 256,
    b"(" + b"K\1" * 200 + b"t",
    b"](" + b"K\2" * 200 + b"e",
    b"\x8b\xff\0\0\0" + b"\1" * 255,
]
NAMES = [
    b"ccollections\nOrderedDict\n", b"ccollections\nCounter\n", b"cbuiltins\nset\n", b"cbuiltins\nbytearray\n",
    b"ctorch\nSize\n", b"c_codecs\nencode\n", b"ctorch._utils\n_rebuild_parameter\n",
    b"ctorch._tensor\n_rebuild_from_type_v2\n", b"ctorch\nFloatStorage\n",
]  # fmt: skip
SHORT = [
    b"N",
    b"K\1",
    b")",
    b"]",
    b"}",
    b"\x8f",
    b"(",
    b"0",
    b"2",
    b"t",
    b"e",
    b"a",
    b"s",
    b"u",
    b"\x90",
    b"\x91",
    b"d",
]
SHORT += [b"\x85", b"\x86", b"\x87", b"R", b"Q", b"b", b"l", b"1"]
RECALLED = [b"h" + bytes([n]) for n in range(16)]
KEPT = [b"q" + bytes([n]) for n in range(16)]
PIECES = st.sampled_from([*LONG, *NAMES]) | st.sampled_from(SHORT) | st.sampled_from(RECALLED) | st.sampled_from(KEPT)


@given(st.lists(st.tuples(PIECES, st.sampled_from([1, 1, 1, 2, 8, 100])), max_size=60))
def test_random_programs_of_the_pickle_machine(pieces: list[tuple[bytes, int]]) -> None:
    """Programs that memoise long objects and refer to them again in every possible way."""
    prepared = b"".join([piece + KEPT[n] + b"0" for n, piece in enumerate([*LONG, *NAMES])])
    data = zipped(prepared + b"N" + b"".join([piece * times for piece, times in pieces]))
    assert operations(Amplified(load, lambda n: b""), data) < 20_000 + 100 * len(data)
    try:
        load(data)
    except TilegradError:
        pass


def test_what_is_right_is_read() -> None:
    """Many tuples as keys, long ones, large integers, the same list at many places."""
    row = list(range(100))
    things = {
        "pairs": {(i, j): i for i in range(60) for j in range(60)},
        "long": {tuple(range(40)): 1, ("a", (1, (2.5, (None,)))): 2} | {1 << 200: 3, -(1 << 61): 4},
        "rows": [row] * 1000,
        "set": set(range(-50, 1000)) | {1 << 100},
        "words": ["a word of some length"] * 5000,
    }
    import io

    file = io.BytesIO()
    tg.save({k: v for k, v in things.items() if k != "long"}, file)
    found = tg.load(io.BytesIO(file.getvalue()))
    assert found == {k: v for k, v in things.items() if k != "long"}
    assert found["rows"][0] is found["rows"][-1]
    file = io.BytesIO()
    with pytest.raises(ArgumentError, match="numbers, strings and tuples of them"):
        tg.save(things["long"], file)


def test_what_is_out_of_proportion_is_said() -> None:
    with pytest.raises(CheckpointError, match="mentions its parts more than"):
        load(KINDS["lists that double"].make(1))
    with pytest.raises(CheckpointError, match="again and again"):
        load(KINDS["bytes from text, again"].make(1000))
    with pytest.raises(CheckpointError, match="made to have the same hash"):
        load(KINDS["pairs of one hash"].make(100))
