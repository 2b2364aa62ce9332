"""`verify` and `opcheck`: what they find, and that the scripts in their reports fail in the same way."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilegrad as tg
from tests.custom import operators
from tilegrad.custom import checks, opcheck
from tilegrad.errors import ArgumentError, OperatorError
from tilegrad.foreign import compilers

ROOT = Path(__file__).parents[2]


def test_operators_that_are_right() -> None:
    report = operators.scale.verify()
    assert report
    names = [line.name for line in report.lines]
    assert names[:3] == ["shapes", "dtypes", "kernel cpu"]
    assert {"memory", "strides", "aliasing", "traced", "mapped", "gradients", "own gradient"} <= set(names)
    assert "no check failed" in str(report)


def test_other_forms_of_arguments() -> None:
    for op in (operators.linear, operators.total, operators.sort_rows):
        report = op.verify()
        assert report, str(report)
        assert "one for two" in str(report) or op is operators.sort_rows


def ran(script: str) -> str:
    """The last line that a script prints when it fails."""
    found = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode != 0
    return found.stderr.strip().splitlines()[-1]


def test_a_kernel_that_leaves_elements_out() -> None:
    report = operators.off.verify()
    assert not report
    line = report["memory"]
    assert "of `out` is nan" in line.detail
    assert line.script.splitlines()[2] == "import tests.custom.operators"
    assert len(line.script.splitlines()) == 5
    message = line.detail.partition(": ")[2].partition(" [at")[0]
    assert message in ran(line.script)


def test_a_gradient_that_is_wrong() -> None:
    report = operators.crooked.verify()
    assert {line.name for line in report.failures} == {"gradients", "second order", "forward", "own gradient"}
    line = report["own gradient"]
    assert "crooked: the gradient against that of the reference: element [0] of `x` is" in line.detail
    assert line.detail.partition(": ")[2].partition(" [at")[0] in ran(line.script)
    with pytest.raises(OperatorError, match="the gradient against that of the reference"):
        checks.rule(operators.crooked, tg.ones(3))


def test_a_kernel_and_a_gradient_that_ignore_a_number() -> None:
    """Both are correct for the default values only."""
    kernel, gradient = operators.ignorant_kernel.verify(), operators.ignorant_gradient.verify()
    assert {"kernel cpu", "memory"} <= {line.name for line in kernel.failures}
    assert {"gradients", "own gradient"} <= {line.name for line in gradient.failures}
    for line in (kernel["kernel cpu"], gradient["own gradient"]):
        assert line.detail.partition(": ")[2].partition(" [at")[0] in ran(line.script)


@pytest.mark.parametrize(
    "parameter", ["alpha: float = 1.0", "k: int = 1", "on: bool = False", "k: int", "alpha: float"]
)
def test_each_kind_of_number_is_tried(parameter: str) -> None:
    """Also those without a default: an operator that ignores one in its kernel is found."""
    name = parameter.partition(":")[0]

    @tg.op(f"tests::tries_{len(parameter)}(x: F[n], {parameter}) -> F[n]")
    def declared(x: Any, number: Any) -> Any:
        return x * (number + 1)

    declared.kernel("cpu", lambda x, number: x * {"alpha": 2.0, "k": 2, "on": 1}[name])
    report = declared.verify()
    assert "kernel cpu" in {line.name for line in report.failures}, str(report)


def test_kernels_in_cpp() -> None:
    compilers.compiler("c++")
    operators.with_kernels_in_cpp()
    report = operators.in_cpp.verify()
    assert report, str(report)
    assert "call" in report["memory"].detail
    report = operators.too_far.verify()
    assert "memory" in {line.name for line in report.failures}, str(report)


def test_functions() -> None:
    assert opcheck(tg.sin, tg.ones(3).double(), (tg.ones(2, 2).double(),))
    report = opcheck(operators.same_memory, tg.ones(3, 2))
    assert [line.name for line in report.failures] == ["aliasing"]
    assert "writing to result 0 changes argument 0" in report["aliasing"].detail
    assert "writing to result 0 changes argument 0" in ran(report["aliasing"].script)
    with pytest.raises(KeyError, match="there is no check 'luck'"):
        report["luck"]


def test_what_differs_from_run_to_run() -> None:
    count: list[int] = []

    def counting(x: Any) -> Any:
        count.append(1)
        return x + len(count)

    report = opcheck(counting, tg.ones(3))
    assert "determinism" in {line.name for line in report.failures}


WRONG = {
    "no function": (lambda: opcheck(3, tg.ones(3)), "takes an operator or a function of tensors, not int"),  # type: ignore[arg-type]
    "no examples": (lambda: opcheck(tg.sin), "is not declared: give examples"),
    "no tensor": (lambda: opcheck(tg.sin, 3.0), r"an example has no tensor: \(3.0\)"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use(case: str) -> None:
    call, message = WRONG[case]
    with pytest.raises(ArgumentError, match=message):
        call()
