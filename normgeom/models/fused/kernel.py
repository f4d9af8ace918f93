"""The way of the C kernel: where there is one for a cell, and its pass."""

from dataclasses import dataclass

import torch

from normgeom.models.buffers import Buffers
from normgeom.models.cell import Cell
from normgeom.models.cells import DRAWLSTMCell, LNGRUCell, LNLSTMCell, LNRNNCell
from normgeom.models.fused import passes
from normgeom.models.fused.build import library
from normgeom.models.fused.layer import Held, Layer, Spec
from normgeom.models.given import Tensors

_KERNELS: dict[type[Cell], str] = {
    LNRNNCell: "rnn",
    LNLSTMCell: "lstm",
    DRAWLSTMCell: "lstm",
    LNGRUCell: "gru",
}


@dataclass(frozen=True)
class KernelPass:
    """Products by torch, the rest of each step in C."""

    spec: Spec

    @property
    def every_cell(self) -> bool:
        """Whether the cell states of all steps are asked for, or the last alone."""
        return self.spec.every_cell

    def forward(self, given: Tensors) -> tuple[Tensors, Layer]:
        """Run the steps; return the tensors behind the kernel's pointers, and its struct."""
        held = passes.forward_pass(self.spec, given)
        held.buffers.last_as_long_as(held.tensors["hidden"])
        return held.tensors, held.layer

    def backward(
        self,
        kept: Tensors,
        rest: Layer,
        given: Tensors,
        grads: tuple[torch.Tensor | None, ...],
        wanted: set[str],
    ) -> Tensors:
        """Return the gradients of the wanted inputs; the tensors may have been moved since the pass."""
        held = Held(Layer.from_buffer_copy(rest), Buffers(kept["hidden"]))
        held.put(**{name: value.contiguous() for name, value in kept.items()})
        return passes.backward_pass(self.spec, held, given, (grads[0], grads[1]), wanted)


def kernel_pass(cell: Cell, given: Tensors, every_cell: bool) -> KernelPass | None:
    """Return the kernel's pass for a cell, or None where there is none.

    There is one for dense float32 and float64 on the CPU.
    """
    kind, place, parts, values = _KERNELS[type(cell)], cell.placement, cell._modules, [*given.values()]
    dtype = values[0].dtype
    if any(v.dtype != dtype or v.device.type != "cpu" or v.layout != torch.strided for v in values):
        return None
    kernel = library(dtype)
    if kernel is None:
        return None
    recurrent = parts["norm_joint" if place.joint else "norm_recurrent"]
    spec = Spec(
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
    return KernelPass(spec)
