"""Define networks that people often train, written as a user would write them."""

from .alexnet import AlexNet
from .cnn import CNN
from .gpt import GPT
from .language import LSTMLanguageModel
from .lenet import LeNet
from .mlp import MLP, LogisticRegression
from .resnet import ResNet18

__all__ = ["CNN", "GPT", "MLP", "AlexNet", "LSTMLanguageModel", "LeNet", "LogisticRegression", "ResNet18"]


def __dir__() -> list[str]:
    return __all__
