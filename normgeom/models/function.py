"""A pass over a sequence as a function of autograd, whose first derivative is written by hand."""

from typing import Any, Protocol

import torch

from normgeom.models.cell import Cell
from normgeom.models.given import Tensors, definition_gradients
from normgeom.models.watchers import watched


class Pass(Protocol):
    """A way to run a cell over a sequence, and to make the gradient of it."""

    @property
    def every_cell(self) -> bool:
        """Whether the cell states of all steps are asked for, or the last alone."""

    def forward(self, given: Tensors) -> tuple[Tensors, Any]:
        """Run the steps; return the tensors that the gradient reads, and what else it needs.

        `hidden` (steps + 1, cases, H), and `cell` where there are cell states, have the initial state first.
        """

    def backward(
        self,
        kept: Tensors,
        rest: Any,
        given: Tensors,
        grads: tuple[torch.Tensor | None, ...],
        wanted: set[str],
    ) -> Tensors:
        """Return the gradients of the wanted inputs, from those of the outputs and of the cell states."""


class Scan(torch.autograd.Function):
    """`outputs, cells = Scan.apply(way, cell, names, *tensors)`.

    The gradient is that of the pass. Where it must have a derivative itself, or runs under a transform, it is
    that of the cell's definition, run again.
    """

    @staticmethod
    def forward(ctx: Any, way: Pass, cell: Cell, names: tuple[str, ...], *tensors: torch.Tensor) -> Any:
        """Run the steps, and keep what the gradient needs."""
        kept, ctx.rest = way.forward(dict(zip(names, tensors, strict=True)))
        ctx.way, ctx.cell, ctx.names, ctx.kept_names = way, cell, names, tuple(kept)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors, *kept.values())
        # copies, since the gradient reads its own again and a caller may write into the outputs
        outputs, cells = kept["hidden"][1:].clone(), kept.get("cell")
        if cells is not None:
            cells = (cells[1:] if way.every_cell else cells[-1:]).clone()
        return outputs, cells

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> Any:
        """Return the gradients."""
        saved = ctx.saved_tensors  # once: a checkpoint lets each be read one time
        given = dict(zip(ctx.names, saved, strict=False))
        wanted = {n for n, need in zip(ctx.names, ctx.needs_input_grad[3:], strict=True) if need}
        present = [g for g in grads if g is not None]
        if not present:
            found: Tensors = {}
        elif torch.is_grad_enabled() or watched(present):
            found = definition_gradients(ctx.cell, given, ctx.way.every_cell, list(grads), wanted)
        else:
            kept = dict(zip(ctx.kept_names, saved[len(given) :], strict=True))
            found = ctx.way.backward(kept, ctx.rest, given, grads, wanted)
        return (None, None, None, *(found.get(name) for name in ctx.names))
