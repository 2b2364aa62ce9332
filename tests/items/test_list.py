"""Every item that is answered for, and every defect that ours must not share, has a test that says so."""

from pathlib import Path

from tests.checklist import DEFECTS, ITEMS, covered

TESTS = Path(__file__).parents[1]


def test_every_item_and_every_defect_has_a_test() -> None:
    assert not ITEMS.keys() - covered(TESTS).keys()
    assert not DEFECTS.keys() - covered(TESTS, "defect").keys()
