"""The pictures of docs/profiling.md, drawn from fixed times: `--update-golden` writes them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.source import ROOT
from tilegrad.profile import roofline
from tilegrad.profile.attribution import LaunchOrigin, Share
from tilegrad.profile.averages import Average
from tilegrad.profile.count import Work
from tilegrad.profile.lines import FileLine
from tilegrad.profile.memory_timeline import memory_picture
from tilegrad.profile.recorder import Sample
from tilegrad.profile.timeline import TimelineRecord

PICTURES = ROOT / "docs" / "pictures"
KERNELS = {
    "contract": ("hidden", 21_000, Work(131_072, 65_536, 8_388_608)),
    "add": ("", 9_000, Work(131_072, 65_536, 1_310_720)),
    "permute_sub": ("hidden", 34_000, Work(393_216, 262_144, 8_454_144)),
    "sum_sub": ("head", 4_000, Work(40_960, 10_240, 40_960)),
}
"""Name, module, nanoseconds and work of kernels of a step."""


def roofline_picture(monkeypatch: pytest.MonkeyPatch) -> str:
    place = SimpleNamespace(name="cpu", limits={"read": 20e9, "fma": 500e9})
    monkeypatch.setattr(roofline, "known_devices", lambda: [place])
    rows = []
    for name, (module, ns, work) in KERNELS.items():
        source = LaunchOrigin((Share(FileLine("train.py", 12), 1.0, module),), work)
        rows.append(Average(name, [TimelineRecord("launch", name, "cpu", "main", 0, ns, source=source)]))
    return roofline.roofline(rows, "cpu")


def timeline_picture() -> str:
    live = [4, 6, 9, 12, 16, 13, 9, 6]
    samples = [
        Sample(1_000_000 * (8 * step + n), "cpu", (40 + bytes) * 100_000)
        for step in range(3)
        for n, bytes in enumerate(live)
    ]
    return memory_picture(samples, 0)


@pytest.mark.parametrize("name", ["roofline", "memory"])
def test_a_picture(name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    drawn = roofline_picture(monkeypatch) if name == "roofline" else timeline_picture()
    path = PICTURES / f"{name}.svg"
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawn)
    assert drawn.startswith("<svg")
    assert path.read_text() == drawn
    assert f"pictures/{name}.svg" in (ROOT / "docs" / "profiling.md").read_text()
