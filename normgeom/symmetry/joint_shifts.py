"""Joint shifts: multiples of one vector, added to several blocks, that leave the outputs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from normgeom.symmetry.absorbed import as_matrix, weights_of_biases
from normgeom.symmetry.exponents import null_exponents
from normgeom.symmetry.joint import Found, rounding_of
from normgeom.symmetry.partitions import Move, Partition
from normgeom.symmetry.slopes import Slopes
from normgeom.symmetry.trials import Trial

_Moved = tuple[tuple[int, Move, int], ...]


def joint_shifts(
    trial: Trial, blocks: Sequence[Partition], slopes: Slopes, taken: Mapping[int, set[Move]]
) -> list[Found]:
    """Return the joint shifts by multiples of one arbitrary vector, of blocks that cannot be shifted alone.

    A bias takes part with the vector itself, or with what its weight makes of it.

    Args:
        trial: where they are confirmed.
        blocks: all blocks.
        slopes: of all blocks.
        taken: for each block the moves that it allows by itself.
    """
    columns: dict[int, list[tuple[int, Move]]] = defaultdict(list)
    for k, fields in enumerate(slopes.fields):
        for move, sums in fields.items():
            if move not in taken[k] and sums.shape[1] > 1 and sums.any():
                columns[sums.shape[1]].append((k, move))
    search = _Search(trial, blocks, slopes, weights_of_biases(blocks))
    return [found for group in columns.values() for found in search.basis(group)]


@dataclass
class _Search:
    trial: Trial
    blocks: Sequence[Partition]
    slopes: Slopes
    weights: Mapping[int, int]
    deviations: dict[_Moved, float] = field(default_factory=dict)

    def basis(self, group: Sequence[tuple[int, Move]]) -> list[Found]:
        """The joint shifts by vectors of one length."""
        stacked = np.stack([self.slopes.fields[k][move].ravel() for k, move in group], axis=1)

        def try_all(vectors: Sequence[tuple[int, ...]]) -> None:
            new = [moved for moved in (_chosen(group, v) for v in vectors) if moved not in self.deviations]
            changes = self.trial.settle([partial(self._shifted, moved, self._draw(moved)) for moved in new])
            self.deviations.update(zip(new, changes, strict=True))

        def confirm(vector: tuple[int, ...]) -> bool:
            return self.deviations[_chosen(group, vector)] <= self.trial.tolerance

        # What is shifted by the vector itself has a positive sign, as gains have.
        widths = [(1, int(move is Move.ABSORBED)) for _, move in group]
        rounding = rounding_of(self.trial)
        found = null_exponents(stacked, confirm, widths=widths, rounding=rounding, prepare=try_all)
        return [self._found(_chosen(group, vector)) for vector in found.vectors]

    def _found(self, moved: _Moved) -> Found:
        blocks = self.blocks
        first = next((one for one in moved if one[1] is not Move.ABSORBED), moved[0])
        absorbed = next((-power for _, move, power in moved if move is Move.ABSORBED), first[2])
        sign = 1 if absorbed > 0 else -1
        return Found(
            first[1],
            {blocks[k]: sign * power for k, _, power in moved},
            self.deviations[moved],
            through={blocks[k]: blocks[self.weights[k]] for k, m, _ in moved if m is Move.ABSORBED},
        )

    def _draw(self, moved: _Moved) -> Tensor:
        """A random vector of the size of what is moved."""
        values = [self.blocks[k].cut(self._own(k)).abs().mean() for k, *_ in moved]
        count = self.slopes.fields[moved[0][0]][moved[0][1]].shape[1]
        draw = torch.randn(count, generator=self.trial.probe.generator, dtype=torch.float64)
        return (float(max(values)) or 1.0) * draw

    def _own(self, k: int) -> Tensor:
        return self.trial.probe.parameters[self.blocks[k].view.parameter]

    def _shifted(self, moved: _Moved, vector: Tensor, start: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Parameters shifted by multiples of a vector, laid along each block as its move says."""
        values = dict(start)
        for k, move, power in moved:
            block, name = self.blocks[k], self.blocks[k].view.parameter
            value = values.get(name, self._own(k))
            own = power * vector
            if move is Move.ABSORBED:
                weight = self.weights[k]
                name_of_weight = self.blocks[weight].view.parameter
                matrix = as_matrix(self.blocks[weight], values.get(name_of_weight, self._own(weight)))
                own, move = matrix @ own.to(value), Move.ANY
            draw = own.reshape(block.shape(move))
            values[name] = block.moved(value, move, torch.ones(1, dtype=torch.bool), draw)
        return values


def _chosen(group: Sequence[tuple[int, Move]], vector: Sequence[int]) -> _Moved:
    return tuple((k, move, power) for (k, move), power in zip(group, vector, strict=True) if power)
