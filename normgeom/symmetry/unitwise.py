"""How a joint scaling is laid out unit by unit, and whether the slopes allow it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from normgeom.symmetry.partitions import Partition, head_count

_BY_HEAD = "head"


@dataclass(frozen=True)
class Layout:
    """One factor for every unit or head, and along which axis of each block they go.

    Where query heads share the keys and values of a group, the units of a group are repeated head by head.

    Attributes:
        by: `unit` or `head`.
        axes: of each block.
        count: how many units there are.
        width: the width of a head, 0 without heads.
    """

    by: str
    axes: Mapping[Partition, int]
    count: int
    width: int

    @property
    def factors(self) -> int:
        """How many independent factors there are."""
        return self.count // self.width if self.by == _BY_HEAD else self.count

    def spread(self, factors: Tensor, block: Partition) -> Tensor:
        """Return a factor for every index along the block's axis."""
        if self.by == _BY_HEAD:
            factors = factors.repeat_interleave(self.width)
        size = _size(block, self.axes[block])
        if size == self.count:
            return factors
        repeats = size // self.count
        return factors.reshape(-1, 1, self.width).expand(-1, repeats, -1).reshape(-1)

    def gather(self, values: np.ndarray, block: Partition) -> np.ndarray:
        """Return (rows, factors), sums over what shares a factor, of values (rows, indices of the axis)."""
        if values.shape[1] != self.count:
            repeats = values.shape[1] // self.count
            grouped = values.reshape(len(values), -1, repeats, self.width)
            values = grouped.sum(2).reshape(len(values), -1)
        return values.reshape(len(values), self.factors, -1).sum(2)


def layouts(model: nn.Module, exponents: Mapping[Partition, int]) -> Iterator[Layout]:
    """Yield the ways in which factors can differ between units or heads, the finest first.

    The writing side, which has gains or biases or comes first, goes along its units and the other along its
    inputs: `W_1 -> diag(c) W_1`, `W_2 -> W_2 diag(1/c)`. Two weights alone may also both go along their
    units, as queries and keys do. What reads unit by unit (a gain, or a filter with a channel of its own) has
    no inputs.
    """
    up = [block for block, power in exponents.items() if power > 0]
    down = [block for block, power in exponents.items() if power < 0]
    if not up or not down:
        return
    heads = _common_heads(model, exponents)
    yield from _layout("unit", _reading(exponents), heads)
    if all(sum(block.widths[1] > 0 for block in side) == 1 for side in (up, down)):
        along = {block: block.units for block in exponents}
        yield from _layout("unit", along, heads)
        yield from _layout(_BY_HEAD, along, heads)


def _reading(exponents: Mapping[Partition, int]) -> dict[Partition, int]:
    """The axis of each block: that of the units for what writes, that of the inputs for what reads."""
    up = [block for block, power in exponents.items() if power > 0]
    down = [block for block, power in exponents.items() if power < 0]
    sides = [side for side in (up, down) if side]
    writers = min(sides, key=lambda side: (all(block.widths[1] for block in side), side is down))
    return {b: b.units if b in writers or b.widths[1] < 2 else 1 - b.units for b in exponents}


def _layout(by: str, axes: Mapping[Partition, int], heads: int) -> Iterator[Layout]:
    """The layout if sizes fit: all one, or whole groups of heads."""
    sizes = {_size(block, axis) for block, axis in axes.items()}
    smallest, largest = min(sizes), max(sizes)
    width = largest // heads if heads > 1 and largest % heads == 0 else 0
    fits = len(sizes) == 1 or (
        width and smallest % width == 0 and largest % smallest == 0 and len(sizes) == 2
    )
    if smallest > 1 and fits and (by != _BY_HEAD or (width and smallest > width)):
        yield Layout(by, axes, smallest, width)


def _common_heads(model: nn.Module, blocks: Mapping[Partition, int]) -> int:
    counts = {head_count(model, block.view.parameter) for block in blocks}
    return counts.pop() if len(counts) == 1 else 0


