"""Train a language model on Shakespeare, letter by letter: `python -m examples.shakespeare --model gpt`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import tilegrad as tg
from tilegrad.errors import DataError
from tilegrad.nn import models

from .training import Training, command, count, data_folder, options, results, run

DOWNLOAD = (
    "curl -fL --create-dirs -O "
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt"
)


class Recipe(NamedTuple):
    """A network (from vocabulary, context, width, layers) and the settings with which it trains well."""

    make: Callable[[int, int, int, int], Any]
    context: int
    width: int
    layers: int
    batch: int
    lr: float


RECIPES = {
    "gpt": Recipe(lambda v, c, w, n: models.GPT(v, c, w, n, heads=max(1, w // 32)), 128, 128, 4, 16, 2e-3),
    "lstm": Recipe(lambda v, c, w, n: models.LSTMLanguageModel(v, w, n), 64, 256, 2, 32, 3e-3),
}


class Text(NamedTuple):
    """A text as numbers, the last tenth held out."""

    letters: str
    learned: np.ndarray[Any, Any]
    held_out: np.ndarray[Any, Any]

    def written(self, tokens: Sequence[int]) -> str:
        return "".join(self.letters[n] for n in tokens)


def read(folder: Path) -> Text:
    """Read the text in a folder."""
    path = folder / "input.txt"
    if not path.is_file():
        raise DataError(f"there is no {path}. The command that gets it:\n  {DOWNLOAD} --output-dir {folder}")
    text = path.read_text(encoding="utf-8")
    letters = "".join(sorted(set(text)))
    number = {letter: n for n, letter in enumerate(letters)}
    tokens = np.array([number[letter] for letter in text], np.int64)
    kept = len(tokens) * 9 // 10
    return Text(letters, tokens[:kept], tokens[kept:])


class Windows(tg.data.Dataset[Any]):
    """Windows of a text, each with the window one letter later as its target. One begins at every `stride` letters."""

    def __init__(self, tokens: np.ndarray[Any, Any], length: int, stride: int = 1) -> None:
        if len(tokens) <= length:
            raise DataError(f"a text of {len(tokens)} letters has no piece of {length} and one more: give a longer one")
        self.tokens, self.length, self.stride = tokens, length, stride

    def __len__(self) -> int:
        return (len(self.tokens) - 1 - self.length) // self.stride + 1

    def __getitem__(self, index: int) -> Any:
        return tuple(row[0] for row in self.rows([index]))

    def rows(self, indices: Sequence[int]) -> tuple[np.ndarray[Any, Any], ...]:
        places = np.asarray(indices)[:, None] * self.stride + np.arange(self.length)
        return self.tokens[places], self.tokens[places + 1]


def warm_cosine(total: int) -> Callable[[int], float]:
    """Linear warm-up for some steps, then cosine decay to a tenth."""
    warm = min(100, total // 10 + 1)
    return lambda step: min(1.0, (step + 1) / warm) * (0.55 + 0.45 * math.cos(math.pi * min(1.0, step / total)))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m examples.shakespeare", description=__doc__)
    made.add_argument("--model", choices=list(RECIPES), default="gpt")
    made.add_argument("--steps", type=count, default=250, help="steps in an epoch, after which is evaluated")
    made.add_argument("--context", type=count, help="letters that are seen at once")
    made.add_argument("--width", type=count)
    made.add_argument("--layers", type=count)
    made.add_argument("--letters", type=int, default=300, help="how many letters to write at the end")
    made.add_argument("--test", type=count, default=400, help="pieces of the held-out text to test with")
    options(made)
    return made


def main(arguments: Sequence[str] | None = None) -> Training:
    """Train one network, print its loss on held-out text, and sample from it."""
    chosen = parser().parse_args(arguments)
    training, text, epochs = prepared(chosen)
    evaluate = evaluation(training, text, chosen)
    found = run(training, chosen, epochs, evaluate)
    if chosen.letters:
        print(text.written(continued(training, chosen.letters)))
    print(results(training, f"{chosen.model} on Shakespeare", found))
    return training


def prepared(chosen: argparse.Namespace) -> tuple[Training, Text, int]:
    """The network and its data."""
    recipe = RECIPES[chosen.model]
    context, width = chosen.context or recipe.context, chosen.width or recipe.width
    layers, batch = chosen.layers or recipe.layers, chosen.batch or recipe.batch
    lr, epochs = chosen.lr or recipe.lr, chosen.epochs or 8
    tg.manual_seed(chosen.seed)
    text = read(data_folder(chosen.data, "tinyshakespeare"))
    windows = Windows(text.learned, context)
    order = tg.random.Generator().manual_seed(chosen.seed)
    sampler = tg.data.RandomSampler(windows, True, chosen.steps * batch, order)
    loader = tg.data.DataLoader(windows, batch, sampler=sampler, generator=order)
    model = recipe.make(len(text.letters), context, width, layers).to(chosen.device)
    settings = {"model": chosen.model, "context": context, "width": width, "layers": layers, "batch": batch, "lr": lr}
    training = Training(
        model,
        tg.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.1),
        loader,
        {**settings, "epochs": epochs, "steps": chosen.steps, "seed": chosen.seed},
        predict=model if chosen.model == "gpt" else lambda tokens: model(tokens)[0],
        factor=warm_cosine(epochs * chosen.steps),
        clip=1.0,
        device=chosen.device,
    )
    return training, text, epochs


def evaluation(training: Training, text: Text, chosen: argparse.Namespace) -> Callable[[], str]:
    """The mean loss per held-out letter."""
    context = training.settings["context"]
    everything = Windows(text.held_out, context, context)
    # spread over the held-out text, not its beginning alone
    windows = tg.data.Subset(everything, range(0, len(everything), max(1, len(everything) // chosen.test)))
    loader = tg.data.DataLoader(windows, min(50, len(windows)), drop_last=True)

    @tg.jit
    def loss(tokens: Any, wanted: Any) -> Any:
        with tg.no_grad():
            return tg.nn.functional.cross_entropy(training.predict(tokens).flatten(0, 1), wanted.flatten())

    def evaluate() -> str:
        training.model.eval()
        found = [loss(tokens.to(chosen.device), wanted.to(chosen.device)).item() for tokens, wanted in loader]
        return f"validation loss {sum(found) / len(found):.4f} a letter"

    return evaluate


def continued(training: Training, letters: int) -> list[int]:
    """Sample text after a first letter. The window keeps its length: positions not yet written are ignored."""
    training.model.eval()
    length = training.settings["context"]

    @tg.jit
    def following(tokens: Any, last: Any) -> Any:
        with tg.no_grad():
            return tg.nn.functional.softmax(training.predict(tokens)[0].index_select(0, last)[0], -1)

    written = [0]
    generator = np.random.default_rng(training.settings["seed"])
    for _ in range(letters):
        seen = written[-length:]
        padded = np.array([seen + [0] * (length - len(seen))], np.int64)
        asked = [tg.from_numpy(x).to(training.device) for x in (padded, np.array([len(seen) - 1]))]
        chances = following(*asked).cpu().numpy().astype(np.float64)
        written.append(int(generator.choice(len(chances), p=chances / chances.sum())))
    return written[1:]


if __name__ == "__main__":
    command(main)
