"""Joint symmetries: exponents, or multiples of one shift, for which all blocks together leave the outputs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import torch
from torch import Tensor

from normgeom.symmetry.exponents import Exponents, null_exponents
from normgeom.symmetry.partitions import Move, Partition
from normgeom.symmetry.slopes import Slopes
from normgeom.symmetry.trials import Trial

_POWER_OF_TWO, _NO_POWER = 2.0, 1.7


@dataclass(frozen=True)
class Found:
    """A confirmed joint symmetry: the blocks with their exponents, and the deviation.

    Attributes:
        by: `unit` or `head` if every one can have a factor of its own, else `whole`.
        companions: blocks, each free as a whole, that go along unit by unit.
    """

    move: Move
    exponents: Mapping[Partition, int]
    deviation: float
    by: str = "whole"
    companions: Mapping[Partition, int] = field(default_factory=dict)


def joint_scales(
    trial: Trial, all_blocks: Sequence[Partition], slopes: Slopes, columns: Sequence[int]
) -> tuple[list[Found], Exponents]:
    """Return a basis of the joint scale symmetries of blocks none of which can be scaled by itself.

    Args:
        trial: where they are confirmed.
        all_blocks: the blocks.
        slopes: of all blocks.
        columns: which blocks cannot be scaled by themselves.
    """
    blocks = [all_blocks[k] for k in columns]
    free = [block for block in all_blocks if block not in blocks]
    deviations: dict[tuple[int, ...], float] = {}
    widths = [block.widths for block in blocks]

    def confirm(vector: tuple[int, ...]) -> bool:
        if vector not in deviations:
            deviations[vector] = trial.deviation(trial.scaled(_named(blocks, vector), _POWER_OF_TWO))
        return deviations[vector] <= trial.tolerance * max(1, max(map(abs, vector)))

    @cache
    def by_unit(vector: tuple[int, ...]) -> bool:
        return bool(slopes.units.ways(_named(blocks, vector), free))

    radial = _rows_of_one_size(slopes.radial[:, columns])
    exponents = null_exponents(radial, confirm, widths=widths, by_unit=by_unit, rounding=_rounding(trial))
    found = [Found(Move.SCALE, _named(blocks, v), deviations[v]) for v in exponents.vectors]
    return _at_other_factors(trial, found), exponents


def _at_other_factors(trial: Trial, found: Sequence[Found]) -> list[Found]:
    """Those that hold at factors that are no powers of two: all at once, or one by one if that fails."""
    if not found:
        return []
    together = trial.deviation(trial.scaled_together([one.exponents for one in found]))
    if together <= trial.tolerance * len(found):
        return list(found)
    moved = [trial.deviation(trial.scaled(one.exponents, _NO_POWER)) for one in found]
    pairs = zip(found, moved, strict=True)
    return [Found(f.move, f.exponents, max(f.deviation, d)) for f, d in pairs if d <= trial.tolerance * 10]


def joint_shifts(
    trial: Trial, blocks: Sequence[Partition], slopes: Slopes, taken: Mapping[int, set[Move]]
) -> list[Found]:
    """Return the joint shifts by multiples of one arbitrary vector, of blocks that cannot be shifted alone.

    Args:
        trial: where they are confirmed.
        blocks: all blocks.
        slopes: of all blocks.
        taken: for each block the moves that it allows by itself.
    """
    columns: dict[int, list[tuple[int, Move]]] = defaultdict(list)
    for k, fields in enumerate(slopes.fields):
        for move, sums in fields.items():
            if move not in taken[k] and sums.shape[1] > 1:
                columns[sums.shape[1]].append((k, move))
    found = []
    for group in columns.values():
        stacked = np.stack([slopes.fields[k][move].ravel() for k, move in group], axis=1)
        found += _shift_basis(trial, [(blocks[k], move) for k, move in group], stacked)
    return found


def _shift_basis(trial: Trial, group: Sequence[tuple[Partition, Move]], stacked: np.ndarray) -> list[Found]:
    deviations: dict[tuple[int, ...], float] = {}
    live = [k for k in range(len(group)) if stacked[:, k].any()]

    def confirm(vector: tuple[int, ...]) -> bool:
        moved = [(group[live[k]], power) for k, power in enumerate(vector) if power]
        deviations[vector] = trial.deviation(_shifted(trial, moved))
        return deviations[vector] <= trial.tolerance

    basis = null_exponents(stacked[:, live], confirm, rounding=_rounding(trial)).vectors
    return [
        Found(
            group[live[next(k for k, power in enumerate(vector) if power)]][1],
            {group[live[k]][0]: power for k, power in enumerate(vector) if power},
            deviations[vector],
        )
        for vector in basis
    ]


def _shifted(trial: Trial, moved: Sequence[tuple[tuple[Partition, Move], int]]) -> dict[str, Tensor]:
    """Parameters shifted by multiples of one random vector, laid along each block as its move says."""
    (first, move), _ = moved[0]
    count = int(np.prod(first.shape(move)))
    draw = torch.randn(count, generator=trial.probe.generator, dtype=torch.float64)
    size = max(
        float(block.cut(trial.probe.parameters[block.view.parameter]).abs().mean()) for (block, _), _ in moved
    )
    values: dict[str, Tensor] = {}
    for (block, move), power in moved:
        name = block.view.parameter
        value = values.get(name, trial.probe.parameters[name])
        vector = (power * (size or 1.0) * draw).reshape(block.shape(move))
        values[name] = block.moved(value, move, torch.ones(1, dtype=torch.bool), vector)
    return values


def _rounding(trial: Trial) -> float:
    """What a singular value or an exponent may be off by: much, in a type that rounds to seven digits."""
    return max(1e-5, 1e4 * trial.probe.unit)


def _rows_of_one_size(slopes: np.ndarray) -> np.ndarray:
    """Rows divided by their lengths, so that no functional outweighs the others."""
    lengths = np.linalg.norm(slopes, axis=1, keepdims=True)
    return slopes / np.where(lengths > 0, lengths, 1.0)


def _named(blocks: Sequence[Partition], vector: Sequence[int]) -> dict[Partition, int]:
    return {block: power for block, power in zip(blocks, vector, strict=True) if power}
