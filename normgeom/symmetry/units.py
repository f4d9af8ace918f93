"""Whether a joint scale symmetry holds unit by unit, or head by head, each with a factor of its own."""

from collections.abc import Mapping

from torch import Tensor

from normgeom.symmetry.joint import Found
from normgeom.symmetry.partitions import Partition, head_count
from normgeom.symmetry.trials import Trial


def finest(trial: Trial, found: Found) -> str:
    """Return `unit`, `head` or `whole`: the finest way in which factors can differ between blocks.

    The writing side, which has gains or biases or comes first, is scaled along its units and the other along
    its inputs: `W_1 -> diag(c) W_1`, `W_2 -> W_2 diag(1/c)`. Where that fails for two weights, both go along
    their units, as queries and keys do, unit by unit and then head by head.
    """
    up = [block for block, power in found.exponents.items() if power > 0]
    down = [block for block, power in found.exponents.items() if power < 0]
    if not up or not down:
        return "whole"
    writers = min(up, down, key=lambda side: (all(block.widths[1] for block in side), side is down))
    axes = {block: _axis(block, block in writers) for block in found.exponents}
    if _holds(trial, found, axes, 0):
        return "unit"
    if any(sum(block.widths[1] > 0 for block in side) != 1 for side in (up, down)):
        return "whole"
    along_units = {block: block.units for block in found.exponents}
    if _holds(trial, found, along_units, 0):
        return "unit"
    counts = {head_count(trial.probe.model, block.view.parameter) for block in found.exponents}
    heads = counts.pop() if len(counts) == 1 else 0
    return "head" if heads > 1 and _holds(trial, found, along_units, heads) else "whole"


def _holds(trial: Trial, found: Found, axes: Mapping[Partition, int], heads: int) -> bool:
    """Whether the outputs stay if every unit, or head, has its own factor; False if sizes do not fit."""
    sizes = {(block.shape_of_block or (1,))[axis] for block, axis in axes.items()}
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


def _axis(block: Partition, writes: bool) -> int:
    """The axis of the units, or that of the inputs if there is one."""
    return block.units if writes or not block.widths[1] else 1 - block.units


def _scaled(block: Partition, value: Tensor, axis: int, factors: Tensor) -> Tensor:
    """A tensor whose block is multiplied along an axis."""
    folded, factors = block.fold(value), factors.to(value)
    if axis == block.view.axis:
        return block.put(value, folded * factors.reshape(1, -1, *[1] * (folded.ndim - 2)))
    place = 2 + [k for k in range(value.ndim) if k != block.view.axis].index(axis)
    return block.put(value, folded * factors.reshape(-1, *[1] * (folded.ndim - place - 1)))
