"""Train a small network, log it to TensorBoard, profile a step and time it: a first lab, as its users type it."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.benchmark as benchmark
from torch.utils.tensorboard import SummaryWriter


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(400, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = self.dropout(torch.flatten(x, 1))
        return F.log_softmax(self.fc2(F.relu(self.fc1(x))), dim=1)


torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data, target = torch.randn(16, 1, 14, 14, device=device), torch.randint(0, 10, (16,), device=device)

writer = SummaryWriter("runs")
writer.add_graph(model, data)
for step in range(4):
    optimizer.zero_grad()
    loss = F.nll_loss(model(data), target)
    loss.backward()
    optimizer.step()
    writer.add_scalar("Loss/train", loss.item(), step)
writer.add_histogram("fc1", model.fc1.weight, 0)
writer.close()

with torch.autograd.profiler.profile(use_cuda=torch.cuda.is_available(), record_shapes=True) as prof:
    with torch.autograd.profiler.record_function("model_inference"):
        model(data)
print(prof.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total", row_limit=10))
prof.export_chrome_trace("lab.json")

with torch.autograd.profiler.emit_nvtx(enabled=False):
    torch.cuda.nvtx.range_push("outside")
    torch.cuda.nvtx.range_pop()

timer = benchmark.Timer("model(data)", globals={"model": model, "data": data}, label="Net", description="eager")
results = [timer.blocked_autorange(min_run_time=0.01)]
print(results[0])
benchmark.Compare(results).print()
