"""Every scale and shift symmetry of a model, single and joint."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from normgeom.symmetry.assembly import Assembly
from normgeom.symmetry.differences import are_right, gradient_error, radial_differences
from normgeom.symmetry.functionals import plan
from normgeom.symmetry.map import SymmetryMap
from normgeom.symmetry.moves import Singles
from normgeom.symmetry.partitions import SHIFTS, Move, Partition, natural_parts, whole_blocks
from normgeom.symmetry.points import Points
from normgeom.symmetry.probe import Probe, check_module
from normgeom.symmetry.records import BlockSymmetry
from normgeom.symmetry.slopes import Slopes, measure_slopes
from normgeom.symmetry.trials import Trial


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

    Source: Ba et al. 2016, section 5.1 and Table 1, for a whole model; Kunin et al. 2021 for joint ones.

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
    decide = Singles(trial, slopes, trusted)
    singles = [_single(decide, k, block, parts[block], tick) for k, block in enumerate(blocks)]
    return Assembly(model, trial, points, blocks, singles, slopes, trusted).map()


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
    error = gradient_error(probe)
    trusted = are_right(error, probe.unit)
    slopes = measure_slopes(
        probe,
        blocks,
        parts,
        counts=counts,
        move_to_point=points.move_to,
        differentiable=math.isfinite(error),
        tick=tick,
    )
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
            f"{type(why).__name__}: {first}. A batch is a tensor, a tuple of arguments or a dict of named "
            "ones."
        ) from why
