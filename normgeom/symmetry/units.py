"""Whether a joint scale symmetry holds unit by unit, or head by head, each with a factor of its own."""

from collections.abc import Mapping

from torch import Tensor

from normgeom.symmetry.joint import Found
from normgeom.symmetry.partitions import Partition, head_count
from normgeom.symmetry.trials import Trial


def finest(trial: Trial, found: Found) -> str:
    """Return `unit`, `head` or `whole`: the finest way in which factors can differ between blocks.

    Blocks with positive exponents are scaled along their units, those with negative ones along their inputs:
    `W_1 -> diag(c) W_1`, `W_2 -> W_2 diag(1/c)`. Where that fails both go along their units, as queries and
    keys do, unit by unit and then head by head.
    """
    if len({power > 0 for power in found.exponents.values()}) < 2:
        return "whole"
    if _holds(trial, found, {block: _axis(block, power > 0) for block, power in found.exponents.items()}, 0):
        return "unit"
    along_units = {block: _axis(block, True) for block in found.exponents}
    if _holds(trial, found, along_units, 0):
        return "unit"
    counts = {head_count(trial.probe.model, block.view.parameter) for block in found.exponents}
    heads = counts.pop() if len(counts) == 1 else 0
    return "head" if heads > 1 and _holds(trial, found, along_units, heads) else "whole"


def _holds(trial: Trial, found: Found, axes: Mapping[Partition, int], heads: int) -> bool:
    """Whether the outputs stay if every unit, or every head, has its own factor; False if sizes do not fit."""
    sizes = {_length(block, axis) for block, axis in axes.items()}
    size = sizes.pop()
    if sizes or size < 2 or (heads and size % heads):
        return False
    factors = trial.probe.random((heads or size,)).repeat_interleave(size // (heads or size))
    values: dict[str, Tensor] = {}
    for block, power in found.exponents.items():
        name = block.view.parameter
        value = values.get(name, trial.probe.parameters[name])
        values[name] = _scaled(block, value, axes[block], factors**power)
    return trial.deviation(values) <= trial.tolerance


def _axis(block: Partition, up: bool) -> int:
    """The axis of the units, or that of the inputs; -1 for a number."""
    dims = len(block.view.shape)
    if up or dims < 2:
        return block.units if dims else -1
    return next(k for k in range(dims) if k != block.units)


def _length(block: Partition, axis: int) -> int:
    return block.shape_of_block[axis] if axis >= 0 else 0


def _scaled(block: Partition, value: Tensor, axis: int, factors: Tensor) -> Tensor:
    """A tensor whose block is multiplied along an axis."""
    folded, factors = block.fold(value), factors.to(value)
    if axis == block.view.axis:
        return block.put(value, folded * factors.reshape(1, -1, *[1] * (folded.ndim - 2)))
    place = 2 + [k for k in range(value.ndim) if k != block.view.axis].index(axis)
    return block.put(value, folded * factors.reshape(-1, *[1] * (folded.ndim - place - 1)))
