"""The verdicts on single blocks: a finite transform decides, the slope confirms."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from normgeom.symmetry.part_moves import PartMoves
from normgeom.symmetry.partitions import SHIFTS, Move, Partition
from normgeom.symmetry.probe import deviation
from normgeom.symmetry.records import BlockSymmetry, MoveVerdict
from normgeom.symmetry.slopes import Slopes
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
        scales = []
        for k, block in enumerate(blocks):
            tick()
            scales.append(self.scale(k, block))
        judge = PartMoves(self.trial, self.slopes, self.trusted, self.slope_tolerance, self.floor)
        still = {block: torch.tensor([mute]) for block, mute in zip(blocks, self._mute(), strict=True)}
        inside = {part: judge.still(part) for b in blocks if not still[b] for part in parts[b]}
        unused = judge.unused({**still, **inside})
        dead = [bool(unused[block]) for block in blocks] if self.trusted else self._dead(blocks)
        shut = [bool(still[block]) and not dead[k] for k, block in enumerate(blocks)]
        scales = self._at_other_factors(blocks, dead, scales)
        moves = self._moves(blocks, scales, shut)
        implied = [{m for m in SHIFTS if m in own and own[m].holds} for own in moves]
        live = [
            (part, implied[k]) for k, block in enumerate(blocks) for part in parts[block] if part in inside
        ]
        free = judge.decide(live, unused)
        return [
            BlockSymmetry(
                block.view.labels[0],
                block.view.parameter,
                block.shape_of_block,
                dead[k],
                moves[k],
                tuple(one for part in parts[block] for one in free.get(part, ())),
                shut=shut[k],
            )
            for k, block in enumerate(blocks)
        ]

    def _moves(
        self, blocks: Sequence[Partition], scales: Sequence[MoveVerdict], shut: Sequence[bool]
    ) -> list[dict[Move, MoveVerdict]]:
        """The verdicts on the scale and the shifts of every block; one that is shut claims none."""
        both = zip(scales, self._shifts(blocks), strict=True)
        moves = [{Move.SCALE: scale, **shifts} for scale, shifts in both]
        return [
            {m: _unclaimed(one) for m, one in own.items()} if shut[k] else own for k, own in enumerate(moves)
        ]

    def _mute(self) -> np.ndarray:
        """Which blocks have no slope at any point: dead, or behind a rectifier that is shut."""
        return (self.slopes.reach.max(0) <= self.floor) & self.trusted

    def _dead(self, blocks: Sequence[Partition]) -> list[bool]:
        """Whether the outputs do not depend on a block, where no gradient tells which are worth a try."""
        moved = [partial(self._moved_from, block, Move.ANY) for block in blocks]
        return [change <= self.trial.tolerance for change in self.trial.settle(moved)]

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

    def _at_other_factors(
        self, blocks: Sequence[Partition], dead: Sequence[bool], scales: Sequence[MoveVerdict]
    ) -> list[MoveVerdict]:
        """The verdicts on scales with the deviation at other factors, for those that hold so far."""
        held = [k for k, one in enumerate(scales) if one.holds and not dead[k]]
        after = dict.fromkeys(range(len(scales)), 0.0)
        for factor in (1 / FACTOR, self.trial.far(), 1 / self.trial.far()):
            moved = [partial(self.trial.scaled, {blocks[k]: 1}, factor) for k in held]
            for k, change in zip(held, self.trial.settle(moved), strict=True):
                after[k] = max(after[k], change)
        return [self._with(one, max(one.deviation, after[k])) for k, one in enumerate(scales)]

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


def _unclaimed(verdict: MoveVerdict) -> MoveVerdict:
    """A verdict that claims nothing: of a block that a rectifier shuts off on the batch."""
    return replace(verdict, holds=False, deviation=_NAN, confirmed=True)
