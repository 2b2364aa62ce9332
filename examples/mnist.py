"""Train a network on handwritten digits: `python -m examples.mnist --model lenet --epochs 3`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tilegrad as tg
from tilegrad.errors import ArgumentError
from tilegrad.nn import models

from .training import Training, command, count, data_folder, options, results, run


class Recipe(NamedTuple):
    """A network and the settings with which it trains well."""

    make: Callable[[], Any]
    optimizer: Callable[[Any, float], Any]
    lr: float
    batch: int = 64
    epochs: int = 3
    decay: float = 0.7
    """Factor of the learning rate after each epoch."""
    size: int = 28
    """Height and width to which images are resized."""


def sgd(parameters: Any, lr: float) -> Any:
    return tg.optim.SGD(parameters, lr=lr, momentum=0.9)


RECIPES = {
    "logistic": Recipe(models.LogisticRegression, lambda p, lr: tg.optim.SGD(p, lr=lr), 0.1, 100, 10, 0.9),
    "mlp": Recipe(models.MLP, sgd, 0.05, 64, 10, 0.8),
    "lenet": Recipe(models.LeNet, sgd, 0.02, 64, 3, 0.5),
    "cnn": Recipe(models.CNN, lambda p, lr: tg.optim.Adadelta(p, lr=lr), 1.0, 64, 3, 0.7),
    "alexnet": Recipe(models.AlexNet, lambda p, lr: tg.optim.AdamW(p, lr=lr), 2e-4, 64, 3, 0.5, 224),
    "resnet18": Recipe(lambda: models.ResNet18(stem="small"), sgd, 0.05, 64, 3, 0.3),
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m examples.mnist", description=__doc__)
    made.add_argument("--model", choices=list(RECIPES), default="lenet")
    made.add_argument("--train", type=count, default=60_000, help="how many images to learn from")
    made.add_argument("--test", type=count, default=10_000, help="how many images to test with")
    options(made)
    return made


def main(arguments: Sequence[str] | None = None) -> Training:
    """Train one network; print its accuracy on held-out images."""
    chosen = parser().parse_args(arguments)
    recipe = RECIPES[chosen.model]
    batch, lr, epochs = chosen.batch or recipe.batch, chosen.lr or recipe.lr, chosen.epochs or recipe.epochs
    tg.manual_seed(chosen.seed)
    folder = data_folder(chosen.data, "mnist")
    learned, tested = (
        first(tg.data.MNIST(folder, train=t), n) for t, n in ((True, chosen.train), (False, chosen.test))
    )
    if batch > len(learned):
        raise ArgumentError(f"--batch {batch} is more than there are images to learn from: {len(learned)}")
    order = tg.random.Generator().manual_seed(chosen.seed)
    loader = tg.data.DataLoader(learned, batch, shuffle=True, drop_last=True, generator=order)
    model = recipe.make().to(chosen.device)
    prepare = tg.data.transforms.Compose(
        [tg.data.transforms.Resize(recipe.size), tg.data.transforms.Normalize(0.1307, 0.3081)]
    )
    training = Training(
        model,
        recipe.optimizer(model.parameters(), lr),
        loader,
        {"model": chosen.model, "train": len(learned), "batch": batch, "lr": lr, "seed": chosen.seed},
        predict=lambda images: model(prepare(images)),
        factor=lambda step: recipe.decay ** (step // len(loader)),
        device=chosen.device,
    )
    right = reader(training)
    held_out = tg.data.DataLoader(tested, min(250, len(tested)))

    def evaluate() -> str:
        model.eval()
        found = sum(right(x.to(chosen.device), wanted.to(chosen.device)).item() for x, wanted in held_out)
        return f"{100 * found / len(tested):.2f} % of {len(tested):,} test images"

    found = run(training, chosen, epochs, evaluate)
    print(results(training, f"{chosen.model} on MNIST", f"{found}, learned from {len(learned):,},"))
    return training


def first(dataset: Any, wanted: int) -> Any:
    """The first images: the files of MNIST have them in no particular order."""
    return dataset if wanted >= len(dataset) else tg.data.Subset(dataset, range(wanted))


def reader(training: Training) -> Callable[[Any, Any], Any]:
    """Count the images of a batch that are classified correctly."""

    @tg.jit
    def right(images: Any, labels: Any) -> Any:
        with tg.no_grad():
            return (training.predict(images).argmax(1) == labels).long().sum()

    return right


if __name__ == "__main__":
    command(main)
