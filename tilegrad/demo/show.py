"""Run the demonstration: train, report what was compiled, write the report, and classify some digits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from ..profile import explain
from ..profile.measure import duration
from ..runtime.device import device
from .training import HIDDEN, Tested, Trained, test, train

if TYPE_CHECKING:
    from rich.console import Console

SHADES = " ░▒▓█"
SHOWN = 4
"""Number of digits that are drawn in the terminal."""
WANTED = 0.97


def run(seed: int, epochs: int, output: Path) -> int:
    """Run the demonstration; the exit status is 1 if the network did not learn."""
    if epochs < 1:
        raise ArgumentError(f"--epochs {epochs}: at least one is needed")
    if not output.resolve().parent.is_dir():
        raise ArgumentError(f"--output {output}: there is no folder {output.resolve().parent}")
    from rich.console import Console

    from .report import report

    console = Console(highlight=False)
    begun = time.perf_counter()
    console.print(f"1,437 handwritten digits to learn from, 360 to test with; neurons: 64-{HIDDEN}-{HIDDEN}-10")
    trained = _train(console, seed, epochs)
    tested = test(trained.model)
    rate = (trained.steps - 1) / trained.seconds
    wrong = int((tested.guesses != tested.labels).sum())
    console.print(f"[bold]{100 * tested.accuracy:.1f} %[/] of the unseen digits are read right ({wrong} are not)")
    console.print(
        f"{trained.steps} steps in {duration(trained.seconds)}, {rate:,.0f} a second; "
        f"the first, traced and compiled, in {duration(trained.compile_seconds)}"
    )
    explanation = explain(trained.step, *trained.example)
    console.print("\n[bold]What one training step became[/] (forward, backward and update in one program)")
    console.print(explanation.summary())
    spent = [f"{s.name} {duration(s.seconds)}" for s in explanation.compiled.stages.made if s.seconds > 1e-3]
    console.print(f"compiled: {', '.join(spent)}", style="dim")
    console.print(str(explanation.measured), markup=False, soft_wrap=True)
    console.print(_machine(device("cpu").limits), style="dim")
    console.print("\n[bold]Some digits that it had not seen[/]")
    console.print(drawn(tested, _chosen(tested, seed)), markup=False, soft_wrap=True)
    output.write_text(report(trained, tested, explanation, seed), encoding="utf-8")
    console.print(f"\nThe report, with every stage of the compilation: [bold]{output}[/]")
    console.print(f"all of it took {duration(time.perf_counter() - begun)}", style="dim")
    return 0 if tested.accuracy >= WANTED or epochs < 10 else 1


def _machine(limits: Mapping[str, Any]) -> str:
    """Describe the machine."""
    memory = max(limits[x] for x in ("read", "copy", "triad"))
    return f"this machine: {memory / 1e9:.0f} GB/s, {limits['fma'] / 1e9:.0f} GFLOP/s on {limits['threads']} threads"


def _train(console: Console, seed: int, epochs: int) -> Trained:
    """Train with a progress bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("training"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs  loss {task.fields[loss]:.4f}  test accuracy {task.fields[score]:.1f} %"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("training", total=epochs, loss=float("nan"), score=0.0)

        def progress(epoch: int, loss: float, score: float) -> None:
            bar.update(task, completed=epoch + 1, loss=loss, score=100 * score)

        return train(seed, epochs, progress)


def _chosen(tested: Tested, seed: int) -> list[int]:
    """Return some images at random, and a misclassified one, if there is one."""
    numbers = np.random.default_rng(seed).permutation(len(tested.labels)).tolist()
    wrong = [n for n in numbers if tested.guesses[n] != tested.labels[n]][:1]
    return [n for n in numbers if n not in wrong][: SHOWN - len(wrong)] + wrong


def drawn(tested: Tested, numbers: list[int]) -> str:
    r"""Draw images in a row, in shades, with their predictions.

    >>> image = np.zeros((1, 64), np.float32); image[0, ::9] = 1.0
    >>> chances = np.full((1, 10), 0.02, np.float32); chances[0, 7] = 0.82
    >>> print(drawn(Tested(image, np.array([7]), chances), [0]).split("\n")[-1].strip())
    7 (82 %)
    """
    rows = []
    for y in range(8):
        rows.append("   ".join(_row(tested.images[n].reshape(8, 8)[y]) for n in numbers).rstrip())
    words = []
    for n in numbers:
        guess, label = int(tested.guesses[n]), int(tested.labels[n])
        text = f"{guess} ({100 * tested.chances[n, guess]:.0f} %)" + (f", is {label}" if guess != label else "")
        words.append(f"{text:^16}")
    return "\n".join([*rows, "   ".join(words).rstrip()])


def _row(pixels: Any) -> str:
    return "".join(2 * SHADES[min(4, int(p * 5))] for p in pixels)
