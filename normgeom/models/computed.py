"""Weights that are computed before a pass: by pruning, by weight or spectral norm, or by a parametrization.

They are computed once a pass. A cell of plain tensors then runs in the place of the one that computes them.
"""

from typing import TypeVar

from torch import nn
from torch.nn.utils import parametrize

from normgeom.copies import computes_a_weight
from normgeom.models.cell import Cell
from normgeom.models.given import slots

M = TypeVar("M", bound=nn.Module)


def as_computed(cell: Cell) -> Cell:
    """Return a cell with tensors where the given one computes them; the given one if it computes none.

    Gradients reach the parameters that the tensors were computed from. The hooks of the cell itself have
    been called; those of a norm that compute its gain or bias are called here, any other stays.
    """
    parts = {name: _plain(part) for name, part in cell._modules.items() if part is not None}
    if _registered(cell) and all(part is cell._modules[name] for name, part in parts.items()):
        return cell
    parts.pop("parametrizations", None)
    return _with(cell, _modules=parts, _forward_pre_hooks={}, _forward_hooks={})


def _plain(part: nn.Module) -> nn.Module:
    """Return a part of a cell with tensors where it computes them."""
    hooks = part._forward_pre_hooks.values()
    if _registered(part) or not all(map(computes_a_weight, hooks)):
        return part
    for hook in hooks:
        hook(part, ())
    return _with(part, _modules={}, _forward_pre_hooks={})


def _registered(module: nn.Module) -> bool:
    return all(name in module._parameters for name in slots(module))


def _with(module: M, **changed: object) -> M:
    """Return a copy whose parameters are the tensors that the module computes with."""
    found: M = object.__new__(parametrize.type_before_parametrizations(module))
    kept = {name: value for name, value in vars(module).items() if name not in slots(module)}
    tensors = {name: getattr(module, name) for name in slots(module)}
    found.__dict__.update(kept | {"_parameters": module._parameters | tensors} | changed)
    return found
