"""The harness: what libraries compute agrees, ratios are those of rounds, impossible figures are refused."""

import importlib
import inspect
import json
import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import child, gpu_networks, machine, networks, report, run, tuned, turns
from bench.contenders import CONTENDERS
from bench.gpu_report import gpu_part, networks_part
from bench.workloads import ALL, WORKLOADS, find

SMALL = {
    "chain": (5, 7),
    "softmax": (5, 7),
    "layer_norm": (5, 8),
    "layer_norm_training": (5, 8),
    "sum0": (5, 7),
    "sum1": (5, 7),
    "mlp": (6, 9, 5, 3),
    "matmul": (5, 7, 6),
    "lenet": (3,),
    "wide": (3,),
    "lenet_inference": (3,),
    "lstm": (2, 3),
    "matmul_bf16": (5, 7, 6),
    "matmul_int8": (32, 64, 16),
    "convolution": (2, 3, 9, 4, 3, 2, 1),
    "convolution_bf16": (2, 3, 9, 4, 3, 2, 1),
    "attention": (1, 2, 33, 16),
    "add": (16,),
    "kernel_add": (100,),
    "kernel_softmax": (5, 70),
    "kernel_layer_norm": (5, 70),
    "kernel_matmul": (40,),
    "kernel_attention": (2, 33, 16),
    "tiny": (16,),
}


@pytest.mark.parametrize("library", ["ours", "pytorch", "with_jax", "with_onnxruntime"])
@pytest.mark.parametrize("name", SMALL)
def test_libraries_compute_the_same(name: str, library: str) -> None:
    needed = {"pytorch": "torch", "with_jax": "jax", "with_onnxruntime": "onnxruntime"}.get(library)
    if needed:
        pytest.importorskip(needed)
    module: Any = importlib.import_module(f"bench.contenders.{library}")
    judge: Any = importlib.import_module("bench.contenders.with_numpy")
    if not hasattr(module, name):
        pytest.skip(f"{library} takes no part in {name}")
    if not hasattr(judge, name):
        judge = pytest.importorskip("bench.contenders.pytorch", exc_type=ImportError)
    results = []
    for side in (module, judge):
        call = getattr(side, name)(WORKLOADS[name].inputs(SMALL[name]), "eager")
        for _ in range(3):
            result = call()
        results.append([np.array(x) for x in side.outputs(result)])
    assert len(results[0]) == len(results[1]) or name.startswith("layer_norm")
    assert turns.difference(*results) <= WORKLOADS[name].tolerance


