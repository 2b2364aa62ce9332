"""Count requests and their times, and write them in the text format that Prometheus reads.

All is counted on the thread of the event loop, so there are no locks.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SECONDS = (
    *(1e-4, 2e-4, 3e-4, 5e-4, 7e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 7e-3),
    *(0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60),
)
"""Upper bounds of the buckets of times."""
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
"""Upper bounds of the buckets of batches."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class BucketCounts:
    """A histogram: how many values lie between its bounds, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def quantile(self, fraction: float) -> float | None:
        """Estimate a quantile by linear interpolation in its bucket; None without values.

        >>> d = BucketCounts((1, 2, 4))
        >>> for x in (0.5, 1.5, 1.7, 3): d.add(x)
        >>> d.quantile(0.5)
        1.5
        """
        wanted = fraction * self.count
        if not wanted:
            return None
        seen = 0
        for n, count in enumerate(self.counts):
            if count and seen + count >= wanted:
                low = self.bounds[n - 1] if n else 0.0
                high = self.bounds[n] if n < len(self.bounds) else low
                return low + (high - low) * (wanted - seen) / count
            seen += count
        return self.bounds[-1]


class ModelMetrics:
    """Count the requests and times of one version of a model."""

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.request_seconds = BucketCounts(SECONDS)
        self.queue_seconds = BucketCounts(SECONDS)
        self.compute_seconds = BucketCounts(SECONDS)
        self.batch_rows = BucketCounts(ROWS)

    def answered(self, status: int, seconds: float) -> None:
        """Count a request by the status of its answer."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.request_seconds.add(seconds)

    def summary(self) -> dict[str, Any]:
        """Return everything as JSON can hold it, for the status page."""
        names = ("request_seconds", "queue_seconds", "compute_seconds", "batch_rows")
        found: dict[str, BucketCounts] = {name: getattr(self, name) for name in names}
        return {
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            **{name: _as_json(values) for name, values in found.items()},
        }


def _as_json(values: BucketCounts) -> dict[str, Any]:
    quantiles = {str(q): values.quantile(q) for q in (0.5, 0.9, 0.99)}
    return {"bounds": values.bounds, "counts": values.counts, "sum": values.sum, "quantiles": quantiles}


class ServerMetrics:
    """Count the requests of all models together. Labels are names of models that exist, so there are few."""

    def __init__(self) -> None:
        self.started = time.time()
        self.models: dict[tuple[str, str], ModelMetrics] = {}
        self.other_statuses: dict[int, int] = {}
        """Answers to requests that named no model that exists."""

    def of(self, name: str, version: str) -> ModelMetrics:
        """Return the counts of a model, which outlast its reloads."""
        return self.models.setdefault((name, version), ModelMetrics())

    def answered(self, status: int) -> None:
        """Count an answer that no model gave."""
        self.other_statuses[status] = self.other_statuses.get(status, 0) + 1

    def text(self, gauges: Mapping[str, Mapping[str, float]]) -> str:
        """Write everything in the format of Prometheus. `gauges` has values by labels, by name."""
        labelled = [(_labels(model=m, version=v), counts) for (m, v), counts in sorted(self.models.items())]
        lines = ["# TYPE tilegrad_requests_total counter"]
        for label, counts in labelled:
            lines += [f'tilegrad_requests_total{{{label},code="{s}"}} {n}' for s, n in counts.statuses.items()]
        lines += [f'tilegrad_requests_total{{code="{s}"}} {n}' for s, n in self.other_statuses.items()]
        for name in ("request_seconds", "queue_seconds", "compute_seconds", "batch_rows"):
            lines.append(f"# TYPE tilegrad_{name} histogram")
            for label, counts in labelled:
                lines += _histogram_lines(f"tilegrad_{name}", label, getattr(counts, name))
        for name, values in gauges.items():
            lines.append(f"# TYPE tilegrad_{name} gauge")
            lines += [f"tilegrad_{name}{{{label}}} {value:g}".replace("{}", "") for label, value in values.items()]
        lines += ["# TYPE tilegrad_start_time_seconds gauge", f"tilegrad_start_time_seconds {self.started:.3f}"]
        return "\n".join(lines) + "\n"


def _labels(**labels: str) -> str:
    """Write labels.

    >>> _labels(model='a"b', version="1")
    'model="a\\\\"b",version="1"'
    """
    escaped = {k: v.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for k, v in labels.items()}
    return ",".join(f'{name}="{value}"' for name, value in escaped.items())


def model_label(name: str, version: str) -> str:
    """Write the labels of a model."""
    return _labels(model=name, version=version)


def _histogram_lines(name: str, label: str, values: BucketCounts) -> Iterable[str]:
    total = 0
    for bound, count in zip([*values.bounds, float("inf")], values.counts, strict=True):
        total += count
        written = "+Inf" if bound == float("inf") else f"{bound:g}"
        yield f'{name}_bucket{{{label},le="{written}"}} {total}'
    yield f"{name}_sum{{{label}}} {values.sum:.9g}"
    yield f"{name}_count{{{label}}} {total}"
