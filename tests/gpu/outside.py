"""Run a program whose second kernel reads out of bounds, and print the error. Argument: TILEGRAD_CUDA."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
if __name__ == "__main__":
    os.environ["TILEGRAD_CUDA"] = sys.argv[1]

import numpy as np

from tests.backend.cuda.test_cuda_programs import program
from tilegrad.errors import TilegradError
from tilegrad.ir.tile_parser import parse
from tilegrad.runtime.device import device

FAR = parse("""
def far(x: "*f32", out: "*f32"):
    i = tl.program_id(0).to(tl.int64) * 16 + tl.arange(0, 16)
    tl.store(out + i, tl.load(x + (i + 1) * 100000000000))
""").replaced(origin="model.py:9")


def main() -> None:
    """Fail twice."""
    gpu = device("cuda:0")
    given = [gpu.from_host(np.ones(64, np.float32)) for _ in range(2)]
    bad = gpu.load(program(64, FAR))
    for _ in range(2):  # the second time the device is lost already
        try:
            bad.run(given)
            gpu.synchronize()
        except TilegradError as problem:
            print(problem)


if __name__ == "__main__":
    main()
