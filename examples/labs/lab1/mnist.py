"""Lab 1: train a network to read digits; then profile its operations.

python -m tilegrad.torch.digits data python -m tilegrad.torch mnist.py --data data
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 2)
        self.conv2 = nn.Conv2d(8, 16, 3, 2)
        self.fc1 = nn.Linear(16 * 6 * 6, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return F.log_softmax(self.fc2(x), dim=1)


def loader(args, train):
    prepare = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])
    digits = datasets.MNIST(args.data, train=train, download=True, transform=prepare)
    return torch.utils.data.DataLoader(digits, batch_size=args.batch_size, shuffle=train)


def train(args, model, device, batches, optimizer, epoch):
    model.train()
    for n, (data, target) in enumerate(batches):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        if n % args.log_interval == 0:
            print(f"epoch {epoch}, batch {n}: loss {loss.item():.4f}")


def test(model, device, batches):
    model.eval()
    correct = 0
    with torch.no_grad():
        for data, target in batches:
            guess = model(data.to(device)).argmax(dim=1)
            correct += guess.eq(target.to(device)).sum().item()
    print(f"{100 * correct / len(batches.dataset):.0f} % of {len(batches.dataset)} are right")


def profile(model, device, batches):
    data, _ = next(iter(batches))
    with torch.autograd.profiler.profile() as found:
        model(data.to(device))
    print(found.key_averages().table(sort_by="cpu_time_total", row_limit=5))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="../data")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--log-interval", type=int, default=10)
    args = parser.parse_args()
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Net().to(device)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, loader(args, True), optimizer, epoch)
        test(model, device, loader(args, False))
        scheduler.step()
    profile(model, device, loader(args, False))


if __name__ == "__main__":
    main()
