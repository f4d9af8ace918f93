"""The way of plain operations: a loop forward and one back, neither with a graph."""

from dataclasses import dataclass
from typing import Any

import torch

from normgeom.models.buffers import Buffers
from normgeom.models.cell import Cell
from normgeom.models.cells import DRAWLSTMCell, LNGRUCell, LNLSTMCell, LNRNNCell
from normgeom.models.given import Tensors
from normgeom.models.plain import steps
from normgeom.models.plain.products import InputProducts
from normgeom.models.plain.run import Run

_STEPS: dict[type[Cell], Any] = {
    LNRNNCell: (steps.rnn_forward, steps.rnn_backward),
    LNLSTMCell: (steps.lstm_forward, steps.lstm_backward),
    DRAWLSTMCell: (steps.lstm_forward, steps.lstm_backward),
    LNGRUCell: (steps.gru_forward, steps.gru_backward),
}


@dataclass(frozen=True, eq=False)
class PlainPass:
    """Torch's operations for every part of a step, on any device."""

    cell: Cell
    every_cell: bool

    def forward(self, given: Tensors) -> tuple[Tensors, None]:
        """Run the steps; return the tensors that the gradient reads."""
        run = Run(self.cell, given, Buffers.for_gradient(given["h"]))
        for name, states in (("h", "hidden"), ("c", "cell")):
            if name in given:
                run.kept[states] = run.room.take(run.steps + 1, *given[name].shape)
                run.kept[states][0] = given[name]
        forward, _ = _STEPS[type(self.cell)]
        forward(run, InputProducts(run).forward())
        run.room.last_as_long_as(run.kept["hidden"])
        return run.kept, None

    def backward(
        self,
        kept: Tensors,
        rest: None,
        given: Tensors,
        grads: tuple[torch.Tensor | None, ...],
        wanted: set[str],
    ) -> Tensors:
        """Return the gradients of the wanted inputs, from those of the outputs and of the cell states."""
        run = Run(self.cell, given, Buffers(given["h"]), kept)
        _, backward = _STEPS[type(self.cell)]
        passed = backward(run, steps.OutputGradients(grads[0], grads[1]))
        summed, found = passed.products.gradients(passed.state, wanted)
        into = summed if self.cell.placement.joint else passed.into
        found |= passed.others | InputProducts(run).backward(into, wanted)
        return {name: value for name, value in found.items() if name in wanted}
