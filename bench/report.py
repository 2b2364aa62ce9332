"""Write docs/performance.md from the records of a run: python -m bench.report bench/results/cpu-DATE.json"""

import json
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from bench.first_second.report import first_second_part
from bench.gpu_report import UNKNOWN, gpu_part
from bench.turns import ROOT
from bench.workloads import WEIGHTS, WORKLOADS, Workload

PAGE_COLUMNS = 120
PAGE = ROOT / "docs" / "performance.md"

REASONS: dict[str, str] = {
    "matmul": "on one core the products run at 80 to 90 % of its peak, PyTorch's at 88 to 93 %. Tiles that stay in the "
    "second cache reach PyTorch's rate (192x256 by 256x1024 does); large results do not. Other shapes of tiles, "
    "fetching lines ahead, adding the old result last, and packing the left operand where it lies along k were tried, "
    "and changed less than the noise",
    "import": "some 70 modules of its own are loaded besides numpy (nn, optim and data when they are used): half of "
    "the time is finding and reading their files, a third making classes",
    "matmul_high": "this machine has no matrix unit: products are float32 at all precisions",
    "gpt": "70 % of the step are products, at 77 to 86 of the 91 to 97 GFLOP/s that a core makes of multiply-adds; of "
    "the rest attention takes 6 %, packing operands 6, gelu 4, and copying heads 2",
    "wide": "two of the three products of its large layers run at the rate of the machine; the gradient of the "
    "weights, with their update, waits for memory",
    "lstm": "the products of a recurrence run at 80 to 86 GFLOP/s on a core; a quarter of it is finishing gates, which "
    "waits for memory",
}
"""The reason why a workload (and size) misses its goal, found by profiling. `softmax`, or `softmax 64x64`."""
SHARED = "other work ran on the neighbouring cores of this machine, and times of one contender differ by half"
REASONS_ELSEWHERE: dict[str, dict[str, str]] = {
    "cpu-avx512": {
        "matmul": "of 1024 x 1024 the innermost loop takes 87 % of the time, packing 8 and storing the result 3; tiles "
        "of 16 other shapes take the same within 2 %. JAX reaches 87 % of the two cores' peak there",
        "matmul_bf16": "products run at 85 to 90 % of what the two cores make from registers, as PyTorch's do",
        "convolution_bf16": "82 % of a weight gradient are products near the peak, the rest is packing windows and "
        "what arrives; PyTorch's run at 90 % of the peak",
        "alexnet": "5 x 5 convolutions, half of the step, run at 177 to 204 of 233 GFLOP/s; weight gradients of the "
        "3 x 3 ones, a fifth, at 118 to 127: windows in rows of 12 are gathered while they are packed",
        "alexnet_bf16": "convolutions take 80 % of it, at 0.7 to 0.85 of the peak; updates of 43 million weights "
        "wait for memory",
        "alexnet_inference_bf16": "convolutions run at 0.75 to 0.85 of the peak, PyTorch's at 0.9",
    },
    "cpu-amx": {
        "matmul": f"six products in the matrix unit; {SHARED}",
        "matmul 1x4096x4096": "the weights are read at 44 GB/s, as fast as numpy and PyTorch read them",
        "matmul_high": f"three products in the matrix unit; {SHARED}",
        "lenet": "layers have 1, 6 and 16 channels, so packing windows takes longer than multiplying them",
        "matmul_bf16": "of numbers that are not zero a core multiplies 1.93 TFLOP/s, and the launch that multiplies "
        f"reaches 1.7 to 1.8; the rest is packing, and starting launches; {SHARED}",
    },
}
"""The same on machines with wider vectors, where reasons differ."""

