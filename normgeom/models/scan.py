"""Run a cell over a sequence: by the fastest way whose derivatives are those of the cell's step."""

import torch

from normgeom.models.cell import Cell, State
from normgeom.models.first_order import FirstOrderScan
from normgeom.models.fused.function import FusedScan, fused_spec
from normgeom.models.given import Taps, given_tensors, parameters
from normgeom.models.sequences import Packing
from normgeom.models.watchers import as_made, saved_through_hooks, watched


def scan(
    cell: Cell, x: torch.Tensor, state: State, packing: Packing | None, taps: Taps | None = None
) -> tuple[torch.Tensor, State]:
    """Return the hidden states at every step (steps, cases, H), and the final state of every case.

    On the CPU the kernel runs where one can be built, elsewhere plain operations with torch's fused norm;
    under a transform, a mode or a hook, the operations that define the cell.
    """
    if watched((x, *state, *parameters(cell).values())) or not as_made(cell):
        kinds = _by_definition(cell, x, state, taps)
    else:
        given, every_cell = given_tensors(cell, x, state, taps), packing is not None
        spec = fused_spec(cell, given, every_cell)
        if spec is not None:
            kinds = FusedScan.apply(spec, cell, tuple(given), *given.values())
        elif saved_through_hooks():  # which would cut the graph that the pass of first order keeps
            kinds = _by_definition(cell, x, state, taps)
        else:
            kinds = FirstOrderScan.apply(cell, every_cell, tuple(given), *given.values())
        kinds = [kind for kind in kinds if kind is not None]
    return kinds[0], tuple(k[-1] if packing is None else packing.final(k) for k in kinds)


def _by_definition(cell: Cell, x: torch.Tensor, state: State, taps: Taps | None) -> list[torch.Tensor]:
    if taps is None:
        states = cell.run(cell.project(x), state)
    else:
        steps = iter(taps.recurrent.unbind(0))
        states = cell.run(cell.project(x, taps.input), state, lambda summed: summed + next(steps))
    return [torch.stack(kind) for kind in zip(*states, strict=True)]
