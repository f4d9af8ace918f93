"""Whether a joint scale symmetry holds unit by unit, each with its own factor."""

import torch
from torch import Tensor

from normgeom.symmetry.joint import Found
from normgeom.symmetry.partitions import Partition
from normgeom.symmetry.trials import Trial


def holds_by_unit(trial: Trial, found: Found) -> bool:
    """Return whether the units between the blocks can each have a factor of their own.

    Blocks with positive exponents are scaled along their units, those with negative ones along their inputs:
    `W_1 -> diag(c) W_1`, `W_2 -> W_2 diag(1/c)`. False where the sizes do not fit.
    """
    axes = {block: _axis(block, power > 0) for block, power in found.exponents.items()}
    signs = {power > 0 for power in found.exponents.values()}
    sizes = {_length(block, axis) for block, axis in axes.items()}
    if len(signs) < 2 or len(sizes) != 1 or 0 in sizes or sizes == {1}:
        return False
    factors = trial.probe.random((sizes.pop(),))
    values: dict[str, Tensor] = {}
    for block, power in found.exponents.items():
        name, axis = block.view.parameter, axes[block]
        value = values.get(name, trial.probe.parameters[name])
        values[name] = _scaled(block, value, axis, factors**power)
    return trial.deviation(values) <= trial.tolerance


def _axis(block: Partition, up: bool) -> int:
    """The axis of the units, or that of the inputs, -1 if there is none."""
    dims = len(block.view.shape)
    if up or dims < 2:
        return block.units if dims else -1
    return next(k for k in range(dims) if k != block.units)


def _length(block: Partition, axis: int) -> int:
    if axis < 0:
        return 0
    return block.view.stop - block.view.start if axis == block.view.axis else block.view.shape[axis]


def _scaled(block: Partition, value: Tensor, axis: int, factors: Tensor) -> Tensor:
    along = factors.to(value)
    if axis == block.view.axis:
        whole = torch.ones(value.shape[axis], dtype=value.dtype, device=value.device)
        whole[block.view.start : block.view.stop] = along
        return value * whole.reshape(-1, *[1] * (value.ndim - axis - 1))
    cut = block.fold(value)
    place = 2 + [k for k in range(value.ndim) if k != block.view.axis].index(axis)
    return block.put(value, cut * along.reshape(-1, *[1] * (cut.ndim - place - 1)))
