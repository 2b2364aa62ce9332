"""Compare the speed of two checkouts: import, first calls, small calls, steady steps; interleaved, as ratios.

    git worktree add /tmp/before COMMIT; python tools/compare.py /tmp/before .

Each measurement runs in a process of its own, alternating between the checkouts, with an empty cache where it compiles.
The ratio is that of the medians, second over first; the spread is the range of the ratios of neighbouring runs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

TIMER = """
import sys, time
def least(fn, calls, rounds):
    found = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls): fn()
        found.append((time.process_time() - start) / calls)
    return min(found)
def report(seconds): print(f"seconds {seconds:.9f}")
"""
IMPORT = (
    TIMER
    + """
start = time.process_time(); import tilegrad; report(time.process_time() - start)
"""
)
SETUP = (
    TIMER
    + """
import tilegrad as tg
F = tg.nn.functional
def training(model, x, y):
    optimizer = tg.optim.AdamW(model.parameters(), lr=1e-3)
    @tg.jit
    def step(x, y):
        optimizer.zero_grad()
        scores = model(x)
        loss = F.cross_entropy(scores.reshape(-1, scores.shape[-1]), y)
        loss.backward()
        optimizer.step()
        return loss
    return lambda: step(x, y)
"""
)
FIRST = """
start = time.process_time(); step(); tg.synchronize(); report(time.process_time() - start)
"""
MLP = (
    SETUP
    + """
model = tg.nn.Sequential(tg.nn.Linear(64, 128), tg.nn.ReLU(), tg.nn.Linear(128, 10))
step = training(model, tg.randn(32, 64).realize(), (tg.arange(32) % 10).realize())
"""
)
CONVOLUTIONS = (
    SETUP
    + """
nn = tg.nn
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 169, 10))
step = training(model, tg.randn(16, 1, 28, 28).realize(), (tg.arange(16) % 10).realize())
"""
)
RECURRENT = (
    SETUP
    + """
class Net(tg.nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = tg.nn.LSTM(16, 32, batch_first=True), tg.nn.Linear(32, 10)
    def forward(self, x): return self.out(self.lstm(x)[0][:, -1])
step = training(Net(), tg.randn(8, 12, 16).realize(), (tg.arange(8) % 10).realize())
"""
)
EAGER = (
    SETUP
    + """
x = tg.randn(100, 30).realize()
def step(): return (x.softmax(1) * x.exp()).sum(0).numpy()
"""
)
TINY = (
    SETUP
    + """
x, y = tg.randn(16).realize(), tg.randn(16).realize()
add = tg.jit(lambda x, y: x + y)
step = lambda: add(x, y)
for _ in range(100): step()
report(least(step, 5000, 9))
"""
)
KERNEL = (
    SETUP
    + """
import tempfile, importlib.util, pathlib
path = pathlib.Path(tempfile.mkdtemp()) / "kernels.py"
path.write_text('''
import tilegrad as tg
import tilegrad.language as tl
@tg.kernel
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)
''')
spec = importlib.util.spec_from_file_location("kernels", path)
module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)
x, out = tg.randn(128).realize(), tg.empty(128).realize()
step = lambda: module.double[(1,)](x, out, 128, BLOCK=128)
for _ in range(100): step()
report(least(step, 3000, 9))
"""
)
STEADY = """
for _ in range(5): step()
report(least(step, 30, 7))
"""
MEASURED = {
    "import": (IMPORT, 11),
    "first jitted step, MLP": (MLP + FIRST, 5),
    "first jitted step, convolutions": (CONVOLUTIONS + FIRST, 3),
    "first jitted step, LSTM": (RECURRENT + FIRST, 3),
    "first eager result": (EAGER + FIRST, 5),
    "jitted call, 16 elements": (TINY, 5),
    "launch of a known kernel": (KERNEL, 5),
    "steady step, MLP": (MLP + STEADY, 5),
    "steady step, convolutions": (CONVOLUTIONS + STEADY, 5),
    "steady step, LSTM": (RECURRENT + STEADY, 5),
}


def measured(checkout: Path, program: str) -> float:
    """Run a program with a checkout, an empty cache and one thread; give the seconds that it reports."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ, "PYTHONPATH": str(checkout.resolve()), "TILEGRAD_CACHE": folder, "TILEGRAD_THREADS": "1"
        }  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False, cwd=folder
        )
    if done.returncode:
        raise SystemExit(f"{checkout}: {done.stderr}")
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--only", default="", help="measurements whose names contain this")
    options = parser.parse_args()
    print("| what (processor time, one thread) | before, ms | after, ms | after / before | spread |")
    print("| --- | --- | --- | --- | --- |")
    for name, (program, rounds) in MEASURED.items():
        if options.only not in name:
            continue
        pairs = [(measured(options.before, program), measured(options.after, program)) for _ in range(rounds)]
        before, after = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
        ratios = [b / a for a, b in pairs]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"| {name} | {before:.4g} | {after:.4g} | {after / before:.2f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
