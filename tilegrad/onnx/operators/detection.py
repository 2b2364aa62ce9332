"""Operators of detectors, and of classical text features."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from ... import functional as tg
from ...ir.dtype import int64
from ...tensor import Tensor
from ..rules import Function
from ..values import Number, as_tensor


def _corners(boxes: np.ndarray, center: bool) -> np.ndarray:
    """Return boxes as their lower and upper corners."""
    if center:
        middle, half = boxes[:, :2], boxes[:, 2:] / 2
        return np.concatenate([middle - half, middle + half], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _overlaps(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the shares of intersections in unions."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    shared = np.prod(np.maximum(sides, 0), 1)
    areas = np.prod(others[:, 2:] - others[:, :2], 1) + np.prod(box[2:] - box[:2]) - shared
    return np.where(areas > 0, shared / np.where(areas > 0, areas, 1), 0.0)


def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    max_output_boxes_per_class: Number | None = None,
    iou_threshold: Number | None = None,
    score_threshold: Number | None = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    """Choose the boxes with the best scores that do not overlap with better ones: batch, class and index of each.

    How many there are depends on the elements, so they are read.
    """
    limit, overlap = int(max_output_boxes_per_class or 0), float(iou_threshold or 0.0)
    found: list[list[int]] = []
    rows, marks = boxes.detach().numpy(), scores.detach().numpy()
    for batch in range(rows.shape[0]):
        corners = _corners(rows[batch], bool(center_point_box))
        for kind in range(marks.shape[1]):
            own = marks[batch, kind]
            order = [int(n) for n in np.argsort(-own, kind="stable")]
            order = [n for n in order if score_threshold is None or own[n] > score_threshold]
            chosen: list[int] = []
            while order and len(chosen) < limit:
                best, *order = order
                chosen.append(best)
                shares = _overlaps(corners[best], corners[order])
                order = [n for n, share in zip(order, shares, strict=True) if share <= overlap]
            found += [[batch, kind, n] for n in chosen]
    return as_tensor(np.array(found, np.int64).reshape(-1, 3), boxes.device)


def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Pool regions by interpolating at regular places within each cell of a grid."""
    half = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    wanted, made = (output_height, output_width), []
    for batch, region in zip(batch_indices.tolist(), rois.tolist(), strict=True):
        left, top, right, low = (edge * spatial_scale - half for edge in region)
        axes = []
        for start, stop, cells, size in ((top, low, wanted[0], x.shape[2]), (left, right, wanted[1], x.shape[3])):
            extent = stop - start if half else max(stop - start, 1.0)
            taps = sampling_ratio or max(ceil(extent / cells), 1)
            at = start + (np.arange(cells * taps) + 0.5) * extent / (cells * taps)
            axes.append((at, taps, int(size)))
        made.append(_pooled(x[int(batch)], axes, wanted, mode))
    return tg.stack(made) if made else x.new_zeros((0, x.shape[1], *wanted))


def _pooled(plane: Tensor, axes: list[Any], wanted: tuple[int, int], mode: str) -> Tensor:
    """Interpolate at the products of places along two axes, and reduce the samples of each cell."""
    (ys, rows, high), (xs, columns, wide) = axes
    samples = []
    for y_index, y_weight in _two(ys, high):
        line = tg.index_select(plane, 1, as_tensor(y_index, plane.device))
        for x_index, x_weight in _two(xs, wide):
            weight = as_tensor((y_weight[:, None] * x_weight).astype(np.float32), plane.device).to(plane.dtype)
            samples.append(tg.index_select(line, 2, as_tensor(x_index, plane.device)) * weight)
    cells = [s.reshape(plane.shape[0], wanted[0], rows, wanted[1], columns) for s in samples]
    if mode == "max":
        return tg.stack(cells).amax((0, 3, 5))
    return (cells[0] + cells[1] + cells[2] + cells[3]).mean((2, 4))


def _two(places: np.ndarray, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the two neighbours of each place with their weights, which are 0 outside of the map."""
    inside = (places >= -1) & (places <= size)
    bounded = places.clip(0, size - 1)
    low = np.floor(bounded).astype(np.int64)
    share = bounded - low
    return [(low, (1 - share) * inside), (np.minimum(low + 1, size - 1), share * inside)]


def tfidf(
    x: Tensor,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: list[int],
    ngram_indexes: list[int],
    pool_int64s: list[int] | None = None,
    pool_strings: list[str] | None = None,
    weights: list[float] | None = None,
) -> Tensor:
    """Count groups of numbers that stand in a pool, also with gaps between them."""
    rows = x.reshape(1, -1) if x.dim() == 1 else x
    pool, width = pool_int64s or [], max(ngram_indexes) + 1
    counts = tg.zeros(rows.shape[0], width, device=x.device)
    marks = tg.arange(width, device=x.device)
    place = 0
    for n, start in enumerate(ngram_counts, start=1):
        stop = ngram_counts[n] if n < len(ngram_counts) else len(pool)
        for first in range(start, stop, n):
            column, gram = ngram_indexes[place], pool[first : first + n]
            place += 1
            if min_gram_length <= n <= max_gram_length:
                count = _occurrences(rows, gram, max_skip_count)
                counts = counts + count.reshape(-1, 1) * (marks == column).float()
    if mode == "IDF":
        counts = (counts > 0).float()
    if weights is not None and mode in ("IDF", "TFIDF"):
        order = np.zeros(width, np.float32)
        order[ngram_indexes] = weights
        counts = counts * as_tensor(order, x.device)
    return counts.reshape(-1) if x.dim() == 1 else counts


def _occurrences(rows: Tensor, gram: list[int], skips: int) -> Tensor:
    """Count the occurrences of a group in each row, for each gap between its members."""
    found = tg.zeros(rows.shape[0], device=rows.device)
    for gap in range(1, (skips if len(gram) > 1 else 0) + 2):
        length = int(rows.shape[1]) - (len(gram) - 1) * gap
        if length <= 0:
            break
        hits = rows[:, :length] == gram[0]
        for n, number in enumerate(gram[1:], start=1):
            hits = hits & (rows[:, n * gap : n * gap + length] == number)
        found = found + hits.to(int64).sum(1).float()
    return found


RULES: dict[str, Function] = {
    "NonMaxSuppression": non_max_suppression,
    "RoiAlign": roi_align,
    "TfIdfVectorizer": tfidf,
}
