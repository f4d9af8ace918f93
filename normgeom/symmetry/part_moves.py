"""Which natural parts of the blocks can be moved, each by numbers of its own."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from normgeom.symmetry.functionals import gradients_at
from normgeom.symmetry.partitions import Move, Partition
from normgeom.symmetry.records import PartSymmetry
from normgeom.symmetry.slopes import Slopes
from normgeom.symmetry.trials import Trial

_Task = tuple[Partition, Move, Tensor]
_FAR, _ROUNDS = 10.0, 6


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
        self, partitions: Sequence[tuple[Partition, Collection[Move]]], unused: Mapping[Partition, Tensor]
    ) -> Mapping[Partition, Sequence[PartSymmetry]]:
        """Return what is free in each partition, a record for every move with a free or an unused part.

        Args:
            partitions: each with the shifts that its whole block allows: those are its parts' too, and are
                left out.
            unused: the unused parts of each.
        """
        tasks = []
        for part, implied in partitions:
            for move, slopes in self.slopes.parts[part].slopes.items():
                flat = torch.from_numpy(slopes <= self.slope_tolerance) | (not self.trusted)
                if move not in implied:
                    tasks.append((part, move, flat & ~self.still(part)))
        found = defaultdict(list)
        for (part, move, _), (free, change) in zip(tasks, self._settled(tasks), strict=True):
            record = _record(part, move, free, unused[part], change)
            if record.free or record.unused:
                found[part].append(record)
        return found

    def still(self, part: Partition) -> Tensor:
        """Return the parts that have no slope at the points: unused, or behind a rectifier that is shut."""
        return torch.from_numpy(self.slopes.parts[part].reach <= self.floor) & self.trusted

    def unused(self, still: Mapping[Partition, Tensor]) -> dict[Partition, Tensor]:
        """Return the parts on which the outputs do not depend, of those that have no slope."""
        tasks = [(part, Move.ANY, mask) for part, mask in still.items() if mask.any()]
        for _ in range(_ROUNDS):
            before, tasks = tasks, self._still_far_away(tasks)
            if _count(before) == _count(tasks):
                break
        found = {part: free for (part, _, _), (free, _) in zip(tasks, self._settled(tasks), strict=True)}
        return {part: found.get(part, torch.zeros_like(mask)) for part, mask in still.items()}

    def _still_far_away(self, tasks: Sequence[_Task]) -> list[_Task]:
        """The tasks without the parts that have a slope where all parts are moved far, one way or the other.

        What a rectifier shuts on one side is open on the other, unless what comes before it moved as well.
        """
        parameters, change = self.trial.probe.parameters, dict[str, Tensor]()
        for part, move, mask in tasks:
            name = part.view.parameter
            moved = self.trial.moved(part, move, mask)[name] - parameters[name]
            change[name] = change[name] + moved if name in change else moved
        for size in (_FAR, -_FAR):
            tasks = self._still_at({name: parameters[name] + size * c for name, c in change.items()}, tasks)
        return list(tasks)

    def _still_at(self, values: Mapping[str, Tensor], tasks: Sequence[_Task]) -> list[_Task]:
        """The tasks without the parts that have a slope at other values, where a rectifier may open."""
        if not tasks:
            return []
        _, gradients = gradients_at(self.trial.probe, 1, values=values)
        (gradient,) = gradients
        left = []
        for part, move, mask in tasks:
            own = gradient[part.view.parameter]
            if own is not None:
                lengths = [part.fold(v).flatten(1).norm(dim=1) for v in (own, values[part.view.parameter])]
                mask = mask & (lengths[0] * lengths[1] <= self.floor).cpu()
            if mask.any():
                left.append((part, move, mask))
        return left

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


def _count(tasks: Sequence[_Task]) -> int:
    return sum(int(mask.sum()) for _, _, mask in tasks)


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
