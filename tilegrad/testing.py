"""`tg.testing`: measure and compare, with Triton's and PyTorch's names."""

from .profile.benchmark import Benchmark, Report, do_bench, perf_report
from .profile.closeness import assert_close

__all__ = ["Benchmark", "Report", "assert_close", "do_bench", "perf_report"]
