"""The slopes of the outputs along every move of every block, from a few backward passes at several points.

A random functional u of the outputs has the gradient `g = Jᵀu`, and `<θ_p, g_p> = <u, J θ_p>` for all blocks
p at once: one backward pass gives one row for all of them, and the column sums of g_p, which are the slopes
along shifts. As many rows as blocks, and a few more, determine the null space of the radial derivatives.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from normgeom.symmetry.absorbed import as_matrix, weights_of_biases
from normgeom.symmetry.differences import GradientCheck
from normgeom.symmetry.functionals import EXTRA_ROWS, Sketch, gradients_at, plan
from normgeom.symmetry.part_slopes import PartSlopes, Terms, as_array
from normgeom.symmetry.partitions import SHIFTS, Move, Partition
from normgeom.symmetry.probe import Probe
from normgeom.symmetry.span import Span
from normgeom.symmetry.unitwise import UnitSlopes, unit_slopes

_POINTS_WITH_FIELDS = 2
_ROWS = ("radial", "radial_detailed", "lengths", "reach")


@dataclass
class Slopes:
    """The slopes of all blocks.

    Attributes:
        radial: (functionals, blocks), `<θ_p, g_p>`.
        radial_detailed: (a few functionals, blocks), the radial slopes at those of `reach`.
        lengths: (a few functionals, blocks), `‖g_p‖`.
        reach: (a few functionals, blocks), `‖θ_p‖ ‖g_p‖`, the largest that a slope could be.
        fields: for each block, the gradient summed along a move, (a few functionals, numbers); for a bias
            also what its weight carries back, the slope of a shift of what the layer reads.
        parts: what was found of each partition, at a few functionals.
        units: the radial slopes unit by unit.
        sketch: the functionals at the last point.
        last_radial: the rows of `radial` there, the first of the sketch.
        gradient_error: by how much the gradients differ from differences of the function.
    """

    radial: np.ndarray
    radial_detailed: np.ndarray
    lengths: np.ndarray
    reach: np.ndarray
    fields: list[dict[Move, np.ndarray]]
    parts: dict[Partition, PartSlopes]
    units: UnitSlopes
    sketch: Sketch
    last_radial: np.ndarray
    gradient_error: float

    def response(self, k: int, moved: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
        """Return a finite change of the outputs over their radial slope for block k, at the last point."""
        slope = self.last_radial[:, k]
        change = (self.sketch.apply(moved) - self.sketch.apply(wanted))[: len(slope)]
        return float(change @ slope / max(slope @ slope, 1e-300))


class Collector:
    """Reduces gradients, one after the other, to the numbers of `Slopes`."""

    def __init__(self, blocks: Sequence[Partition], parts: Sequence[Partition], unit: float) -> None:
        self.blocks = blocks
        self.parts_of: dict[str, list[Partition]] = {}
        for part in parts:
            self.parts_of.setdefault(part.view.parameter, []).append(part)
        self.rows: dict[str, list[list[float]]] = {name: [] for name in _ROWS}
        self.fields: list[dict[Move, list[np.ndarray]]] = [{} for _ in blocks]
        self.parts = {part: PartSlopes() for part in parts}
        self._span, self._rounding, self._reach = Span(unit**0.5), unit**0.75, np.zeros(len(blocks))
        self._weights = weights_of_biases(blocks)
        self.gradient_error = math.inf
        self._before = self._at_point = 0
        self._units: dict[tuple[Partition, int], list[np.ndarray]] = defaultdict(list)

    @property
    def fields_needed(self) -> int:
        """How many functionals at a point give more equations than there are shifts of one length."""
        lengths = Counter(
            math.prod(block.shape(move))
            for block in self.blocks
            for move in (*SHIFTS, Move.ANY)
            if block.constant_axes(move) or (move is Move.ANY and len(block.view.shape) == 1)
        )
        lengths.update(self.blocks[weight].widths[1] for weight in self._weights.values())
        needed = [math.ceil((count + EXTRA_ROWS) / length) for length, count in lengths.items() if length > 1]
        return math.ceil(max([_POINTS_WITH_FIELDS, *needed]) / _POINTS_WITH_FIELDS)

    def begin(self) -> None:
        """Go on to the next point."""
        self._before, self._at_point = len(self.rows["radial"]), 0

    def add(self, values: Mapping[str, Tensor], gradient: Mapping[str, Tensor | None], early: bool) -> None:
        """Take in one gradient; at an early point with its sums along moves, and once of parts and units."""
        self._add_rows(values, gradient, early and self._at_point < self.fields_needed)
        if early and self._at_point == 0:
            self._add_all_parts(values, gradient)
            self._add_units(values, gradient)
        self._at_point += 1

    def _add_rows(
        self, values: Mapping[str, Tensor], gradient: Mapping[str, Tensor | None], detailed: bool
    ) -> None:
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
                if k in self._weights:
                    weight = self.blocks[self._weights[k]]
                    absorbed = as_matrix(weight, values[weight.view.parameter]).T @ slope
                    self.fields[k].setdefault(Move.ABSORBED, []).append(as_array(absorbed))
        for name, row in rows.items():
            if row:
                self.rows[name].append(row)
        if detailed:
            self._reach = np.maximum(self._reach, rows["reach"])
        radial = np.asarray(rows["radial"])
        self._span.add(np.where(np.abs(radial) > self._rounding * self._reach, radial, 0.0))

    def _add_all_parts(self, values: Mapping[str, Tensor], gradient: Mapping[str, Tensor | None]) -> None:
        for name, parts in self.parts_of.items():
            found, value = gradient[name], values[name]
            slope = torch.zeros_like(value) if found is None else found
            terms = Terms.of(value, slope, {part.view.axis for part in parts})
            for part in parts:
                self.parts[part].add(part, terms)

    def _add_units(self, values: Mapping[str, Tensor], gradient: Mapping[str, Tensor | None]) -> None:
        for block in self.blocks:
            value, slope = values[block.view.parameter], gradient[block.view.parameter]
            for axis, sums in unit_slopes(block, value, torch.zeros_like(value) if slope is None else slope):
                self._units[block, axis].append(sums)

    def _add_fields(self, k: int, block: Partition, slope: Tensor) -> None:
        slope = (slope.movedim(block.view.axis, 0) if slope.ndim else slope.reshape(1))[None]
        for move in SHIFTS:
            axes = block.constant_axes(move)
            if axes:
                self.fields[k].setdefault(move, []).append(as_array(slope.sum(axes).flatten()))
        if len(block.view.shape) == 1:
            self.fields[k].setdefault(Move.ANY, []).append(as_array(slope.flatten()))

    def is_saturated(self) -> bool:
        """Return whether a few rows of radial slopes have added nothing to their rank."""
        return self._span.idle >= EXTRA_ROWS

    def slopes(self, probe: Probe, sketch: Sketch) -> Slopes:
        """Return what was collected; the sketch is that of the last point."""
        units = {place: np.stack(sums) for place, sums in self._units.items()}
        rows = {name: np.asarray(values, dtype=float) for name, values in self.rows.items()}
        fields = [{move: np.stack(v) for move, v in mine.items()} for mine in self.fields]
        return Slopes(
            **rows,
            fields=fields,
            parts=self.parts,
            units=UnitSlopes(probe.model, units, probe.unit**0.5),
            sketch=sketch,
            last_radial=rows["radial"][self._before :],
            gradient_error=self.gradient_error,
        )


def _product(one: Tensor, other: Tensor) -> float:
    """The inner product, without a copy where that is possible."""
    if one.is_contiguous() and other.is_contiguous():
        return float(torch.vdot(one.view(-1), other.view(-1)))
    return float((one * other).sum())


def measure_slopes(
    probe: Probe,
    blocks: Sequence[Partition],
    parts: Sequence[Partition],
    *,
    outputs: int,
    move_to_point: Callable[[int], None],
    differentiable: bool,
    tick: Callable[[], None],
) -> Slopes:
    """Return the slopes at several points, and by how much gradients and differences differ at the first.

    Without a backward pass the slopes are all zero. After the first two points no more functionals are taken
    once the rank of the radial slopes has stopped to grow; the probe is left at the last.

    Args:
        probe: the model; its parameters are moved.
        blocks: the whole blocks.
        parts: their partitions.
        outputs: how many numbers the model returns.
        move_to_point: moves the probe's parameters.
        differentiable: whether to take the gradients.
        tick: called after every functional.
    """
    collector = Collector(blocks, parts, probe.unit)
    for point, count in enumerate(plan(len(blocks), outputs, collector.fields_needed)):
        move_to_point(point)
        sketch, enough = _measure_at(collector, probe, point, count, differentiable, tick)
        if enough:
            break
    return collector.slopes(probe, sketch)


def _measure_at(
    collector: Collector,
    probe: Probe,
    point: int,
    count: int,
    differentiable: bool,
    tick: Callable[[], None],
) -> tuple[Sketch, bool]:
    """Take in the functionals at one point; whether no more are needed."""
    early = point < _POINTS_WITH_FIELDS
    collector.begin()
    sketch, gradients = gradients_at(probe, count, differentiable=differentiable)
    check = GradientCheck(probe) if point == 0 else None
    for gradient in gradients:
        collector.add(probe.parameters, gradient, early=early)
        if check is not None:
            check.add(gradient)
        del gradient  # the next one would be held beside it
        tick()
        if not early and collector.is_saturated():
            return sketch, True
    if check is not None and differentiable:
        del gradients  # with the graph
        collector.gradient_error = check.error(sketch)
    return sketch, False
