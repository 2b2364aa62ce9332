"""The training loop of all examples: progress bar, checkpoints, the line of results."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sized
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tilegrad as tg
from tilegrad.errors import ArgumentError, CheckpointError, NaNError, TilegradError

if TYPE_CHECKING:
    from rich.progress import Progress

CHECKPOINT = {"model", "optimizer", "random", "order", "settings", "losses", "epochs", "seconds"}
Predict = Callable[[Any], Any]
"""From inputs to scores, through the model."""


class Training:
    """A model in training: all state that its further course depends on.

    `settings` are the choices that a resumed run cannot change; `factor` maps the number of a step to the factor of the
    learning rate.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        loader: Any,
        settings: dict[str, Any],
        predict: Predict | None = None,
        factor: Callable[[int], float] = lambda step: 1.0,
        clip: float | None = None,
        device: str = "cpu",
    ) -> None:
        self.model, self.optimizer, self.loader, self.device = model, optimizer, loader, device
        self.settings = settings
        self.predict: Predict = predict or model
        self.clip = clip
        self.schedule = tg.optim.lr_scheduler.LambdaLR(optimizer, factor)
        self.losses: list[float] = []
        self.epochs = 0
        self.seconds = 0.0
        """Seconds of training, without evaluation and compilation."""
        self.step = tg.jit(self._step)

    def _step(self, inputs: Any, wanted: Any) -> Any:
        self.optimizer.zero_grad()
        scores = self.predict(inputs)
        loss = tg.nn.functional.cross_entropy(scores.reshape(-1, scores.shape[-1]), wanted.reshape(-1))
        loss.backward()
        if self.clip is not None:
            tg.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        return loss.detach()

    def epoch(self, told: Callable[[float], None]) -> float:
        """Train for one pass over the data; `told` receives the loss of each step. Return the mean loss."""
        self.model.train()
        begun = len(self.losses)
        for inputs, wanted in self.loader:
            programs, start = len(self.step.programs), time.perf_counter()
            loss = self.step(inputs.to(self.device), wanted.to(self.device)).item()
            if len(self.step.programs) == programs:
                self.seconds += time.perf_counter() - start
            self.losses.append(loss)
            if not math.isfinite(loss):
                raise NaNError(
                    f"the loss of step {len(self.losses)} is {loss}: try a smaller --lr, or ask tg.first_nan()"
                )
            self.schedule.step()
            told(loss)
        self.epochs += 1
        return sum(self.losses[begun:]) / max(1, len(self.losses) - begun)

    def save(self, path: Path) -> None:
        """Write everything that a resumed run needs to continue bit for bit."""
        tg.save(
            {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "random": tg.get_rng_state(),
                "order": self.loader.generator.get_state(),
                "settings": self.settings,
                "losses": self.losses,
                "epochs": self.epochs,
                "seconds": self.seconds,
            },
            path,
        )

    def resume(self, path: Path) -> None:
        """Continue from a checkpoint."""
        state = tg.load(path)
        if not isinstance(state, dict) or not CHECKPOINT <= set(state):
            raise CheckpointError(f"{path} is no checkpoint of this program")
        then = state["settings"]
        other = [f"{k} {then.get(k)!r}, not {v!r}" for k, v in self.settings.items() if then.get(k) != v]
        if other:
            raise ArgumentError(f"{path} was written with other settings: {', '.join(other)}")
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        tg.set_rng_state(state["random"])
        self.loader.generator.set_state(state["order"])
        self.losses, self.epochs, self.seconds = state["losses"], state["epochs"], state["seconds"]
        self.schedule.load_state_dict({**self.schedule.state_dict(), "last_epoch": len(self.losses)})


def count(text: str) -> int:
    """Parse an integer of at least 1."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def rate(text: str) -> float:
    """Parse a number above 0."""
    if not float(text) > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return float(text)


def options(parser: argparse.ArgumentParser) -> None:
    """Options of every example."""
    parser.add_argument("--epochs", type=count, help="times that the training data are gone through")
    parser.add_argument("--batch", type=count, help="samples in a step")
    parser.add_argument("--lr", type=rate, help="the learning rate to begin with")
    parser.add_argument("--device", default="cpu", help="where it is trained: cpu, cuda, cuda:1")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers: the same seed, the same losses")
    parser.add_argument("--data", type=Path, help="the folder with the data")
    parser.add_argument("--checkpoint", type=Path, help="a file to write after each epoch")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--stop", type=count, help="end after this epoch, to be resumed")


def data_folder(given: Path | None, name: str) -> Path:
    """The given folder, or else `data/NAME`, or `shared/data/NAME` here or beside this folder."""
    if given is not None:
        return given
    places = [base / part / name for base in (Path(), Path("..")) for part in ("data", "shared/data")]
    return next((place for place in places if place.is_dir()), places[0])


def run(training: Training, chosen: argparse.Namespace, epochs: int, evaluate: Callable[[], str]) -> str:
    """Train, evaluate and write a checkpoint epoch by epoch; return the last evaluation."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if chosen.resume and chosen.checkpoint is None:
        raise ArgumentError("--resume needs --checkpoint FILE")
    if chosen.checkpoint is not None and not chosen.checkpoint.parent.is_dir():
        raise ArgumentError(f"--checkpoint {chosen.checkpoint}: there is no folder {chosen.checkpoint.parent}")
    if chosen.resume:
        training.resume(chosen.checkpoint)
    look = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    found = ""
    with Progress(*look, TextColumn("loss {task.fields[loss]:.4f}"), transient=True) as progress:
        progress.disable = not progress.console.is_terminal
        for number in range(training.epochs + 1, min(epochs, chosen.stop or epochs) + 1):
            mean = _one_epoch(training, progress, number)
            found = evaluate()
            print(f"epoch {number}: mean loss {mean:.4f}, {found}", flush=True)
            if chosen.checkpoint is not None:
                training.save(chosen.checkpoint)
    return found or evaluate()


def _one_epoch(training: Training, progress: Progress, number: int) -> float:
    total = len(training.loader) if isinstance(training.loader, Sized) else None
    bar = progress.add_task(f"epoch {number}", total=total, loss=math.nan)
    mean = training.epoch(lambda loss: progress.update(bar, advance=1, loss=loss))
    progress.remove_task(bar)
    return mean


def results(training: Training, name: str, found: str) -> str:
    """Format one line: what was trained, how well, how long."""
    parameters = sum(p.numel() for p in training.model.parameters())
    threads = tg.device("cpu").limits["threads"]
    of_cpu = f"{threads} threads" if threads > 1 else "1 thread"
    where = of_cpu if training.device == "cpu" else tg.cuda.get_device_name()
    epochs = "epoch" if training.epochs == 1 else "epochs"
    return (
        f"{name}: {found} after {training.epochs} {epochs} ({len(training.losses):,} steps); "
        f"{parameters:,} parameters; training {training.seconds:.0f} s on {where}"
    )


def command(main: Callable[[], object]) -> None:
    """Run an example from the command line; report errors without a traceback."""
    try:
        main()
    except TilegradError as problem:
        print(problem, file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        again = "" if "--checkpoint" in sys.argv else "--checkpoint FILE and "
        print(f"stopped; with {again}--resume it goes on after its last whole epoch", file=sys.stderr)
        raise SystemExit(130) from None
