"""The part of docs/performance.md about GPUs, from the newest records of the machines that had one."""

import json
from pathlib import Path
from typing import Any

HEAD = """## On one {device}

{date}, PyTorch {torch} (eager, as CUDA graphs) against generated kernels without any library; times of the
GPU, medians, in one run, results compared before. More than 1 means that tilegrad is faster. From `{files}`.

| workload | ratio | ours | rate | kernels: threads x registers |
| --- | --- | --- | --- | --- |
"""


def gpu_part(folder: Path) -> str:
    """Nothing if nobody has measured on a GPU.

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
    )


def _row(row: dict[str, Any], copy: float | None) -> str:
    rate = f"{row['tflops']:.0f} TFLOP/s" if "tflops" in row else f"{row['tb_s']:.2f} TB/s"
    if copy:
        rate += f", {row['tb_s'] / copy:.2f} of a copy"
    time = f"{row['us']:.1f} µs" if row["us"] < 1000 else f"{row['us'] / 1000:.2f} ms"
    kernels = ", ".join(k.replace("_kernel", "") for k in row["kernels"])
    return f"| {row['name']} | {row['ratio']:.2f} | {time} | {rate} | {kernels} |"
