"""The slopes of the natural parts of a tensor: sums of a gradient, and of its products with the tensor."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from normgeom.symmetry.partitions import SHIFTS, Move, Partition


@dataclass(frozen=True)
class Terms:
    """A tensor's gradient, and inner products of both along all axes but one, which partitions sum up.

    Attributes:
        slope: the gradient.
        products: by axis, `(value · slope, slope · slope, value · value)` for every index.
    """

    slope: Tensor
    products: Mapping[int, tuple[Tensor, Tensor, Tensor]]

    @classmethod
    def of(cls, value: Tensor, slope: Tensor, axes: Collection[int]) -> "Terms":
        """Return the terms of a tensor and its gradient, for some axes."""
        pairs = ((value, slope), (slope, slope), (value, value))
        found: dict[int, list[Tensor]] = {axis: [] for axis in axes}
        for one, other in pairs:
            product = one * other
            for axis in axes:
                rest = [k for k in range(product.ndim) if k != axis]
                found[axis].append(product.sum(rest) if rest else product)
        return cls(slope, {axis: (a, b, c) for axis, (a, b, c) in found.items()})

    def of_parts(self, part: Partition) -> Iterator[Tensor]:
        """Yield the three inner products of every part."""
        view = part.view
        for product in self.products[view.axis]:
            yield product[view.start : view.stop].reshape(view.parts, view.rows).sum(1)


@dataclass
class PartSlopes:
    """For each part of a partition the largest slope along a move, relative to its gradient, over rows.

    Attributes:
        slopes: by move, of every part.
        reach: the length of every part times that of its gradient.
    """

    slopes: dict[Move, np.ndarray] = field(default_factory=dict)
    reach: np.ndarray = field(default_factory=lambda: np.zeros(0))

    def add(self, part: Partition, terms: Terms) -> None:
        """Take in the gradient of one functional."""
        radial, slope_squared, value_squared = terms.of_parts(part)
        lengths = slope_squared.sqrt()
        reach = value_squared.sqrt() * lengths
        self.reach = np.maximum(self.reach, as_array(reach)) if len(self.reach) else as_array(reach)
        self._keep(Move.SCALE, radial.abs() / reach.clamp_min(1e-300))
        slope = part.fold(terms.slope)
        for move in SHIFTS:
            axes = part.constant_axes(move)
            if axes:
                length = math.sqrt(math.prod(slope.shape[k] for k in axes)) * lengths
                summed = slope.sum(axes, keepdim=True).flatten(1).abs().amax(1)
                self._keep(move, summed / length.clamp_min(1e-300))

    def _keep(self, move: Move, size: Tensor) -> None:
        before = self.slopes.get(move)
        self.slopes[move] = as_array(size) if before is None else np.maximum(before, as_array(size))


def as_array(values: Tensor) -> np.ndarray:
    """Return a tensor as an array in float64."""
    return values.cpu().double().numpy()
