"""Run a cell over a sequence: the loop over its step that defines the result."""

from typing import Any

import torch

from normgeom.models.cells import Cell, State
from normgeom.models.sequences import Packing


def scan(
    cell: Cell, x: torch.Tensor, state: State, packing: Packing | None, taps: Any = None
) -> tuple[torch.Tensor, State]:
    """Return the hidden states at every step (steps, cases, H), and the final state of every case."""
    states = plain_scan(cell, x, state, taps)
    if packing is None:
        return torch.stack([s[0] for s in states]), states[-1]
    each = [torch.stack(kind) for kind in zip(*states, strict=True)]
    return each[0], tuple(packing.final(kind) for kind in each)


def plain_scan(cell: Cell, x: torch.Tensor, state: State, taps: Any = None) -> list[State]:
    """Return the state after every step, by plain operations of torch."""
    projected = cell.project(x, None if taps is None else taps.input)
    states = []
    for t, into in enumerate(projected.unbind(0)):
        state = cell.step(into, state, None if taps is None else taps.recurrent[t])
        states.append(state)
    return states
