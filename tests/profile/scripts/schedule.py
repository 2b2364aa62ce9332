"""Profile with a schedule and a trace handler: the second script of the lecture, as its users type it."""

import sys

import torch
from torch.profiler import ProfilerActivity, profile, record_function

with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    for _ in range(10):
        x = torch.square(torch.randn(1000, 1000).cuda())
prof.export_chrome_trace("trace.json")


def trace_handler(prof):
    print(prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=-1))
    prof.export_chrome_trace("/".join([sys.argv[1], "test_trace_" + str(prof.step_num) + ".json"]))


with torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA],
    schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
    on_trace_ready=trace_handler,
) as p:
    for _ in range(10):
        with record_function("square"):
            torch.square(torch.randn(1000, 1000).cuda())
        p.step()

with torch.profiler.profile(
    schedule=torch.profiler.schedule(wait=0, warmup=0, active=1, repeat=1),
    on_trace_ready=torch.profiler.tensorboard_trace_handler("./log"),
    record_shapes=True,
    profile_memory=True,
    with_stack=True,
) as p:
    for _ in range(2):
        torch.square(torch.randn(100, 100).cuda()).sum().item()
        p.step()
