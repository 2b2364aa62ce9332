"""Measure the gallery of kernels on one GPU: python -m bench.gpu_gallery [names] [--out FILE] [--seconds N]

Each step of each gallery in examples/kernels is checked, then timed interleaved with the tensor operation. The record
is bench/results/h200-gallery-DATE.json, which `python -m examples.kernels --tables` prints as tables. It is written
after each gallery, so that an interrupted run loses nothing; later measurements are added to it.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import tilegrad as tg
from examples.kernels.__main__ import keep, record_of
from examples.kernels.frame import gallery

ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("climbs", nargs="*", help="names of files of the gallery")
    parser.add_argument("--out", type=Path, help="where the record goes too")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no climb is begun after that")
    arguments = parser.parse_args()
    climbs, found, start = gallery(), {}, time.monotonic()
    for name in arguments.climbs or climbs:
        climb, began = climbs[name], time.monotonic()
        if began - start > arguments.seconds:
            print(f"{name}: not begun", flush=True)
            continue
        try:
            for size in climb.tiny[:1]:  # the others are tests
                climb.check("cuda", size)
            rows = climb.measured("cuda", climb.large, ROUNDS)
        except (AssertionError, tg.errors.TilegradError) as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            continue
        print(climb.table(rows, "cuda", climb.large), f"({time.monotonic() - began:.1f} s)", flush=True)
        found[name] = record_of(climb, "cuda", climb.large, rows)
        file = keep("h200", tg.cuda.get_device_name(), found)
        if arguments.out:
            arguments.out.write_text(file.read_text())


if __name__ == "__main__":
    main()
