"""The slopes of the outputs along every move of every block, from a few backward passes at several points.

A random functional u of the outputs has the gradient `g = Jᵀu`, and `<θ_p, g_p> = <u, J θ_p>` for all blocks
p at once: one backward pass gives one row for all of them, and the column sums of g_p, which are the slopes
along shifts. As many rows as blocks, and a few more, determine the null space of the radial derivatives.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from normgeom.symmetry.functionals import EXTRA_ROWS, Sketch, gradients_at
from normgeom.symmetry.partitions import SHIFTS, Move, Partition
from normgeom.symmetry.probe import Probe

_POINTS_WITH_FIELDS = 2
_ROWS = ("radial", "radial_detailed", "lengths", "reach")


@dataclass
class PartSlopes:
    """For each part of a partition the largest slope along a move, relative to its gradient, over rows."""

    slopes: dict[Move, np.ndarray] = field(default_factory=dict)
    reach: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass
class Slopes:
    """The slopes of all blocks.

    Attributes:
        radial: (functionals, blocks), `<θ_p, g_p>`.
        radial_detailed: (a few functionals, blocks), the radial slopes at those of `reach`.
        lengths: (a few functionals, blocks), `‖g_p‖`.
        reach: (a few functionals, blocks), `‖θ_p‖ ‖g_p‖`, the largest that a slope could be.
        fields: for each block, the gradient summed along a move, (a few functionals, numbers).
        parts: what was found of each partition, at a few functionals.
        sketch: the functionals at the last point.
        last_radial: the rows of `radial` there, the first of the sketch.
        forwards: forward passes.
        backwards: backward passes.
    """

    radial: np.ndarray
    radial_detailed: np.ndarray
    lengths: np.ndarray
    reach: np.ndarray
    fields: list[dict[Move, np.ndarray]]
    parts: dict[Partition, PartSlopes]
    sketch: Sketch
    last_radial: np.ndarray
    forwards: int = 0
    backwards: int = 0

    def response(self, k: int, moved: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
        """Return a finite change of the outputs over their radial slope for block k, at the last point."""
        slope = self.last_radial[:, k]
        change = (self.sketch.apply(moved) - self.sketch.apply(wanted))[: len(slope)]
        return float(change @ slope / max(slope @ slope, 1e-300))


@dataclass(frozen=True)
class _Terms:
    """A tensor's gradient, and products of it and the tensor, which its partitions sum up in several ways."""

    slope: Tensor
    product: Tensor
    slope_squared: Tensor
    value_squared: Tensor

    @classmethod
    def of(cls, value: Tensor, slope: Tensor) -> "_Terms":
        return cls(slope, value * slope, slope.square(), value.square())