def test_a_wrong_gradient_of_a_step_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients are compared as the step itself subtracts them, also for networks trained by Adam."""
    torch = pytest.importorskip("torch")
    for network, size in (("lenet", (3,)), ("lstm", (2, 4))):
        far = gpu_networks.verified(torch, gpu_networks.Task(network, size), "cpu")
        assert max(far.values()) < 1e-4
    right = networks.Training.gradients

    def wrong(step: Any) -> list[np.ndarray]:
        found = right(step)
        if step.library is not torch:
            found[2] *= 1.1
        return found

    monkeypatch.setattr(networks.Training, "gradients", wrong)
    with pytest.raises(RuntimeError, match=r"lenet 3: gradient 2 \(16x6x5x5\) of tilegrad is wrong"):
        gpu_networks.verified(torch, gpu_networks.Task("lenet", (3,)), "cpu")


def test_a_contender_with_a_wrong_gradient_is_out(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    exact = networks.exact_gradients(torch, "lenet", networks.batch("lenet", (3,)))

    class Step(Clocked):
        wrong = 1.0

        def ask(self, **question: Any) -> dict[str, Any]:
            np.savez(question["gradients"], *[g * (1.0 + 1e-6) for g in exact[:-1]], exact[-1] * self.wrong)
            return {"gradients": len(exact)}

    players: Any = [Step("tilegrad", 1.0), Step("torch", 1.0)]
    far = turns._verify_gradients(players, WORKLOADS["lenet"], (3,))
    assert max(far.values()) < 1e-5
    assert not players[0].error
    players[0].wrong = 1.01
    turns._verify_gradients(players, WORKLOADS["lenet"], (3,))
    assert "gradient 9 is 1.0e-02 from that in float64" in players[0].error
    assert turns._verify_gradients(players, WORKLOADS["softmax"], (3, 4)) == {}


def test_every_contender_of_a_goal_exists() -> None:
    libraries = {x for c in CONTENDERS for x in (c.library, c.name)}
    for workload in ALL:
        assert set(workload.against) <= libraries
        assert workload.rival is None or workload.rival in workload.against
    assert find("softmax:3x4") == (WORKLOADS["softmax"], ((3, 4),))
    with pytest.raises(SystemExit, match="no workload 'sotfmax'"):
        find("sotfmax")


def test_ratios_are_those_within_rounds() -> None:
    """A machine that halves its speed between rounds changes times, and no ratio."""
    ours, theirs = [1.0, 2.0, 1.0, 2.0], [3.0, 6.0, 3.0, 6.0]
    assert turns.ratios(theirs, ours) == {"median": 3.0, "first": 3.0, "third": 3.0}


class Clocked:
    """A player whose slices take what they are said to take."""

    def __init__(self, name: str, seconds: float) -> None:
        self.contender, self.seconds = SimpleNamespace(name=name), seconds
        self.rounds: list[float] = []
        self.error = ""
        self.process = SimpleNamespace(pid=os.getpid())

    def ask(self, **question: Any) -> dict[str, Any]:
        return {"times": [self.seconds]}


class Told(Clocked):
    """A player that computes in this process, and whose last array is wrong by a factor."""

    def __init__(self, name: str, workload: str, wrong: float = 1.0) -> None:
        super().__init__(name, 1.0)
        self.child, self.wrong = child.Child(name, workload, SMALL[workload]), wrong

    def ask(self, **question: Any) -> dict[str, Any]:
        ((kind, file),) = question.items()
        answer: dict[str, Any] = getattr(self.child, kind)(file)
        with np.load(file) as stored:
            arrays = [stored[name] for name in stored.files]
        if arrays:
            np.savez(file, *arrays[:-1], arrays[-1] * np.float32(self.wrong))
        return answer


@pytest.mark.parametrize("name", ["layer_norm_training", "convolution", "attention", "tiny", "mlp", "lenet"])
def test_gradients_are_compared_with_float64_before_they_are_timed(name: str) -> None:
    pytest.importorskip("torch")
    players: Any = [Told("tilegrad", name), Told("torch", name)]
    far = turns._verify(players, WORKLOADS[name], SMALL[name])
    assert max(far.values()) < 1e-4
    assert [p.error for p in players] == ["", ""]
    players = [Told("tilegrad", name, wrong=1 + 5e-4), Told("torch", name)]
    assert any(what.endswith("of tilegrad") for what in turns._verify(players, WORKLOADS[name], SMALL[name]))
    assert "is 5.0e-04 from that in float64" in players[0].error


def test_all_workloads_that_differentiate_are_compared_with_float64() -> None:
    pytest.importorskip("torch")
    contenders: Any = importlib.import_module("bench.contenders.pytorch")
    for name, size in SMALL.items():
        work = getattr(contenders, name, None)
        code = inspect.getsource(work) if inspect.isfunction(work) else ""
        if "autograd.grad" in code or "backward()" in code:
            step = work(WORKLOADS[name].inputs(size), "eager")
            assert WORKLOADS[name].gives_gradients or isinstance(step, networks.Step), name


def test_who_is_far_behind_sits_out_and_long_rounds_end(monkeypatch: pytest.MonkeyPatch) -> None:
    players: Any = [Clocked("tilegrad", 9.0), Clocked("torch", 1.0), Clocked("jax", 3.9), Clocked("numpy", 4.1)]
    turns._rounds(players, 10)
    assert [len(p.rounds) for p in players] == [10, 10, 10, turns.FIRST_ROUNDS]
    assert turns._played(players[3], [5, 6]) == range(3)
    assert turns._played(players[3], [0, 2, 5]) == [0, 2]
    monkeypatch.setattr(turns, "PATIENCE", 0.0)
    assert len(turns._rounds(players, 10)) == turns.FEWEST_ROUNDS


def test_results_that_differ_are_seen() -> None:
    x = np.arange(4.0)
    assert turns.difference([x], [x]) == 0
    assert turns.difference([x * 1.01], [x]) == pytest.approx(0.01)
    assert turns.difference([x[:2]], [x]) == float("inf")
    assert turns.difference([x * np.nan], [x]) == float("inf")


LIMITS = {"fma": 100e9, "read": 20e9, "copy": 15e9, "triad": 18e9, "L3": 1 << 20}


def record(seconds: float) -> dict[str, Any]:
    times = {"median": seconds, "first": seconds, "third": seconds, "best": seconds}
    ratio = {"median": 3.0, "first": 2.9, "third": 3.1}
    return {
        "size": [4096, 4096],
        "times": {"tilegrad": times, "torch": times},
        "ratios": {"tilegrad": ratio | {"median": 1.0}, "torch": ratio, "torch-tuned": ratio | {"median": 0.9}},
        "unable": {"jax": "ModuleNotFoundError: no jax"},
    }


@pytest.mark.defect(10)
def test_figures_above_the_limit_are_refused() -> None:
    softmax = WORKLOADS["softmax"]
    possible = record(0.01)
    machine.check(softmax, possible, LIMITS)
    assert possible["share_of_limit"] == pytest.approx(softmax.bytes((4096, 4096)) / 0.01 / 20e9)
    with pytest.raises(machine.AboveLimit, match="168 % of what this machine can do"):
        machine.check(softmax, record(0.004), LIMITS)
    machine.check(softmax, record(1e-9) | {"size": [10, 10]}, LIMITS)  # caches have no limit here
    product, small = WORKLOADS["matmul_bf16"], record(1e-4) | {"size": [1024, 1024, 1024]}
    machine.check(product, small, LIMITS | {"amx": True})  # the limit of multiply-adds is not that of a matrix unit
    with pytest.raises(machine.AboveLimit):
        machine.check(product, small, LIMITS)


def test_page() -> None:
    judged = record(0.01)
    run.judge(WORKLOADS["softmax"], judged)
    assert (judged["best"], judged["ratio"]) == ("torch", 3.0)
    assert (judged["best_tuned"], judged["ratio_tuned"]) == ("torch-tuned", 0.9)
    described = {
        "threads": 2,
        "cpus": 2,
        "system": "Linux",
        "python": "3",
        "versions": {"numpy": "2"},
        "limits": LIMITS,
    }
    installed = {"size": [], "bytes": {"tilegrad": 250e6}, "times": {}, "ratios": {}}
    result = {"date": "2026-01-01", "machine": described, "workloads": {"softmax": [judged], "installed": [installed]}}
    page = report.page(json.loads(json.dumps(result)), "file.json")
    assert (
        "| softmax over the last axis | 4096x4096 | 2.5 | 3.00 [2.90, 3.10] | torch | 1.1 | 0.90 |  | missed |" in page
    )
    assert "at most 300 MB | 250 MB" in page
    assert "did not take part: ModuleNotFoundError: no jax" in page


def test_what_was_measured_on_a_gpu_is_in_the_page(tmp_path: Any) -> None:
    row = {"name": "chain", "us": 303.0, "ratio": 3.7, "tb_s": 4.4, "kernels": ["add_kernel 128x40"]}
    record = {"date": "2026-11-21", "device": "NVIDIA H200", "torch": "2.11", "copy_tb_s": 4.0, "rows": [row]}
    product = {"name": "x @ y", "us": 20.0, "ratio": 0.9, "torch_us": 18.0, "used_us": 15.0, "by": "cuBLASLt"}
    products = [product | {"tflops": 700.0, "kernels": ["contract_kernel 384x168"]}]
    (tmp_path / "h200-kernels-2026-11-21.json").write_text(json.dumps(record))
    (tmp_path / "h200-matmul-2026-11-21.json").write_text(
        json.dumps({k: v for k, v in record.items() if k != "copy_tb_s"} | {"rows": products})
    )
    (tmp_path / "h200-kernels-2026-11-20.json").write_text(json.dumps(record | {"rows": []}))
    found = gpu_part(tmp_path)
    assert "| chain | 3.70 |  | 303.0 µs | 4.40 TB/s, 1.10 of a copy | add 128x40 |" in found
    assert "| x @ y | 0.90 | 1.20, cuBLASLt | 20.0 µs | 700 TFLOP/s | contract 384x168 |" in found


def test_training_steps_come_from_the_newest_record_that_has_them(tmp_path: Any) -> None:
    us, checked = {"tilegrad": 100.0, "torch": 80.0, "torch-graph": 50.0}, {"gradients": {"tilegrad": 1e-3}}
    rows: list[dict[str, Any]] = [{"name": "mlp 64", "ratio": 0.5, "us": us} | checked]
    (tmp_path / "h200-networks-2026-11-21.json").write_text(json.dumps({"rows": rows}))
    newer = [rows[0] | {"ratio": 1.4}, {"name": "gpt2 16x1024 bfloat16", "failed": "out of memory"}]
    (tmp_path / "h200-networks-2026-11-22.json").write_text(json.dumps({"rows": newer}))
    found = networks_part(tmp_path)
    assert "| mlp 64 | 1.3 | 1.40 |  | 100 µs | torch-graph 50 µs | 2 |  |" in found
    assert "gpt2" not in found
    (tmp_path / "h200-networks-2026-11-22.json").unlink()
    assert "missed" in networks_part(tmp_path)
    old = {name: x for name, x in rows[0].items() if name != "gradients"}
    (tmp_path / "h200-networks-2026-11-22.json").write_text(json.dumps({"rows": [old, old | {"name": "mlp 512"}]}))
    found = networks_part(tmp_path)
    assert "| mlp 64 |" in found
    assert "| mlp 512 |" not in found
    assert "**Not shown**: mlp 512, of which no record" in found, "nobody knows whether its gradients were right"
    rows[0]["us"]["tilegrad alone"] = 125.0
    (tmp_path / "h200-networks-2026-11-22.json").write_text(json.dumps({"rows": rows}))
    assert "| 0.50 | 0.40 | 100 µs | torch-graph 50 µs | 2 | missed" in networks_part(tmp_path)


def test_tuned_rows() -> None:
    """The page says how far a first run is from a tuned one."""
    ratio = {"median": 1.084, "first": 1.0, "third": 1.2}
    record = {"size": [64], "budget": "20s", "said": "9 of 9 kernels tuned", "ratios": {"tilegrad-untuned": ratio}}
    rows = report.tuned_rows({"workloads": {"wide": [record, record | {"size": [512], "ratios": {}}]}})
    first, second = rows.splitlines()
    assert "| 64 | 20s | 1.08 [1.00, 1.20] | 9 of 9 kernels tuned |" in first
    assert "| 512 | 20s | not measured |" in second
    for name in tuned.MAIN:
        assert find(name)
    assert {"tilegrad", "tilegrad-untuned"} <= {c.name for c in CONTENDERS}


def test_the_profiler_is_compared_with_the_records_of_the_gpu(monkeypatch: Any) -> None:
    import tilegrad as tg
    from bench import gpu_profiler

    monkeypatch.setattr(tg.cuda, "synchronize", lambda: None)

    def profiled(run: Any, by_events: bool = False) -> list[tuple[str, float]]:
        return [("fill", 1.0), ("add", 110.0 if by_events else 101.0)] * gpu_profiler.RUNS

    monkeypatch.setattr(gpu_profiler, "profiled", profiled)
    monkeypatch.setattr(gpu_profiler, "recorded", lambda run, cupti: [("add", 100.0)] * gpu_profiler.RUNS)
    monkeypatch.setattr(gpu_profiler, "burst", lambda run: 104.0)
    row = gpu_profiler.row("add", lambda x: x + 1, (tg.ones(3),), object())  # type: ignore[arg-type]
    assert (row["kernel"], row["launches_of_a_run"], row["recorded"]) == ("add", 2, "50 of 100")
    assert abs(row["difference"] - 0.01) < 1e-9
    assert abs(row["events_difference"] - 0.1) < 1e-9
    alone = gpu_profiler.row("add", lambda x: x + 1, (tg.ones(3),), None)
    assert abs(alone["difference"] - (101 / 104 - 1)) < 1e-9
