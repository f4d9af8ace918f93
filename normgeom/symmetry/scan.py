"""Every scale and shift symmetry of a model, single and joint."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from normgeom.symmetry.differences import gradients_are_right, radial_differences
from normgeom.symmetry.explain import explain_joint, explain_shift, explain_single
from normgeom.symmetry.exponents import Exponents
from normgeom.symmetry.joint import Found, joint_scales, joint_shifts
from normgeom.symmetry.map import SymmetryMap
from normgeom.symmetry.moves import SHIFTS, Singles
from normgeom.symmetry.partitions import Move, Partition, natural_parts, whole_blocks
from normgeom.symmetry.points import Points
from normgeom.symmetry.probe import Probe, check_module, deviation
from normgeom.symmetry.records import BlockSymmetry, JointSymmetry, MoveVerdict
from normgeom.symmetry.slopes import Slopes, measure_slopes, plan
from normgeom.symmetry.trials import FACTOR, Trial
from normgeom.symmetry.units import finest


def scan(
    model: nn.Module,
    batch: Any,
    *,
    select: Callable[[Any], Any] | None = None,
    generator: torch.Generator | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> SymmetryMap:
    """Return every scale and shift symmetry of a model: `f(..., c^k_p theta_p, ...) = f(theta)`.

    Single blocks are decided by a finite transform on a copy in float64 and confirmed by the slopes along
    the transform. Joint symmetries are the null space of the radial derivatives `J theta_p` of all blocks p,
    read as whole exponents k, each confirmed by finite transforms. All that at parameters moved a little
    away from the model's, so that a gain of 1 or a bias of 0 decides nothing, and with every eps that a
    module or a norm function names taken away; what eps breaks is measured at the model's own parameters.
    The model is left as found.

    Args:
        model: any module, in the mode that is meant: batch norm has no invariance in evaluation.
        batch: what the model takes: a tensor, a tuple of arguments, or a dict of named arguments.
        select: picks the outputs from what the model returns; default all floating-point tensors of nested
            tuples, lists, dicts and dataclasses.
        generator: of the random numbers used; default one with a fixed seed.
        progress: called with the number of passes done and to do.

    Raises:
        TypeError: if the model is not a module.
        ValueError: if the model cannot be copied or called on the batch, returns no floating-point tensor,
            or outputs that are nothing but rounding.

    Source: Ba et al. 2016, section 5.1 and Table 1, for a whole model; joint exponents as in Kunin et al. 2021.

    >>> net = nn.Sequential(nn.Linear(4, 6, bias=False), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 2))
    >>> found = scan(net, torch.randn(8, 4))
    >>> found.nullity, [block.block for block in found.single], [one.label for one in found.joint]
    (2, ['0.weight'], ['1.weight^+1 1.bias^+1 3.weight^-1'])
    """
    check_module(model)
    generator = generator or torch.Generator().manual_seed(0)
    probe = Probe(model, batch, select=select, generator=generator)
    blocks = whole_blocks(probe.model, probe.parameters)
    parts = {block: list(natural_parts(probe.model, block)) for block in blocks}
    with _saying_why(model):
        outputs = sum(out.numel() for out in probe.plain())
    probe.without_eps()
    points = Points(probe)
    counts = plan(len(blocks), outputs)
    tick = _ticker(progress, sum(counts) + len(blocks))
    slopes, trusted = _slopes(probe, blocks, [p for own in parts.values() for p in own], counts, points, tick)
    trial = Trial(probe)
    singles = [
        _single(Singles(trial, slopes, trusted), k, block, parts[block], tick)
        for k, block in enumerate(blocks)
    ]
    return _Joining(model, trial, points, blocks, singles, slopes, trusted).map()


def _slopes(
    probe: Probe,
    blocks: Sequence[Partition],
    parts: Sequence[Partition],
    counts: Sequence[int],
    points: Points,
    tick: Callable[[], None],
) -> tuple[Slopes, bool]:
    """The slopes, and whether the gradients they come from are those of the function."""
    points.move_to(0)
    trusted = gradients_are_right(probe)
    slopes = measure_slopes(probe, blocks, parts, counts=counts, move_to_point=points.move_to, tick=tick)
    slopes.forwards += 3
    slopes.backwards += 3
    if not trusted:
        slopes.radial = radial_differences(probe, blocks, sum(counts), tick)
        slopes.forwards += 2 * len(blocks) + 1
    return slopes, trusted


def _single(
    singles: Singles, k: int, block: Partition, parts: Sequence[Partition], tick: Callable[[], None]
) -> BlockSymmetry:
    """The record of one block; its words and what eps breaks come later."""
    tick()
    dead = singles.is_dead(k, block)
    moves = {Move.SCALE: singles.scale(k, block, dead)}
    for move in SHIFTS:
        if block.constant_axes(move):
            moves[move] = singles.shift(k, block, move)
    implied = {move for move in SHIFTS if move in moves and moves[move].holds}
    found = [] if dead else [one for part in parts for one in singles.parts(part, implied)]
    return BlockSymmetry(
        block.view.labels[0], block.view.parameter, block.shape_of_block, dead, moves, tuple(found)
    )


@dataclasses.dataclass
class _Joining:
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
        coupled = [k for k, one in enumerate(self.singles) if not one.scale.holds]
        scales, exponents = joint_scales(
            self.trial, [self.blocks[k] for k in coupled], self.slopes.radial[:, coupled]
        )
        shifts = joint_shifts(self.trial, self.blocks, self.slopes, self._taken()) if self.trusted else []
        by = [finest(self.trial, found) for found in scales]
        self._measure_eps()
        joint = tuple(self._record(f, fine) for f, fine in zip(scales, by, strict=True))
        return SymmetryMap(
            blocks=tuple(self._with_words(one) for one in self.singles),
            joint=joint,
            joint_shifts=tuple(self._record(found, "whole") for found in shifts),
            mode="train" if self.model.training else "eval",
            dtype=str(self.trial.probe.dtype).removeprefix("torch."),
            findings=tuple(self._findings(exponents)),
            forwards=self.trial.forwards + self.slopes.forwards + 2,
            backwards=self.slopes.backwards,
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
        for k, one in enumerate(self.singles):
            moves = {move: self._with_breaking(self.blocks[k], move, v) for move, v in one.moves.items()}
            self.singles[k] = dataclasses.replace(one, moves=moves)

    def _with_breaking(self, block: Partition, move: Move, verdict: MoveVerdict) -> MoveVerdict:
        if not verdict.holds:
            return verdict
        if not self.trial.probe.has_eps:
            return dataclasses.replace(verdict, breaking=verdict.deviation)
        moved = (
            self.trial.scaled({block: 1}, 1 / FACTOR) if move is Move.SCALE else self.trial.moved(block, move)
        )
        return dataclasses.replace(verdict, breaking=deviation(self.trial.outputs(moved), self.own))

    def _record(self, found: Found, by: str) -> JointSymmetry:
        exponents = {block.view.labels[0]: power for block, power in found.exponents.items()}
        breaking = found.deviation
        if found.move is Move.SCALE and self.trial.probe.has_eps:
            moved = self.trial.scaled(found.exponents, 1 / FACTOR)
            breaking = deviation(self.trial.outputs(moved), self.own)
        scale = found.move is Move.SCALE
        reading = explain_joint(self.model, exponents, self._norms()) if scale else explain_shift(exponents)
        return JointSymmetry(
            found.move, exponents, found.deviation, self.trial.tolerance, breaking, by, *reading
        )

    def _norms(self) -> dict[str, bool]:
        """By module, whether it holds gains and biases only: vectors, and no weight."""
        return {
            name: bool(own) and max(value.ndim for value in own) < 2
            for name, module in self.model.named_modules()
            for own in [list(module.parameters(recurse=False))]
        }

    def _with_words(self, one: BlockSymmetry) -> BlockSymmetry:
        if not one.scale.holds:
            return one
        return dataclasses.replace(
            one, why=explain_single(self.model, one.parameter, one.dead, self._norms())
        )

    def _findings(self, exponents: Exponents) -> Iterator[str]:
        """What does not fit together, in sentences."""
        if not self.trusted:
            yield (
                "the gradients of the model are not the slopes of its function (a detached tensor, a "
                "straight-through estimator?): joint scales are from differences, joint shifts are not searched"
            )
        for one in self.singles:
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
                f"exponents (singular values {exponents.largest_null:.1e} against {exponents.smallest_kept:.1e})"
            )


def _ticker(progress: Callable[[int, int], None] | None, total: int) -> Callable[[], None]:
    done = 0

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, max(total, done))

    return tick


@contextmanager
def _saying_why(model: nn.Module) -> Iterator[None]:
    """Turn what a model raises on the batch into an error that names it."""
    try:
        yield
    except ValueError:
        raise
    except Exception as why:
        first = (str(why).strip().splitlines() or [""])[0]
        raise ValueError(
            f"{type(model).__name__} cannot be scanned: calling it on the batch raised "
            f"{type(why).__name__}: {first}. A batch is a tensor, a tuple of arguments or a dict of named ones."
        ) from why
