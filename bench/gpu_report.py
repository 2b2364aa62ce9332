"""Write the section of docs/performance.md about GPUs from the newest records."""

import json
import textwrap
from pathlib import Path
from typing import Any

HEAD = """## On one {device}

{date}, PyTorch {torch} (eager, as CUDA graphs) against generated kernels without any library
(`TILEGRAD_LIBRARIES=off`); times of the GPU, medians, in one run, results compared before. More than 1 means that
tilegrad is faster. *As used*: a product as users run it, by whichever was faster when it was compiled, our own kernel
or cuBLASLt. From `{files}`.

| workload | ratio | as used | ours | rate | kernels: threads x registers |
| --- | --- | --- | --- | --- | --- |
"""

NETWORKS = """

### Training steps and inference

Whole steps (forward, backward, update) and inferences, by the clock of the machine; float32 products at `high` (tf32)
on both sides, or in bfloat16 (autocast). Gradients are dropped after an update (`step()`, then `zero_grad()`), by
PyTorch as by us: JAX's step keeps none either. A row is from the newest record that has it. *Generated*: the same with
`TILEGRAD_LIBRARIES=off`, where measured. The best peer is the fastest of PyTorch eager, as a CUDA graph and, where
measured, channels-last, compiled, and JAX's `jit`: how many of them were is said behind it.

All gradients of a step, as its update has them, are compared with float64 before it is timed; a record of a step
that does not say how far they were is not shown.{missing}

| network, batch | goal | ratio | generated | ours | best peer | of | |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
TAKEN_BACK = "**Not shown**: {names}, of which no record says how far the gradients were from float64."
UNKNOWN = "the reason has not been looked for yet"
GOALS = {"mlp": 1.3, "alexnet bfloat16": 1.5, "alexnet": 1.2, "gpt2 bfloat16": 0.8}
GOALS |= {"alexnet_inference": 1.0, "alexnet_inference bfloat16": 1.0}
GOALS |= {"alexnet_inference 1": 1.3, "alexnet_inference 1 bfloat16": 1.3}
REASONS = {
    "mlp": "at 64, eight kernels follow each other, three of them of one block of threads (the loss, the gradient of "
    "the hidden layer, the update of a bias): all other multiprocessors wait for these",
}


def gpu_part(folder: Path) -> str:
    """The section; empty without any record of a GPU.

    >>> gpu_part(Path("nowhere"))
    ''
    """
    newest = [found[-1] for kind in ("kernels", "matmul") if (found := sorted(folder.glob(f"h200-{kind}-*.json")))]
    if not newest:
        return ""
    records = [json.loads(file.read_text()) for file in newest]
    rows = [_row(row, record.get("copy_tb_s")) for record in records for row in record["rows"]]
    about = {"device": records[0]["device"], "date": records[0]["date"], "torch": records[0]["torch"]}
    copies = [r["copy_tb_s"] for r in records if "copy_tb_s" in r]
    limit = f"\n\nA copy from memory to memory moves {copies[0]:.2f} TB/s there." if copies else ""
    return (
        HEAD.format(**about, files="`, `".join(f"bench/results/{file.name}" for file in newest))
        + "\n".join(rows)
        + limit
        + networks_part(folder)
    )


def networks_part(folder: Path) -> str:
    """The training steps, with the reason for each missed goal.

    >>> networks_part(Path("nowhere"))
    ''
    """
    newest: dict[str, dict[str, Any]] = {}
    for file in sorted(folder.glob("h200-networks-*.json")):
        rows = [row for row in json.loads(file.read_text())["rows"] if "failed" not in row]
        newest |= {row["name"]: row for row in rows if is_verified(row) or not is_verified(newest.get(row["name"], {}))}
    shown = [row for row in newest.values() if is_verified(row)]
    names = ", ".join(name for name, row in newest.items() if not is_verified(row))
    missing = "\n\n" + textwrap.fill(TAKEN_BACK.format(names=names), 120) if names else ""
    return NETWORKS.format(missing=missing) + "\n".join(map(_network, shown)) if newest else ""


def is_verified(row: dict[str, Any]) -> bool:
    """Tell whether its gradients were compared with float64 before timing, or it has none."""
    return "gradients" in row or "inference" in row.get("name", "")


def _network(row: dict[str, Any]) -> str:
    kind = row["name"].split()[0] + (" bfloat16" if row["name"].endswith("bfloat16") else "")
    goal = GOALS.get(row["name"], GOALS.get(kind))
    us = dict(row["us"])
    own, alone = us.pop("tilegrad"), us.pop("tilegrad alone", None)
    best = min(us, key=us.__getitem__)
    why = f"missed: {REASONS.get(kind.split()[0], UNKNOWN)}" if goal and row["ratio"] < goal else ""
    generated = f"{us[best] / alone:.2f}" if alone else ""
    remarks = "; ".join(text for text in (why, row.get("note", "")) if text)
    times = f"{generated} | {own:.0f} µs | {best} {us[best]:.0f} µs | {len(us)} | {remarks} |"
    return f"| {row['name']} | {goal or ''} | {row['ratio']:.2f} | {times}"


def _row(row: dict[str, Any], copy: float | None) -> str:
    rate = f"{row['tflops']:.0f} TFLOP/s" if "tflops" in row else f"{row['tb_s']:.2f} TB/s"
    if copy:
        rate += f", {row['tb_s'] / copy:.2f} of a copy"
    time = f"{row['us']:.1f} µs" if row["us"] < 1000 else f"{row['us'] / 1000:.2f} ms"
    kernels = ", ".join(k.replace("_kernel", "") for k in row["kernels"])
    used = f"{row['torch_us'] / row['used_us']:.2f}, {row['by']}" if "used_us" in row else ""
    note = f" ({row['note']})" if "note" in row else ""
    return f"| {row['name']} | {row['ratio']:.2f} | {used} | {time} | {rate} | {kernels}{note} |"
