"""Places of the data of a run: inputs, outputs, temporaries with and without a plan, shared memory."""

import pytest

from tilegrad.backend.places import Place, Places, Span
from tilegrad.errors import RuntimeFault
from tilegrad.ir.dtype import float32
from tilegrad.ir.graph import TensorType
from tilegrad.ir.program import Program, ProgramBuffer
from tilegrad.ir.size import Size

TYPE = TensorType(float32, (Size.named("n"),))


def places(*buffers: ProgramBuffer) -> Places:
    """Lay out a program that returns its input and an output in memory of its own."""
    program = Program("p", ("n",), buffers, ("x",), ("u", "z"), (), 64)
    return Places(program, {"n": 10}, alignment=64)


def test_every_buffer_has_its_place() -> None:
    x, u = ProgramBuffer("x", TYPE, "input"), ProgramBuffer("u", TYPE, "output", alias="x")
    z, t = ProgramBuffer("z", TYPE, "output"), ProgramBuffer("t", TYPE, "temporary", 24)
    spare, last = ProgramBuffer("spare", TYPE, "temporary"), ProgramBuffer("last", TYPE, "temporary")
    found = places(x, u, z, t, spare, last)
    assert [found[name] for name in ("x", "u", "z")] == [Place(0), Place(0), Place(1)]
    assert [found[name] for name in ("t", "spare", "last")] == [Place(2, 24), Place(2, 64), Place(2, 128)]
    assert (found.made, found.arena, found.results) == ([40], 168, [0, 1])
    assert found.behind(8) == Place(2, 192)
    assert found.arena == 200
    assert found.span("spare") == Span(2, 64, 104)
    assert not found.span("spare").meets(found.span("last"))


def test_what_nothing_gives_its_elements() -> None:
    with pytest.raises(RuntimeFault, match="p: nothing gives constant c its elements"):
        places(
            ProgramBuffer("x", TYPE, "input"),
            *[ProgramBuffer(n, TYPE, "output") for n in "uz"],
            ProgramBuffer("c", TYPE, "constant"),
        )
