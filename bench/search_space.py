"""Measure every tiling of one matrix product on one thread: python -m bench.search_space [--out FILE]

The tuner tries few of them. tests/schedule/test_search.py compares its choice with the best in this record, and so does
not depend on the machine that it runs on.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ["TILEGRAD_THREADS"] = "1"

import tilegrad as tg
from tilegrad.ir.graph import Graph
from tilegrad.runtime.choice import Choice, chosen
from tilegrad.runtime.device import device
from tilegrad.runtime.target_model import TargetModel
from tilegrad.schedule import matmul_tiles
from tilegrad.schedule.fuse import fuse
from tilegrad.schedule.trial import Contender, Trial

SIZE = 384
RECORD = Path(__file__).parents[1] / "tests" / "schedule" / "search_space.json"
RUNS = 4


def space(extents: matmul_tiles.Extents, target: TargetModel) -> list[Choice]:
    """All pairs of tile sizes that the tuner could choose, at each depth."""
    m, n, k, *_ = extents
    limits = target.matmul
    assert isinstance(m, int)
    assert isinstance(n, int)
    assert isinstance(k, int)
    wide = limits._replace(max_rows=2 * limits.max_rows, max_columns=2 * limits.max_columns)
    usual = matmul_tiles.blocks(extents, target).size("k")
    depths = [usual, *matmul_tiles._depths(k, usual, target)]
    pairs = list(dict.fromkeys(matmul_tiles._equal_pieces(m, n, wide)))
    return [chosen(m=h, n=w, k=depth) for depth in depths for h, w in pairs]


def processor_seconds(contender: Contender) -> float:
    """The least processor time of several runs, which excludes other processes."""
    contender.run()
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time()
        contender.run()
        best = min(best, (time.process_time() - start) / contender.launches)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=RECORD)
    arguments = parser.parse_args()
    x, y = tg.randn(SIZE, SIZE).realize(), tg.randn(SIZE, SIZE).realize()
    product = (x @ y)._value
    (group,) = fuse(Graph(tuple(product.inputs), (product,))).groups
    target = TargetModel(workers=1)
    trial = Trial(group, {}, {}, device("cpu"))
    seconds = {}
    for choice in space(matmul_tiles.Extents(SIZE, SIZE, SIZE), target):
        seconds[str(choice)] = processor_seconds(trial.contender(choice))
    best = min(seconds, key=seconds.__getitem__)
    print(f"{len(seconds)} choices, from {best} ({1e3 * seconds[best]:.2f} ms) to {1e3 * max(seconds.values()):.2f} ms")
    record = {"size": SIZE, "date": time.strftime("%Y-%m-%d"), "seconds": seconds}
    arguments.out.write_text(json.dumps(record, indent=0) + "\n")


if __name__ == "__main__":
    main()
