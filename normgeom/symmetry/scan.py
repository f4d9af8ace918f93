"""Every scale and shift symmetry of a model, single and joint."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from normgeom.symmetry.arguments import check_finite, check_select, module_given
from normgeom.symmetry.assembly import Assembly
from normgeom.symmetry.differences import are_right, radial_differences
from normgeom.symmetry.functionals import EXTRA_ROWS
from normgeom.symmetry.map import SymmetryMap
from normgeom.symmetry.moves import Singles
from normgeom.symmetry.partitions import Partition, natural_parts, whole_blocks
from normgeom.symmetry.points import Points
from normgeom.symmetry.probe import Probe
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
        model: any module, in the mode that is meant: batch norm has no invariance in evaluation. Of one that
            `torch.compile` returned, the module that was compiled.
        batch: what the model takes: a tensor, a tuple of arguments, or a dict of named arguments.
        select: picks the outputs from what the model returns; default all floating-point tensors of nested
            tuples, lists, dicts and dataclasses.
        generator: of the random numbers used; default one with a fixed seed.
        progress: called with the number of passes done and to do.

    Raises:
        TypeError: if the model is not a module, or `select` no function.
        ValueError: if the model cannot be copied or called on the batch, a part of it is compiled, or it
            returns no floating-point tensor, or outputs that are not finite or nothing but rounding.

    Source: Ba et al. 2016, section 5.1 and Table 1, for a whole model; Kunin et al. 2021 for joint ones.

    >>> net = nn.Sequential(nn.Linear(4, 6, bias=False), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 2))
    >>> found = scan(net, torch.randn(8, 4))
    >>> found.nullity, [block.block for block in found.single], [one.label for one in found.joint]
    (2, ['0.weight'], ['1.weight^+1 1.bias^+1 3.weight^-1'])
    """
    model = module_given(model)
    check_select(select)
    generator = generator or torch.Generator().manual_seed(0)
    with _saying_why(model):
        probe = Probe(model, batch, select=select, generator=generator)
        own = probe.plain()
    check_finite(own)
    blocks = whole_blocks(probe.model, probe.parameters)
    parts = {block: list(natural_parts(probe.model, block)) for block in blocks}
    outputs = sum(out.numel() for out in own)
    probe.without_eps()
    points = Points(probe, model)
    tick = _ticker(progress, 2 * len(blocks) + EXTRA_ROWS)
    slopes, trusted = _slopes(
        probe, blocks, [p for own in parts.values() for p in own], outputs, points, tick
    )
    trial = Trial(probe)
    singles = Singles(trial, slopes, trusted).decide(blocks, parts, tick)
    return Assembly(model, trial, points, blocks, singles, slopes, trusted).map()


def _slopes(
    probe: Probe,
    blocks: Sequence[Partition],
    parts: Sequence[Partition],
    outputs: int,
    points: Points,
    tick: Callable[[], None],
) -> tuple[Slopes, bool]:
    """The slopes, and whether the gradients they come from are those of the function."""
    measure = partial(
        measure_slopes, probe, blocks, parts, outputs=outputs, move_to_point=points.move_to, tick=tick
    )
    try:
        slopes = measure(differentiable=True)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:  # the model has no backward pass
        slopes = measure(differentiable=False)
    trusted = are_right(slopes.gradient_error, probe.unit)
    if not trusted:
        slopes.radial = radial_differences(probe, blocks, len(blocks) + EXTRA_ROWS, tick)
    return slopes, trusted


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
