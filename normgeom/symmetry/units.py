"""Whether a joint scale symmetry holds unit by unit, or head by head, each with a factor of its own."""

import re
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from functools import partial

from torch import Tensor

from normgeom.symmetry.joint import Found
from normgeom.symmetry.partitions import Partition, head_count
from normgeom.symmetry.trials import Transform, Trial

# What was tried: nothing that holds; units against inputs; units against units; heads against heads.
_BY = ("whole", "unit", "unit", "head")
_HEADS = 3


def finest(trial: Trial, symmetries: Sequence[Found]) -> list[str]:
    """Return of each `unit`, `head` or `whole`: the finest way in which factors can differ between blocks.

    The writing side, which has gains or biases or comes first, is scaled along its units and the other along
    its inputs: `W_1 -> diag(c) W_1`, `W_2 -> W_2 diag(1/c)`. Where that fails for two weights, both go along
    their units, as queries and keys do, unit by unit and then head by head.
    """
    ways = [_ways(trial, found) for found in symmetries]
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for k, found in enumerate(symmetries):
        alike[_signature(found)].append(k)
    first = _settled(trial, {own[0]: ways[own[0]] for own in alike.values()})
    # What a layer allows, the others of its kind are likely to allow: that is tried first, on all at once.
    rest = {k: _led_by(ways[k], first[own[0]]) for own in alike.values() for k in own[1:]}
    found_ways = first | _settled(trial, rest)
    return [_BY[found_ways[k]] for k in range(len(symmetries))]


def _led_by(ways: Sequence[tuple[int, Transform]], first: int) -> list[tuple[int, Transform]]:
    return sorted(ways, key=lambda way: way[0] != first)


def _settled(trial: Trial, ways: Mapping[int, Sequence[tuple[int, Transform]]]) -> dict[int, int]:
    """The first way of each that leaves the outputs, all of one turn together; 0 if none does."""
    result, turn = dict.fromkeys(ways, 0), 0
    while tried := {k: own[turn] for k, own in ways.items() if turn < len(own) and not result[k]}:
        changes = trial.settle([transform for _, transform in tried.values()])
        for (k, (way, _)), change in zip(tried.items(), changes, strict=True):
            if change <= trial.tolerance:
                result[k] = way
        turn += 1
    return result


def _signature(found: Found) -> Hashable:
    """The blocks without the numbers of their layers, and the exponents."""
    return tuple((re.sub(r"\d+", "#", b.view.labels[0]), power) for b, power in found.exponents.items())


def _ways(trial: Trial, found: Found) -> list[tuple[int, Transform]]:
    """What is tried, finest first, with its place in `_BY`; what does not fit is left out."""
    up = [block for block, power in found.exponents.items() if power > 0]
    down = [block for block, power in found.exponents.items() if power < 0]
    if not up or not down:
        return []
    writers = min(up, down, key=lambda side: (all(block.widths[1] for block in side), side is down))
    axes = {block: _axis(block, block in writers) for block in found.exponents}
    first = _way(trial, found, axes, 1)
    if any(sum(block.widths[1] > 0 for block in side) != 1 for side in (up, down)):
        return first
    along_units = {block: block.units for block in found.exponents}
    return first + _way(trial, found, along_units, 2) + _way(trial, found, along_units, 3)


def _way(trial: Trial, found: Found, axes: Mapping[Partition, int], way: int) -> list[tuple[int, Transform]]:
    """A transform in which every unit, or head, has its own factor; none if sizes do not fit."""
    sizes = {(block.shape_of_block or (1,))[axis] for block, axis in axes.items()}
    counts = {head_count(trial.probe.model, b.view.parameter) if way == _HEADS else 0 for b in axes}
    size, heads = sizes.pop(), counts.pop()
    if sizes or counts or size < 2 or (way == _HEADS and (heads < 2 or size % heads)):
        return []
    factors = trial.probe.random((heads or size,)).repeat_interleave(size // (heads or size))
    return [(way, partial(_moved, trial, found, axes, factors))]


def _moved(
    trial: Trial,
    found: Found,
    axes: Mapping[Partition, int],
    factors: Tensor,
    start: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    values = dict(start)
    for block, power in found.exponents.items():
        name = block.view.parameter
        value = values.get(name, trial.probe.parameters[name])
        values[name] = _scaled(block, value, axes[block], factors**power)
    return values


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
