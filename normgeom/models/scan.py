"""Run a cell over a sequence: by the fastest way whose derivatives are those of the cell's step."""

import torch

from normgeom.models.cell import Cell, State
from normgeom.models.cells import LNGRUCell
from normgeom.models.function import Pass, Scan
from normgeom.models.fused.kernel import kernel_pass
from normgeom.models.given import Taps, given_tensors, parameters
from normgeom.models.plain.passes import PlainPass
from normgeom.models.sequences import Packing
from normgeom.models.watchers import as_made, watched


def scan(
    cell: Cell, x: torch.Tensor, state: State, packing: Packing | None, taps: Taps | None = None
) -> tuple[torch.Tensor, State]:
    """Return the hidden states at every step (steps, cases, H), and the final state of every case.

    On the CPU the kernel runs where one can be built, elsewhere a loop of torch's operations, each with a
    gradient by hand; under a transform, a mode or a hook on a part, the operations that define the cell.
    """
    way: Pass | None = None
    if _has_passes(cell) and not watched((x, *state, *parameters(cell).values())):
        given, every_cell = given_tensors(cell, x, state, taps), packing is not None
        way = kernel_pass(cell, given, every_cell) or PlainPass(cell, every_cell)
    if way is None:
        kinds = _by_definition(cell, x, state, taps)
    else:
        found = Scan.apply(way, cell, tuple(given), *given.values())
        kinds = [kind for kind in found if kind is not None]
    return kinds[0], tuple(k[-1] if packing is None else packing.final(k) for k in kinds)


def _has_passes(cell: Cell) -> bool:
    """Whether there are passes with a gradient by hand: of any cell as it was made but the joint GRU."""
    return as_made(cell) and not (isinstance(cell, LNGRUCell) and cell.placement.joint)


def _by_definition(cell: Cell, x: torch.Tensor, state: State, taps: Taps | None) -> list[torch.Tensor]:
    if taps is None:
        states = cell.run(cell.project(x), state)
    else:
        steps = iter(taps.recurrent.unbind(0))
        states = cell.run(cell.project(x, taps.input), state, lambda summed: summed + next(steps))
    return [torch.stack(kind) for kind in zip(*states, strict=True)]
