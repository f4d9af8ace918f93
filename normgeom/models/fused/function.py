"""The kernel's pass over a sequence as a function of autograd."""

from typing import Any

import torch

from normgeom.models.cell import Cell
from normgeom.models.cells import DRAWLSTMCell, LNGRUCell, LNLSTMCell, LNRNNCell
from normgeom.models.fused import passes
from normgeom.models.fused.buffers import Buffers, Pool
from normgeom.models.fused.build import library
from normgeom.models.fused.layer import Held, Layer, Spec
from normgeom.models.fused.passes import backward_pass, forward_pass
from normgeom.models.given import Tensors, plain_gradients
from normgeom.models.watchers import saved_through_hooks, watched

_KERNELS: dict[type[Cell], str] = {
    LNRNNCell: "rnn",
    LNLSTMCell: "lstm",
    DRAWLSTMCell: "lstm",
    LNGRUCell: "gru",
}


class FusedScan(torch.autograd.Function):
    """`outputs, cells = FusedScan.apply(spec, cell, names, *tensors)`.

    The gradient is the kernel's. Where it must have a derivative itself, or runs under a transform, it is
    that of the cell's definition, run again.
    """

    @staticmethod
    def forward(ctx: Any, spec: Spec, cell: Cell, names: tuple[str, ...], *tensors: torch.Tensor) -> Any:
        """Run the steps, and keep what the gradient needs."""
        # what a hook takes away outlives the pass: none of it may go back to the pool
        pool = Pool(most_bytes=0) if saved_through_hooks() else passes.POOL
        held = forward_pass(spec, dict(zip(names, tensors, strict=True)), pool)
        ctx.spec, ctx.cell, ctx.names = spec, cell, names
        ctx.layer, ctx.held_names = held.layer, tuple(held.tensors)
        ctx.set_materialize_grads(False)
        # the buffers go back to the pool when autograd frees the tensor that refers to them
        held.tensors["hidden"].buffers = held.buffers  # type: ignore[attr-defined]
        ctx.save_for_backward(*tensors, *held.tensors.values())
        # copies, since the kernel reads its own again and a caller may write into the outputs
        outputs, cells = held.tensors["hidden"][1:].clone(), held.tensors.get("cell")
        if cells is not None:
            cells = (cells[1:] if spec.every_cell else cells[-1:]).clone()
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
            found = plain_gradients(ctx.cell, given, ctx.spec.every_cell, list(grads), wanted)
        else:
            held = _held_again(ctx, saved[len(given) :])
            found = backward_pass(ctx.spec, held, given, (grads[0], grads[1]), wanted)
        return (None, None, None, *(found.get(name) for name in ctx.names))


def _held_again(ctx: Any, tensors: tuple[torch.Tensor, ...]) -> Held:
    """Return what the pass held, at the places where the saved tensors are now."""
    dtype = tensors[0].dtype
    held = Held(Layer.from_buffer_copy(ctx.layer), Buffers(Pool(most_bytes=0), dtype))
    held.put(**{n: t.contiguous() for n, t in zip(ctx.held_names, tensors, strict=True)})
    return held


def fused_spec(cell: Cell, given: Tensors, every_cell: bool) -> Spec | None:
    """Return what the kernel must know of a cell, or None where there is no kernel for it.

    There is one for dense float32 and float64 on the CPU, and every placement but the joint one of the GRU.
    """
    kind, place, parts, values = _KERNELS[type(cell)], cell.placement, cell._modules, [*given.values()]
    if kind == "gru" and place.joint:
        return None
    dtype = values[0].dtype
    if any(v.dtype != dtype or v.device.type != "cpu" or v.layout != torch.strided for v in values):
        return None
    kernel = library(dtype)
    if kernel is None:
        return None
    recurrent = parts["norm_joint" if place.joint else "norm_recurrent"]
    return Spec(
        kernel=kernel,
        cell=kind,
        gates=cell.gates,
        segments=cell.segments,
        norm_input=place.input and not place.joint and "weight_input" in given,
        norm_recurrent=place.recurrent and not place.joint,
        norm_joint=place.joint,
        norm_cell=place.cell,
        eps_input=getattr(parts.get("norm_input"), "eps", 0.0),
        eps_recurrent=getattr(recurrent, "eps", 0.0),
        eps_cell=getattr(parts.get("norm_cell"), "eps", 0.0),
        every_cell=every_cell,
    )
