"""Run what depends on the processor once for each set of its features: `python -m tests.features [pytest's options]`.

The ordinary run of the suite uses all features. Here the tests that run generated machine code are run again without
the matrix unit, with the first AVX-512 instructions alone, and with AVX2: as far as this processor has more than that.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tilegrad.backend.cpu.processor import amx_permitted, has_fast_bf16_dot
from tilegrad.backend.cpu.target import target

CPU = (
    "amx bf16_dot bf16_reads first_extreme fused_statements gathering maths native products register_tiles "
    "transpose_tiles"
)
TESTS = (
    *(f"tests/backend/test_cpu_{name}.py" for name in CPU.split()),
    *(f"tests/nn/test_{name}.py" for name in ("attention", "conv", "pool", "recurrent", "all_layers")),
    *(f"tests/ops/test_{name}.py" for name in ("dtypes", "eight_bits", "long_scans", "recurrence", "scatter")),
    *("tests/test_precision.py", "tests/test_amp.py", "tests/fuzz"),
)


def environments() -> list[dict[str, str]]:
    """The sets of features below those of this processor, widest first."""
    bytes = target().vector_bytes
    found = [{"TILEGRAD_AMX": "off"}] if amx_permitted() else []
    if bytes == 64 and (amx_permitted() or has_fast_bf16_dot()):
        found.append({"TILEGRAD_VECTORS": "avx512"})
    if bytes == 64:
        found.append({"TILEGRAD_VECTORS": "avx2"})
    return found


if __name__ == "__main__":
    for environment in environments():
        print("with", *(f"{name}={value}" for name, value in environment.items()), flush=True)
        command = [sys.executable, "-m", "pytest", "-q", *TESTS, *sys.argv[1:]]
        if status := subprocess.run(command, env={**os.environ, **environment}, check=False).returncode:
            sys.exit(status)
