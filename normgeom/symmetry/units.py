"""Whether a joint scale symmetry holds unit by unit, or head by head, each with a factor of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from normgeom.symmetry.joint import Found
from normgeom.symmetry.partitions import Partition
from normgeom.symmetry.trials import Transform, Trial
from normgeom.symmetry.unitwise import Layout, UnitSlopes, layouts


def finest(
    trial: Trial, symmetries: Sequence[Found], slopes: UnitSlopes | None, free: Sequence[Partition]
) -> list[Found]:
    """Return the symmetries with the finest way in which factors can differ between blocks.

    Args:
        trial: where they are confirmed.
        symmetries: joint scalings.
        slopes: what unit by unit has a slope is not tried; None if the gradients cannot be trusted.
        free: blocks that can be scaled by themselves.
    """
    result = list(symmetries)
    ways = [
        slopes.ways(found.exponents, free)
        if slopes
        else [(found.exponents, layout) for layout in layouts(trial.probe.model, found.exponents)]
        for found in symmetries
    ]
    for turn in range(max(map(len, ways), default=0)):
        tried = [k for k, own in enumerate(ways) if turn < len(own) and result[k].by == "whole"]
        transforms = [_transform(trial, *ways[k][turn]) for k in tried]
        for k, change in zip(tried, trial.settle(transforms), strict=True):
            if change <= trial.tolerance:
                result[k] = _finer(result[k], *ways[k][turn])
    return result


def _finer(found: Found, exponents: Mapping[Partition, int], layout: Layout) -> Found:
    more = {block: power for block, power in exponents.items() if block not in found.exponents}
    return replace(found, by=layout.by, companions=more)


def _transform(trial: Trial, exponents: Mapping[Partition, int], layout: Layout) -> Transform:
    return partial(_moved, trial, exponents, layout, trial.probe.random((layout.factors,)))


def _moved(
    trial: Trial,
    exponents: Mapping[Partition, int],
    layout: Layout,
    factors: Tensor,
    start: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    values = dict(start)
    for block, power in exponents.items():
        name = block.view.parameter
        value = values.get(name, trial.probe.parameters[name])
        spread = layout.spread(factors**power, block)
        values[name] = _scaled(block, value, layout.axes[block], spread)
    return values


def _scaled(block: Partition, value: Tensor, axis: int, factors: Tensor) -> Tensor:
    """A tensor whose block is multiplied along an axis."""
    folded, factors = block.fold(value), factors.to(value)
    if axis == block.view.axis:
        return block.put(value, folded * factors.reshape(1, -1, *[1] * (folded.ndim - 2)))
    place = 2 + [k for k in range(value.ndim) if k != block.view.axis].index(axis)
    return block.put(value, folded * factors.reshape(-1, *[1] * (folded.ndim - place - 1)))
