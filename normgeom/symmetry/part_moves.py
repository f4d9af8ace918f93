"""Which natural parts of the blocks can be moved, each by numbers of its own."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from normgeom.symmetry.partitions import Move, Partition
from normgeom.symmetry.records import PartSymmetry
from normgeom.symmetry.slopes import Slopes
from normgeom.symmetry.trials import Trial

_Task = tuple[Partition, Move, Tensor]


@dataclass
class PartMoves:
    """Decides the parts of all blocks, at the point of a trial.

    Attributes:
        trusted: whether the gradients are those of the function.
        slope_tolerance: up to which a relative slope is none.
        floor: up to which the largest possible slope of a part is rounding.
    """

    trial: Trial
    slopes: Slopes
    trusted: bool
    slope_tolerance: float
    floor: float

    def decide(
        self, partitions: Sequence[tuple[Partition, Collection[Move]]]
    ) -> Mapping[Partition, Sequence[PartSymmetry]]:
        """Return what is free in each partition, a record for every move with a free or an unused part.

        Args:
            partitions: each with the shifts that its whole block allows: those are its parts' too, and are
                left out.
        """
        unused = self._unused([part for part, _ in partitions])
        tasks = []
        for part, implied in partitions:
            for move, slopes in self.slopes.parts[part].slopes.items():
                flat = torch.from_numpy(slopes <= self.slope_tolerance) | (not self.trusted)
                if move not in implied:
                    tasks.append((part, move, flat & ~unused[part]))
        found = defaultdict(list)
        for (part, move, _), (free, change) in zip(tasks, self._settled(tasks), strict=True):
            record = _record(part, move, free, unused[part], change)
            if record.free or record.unused:
                found[part].append(record)
        return found

    def _unused(self, partitions: Sequence[Partition]) -> dict[Partition, Tensor]:
        """The parts on which the outputs do not depend."""
        reach = [torch.from_numpy(self.slopes.parts[part].reach) for part in partitions]
        still = [(values <= self.floor) & self.trusted for values in reach]
        tasks = [(part, Move.ANY, mask) for part, mask in zip(partitions, still, strict=True)]
        return {part: free for part, (free, _) in zip(partitions, self._settled(tasks), strict=True)}

    def _settled(self, tasks: Sequence[_Task]) -> list[tuple[Tensor, float]]:
        """Which candidates can be moved, and the change: of all tasks at once, then part by part."""
        result = [(torch.zeros_like(candidates), 0.0) for _, _, candidates in tasks]
        left = [k for k, (_, _, candidates) in enumerate(tasks) if candidates.any()]
        if self.trusted:
            changes = self.trial.settle([partial(self._moved, *tasks[k]) for k in left])
            for k, change in zip(left, changes, strict=True):
                if change <= self.trial.tolerance:
                    result[k] = tasks[k][2], change
            left = [k for k, change in zip(left, changes, strict=True) if change > self.trial.tolerance]
        for k in left:
            result[k] = self.trial.free_parts(*tasks[k])
        return result

    def _moved(
        self, part: Partition, move: Move, candidates: Tensor, start: Mapping[str, Tensor]
    ) -> dict[str, Tensor]:
        return self.trial.moved(part, move, candidates, start=start)


def _record(part: Partition, move: Move, free: Tensor, unused: Tensor, change: float) -> PartSymmetry:
    shown = unused if move is Move.SCALE else torch.zeros_like(unused)
    return PartSymmetry(
        part.kind,
        move,
        tuple(free.nonzero()[:, 0].tolist()),
        tuple(shown.nonzero()[:, 0].tolist()),
        part.view.parts,
        part.view.labels,
        change,
    )
