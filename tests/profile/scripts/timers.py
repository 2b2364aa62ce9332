"""Time three squares with CUDA events, and profile each: the first script of the lecture, as its users type it."""

import torch

a = torch.tensor([1.0, 2.0, 3.0])
print(torch.square(a))
print(a**2)
print(a * a)


def time_function(func, x):
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    for _ in range(5):
        func(x)
    start.record()
    func(x)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


b = torch.randn(1000, 1000).cuda()


def square_2(a):
    return a * a


def square_3(a):
    return a**2


for function in (torch.square, square_2, square_3):
    assert time_function(function, b) > 0

for title, function in (("torch.square", torch.square), ("a * a", square_2), ("a ** 2", square_3)):
    print("=============")
    print(f"Profiling {title}")
    print("=============")
    with torch.autograd.profiler.profile(use_cuda=True) as prof:
        function(b)
    print(prof.key_averages().table(sort_by="cuda_time_total", row_limit=10))
