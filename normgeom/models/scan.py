"""Run a cell over a sequence: by the kernel where it applies, else by the loop over its step."""

from dataclasses import dataclass

import torch

from normgeom.models.cells import Cell, State
from normgeom.models.fused.function import fused_scan
from normgeom.models.sequences import Packing


@dataclass(frozen=True, eq=False)
class Taps:
    """Zeros added to the products of a cell at every step: gradients in them are sensitivities."""

    input: torch.Tensor
    recurrent: torch.Tensor


def scan(
    cell: Cell, x: torch.Tensor, state: State, packing: Packing | None, taps: Taps | None = None
) -> tuple[torch.Tensor, State]:
    """Return the hidden states at every step (steps, cases, H), and the final state of every case."""
    fused = fused_scan(cell, x, state, taps, every_cell=packing is not None)
    if fused is not None:
        kinds = [kind for kind in fused if kind is not None]
        return kinds[0], tuple(_final(kind, packing) for kind in kinds)
    into, recurrent = (None, None) if taps is None else (taps.input, taps.recurrent)
    states = cell.run(cell.project(x, into), state, recurrent)
    if packing is None:
        return torch.stack([s[0] for s in states]), states[-1]
    kinds = [torch.stack(kind) for kind in zip(*states, strict=True)]
    return kinds[0], tuple(_final(kind, packing) for kind in kinds)


def _final(states: torch.Tensor, packing: Packing | None) -> torch.Tensor:
    return states[-1] if packing is None else packing.final(states)