def _size(block: Partition, axis: int) -> int:
    return (block.shape_of_block or (1,))[axis]


@dataclass(frozen=True)
class UnitSlopes:
    """The radial slopes of every unit: `sum_j θ_ij g_ij` along each of the first two axes of a block.

    Attributes:
        model: the model.
        slopes: by block and axis, (functionals, indices along the axis).
        tolerance: up to which a sum of slopes is zero, relative to their sizes.
    """

    model: nn.Module
    slopes: Mapping[tuple[Partition, int], np.ndarray]
    tolerance: float

    def allowed(self, exponents: Mapping[Partition, int]) -> list[Layout]:
        """Return the layouts that have no slope, at the functionals that were taken."""
        return [layout for layout in layouts(self.model, exponents) if self._has_none(exponents, layout)]

    def ways(
        self, exponents: Mapping[Partition, int], free: Sequence[Partition]
    ) -> list[tuple[Mapping[Partition, int], Layout]]:
        """Return layouts without a slope, and what takes part in them: the blocks, or some free ones as well.

        A gain that batch norm follows scales with its next weight unit by unit, though each of them is free
        as a whole.

        Args:
            exponents: of the blocks.
            free: blocks that can be scaled by themselves.
        """
        found = [(exponents, layout) for layout in self.allowed(exponents)]
        return found or self._completed(exponents, free)

    def _completed(
        self, exponents: Mapping[Partition, int], free: Sequence[Partition]
    ) -> list[tuple[Mapping[Partition, int], Layout]]:
        axes = _reading(exponents)
        sizes = {_size(block, axis) for block, axis in axes.items()}
        size = sizes.pop()
        if sizes or size < 2:
            return []
        alone = Layout("unit", axes, size, 0)
        if self._has_none(exponents, alone):
            return [(exponents, alone)]
        parts = [power * self.slopes[block, axes[block]].ravel() for block, power in exponents.items()]
        wanted, least = np.sum(parts, axis=0), self.tolerance * np.linalg.norm(parts)
        columns = {
            (block, axis): self.slopes[block, axis].ravel()
            for block in free
            for axis in range(min(len(block.view.shape), 2))
            if _size(block, axis) == size and np.linalg.norm(self.slopes[block, axis]) > least
        }
        if not columns:
            return []
        powers = np.linalg.lstsq(np.stack(list(columns.values()), axis=1), -wanted, rcond=None)[0]
        whole = {place: round(x) for place, x in zip(columns, powers, strict=True) if round(x)}
        full = {**exponents, **{block: power for (block, _), power in whole.items()}}
        layout = Layout("unit", {**axes, **dict(whole.keys())}, size, 0)
        return [(full, layout)] if self._has_none(full, layout) else []

    def misfit(self, exponents: Mapping[Partition, int], free: Sequence[Partition]) -> float:
        """Return 0 if the slopes allow a layout by unit, else how far they are from one, at most 1."""
        if self.ways(exponents, free):
            return 0.0
        return min((self._left(exponents, layout) for layout in layouts(self.model, exponents)), default=1.0)

    def _has_none(self, exponents: Mapping[Partition, int], layout: Layout) -> bool:
        return self._left(exponents, layout) <= self.tolerance

    def _left(self, exponents: Mapping[Partition, int], layout: Layout) -> float:
        """The largest slope of a unit, relative to the largest of what adds up to it."""
        parts = [
            power * layout.gather(self.slopes[block, layout.axes[block]], block)
            for block, power in exponents.items()
        ]
        size = np.linalg.norm(np.sum(np.abs(parts), axis=0))
        return float(np.linalg.norm(np.sum(parts, axis=0)) / size) if size else 1.0


def unit_slopes(block: Partition, value: Tensor, slope: Tensor) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the radial slopes along each of the first two axes of a block."""
    product = block.stretch(value) * block.stretch(slope)
    for axis in range(min(product.ndim, 2)):
        rest = [k for k in range(product.ndim) if k != axis]
        yield axis, (product.sum(rest) if rest else product).cpu().double().numpy()