HEAD = """# Performance

Written by `make bench` from `{source}`; do not edit. Ratios are the best peer's time over ours: **more than 1 means
that tilegrad is faster**. All contenders of a line ran in one run, each in a process of its own with {threads}
threads, in alternating slices of 50 ms, the others stopped meanwhile. A ratio is the median of the ratios within each
round, quartiles in brackets; who is four times slower than the fastest sits out after three rounds; a row that was not
measured anew has its older date in the file. Steps of LeNet and all after it drop gradients after an update, with every
library. Results were compared before any time counted, and a time above the machine's limit is refused; that of
products is float32 multiply-adds, which convolutions in tiles and a matrix unit may pass. *Tuned* peers are PyTorch
with malloc settings that keep memory (`bench/contenders/__init__.py`).

{machine}

"""
OTHERS = {"cpu-avx512": "With AVX-512", "cpu-amx": "With AVX-512 and a matrix unit (AMX)"}
"""Other kinds of machines, by the names of their records."""
ON_ANOTHER = """
## {title}

From `{source}`. {machine}

"""
TUNED = """
## A first run, and a tuned one

Without a `kernels.lock` the cost model chooses. The ratio is the time of that over the time with what
`tg.jit(tune=...)` found in so many seconds: at most **1.3** is wanted. From `{source}`.

| workload | size | tuned for | untuned over tuned | what the tuner found |
| --- | --- | --- | --- | --- |
"""
COLUMNS = """| workload | size | goal | ratio | best peer | goal, tuned | ratio, tuned | of the limit | |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def page(result: dict[str, Any], source: str) -> str:
    """The page for one machine, with the newest records of others."""
    head = HEAD.format(source=source, threads=result["machine"]["threads"], machine=_machine(result))
    text = head + _table(result, REASONS) + first_second_part(ROOT / "bench" / "results")
    for file in sorted((ROOT / "bench" / "results").glob("tuned-cpu-2*.json"))[-1:]:
        text += TUNED.format(source=file.relative_to(ROOT)) + tuned_rows(json.loads(file.read_text()))
    for kind, title in OTHERS.items():
        for file in sorted((ROOT / "bench" / "results").glob(f"{kind}-2*.json"))[-1:]:
            other = json.loads(file.read_text())
            text += ON_ANOTHER.format(title=title, source=file.relative_to(ROOT), machine=_machine(other))
            text += _table(other, REASONS | REASONS_ELSEWHERE[kind])
    on_a_gpu = gpu_part(ROOT / "bench" / "results")
    if on_a_gpu:
        text += f"\n{on_a_gpu}\n"
    return text + "\n## All times\n\n" + "\n".join(_times(result)) + "\n"


def _table(result: dict[str, Any], reasons: dict[str, str]) -> str:
    """The ratios of a machine, and the reasons for missed goals."""
    lines, missed = [], []
    for name, records in result["workloads"].items():
        workload, why = WORKLOADS[name], dict[str, list[str]]()
        for record in records:
            primary = record is records[0]
            goal = workload.goals.get(tuple(record["size"]))
            own = workload if primary else replace(workload, goal=goal, goal_tuned=None)
            reason = _missed(own, record, reasons)
            lines.append(_line(own, record, primary, bool(reason)))
            if reason:
                why.setdefault(reason, []).append(workload.label(tuple(record["size"])))
        mean = workload.mean_with_unit if result["machine"]["limits"].get("amx") else workload.mean
        if mean:
            found, line = _mean(workload, records, mean)
            lines.append(line)
            if found < mean:
                why.setdefault(reasons.get(name, UNKNOWN), []).append("geometric mean")
        missed += [f"- **{workload.title}** {', '.join(sizes)}: {reason}" for reason, sizes in why.items()]
    text = COLUMNS + "\n".join(lines) + "\n" + _streams(result) + _absent(result)
    return text + ("\n### Goals that are missed\n\n" + "\n".join(missed) + "\n" if missed else "")


def _mean(workload: Workload, records: list[dict[str, Any]], goal: float) -> tuple[float, str]:
    """The geometric mean of the ratios that have a common goal, and its row."""
    ratios = [r["ratio"] for r in records if tuple(r["size"]) in workload.mean_of and "ratio" in r]
    if not ratios:
        return 0.0, f"|  | geometric mean | {goal} | not measured |  |  |  |  | missed |"
    mean = geometric_mean(ratios)
    sizes = f"geometric mean of {len(ratios)}"
    return mean, f"|  | {sizes} | {goal} | **{mean:.2f}** |  |  |  |  | {'missed' if mean < goal else ''} |"


def _absent(result: dict[str, Any]) -> str:
    """List the workloads without a row.

    >>> sizes = [{"size": size} for size in WORKLOADS["wide"].sizes[1:]]
    >>> "`lenet`, " in (text := _absent({"workloads": {"wide": sizes}})), "`wide` 64, " in text
    (True, True)
    """
    found = []
    for name, workload in WORKLOADS.items():
        there = {tuple(record["size"]) for record in result["workloads"].get(name, ())}
        lacking = [workload.label(size) for size in workload.sizes if size not in there]
        if lacking:
            found.append(f"`{name}` {', '.join(lacking)}" if there else f"`{name}`")
    return f"\nNot measured on this machine: {', '.join(found)}.\n" if found else ""


def tuned_rows(result: dict[str, Any]) -> str:
    """The rows that `bench.tuned` measured."""
    lines = []
    for name, records in result["workloads"].items():
        for record in records:
            workload, ratio = WORKLOADS[name], record["ratios"].get("tilegrad-untuned")
            shown = f"{ratio['median']:.2f} [{ratio['first']:.2f}, {ratio['third']:.2f}]" if ratio else "not measured"
            size = workload.label(tuple(record["size"]))
            lines.append(f"| {workload.title} | {size} | {record['budget']} | {shown} | {record['said']} |\n")
    return "".join(lines)


def _streams(result: dict[str, Any]) -> str:
    """The share of memory bandwidth that weight-bound inferences reach."""
    limits, lines = result["machine"]["limits"], []
    for name, bytes in WEIGHTS.items():
        for record in result["workloads"].get(name, []):
            seconds = record["times"].get("tilegrad", {}).get("median")
            if tuple(record["size"]) == (1,) and seconds and "read" in limits:
                rate = bytes / seconds
                lines.append(
                    f"{WORKLOADS[name].title}, batch 1: {bytes / 1e6:.0f} MB of weights in {1e3 * seconds:.1f} ms are "
                    f"{rate / 1e9:.1f} GB/s, {100 * rate / limits['read']:.0f} % of what can be read from memory."
                )
    return "\n" + "\n".join(lines) + "\n" if lines else ""


def _machine(result: dict[str, Any]) -> str:
    machine, limits = result["machine"], result["machine"]["limits"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    known = "limits not measured"
    if "fma" in limits:
        memory = max(limits[name] for name in ("read", "copy", "triad"))
        known = f"{limits['fma'] / 1e9:.0f} GFLOP/s in float32, {memory / 1e9:.0f} GB/s from memory (measured)"
    processor = limits.get("model", machine["system"])
    return f"{result['date']}: {processor}, {machine['cpus']} cores; {known}. Python {machine['python']}, {versions}."


def _line(workload: Workload, record: dict[str, Any], primary: bool, missed: bool) -> str:
    size = workload.label(tuple(record["size"]))
    goal, tuned = workload.goal, workload.goal_tuned
    share = record.get("share_of_limit")
    cells = [
        workload.title if primary else "",
        size,
        _goal(workload, goal),
        _figure(workload, record),
        record.get("best", ""),
        f"{tuned}" if tuned else "",
        f"{record['ratio_tuned']:.2f}" if "ratio_tuned" in record else "",
        f"{100 * share:.0f} %" if share is not None else "",
        "missed" if missed else "",
    ]
    return f"| {' | '.join(cells)} |"


def _goal(workload: Workload, goal: float | None) -> str:
    if goal is None:
        return ""
    if workload.name == "installed":
        return f"at most {goal / 1e6:.0f} MB"
    at_most = workload.while_busy or workload.name == "import" or workload.kind == "bytes"
    return f"at most {goal}" if at_most else f"{goal}"


def _figure(workload: Workload, record: dict[str, Any]) -> str:
    """The text of the column of ratios."""
    value = figure(workload, record)
    if value is None:
        return "not measured"
    if workload.name == "installed":
        return f"{value / 1e6:.0f} MB"
    if workload.kind == "bytes":
        return f"{value:.2f} ({', '.join(f'{name} {n / 1e6:.0f} MB' for name, n in record['bytes'].items())})"
    spread = record["ratios"].get(record.get("best", ""))
    if workload.while_busy or workload.name == "import" or not spread:
        others = {n: s for n, s in record.get("slowdowns", {}).items() if n != "tilegrad"}
        beside = ", ".join(f"{name} {s:.1f}" for name, s in others.items())
        return f"{value:.2f}" + (f" ({beside})" if beside else "")
    return f"{value:.2f} [{spread['first']:.2f}, {spread['third']:.2f}]"


def figure(workload: Workload, record: dict[str, Any]) -> float | None:
    """The number that the goal refers to."""
    if workload.name == "installed":
        return record["bytes"].get("tilegrad")
    if workload.kind == "bytes":
        both = record["bytes"]
        return both["tilegrad"] / both["torch"] if {"tilegrad", "torch"} <= both.keys() else None
    if workload.while_busy:
        return record["slowdowns"].get("tilegrad")
    if workload.name == "import":
        return 1 / record["ratio"] if "ratio" in record else None
    return record.get("ratio")


def _missed(workload: Workload, record: dict[str, Any], reasons: dict[str, str]) -> str:
    """The reason why the goal is missed; empty if it is met."""
    value = figure(workload, record)
    if workload.goal is None or value is None:
        return "" if workload.goal is None else "not measured"
    at_most = workload.kind == "bytes" or workload.while_busy or workload.name == "import"
    met = value <= workload.goal if at_most else value >= workload.goal
    if met and record.get("ratio_tuned", 9e9) >= (workload.goal_tuned or 0):
        return ""
    size = workload.label(tuple(record["size"]))
    return reasons.get(f"{workload.name} {size}", reasons.get(workload.name, UNKNOWN))


def _times(result: dict[str, Any]) -> list[str]:
    lines = ["| workload | size | contender | median | quartiles | best |", "| --- | --- | --- | --- | --- | --- |"]
    for name, records in result["workloads"].items():
        for record in records:
            size = WORKLOADS[name].label(tuple(record["size"]))
            for who, times in record["times"].items():
                spread = f"{_time(times['first'])} – {_time(times['third'])}"
                lines.append(
                    f"| {name} | {size} | {who} | {_time(times['median'])} | {spread} | {_time(times['best'])} |"
                )
            for who, reason in record.get("unable", {}).items():
                lines.append(f"| {name} | {size} | {who} | did not take part: {reason.replace('|', ' ')} | | |")
    return lines


def _time(seconds: float) -> str:
    """
    >>> _time(0.0123), _time(4.2e-6), _time(1.5)
    ('12.3 ms', '4.20 µs', '1.50 s')
    """
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}" if seconds * scale >= 10 else f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def write(file: Path) -> None:
    """Write the page for one record; records of machines with wider vectors are added as sections."""
    others = sorted(file.parent.glob("cpu-2*.json"))
    file = others[-1] if file.name.startswith(tuple(OTHERS)) and others else file
    source = file.resolve().relative_to(ROOT) if file.resolve().is_relative_to(ROOT) else file
    PAGE.write_text(wrapped(page(json.loads(file.read_text()), str(source))))


def wrapped(text: str) -> str:
    """Wrap paragraphs and items of lists that are too long; tables and headings stay as they are.

    >>> wrapped("- " + "a b " * 40)[114:].splitlines()[:2]
    ['a b a', '  b a b a b a b a b a b a b a b a b a b a b']
    """
    return "\n\n".join(map(_wrapped_part, text.split("\n\n")))


def _wrapped_part(part: str) -> str:
    if part.startswith(("|", "#")) or all(len(line) <= PAGE_COLUMNS for line in part.splitlines()):
        return part
    mark = "- " if part.startswith("- ") else ""
    made = []
    for item in part.removeprefix(mark).split(f"\n{mark}") if mark else [part]:
        made.append(textwrap.fill(mark + item, PAGE_COLUMNS, subsequent_indent=" " * len(mark), break_on_hyphens=False))
    return "\n".join(made) + "\n" * part.endswith("\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
