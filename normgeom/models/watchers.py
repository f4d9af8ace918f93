"""Who may be watching: where single operations must be seen, a pass is made of them and nothing else."""

from collections.abc import Iterable

import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode

from normgeom.models.cell import Cell
from normgeom.models.cells import DRAWLSTMCell, LNGRUCell, LNLSTMCell, LNRNNCell
from normgeom.models.places import GainBiasNorm, Shift

CELLS = (LNRNNCell, LNLSTMCell, DRAWLSTMCell, LNGRUCell)


def watched(values: Iterable[torch.Tensor]) -> bool:
    """Whether a transform, a mode or a tensor's own type must see the single operations."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    if torch.autograd.forward_ad._current_level >= 0 or torch.jit.is_tracing():
        return True
    if torch._C._is_any_autocast_enabled() or _get_current_dispatch_mode() is not None:
        return True
    if any(type(mode) is not DeviceContext for mode in _get_current_function_mode_stack()):
        return True
    legacy_batched = torch._C._functorch.is_legacy_batchedtensor
    return any(type(v) not in (torch.Tensor, nn.Parameter) or legacy_batched(v) for v in values)


def saved_through_hooks() -> bool:
    """Whether saved tensors are taken away and brought back, as a checkpoint or an offload does."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def as_made(cell: Cell) -> bool:
    """Whether a cell and its parts are as they were made, and nobody wants to see the calls of one."""
    parts = cell._modules.values()
    if type(cell) not in CELLS or any(type(p) not in (GainBiasNorm, Shift, nn.Identity) for p in parts):
        return False
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return not any(getattr(p, kind) for p in (cell, *parts) if p is not None for kind in kinds)
