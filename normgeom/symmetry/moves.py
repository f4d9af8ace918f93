"""The verdicts on single blocks and their parts: a finite transform decides, the slope confirms."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from normgeom.symmetry.partitions import SHIFTS, Move, Partition
from normgeom.symmetry.probe import deviation
from normgeom.symmetry.records import BlockSymmetry, MoveVerdict, PartSymmetry
from normgeom.symmetry.slopes import PartSlopes, Slopes
from normgeom.symmetry.trials import FACTOR, Trial

_SMALL_DEVIATION = 0.1
_NAN = float("nan")


@dataclass
class Singles:
    """Decides every block by itself, at the point of a trial.

    Attributes:
        trusted: whether the gradients are those of the function, so that a slope that is not zero settles a
            move.
    """

    trial: Trial
    slopes: Slopes
    trusted: bool
    slope_tolerance: float = field(init=False)
    floor: float = field(init=False)

    def __post_init__(self) -> None:
        """Set what counts as no slope."""
        self.slope_tolerance = min(1e4 * self.trial.tolerance, 1e-3)
        self.floor = 1e3 * self.trial.probe.unit * float(self.slopes.reach.max(initial=0.0))

    def decide(
        self,
        blocks: Sequence[Partition],
        parts: Mapping[Partition, Sequence[Partition]],
        tick: Callable[[], None],
    ) -> list[BlockSymmetry]:
        """Return the record of every block; its words and what eps breaks come later."""
        dead, scales = [], []
        for k, block in enumerate(blocks):
            tick()
            dead.append(self.is_dead(k, block))
            scales.append(self.scale(k, block))
        scales = self._at_the_inverse(blocks, dead, scales)
        shifts = self._shifts(blocks)
        found = []
        for block, is_dead, scale, moves in zip(blocks, dead, scales, shifts, strict=True):
            implied = {move for move, verdict in moves.items() if verdict.holds}
            own = [] if is_dead else [one for part in parts[block] for one in self.parts(part, implied)]
            view = block.view
            all_moves = {Move.SCALE: scale, **moves}
            found.append(
                BlockSymmetry(
                    view.labels[0], view.parameter, block.shape_of_block, is_dead, all_moves, tuple(own)
                )
            )
        return found

    def is_dead(self, k: int, block: Partition) -> bool:
        """Whether the outputs do not depend on a block, whatever its numbers."""
        if self.trusted and self.slopes.reach[:, k].max() > self.floor:
            return False
        return self.trial.deviation(self.trial.moved(block, Move.ANY)) <= self.trial.tolerance

    def scale(self, k: int, block: Partition) -> MoveVerdict:
        """Return the verdict on the scale of a block, from one factor."""
        trial, reach = self.trial, self.slopes.reach[:, k]
        moved = trial.outputs(trial.scaled({block: 1}, FACTOR))
        found = deviation(moved, trial.wanted)
        holds = found <= trial.tolerance
        used = reach > self.floor
        slopes = np.abs(self.slopes.radial_detailed[:, k]) / np.maximum(reach, 1e-300)
        slope = float(slopes[used].max(initial=0.0))
        fading = None
        if self.trusted and not holds and self._could_fade(k, moved):
            fading = trial.fading({block: 1}, found)
        return MoveVerdict(
            holds,
            found,
            trial.tolerance,
            _NAN,
            slope,
            (slope <= self.slope_tolerance) == holds,
            None if holds or fading else trial.degree(moved, FACTOR),
            fading,
        )

    def _could_fade(self, k: int, moved: Sequence[Tensor]) -> bool:
        """Whether a change is to its slope as that of `1 - c^-2` is: what an eps under a root breaks."""
        law = (1 - FACTOR**-2) / 2
        return abs(self.slopes.response(k, moved, self.trial.wanted) / law - 1) < _SMALL_DEVIATION

    def _at_the_inverse(
        self, blocks: Sequence[Partition], dead: Sequence[bool], scales: Sequence[MoveVerdict]
    ) -> list[MoveVerdict]:
        """The verdicts on scales with the deviation at the inverse factor, for those that hold so far."""
        held = [k for k, one in enumerate(scales) if one.holds and not dead[k]]
        moved = [partial(self.trial.scaled, {blocks[k]: 1}, 1 / FACTOR) for k in held]
        after = dict(zip(held, self.trial.settle(moved), strict=True))
        return [self._with(one, max(one.deviation, after.get(k, 0.0))) for k, one in enumerate(scales)]

    def _with(self, verdict: MoveVerdict, found: float) -> MoveVerdict:
        """A verdict with another deviation."""
        holds = found <= self.trial.tolerance
        confirmed = (verdict.slope <= self.slope_tolerance) == holds
        return replace(verdict, deviation=found, holds=holds, confirmed=confirmed)

    def _shifts(self, blocks: Sequence[Partition]) -> list[dict[Move, MoveVerdict]]:
        """The verdicts on all shifts; one with a slope does not hold, if the gradients can be trusted."""
        tolerance, found, open_ones = self.trial.tolerance, [], []
        for k, block in enumerate(blocks):
            slopes = {m: self._shift_slope(k, block, m) for m in SHIFTS if block.constant_axes(m)}
            found.append(
                {m: MoveVerdict(False, _NAN, tolerance, _NAN, slope, True) for m, slope in slopes.items()}
            )
            open_ones += [
                (k, m) for m, slope in slopes.items() if not self.trusted or slope <= self.slope_tolerance
            ]
        moved = [partial(self._moved_from, blocks[k], move) for k, move in open_ones]
        for (k, move), change in zip(open_ones, self.trial.settle(moved), strict=True):
            found[k][move] = self._with(found[k][move], change)
        return found

    def _moved_from(self, block: Partition, move: Move, start: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self.trial.moved(block, move, start=start)

    def _shift_slope(self, k: int, block: Partition, move: Move) -> float:
        """The largest slope along a shift, relative to the gradient."""
        fields = self.slopes.fields[k][move]
        count = block.view.size / fields.shape[1]
        lengths = self.slopes.lengths[:, k]
        used = self.slopes.reach[:, k] > self.floor
        relative = np.abs(fields).max(1) / np.maximum(lengths * count**0.5, 1e-300)
        return float(relative[used].max(initial=0.0))

    def parts(self, part: Partition, implied: Collection[Move]) -> list[PartSymmetry]:
        """Return what is free in a partition, a record for every move with a free or an unused part.

        A shift that the whole block allows is one of its parts too, and is left out.
        """
        found = self.slopes.parts[part]
        unused = (
            torch.from_numpy(found.reach <= self.floor)
            if self.trusted
            else torch.zeros(part.view.parts, dtype=torch.bool)
        )
        if unused.any():
            unused, _ = self.trial.free_parts(part, Move.ANY, unused)
        records = [self._part_move(part, found, move, unused) for move in found.slopes if move not in implied]
        return [record for record in records if record.free or record.unused]

    def _part_move(
        self, part: Partition, found: PartSlopes, move: Move, unused: torch.Tensor
    ) -> PartSymmetry:
        flat = torch.from_numpy(found.slopes[move] <= self.slope_tolerance)
        candidates = (flat if self.trusted else torch.ones_like(flat)) & ~unused
        free, largest = candidates, 0.0
        if candidates.any():
            free, largest = self.trial.free_parts(part, move, candidates)
        shown = unused if move is Move.SCALE else torch.zeros_like(unused)
        return PartSymmetry(
            part.kind,
            move,
            tuple(free.nonzero()[:, 0].tolist()),
            tuple(shown.nonzero()[:, 0].tolist()),
            part.view.parts,
            part.view.labels,
            largest,
        )
