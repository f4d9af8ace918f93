"""The C struct of a pass over a sequence, and the tensors behind its pointers."""

import ctypes
from dataclasses import dataclass, field
from typing import Any

import torch

from normgeom.models.buffers import Buffers

_SIZES = ("units", "cases", "gates", "segments")
_FLAGS = ("norm_input", "norm_recurrent", "norm_joint", "norm_cell", "summed_stride", "each_case")
_EPS = ("eps_input", "eps_recurrent", "eps_cell")
_VECTORS = ("gain_input", "gain_recurrent", "shift", "shift_recurrent", "gain_cell", "bias_cell")
_POINTERS = (
    *("projected", "summed", "activated", "scale_input", "scale_recurrent", "scale_cell", "mean_cell"),
    *("gain_input", "gain_recurrent", "shift", "shift_recurrent", "gain_cell", "bias_cell"),
    *("hidden", "cell", "squashed"),
    *("grad_outputs", "grad_cells", "grad_hidden", "carried_cell", "grad_projected", "grad_summed"),
    *(f"grad_{name}" for name in _VECTORS),
    "row",
)


class Layer(ctypes.Structure):
    """The struct `Layer` of cells.c."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in _SIZES),
        ("segment_end", ctypes.c_int64 * 4),
        *((name, ctypes.c_int64) for name in _FLAGS),
        *((name, ctypes.c_double) for name in _EPS),
        *((name, ctypes.c_void_p) for name in _POINTERS),
    ]


@dataclass(frozen=True)
class Spec:
    """What the kernel must know of a cell: the C functions, where norms are, and over which units."""

    kernel: Any
    cell: str
    gates: int
    segments: tuple[int, ...]
    norm_input: bool
    norm_recurrent: bool
    norm_joint: bool
    norm_cell: bool
    eps_input: float
    eps_recurrent: float
    eps_cell: float
    every_cell: bool
    """Whether the cell states of all steps are asked for, or the last alone."""

    @property
    def forward(self) -> Any:
        """The C function of a forward step."""
        return getattr(self.kernel, f"{self.cell}_forward")

    @property
    def backward(self) -> Any:
        """The C function of a backward step."""
        return getattr(self.kernel, f"{self.cell}_backward")

    @property
    def keeps_summed(self) -> bool:
        """Whether the gradient reads what became of W_h h."""
        return self.norm_recurrent or self.norm_joint or self.cell == "gru"

    @property
    def same_gradients(self) -> bool:
        """Whether both products have the same gradient, so that one tensor holds it."""
        return self.norm_joint or not (self.norm_input or self.norm_recurrent or self.cell == "gru")

    def struct(self, units: int, cases: int) -> Layer:
        """Return the struct without its pointers."""
        ends, end = [], 0
        for size in self.segments:
            end += size
            ends.append(end)
        layer = Layer(units=units, cases=cases, gates=self.gates, segments=len(ends))
        layer.segment_end[: len(ends)] = ends
        for name in (*_FLAGS[:4], *_EPS):
            setattr(layer, name, getattr(self, name))
        return layer


@dataclass
class Held:
    """The tensors of a pass by the name of the pointer, kept alive as long as the struct."""

    layer: Layer
    buffers: Buffers
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    def again(self, buffers: Buffers) -> "Held":
        """Return a copy that shares the tensors."""
        return Held(Layer.from_buffer_copy(self.layer), buffers, dict(self.tensors))

    def put(self, **tensors: torch.Tensor | None) -> None:
        """Set pointers to tensors, which must be contiguous; None is the null pointer."""
        for name, tensor in tensors.items():
            if tensor is not None:
                self.tensors[name] = tensor
            setattr(self.layer, name, None if tensor is None else tensor.data_ptr())

    @property
    def address(self) -> int:
        """Where the struct lies."""
        return ctypes.addressof(self.layer)
