"""Lab 2: the last layer of the network is one's own, in Python and in C++.

python -m tilegrad.torch.digits data
(cd linear; python -m tilegrad.torch setup.py build_ext --inplace)
python -m tilegrad.torch mnist.py --data data --linear cpp
"""

import argparse
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torchvision import datasets, transforms

sys.path.insert(0, str(Path(__file__).parent / "linear"))


class PythonLinear(torch.autograd.Function):
    """y = x w^T + b, with w of the shape (out, in)."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x.mm(weight.t()) + bias

    @staticmethod
    def backward(ctx, upstream):
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None  # what nobody needs is not computed
        if ctx.needs_input_grad[0]:
            grad_x = upstream.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = upstream.t().mm(x)
        if ctx.needs_input_grad[2]:
            grad_bias = upstream.sum(0)
        return grad_x, grad_weight, grad_bias


class CppLinear(torch.autograd.Function):
    """The same, computed by linear/mylinear.cpp."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        import mylinear

        ctx.save_for_backward(x, weight)
        return mylinear.forward(x, weight, bias)[0]

    @staticmethod
    def backward(ctx, upstream):
        import mylinear

        x, weight = ctx.saved_tensors
        return tuple(mylinear.backward(upstream, x, weight))


class MyLinear(nn.Module):
    def __init__(self, inputs, outputs, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.Tensor(outputs, inputs))
        self.weight.data.uniform_(-0.1, 0.1)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return self.function.apply(x, self.weight, self.bias)


class Net(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 2)
        self.conv2 = nn.Conv2d(8, 16, 3, 2)
        self.fc1 = nn.Linear(16 * 6 * 6, 64)
        self.fc2 = last

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="../data")
    parser.add_argument("--linear", choices=["python", "cpp"], default="python")
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(1)
    prepare = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    digits = datasets.MNIST(args.data, train=True, transform=prepare)
    batches = torch.utils.data.DataLoader(digits, batch_size=64, shuffle=True)
    model = Net(MyLinear(64, 10, {"python": PythonLinear, "cpp": CppLinear}[args.linear]))
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    for epoch in range(1, args.epochs + 1):
        for n, (data, target) in enumerate(batches):
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            if n % 5 == 0:
                print(f"epoch {epoch}, batch {n}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
