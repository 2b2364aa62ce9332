"""Register blocking of matrix products: a block of the result stays in registers, and few loads feed it."""

import platform
import re

import pytest

import tilegrad as tg
from tests.checklist import checklist
from tilegrad.backend.cpu.costs import UNROLLED_STEPS


def innermost(assembly: str) -> list[str]:
    """Instructions of the loop with the most multiply-adds."""
    found: list[list[str]] = []
    for block in re.split(r"^\.?[\w.]+:.*$", assembly, flags=re.MULTILINE):
        lines = [line.strip() for line in block.splitlines() if line.strip()]
        ends = [n for n, line in enumerate(lines) if re.match(r"j\w+\s", line)]
        found.append(lines[: ends[0] + 1] if ends else lines)
    return max(found, key=lambda lines: sum("fmadd" in line for line in lines))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads the assembly of x86")
@checklist(168)
def test_loads_are_those_of_the_register_tile() -> None:
    """With v1 rows and v2 columns in registers, an n^3 product loads n^3 / v2 + n^3 / v1 elements.

    So a step of k for a block loads v1 numbers of the left operand, v2 of the right one, and adds v1 * v2 products.
    """
    explanation = tg.explain(lambda x, y: x @ y, tg.ones(192, 192), tg.ones(192, 192))
    lines = innermost(str(explanation.assembly.full))
    bits = {"z": 512, "y": 256, "x": 128}
    products = [line for line in lines if "vfmadd" in line]
    lanes = bits[re.findall(r"%([xyz])mm", products[0])[-1]] // 32
    single = [line for line in lines if "vbroadcastss" in line or "{1to" in line]
    whole = [line for line in lines if re.search(r"^v.*\(%r\w+", line) and line not in single]
    v1, vectors = len(single) // UNROLLED_STEPS, len(whole) // UNROLLED_STEPS
    v2 = vectors * lanes
    assert len(products) == UNROLLED_STEPS * v1 * vectors, "a block of the result is updated in registers"
    loaded, added = len(single) + len(whole) * lanes, len(products) * lanes
    assert loaded / added == pytest.approx(1 / v2 + 1 / v1)
    assert v1 * vectors >= 8, "a tile that hides the latency of multiply-adds"
    assert not [line for line in lines if re.search(r"vmov\w+\s+%[xyz]mm\d+, .*\(", line)], "nothing is stored inside"
