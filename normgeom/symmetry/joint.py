"""Joint scalings: exponents for which all blocks together leave the outputs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

import numpy as np

from normgeom.symmetry.exponents import Exponents, null_exponents
from normgeom.symmetry.partitions import Move, Partition
from normgeom.symmetry.slopes import Slopes
from normgeom.symmetry.trials import Trial


@dataclass(frozen=True)
class Found:
    """A confirmed joint symmetry: the blocks with their exponents, and the deviation.

    Attributes:
        by: `unit` or `head` if every one can have a factor of its own, else `whole`.
        companions: blocks, each free as a whole, that go along unit by unit.
        through: the weight that carries the shift of a bias.
    """

    move: Move
    exponents: Mapping[Partition, int]
    deviation: float
    by: str = "whole"
    companions: Mapping[Partition, int] = field(default_factory=dict)
    through: Mapping[Partition, Partition] = field(default_factory=dict)


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

    def try_all(vectors: Sequence[tuple[int, ...]]) -> None:
        new = [vector for vector in vectors if vector not in deviations]
        named = [_named(blocks, vector) for vector in new]
        moved = [partial(trial.scaled, one, trial.factor()) for one in named]
        near = trial.settle(moved)
        held = [k for k, change in enumerate(near) if change <= trial.tolerance]
        for factor in (trial.far(), 1 / trial.far()):
            far = [partial(trial.scaled, named[k], factor ** (1 / _largest(new[k]))) for k in held]
            for k, change in zip(held, trial.settle(far), strict=True):
                near[k] = max(near[k], change)
        deviations.update(zip(new, near, strict=True))

    def confirm(vector: tuple[int, ...]) -> bool:
        return deviations[vector] <= trial.tolerance * _largest(vector)

    @cache
    def misfit(vector: tuple[int, ...]) -> float:
        return slopes.units.misfit(_named(blocks, vector), free)

    radial = _rows_of_one_size(slopes.radial[:, columns])
    exponents = null_exponents(
        radial, confirm, widths=widths, misfit=misfit, rounding=rounding_of(trial), prepare=try_all
    )
    return [Found(Move.SCALE, _named(blocks, v), deviations[v]) for v in exponents.vectors], exponents


def _largest(vector: Sequence[int]) -> int:
    return max(1, *map(abs, vector))


def rounding_of(trial: Trial) -> float:
    """Return what a singular value or an exponent may be off by: much, in a type of seven digits."""
    return max(1e-5, 1e4 * trial.probe.unit)


def _rows_of_one_size(slopes: np.ndarray) -> np.ndarray:
    """Rows divided by their lengths, so that no functional outweighs the others."""
    lengths = np.linalg.norm(slopes, axis=1, keepdims=True)
    return slopes / np.where(lengths > 0, lengths, 1.0)


def _named(blocks: Sequence[Partition], vector: Sequence[int]) -> dict[Partition, int]:
    return {block: power for block, power in zip(blocks, vector, strict=True) if power}
