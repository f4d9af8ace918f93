"""Puts the verdicts on single blocks, the joint symmetries and what eps breaks together to a map."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial

from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from normgeom.symmetry import draws
from normgeom.symmetry.explain import explain_joint, explain_shift, explain_single, explain_units
from normgeom.symmetry.exponents import Exponents
from normgeom.symmetry.joint import Found, joint_scales
from normgeom.symmetry.joint_shifts import joint_shifts
from normgeom.symmetry.map import SymmetryMap
from normgeom.symmetry.partitions import SHIFTS, Move, Partition
from normgeom.symmetry.points import Points
from normgeom.symmetry.probe import deviation
from normgeom.symmetry.records import BlockSymmetry, JointSymmetry, MoveVerdict
from normgeom.symmetry.slopes import Slopes
from normgeom.symmetry.trials import FACTOR, Trial
from normgeom.symmetry.units import finest


@dataclasses.dataclass
class Assembly:
    """Puts single blocks, joint symmetries and what eps breaks together."""

    model: nn.Module
    trial: Trial
    points: Points
    blocks: Sequence[Partition]
    singles: list[BlockSymmetry]
    slopes: Slopes
    trusted: bool

    def map(self) -> SymmetryMap:
        """Return the map."""
        coupled = [k for k, one in enumerate(self.singles) if not (one.scale.holds or one.shut)]
        scales, exponents = joint_scales(self.trial, self.blocks, self.slopes, coupled)
        shifts = joint_shifts(self.trial, self.blocks, self.slopes, self._taken()) if self.trusted else []
        free = [self.blocks[k] for k, one in enumerate(self.singles) if one.scale.holds and not one.dead]
        scales = finest(self.trial, scales, self.slopes.units if self.trusted else None, free)
        self._measure_eps()
        broken = self._breaking(scales)
        joint = tuple(self._record(found, change) for found, change in zip(scales, broken, strict=True))
        return SymmetryMap(
            blocks=tuple(self._with_words(one) for one in self.singles),
            joint=joint,
            joint_shifts=tuple(self._record(one, one.deviation) for one in shifts if not one.through),
            absorbed_shifts=tuple(self._record(one, one.deviation) for one in shifts if one.through),
            mode="train" if self.model.training else "eval",
            dtype=str(self.trial.probe.dtype).removeprefix("torch."),
            findings=tuple(self._findings(exponents)),
            forwards=self.trial.probe.forwards,
            backwards=self.trial.probe.backwards,
            parameters=dict(self.model.named_parameters()),
            name=type(self.model).__name__,
        )

    def _taken(self) -> dict[int, set[Move]]:
        """The moves that each block allows by itself; a dead one allows all."""
        return {
            k: set(Move) if one.dead else {move for move, verdict in one.moves.items() if verdict.holds}
            for k, one in enumerate(self.singles)
        }

    def _measure_eps(self) -> None:
        """Put the model's own parameters and eps back, and measure what breaks there."""
        self.points.move_back()
        self.trial.probe.with_eps()
        self.own = self.trial.probe.plain()
        shifts = self._broken_shifts()
        for k, one in enumerate(self.singles):
            moves = {
                move: self._with_breaking(self.blocks[k], move, verdict, shifts)
                for move, verdict in one.moves.items()
            }
            self.singles[k] = dataclasses.replace(one, moves=moves)

    def _broken_shifts(self) -> float:
        """The change when all blocks are shifted at once along what they allow, at the model's own eps."""
        values: dict[str, Tensor] = {}
        for block, one in zip(self.blocks, self.singles, strict=True):
            for move in SHIFTS:
                if move in one.moves and one.moves[move].holds:
                    values |= self.trial.moved(block, move, start=values)
        return deviation(self.trial.outputs(values), self.own) if values else 0.0

    def _with_breaking(
        self, block: Partition, move: Move, verdict: MoveVerdict, shifts: float
    ) -> MoveVerdict:
        """The verdict with what the model's own eps breaks; for shifts that of all, if it is nothing."""
        if not verdict.holds:
            return verdict
        if not self.trial.probe.has_eps:
            return dataclasses.replace(verdict, breaking=verdict.deviation)
        if move is not Move.SCALE and shifts <= self.trial.tolerance:
            return dataclasses.replace(verdict, breaking=shifts)
        scale = move is Move.SCALE
        moved = self.trial.scaled({block: 1}, 1 / FACTOR) if scale else self.trial.moved(block, move)
        return dataclasses.replace(verdict, breaking=deviation(self.trial.outputs(moved), self.own))

    def _breaking(self, scales: Sequence[Found]) -> list[float]:
        """The change that each joint scaling makes at the model's own eps.

        An eps stands beside the square of something, which a scaling without negative exponents moves: those
        are taken one by one, the others together as long as they break nothing.
        """
        broken = [one.deviation for one in scales]
        if not self.trial.probe.has_eps:
            return broken
        moved = [partial(self.trial.scaled, one.exponents, 1 / FACTOR) for one in scales]
        one_way = [k for k, one in enumerate(scales) if min(one.exponents.values()) > 0]
        others = [k for k in range(len(scales)) if k not in one_way]
        for group in (*([k] for k in one_way), others):
            changes = self.trial.settle([moved[k] for k in group], self.own)
            for k, change in zip(group, changes, strict=True):
                broken[k] = change
        return broken

    def _record(self, found: Found, breaking: float) -> JointSymmetry:
        companions = {block.view.labels[0]: power for block, power in found.companions.items()}
        exponents = {block.view.labels[0]: power for block, power in found.exponents.items()}
        scale = found.move is Move.SCALE
        through = {bias.view.labels[0]: weight.view.labels[0] for bias, weight in found.through.items()}
        reading = explain_shift(exponents, through)
        if scale:
            reading = explain_joint(self.model, exponents, self._norms(), companions)
        reading = reading._replace(why=reading.why + explain_units(found.by, companions))
        return JointSymmetry(
            found.move,
            exponents,
            found.deviation,
            self.trial.tolerance,
            breaking,
            found.by,
            *reading,
            companions,
            through,
        )

    def _norms(self) -> dict[str, bool]:
        """By module, whether it holds gains and biases only: vectors, and no weight."""
        return {
            name: bool(own) and max(value.ndim for value in own) < 2 and not is_parametrized(module)
            for name, module in self.model.named_modules()
            for own in [list(module.parameters(recurse=False))]
        }

    def _with_words(self, one: BlockSymmetry) -> BlockSymmetry:
        if not one.scale.holds:
            return one
        return dataclasses.replace(one, why=explain_single(self.model, one, self._norms()))

    def _findings(self, exponents: Exponents) -> Iterator[str]:
        """What does not fit together, in sentences."""
        if self.trial.probe.is_random:
            yield draws.finding(self.model)
        if not self.trusted:
            yield (
                "the gradients of the model are not the slopes of its function (a detached tensor, a "
                "straight-through estimator?): joint scales are from differences, joint shifts are not "
                "searched"
            )
        for one in self.singles:
            if one.shut:
                yield (
                    f"{one.block}: no slope on this batch, and yet the outputs depend on it (a rectifier "
                    "that is shut, a step?): nothing is claimed of it; give another batch"
                )
            for move, verdict in one.moves.items():
                if not verdict.confirmed:
                    says = "is unchanged" if verdict.holds else f"changes by {verdict.deviation:.1e}"
                    yield f"{one.block}, {move}: the function {says}, its slope is {verdict.slope:.1e}"
                if verdict.fading:
                    yield (
                        f"{one.block}, {move}: the change of {verdict.deviation:.1e} falls as "
                        f"c^-{verdict.fading:g} with the scale: an eps in the code, which no module names"
                    )
        if exponents.unread:
            yield (
                f"{exponents.unread} null directions of the radial derivatives are no confirmed whole "
                f"exponents (singular values {exponents.largest_null:.1e} against "
                f"{exponents.smallest_kept:.1e})"
            )
