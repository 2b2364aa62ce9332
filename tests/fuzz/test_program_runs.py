"""The tools around random programs: what fails is found, shrunk, and survived."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.fuzz.child import Child, Ended
from tests.fuzz.program_check import Wrong, compare, expected, measured
from tests.fuzz.program_rounding import compare_within_roundings
from tests.fuzz.program_runs import Finding, Question, Run, work
from tests.fuzz.program_shrinking import shrunk
from tests.fuzz.programs import Argument, Call, Program, drawn, from_plain, to_plain

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="random programs are compared with PyTorch")

LONG = Program(
    seed=0,
    mode="jit",
    calls=(Call({"x0": Argument(0, (5, 5), "float64"), "x1": Argument(1, (5,), "int64")}, {"k": 2}, {}),) * 3,
    state={"S": Argument(7, (5,), "float32")},
    lines=("v0 = x0 * k", "v1 = v0 + x1", "v2 = v1.cumsum(0)", "v3 = v2.T", "S += v3[0]", "v5 = v3 @ v0"),
    results=("v5", "v3", "v1"),
)


def is_whole(p: Program) -> bool:
    """Whether every name of a program is given before it is used."""
    known = {*p.calls[0].tensors, *p.calls[0].numbers, *p.state}
    for line in (*p.lines, f"w = {' '.join(p.results)}"):
        name, _, expression = line.rpartition(" = ") if " = " in line else ("", "", line)
        if not set(re.findall(r"\b(?:[vx]\d+|k|S)\b", expression)) <= known:
            return False
        known.add(name)
    return True


def test_shrinking() -> None:
    small = shrunk(LONG, lambda p: is_whole(p) and ".cumsum" in p.source)
    assert [line.partition(" = ")[2] for line in small.lines] == ["x0.cumsum(0)"]
    assert small.mode == "plain"
    assert len(small.calls) == len(small.results) == 1
    assert not small.state
    assert from_plain(to_plain(small)) == small


def test_the_end_of_a_process_is_an_answer() -> None:
    child = Child("tests.fuzz.no_such_module")
    for _ in range(2):
        with pytest.raises(Ended, match="No module named"):
            child.ask({})
    child.close()


def test_patience_is_of_the_processor() -> None:
    """A process that sleeps was not served; one that works for longer than that does not end."""
    slow = Child("tests.fuzz.slow_worker", patience=0.5)
    assert slow.ask({"sleep": 1.2}) == "done"
    with pytest.raises(Ended, match="no answer within"):
        slow.ask({"work": 60})
    slow.close()


def test_one_number_makes_one_program() -> None:
    pytest.importorskip("torch")
    assert drawn(11) == drawn(11) != drawn(12)


@needs_torch
def test_a_wrong_element_is_found() -> None:
    want, near = expected(drawn(3, "plain"))
    compare(want, want, near)
    numbers = [n for n, s in enumerate(want) if s.elements.size and s.elements.dtype.kind == "f"]
    for n in numbers:
        got = list(want)
        got[n] = want[n]._replace(
            elements=np.where(np.arange(want[n].elements.size) == 0, 1, 0.0).reshape(want[n].elements.shape)
            + want[n].elements
        )
        with pytest.raises(Wrong):
            compare(got, want, near)
    assert numbers


def one(mode: str, lines: tuple[str, ...], **tensors: Argument) -> Program:
    """A program of one call whose only result is v."""
    return Program(0, mode, (Call(tensors, {}, {}),), {}, lines, ("v",))


ILL_CONDITIONED = {
    "what cancels exactly in the derivative of a softmax of one number": one(
        "gradient",
        ("v = F.softmax(x0 @ x0.mT, -1) @ x0", "v.reshape(-1).mul_(0.3)"),
        x0=Argument(11, (1, 16), "float32"),
    ),
    "a mean taken off equal numbers": one(
        "plain",
        ("x0[-1] = x1.var()", "v = F.layer_norm(x0, x0.shape[1:])"),
        x0=Argument(0, (1, 7), "float32"),
        x1=Argument(1, (7,), "float32"),
    ),
    "a product of means of which one is nearly zero": one(
        "gradient", ("v = T.cumprod(x0.mean(-1).tanh(), 0)",), x0=Argument(11, (16, 16), "float64")
    ),
    "a square that overflows in PyTorch alone": one(
        "plain", ("v = F.group_norm((x0 * -20).exp(), 3)",), x0=Argument(0, (3, 3), "float32")
    ),
    "integers of a float16 that overflowed": one(
        "plain", ("v = (x0 * x0 * 10000).long()",), x0=Argument(0, (2, 2), "float16")
    ),
}


@needs_torch
@pytest.mark.parametrize("program", ILL_CONDITIONED.values(), ids=[*ILL_CONDITIONED])
def test_roundings_are_let_pass(program: Program) -> None:
    want, near = expected(program)
    compare_within_roundings(program, measured(program), want, near)


@needs_torch
def test_a_second_look_finds_what_is_wrong() -> None:
    """Finds nearly all elements that are off by a quarter."""
    found = passed = 0
    random = np.random.default_rng(0)
    for seed in range(600, 640):
        program = drawn(seed, ("plain", "jit", "gradient", "looks")[seed % 4])
        try:
            want, near = expected(program)
        except Exception:  # PyTorch refuses the program
            continue
        for n, s in enumerate(want):
            if s.elements.dtype.kind != "f" or not s.elements.size:
                continue
            elements = s.elements.copy()
            at = random.integers(elements.size)
            elements.flat[at] = elements.flat[at] * 1.25 + 0.25
            got = [*want[:n], s._replace(elements=elements), *want[n + 1 :]]
            if not np.isfinite(elements).all():
                continue
            try:
                compare_within_roundings(program, got, want, near)
                passed += 1
            except Wrong:
                found += 1
            break
    assert found > 15
    assert passed <= 0.1 * found


@needs_torch
@pytest.mark.parametrize("device", ["checked", "simulated"])
def test_devices_of_tests(device: str) -> None:
    program = drawn(5002)
    want, near = expected(program)
    compare(measured(program, device), want, near)


@needs_torch
def test_only_leaves_from_outside_are_differentiated() -> None:
    """PyTorch marks a tensor of truth values as one that requires gradients once floats are written to it."""
    tensors = {"x0": Argument(0, (2,), "float32"), "x1": Argument(1, (0,), "bool"), "x2": Argument(2, (), "float32")}
    program = Program(0, "gradient", (Call(tensors, {}, {}),), {}, ("x1[1:] = x2",), ("x0",))
    want, near = expected(program)
    compare(measured(program), want, near)


@needs_torch
def test_a_run_goes_on_where_its_log_ends(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    assert [verdict for _, verdict, _ in work([Question(1), Question(2)])] == ["right", "right"]
    log.write_text('{"seed": 5, "verdict": "right"}\n{"seed": 6, "verdict": "wrong", "family": "wrong #"}\n')
    run = Run(4, 4, log, "cpu", "", False)
    assert [q.seed for q in run.questions()] == [4, 7]
    assert not [*Run(4, 4, log, "cpu", "", False, seconds=0).questions()]
    assert (run.counts["right"], run.counts["wrong"]) == (1, 1)


def test_families_are_told_apart_without_their_numbers() -> None:
    one, other = (Finding(Question(0), "wrong", f"call 0: v{n}: {n}.5, not 2 (within 1e-5)", None) for n in (1, 27))
    assert one.family == other.family
    assert not one.known