class Collector:
    """Reduces gradients, one after the other, to the numbers of `Slopes`."""

    def __init__(self, blocks: Sequence[Partition], parts: Sequence[Partition]) -> None:
        self.blocks = blocks
        self.parts_of: dict[str, list[Partition]] = {}
        for part in parts:
            self.parts_of.setdefault(part.view.parameter, []).append(part)
        self.rows: dict[str, list[list[float]]] = {name: [] for name in _ROWS}
        self.fields: list[dict[Move, list[np.ndarray]]] = [{} for _ in blocks]
        self.parts = {part: PartSlopes() for part in parts}

    @property
    def fields_needed(self) -> int:
        """How many functionals give more equations than there are shifts by vectors of one length."""
        lengths = Counter(
            math.prod(block.shape(move))
            for block in self.blocks
            for move in (*SHIFTS, Move.ANY)
            if block.constant_axes(move) or (move is Move.ANY and len(block.view.shape) == 1)
        )
        needed = [math.ceil((count + EXTRA_ROWS) / length) for length, count in lengths.items() if length > 1]
        return max([_POINTS_WITH_FIELDS, *needed])

    def add(
        self, values: Mapping[str, Tensor], gradient: Mapping[str, Tensor | None], detailed: bool
    ) -> None:
        """Take in one gradient; with its sums along all moves if it is a detailed one."""
        rows: dict[str, list[float]] = {name: [] for name in self.rows}
        for k, block in enumerate(self.blocks):
            whole = gradient[block.view.parameter]
            value = block.stretch(values[block.view.parameter])
            slope = torch.zeros_like(value) if whole is None else block.stretch(whole)
            rows["radial"].append(_product(value, slope))
            if detailed:
                rows["radial_detailed"].append(rows["radial"][-1])
                rows["lengths"].append(float(slope.norm()))
                rows["reach"].append(float(value.norm()) * rows["lengths"][-1])
                self._add_fields(k, block, slope)
        for name, row in rows.items():
            if row:
                self.rows[name].append(row)

    def add_parts(self, values: Mapping[str, Tensor], gradient: Mapping[str, Tensor | None]) -> None:
        """Take in the slopes of all parts."""
        for name, parts in self.parts_of.items():
            found, value = gradient[name], values[name]
            terms = _Terms.of(value, torch.zeros_like(value) if found is None else found)
            for part in parts:
                self._add_parts(part, terms)

    def _add_fields(self, k: int, block: Partition, slope: Tensor) -> None:
        slope = (slope.movedim(block.view.axis, 0) if slope.ndim else slope.reshape(1))[None]
        for move in SHIFTS:
            axes = block.constant_axes(move)
            if axes:
                self.fields[k].setdefault(move, []).append(_array(slope.sum(axes).flatten()))
        if len(block.view.shape) == 1:
            self.fields[k].setdefault(Move.ANY, []).append(_array(slope.flatten()))

    def _add_parts(self, part: Partition, terms: "_Terms") -> None:
        found, slope = self.parts[part], part.fold(terms.slope)
        lengths = part.fold(terms.slope_squared).flatten(1).sum(1).sqrt()
        reach = part.fold(terms.value_squared).flatten(1).sum(1).sqrt() * lengths
        found.reach = np.maximum(found.reach, _array(reach)) if len(found.reach) else _array(reach)
        sizes = {Move.SCALE: part.fold(terms.product).flatten(1).sum(1).abs() / reach.clamp_min(1e-300)}
        for move in SHIFTS:
            axes = part.constant_axes(move)
            if axes:
                length = math.sqrt(math.prod(slope.shape[k] for k in axes)) * lengths
                summed = slope.sum(axes, keepdim=True).flatten(1).abs().amax(1)
                sizes[move] = summed / length.clamp_min(1e-300)
        for move, size in sizes.items():
            before = found.slopes.get(move)
            found.slopes[move] = _array(size) if before is None else np.maximum(before, _array(size))

    def is_saturated(self, unit: float) -> bool:
        """Whether the last few rows have added nothing to the rank of the radial slopes."""
        rows = np.asarray(self.rows["radial"])
        columns = rows / np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
        values = np.linalg.svd(columns, compute_uv=False)
        return int((values > unit**0.5 * values[0]).sum()) <= len(rows) - EXTRA_ROWS

    def slopes(self, forwards: int, sketch: Sketch, before: int) -> Slopes:
        """Return what was collected; the sketch's rows are those after `before`."""
        rows = {name: np.asarray(values, dtype=float) for name, values in self.rows.items()}
        backwards, last = len(rows["radial"]), rows["radial"][before:]
        fields = [{move: np.stack(v) for move, v in mine.items()} for mine in self.fields]
        return Slopes(
            **rows,
            fields=fields,
            parts=self.parts,
            sketch=sketch,
            last_radial=last,
            forwards=forwards,
            backwards=backwards,
        )


def _product(one: Tensor, other: Tensor) -> float:
    """The inner product, without a copy where that is possible."""
    if one.is_contiguous() and other.is_contiguous():
        return float(torch.vdot(one.view(-1), other.view(-1)))
    return float((one * other).sum())


def _array(values: Tensor) -> np.ndarray:
    return values.cpu().double().numpy()


def measure_slopes(
    probe: Probe,
    blocks: Sequence[Partition],
    parts: Sequence[Partition],
    *,
    counts: Sequence[int],
    move_to_point: Callable[[int], None],
    differentiable: bool,
    tick: Callable[[], None],
) -> Slopes:
    """Return the slopes at several points, at most as many functionals at each as asked for.

    Without a backward pass they are all zero. At the last point, where the probe is left, no more are taken
    once the rank of the radial slopes has stopped to grow.
    """
    collector = Collector(blocks, parts)
    fields = math.ceil(collector.fields_needed / _POINTS_WITH_FIELDS)
    for point, count in enumerate(counts):
        move_to_point(point)
        sketch, gradients = gradients_at(probe, count, differentiable=differentiable)
        before = len(collector.rows["radial"])
        for k, gradient in enumerate(gradients):
            early = point < _POINTS_WITH_FIELDS
            collector.add(probe.parameters, gradient, detailed=early and k < fields)
            if early and k == 0:
                collector.add_parts(probe.parameters, gradient)
            tick()
            is_last = point == len(counts) - 1
            if is_last and k + 1 >= EXTRA_ROWS and collector.is_saturated(probe.unit):
                break
    return collector.slopes(len(counts), sketch, before)
