"""A pass over a sequence as a function of named tensors: its inputs, initial states and parameters."""

import copy
import itertools
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import nn

from normgeom.models.cell import Cell, State
from normgeom.models.places import GainBiasNorm, Shift

Tensors = dict[str, torch.Tensor]
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True, eq=False)
class Taps:
    """Zeros added to the products of a cell at every step: gradients in them are sensitivities."""

    input: torch.Tensor
    recurrent: torch.Tensor


def given_tensors(cell: Cell, x: torch.Tensor, state: State, taps: Taps | None) -> Tensors:
    """Return the inputs of a pass by name.

    For ids, the lookup of normalized columns comes before the pass: `x` is what it gave, and the parameters
    that it used are left out.
    """
    given = dict(zip(("h", "c"), state, strict=False)) | parameters(cell)
    if taps is not None:
        given["tap_recurrent"] = taps.recurrent
    if x.is_floating_point():
        return given | ({"x": x} if taps is None else {"x": x, "tap_input": taps.input})
    used = {"weight_input"}
    if not cell.placement.joint:
        used |= {"norm_input.gain", "norm_input.bias", "bias"}
    kept = {name: value for name, value in given.items() if name not in used}
    return kept | {"x": cell.project(x, None if taps is None else taps.input)}


def slots(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the tensors that a cell or a part of one computes with."""
    if isinstance(module, Cell):
        return ("weight_input", "weight_recurrent", "bias")
    return ("gain", "bias") if isinstance(module, GainBiasNorm) else ("bias",) * isinstance(module, Shift)


def parameters(cell: Cell) -> Tensors:
    """Return the tensors that a cell computes with, by name."""
    found = {name: getattr(cell, name) for name in slots(cell)}
    for place, part in cell.named_children():
        found |= {f"{place}.{name}": getattr(part, name) for name in slots(part)}
    return {name: value for name, value in found.items() if value is not None}


def with_parameters(cell: Cell, given: Tensors) -> Cell:
    """Return a copy of a cell that computes with the given tensors in place of its parameters."""
    twin = _with_own(cell, given, "")
    twin.__dict__["_modules"] = {
        name: _with_own(part, given, f"{name}.") for name, part in cell._modules.items() if part is not None
    }
    return twin


def _with_own(module: M, given: Tensors, prefix: str) -> M:
    twin = copy.copy(module)
    own = {name: given.get(prefix + name, value) for name, value in module._parameters.items()}
    twin.__dict__["_parameters"] = own
    return twin


def definition_pass(cell: Cell, given: Tensors, every_cell: bool) -> list[torch.Tensor]:
    """Return hidden states and cell states, of all steps or the last, by the cell's definition."""
    twin, taps = with_parameters(cell, given), given.get("tap_recurrent")
    into = twin.project(given["x"], given.get("tap_input")) if "weight_input" in given else given["x"]
    steps = itertools.count()
    see = None if taps is None else lambda summed: summed + taps[next(steps)]
    state: State = tuple(given[name] for name in ("h", "c") if name in given)
    kinds = list(zip(*twin.run(into, state, see), strict=True))
    return [torch.stack(kinds[0]), *(torch.stack(k if every_cell else k[-1:]) for k in kinds[1:])]


def definition_gradients(
    cell: Cell, given: Tensors, every_cell: bool, grads: list[torch.Tensor | None], wanted: set[str]
) -> Tensors:
    """Return the gradients of a pass by its definition, which can be differentiated again.

    They are taken on aliases of the tensors: no gradient runs on into the past of one that is another's.
    """
    differentiable = torch.is_grad_enabled()
    with torch.enable_grad():
        given = {name: value.view_as(value) if name in wanted else value for name, value in given.items()}
        results = definition_pass(cell, given, every_cell)
        pairs = [(r, g) for r, g in zip(results, grads, strict=False) if g is not None]
        names = sorted(wanted)
        found = torch.autograd.grad(
            [r for r, _ in pairs],
            [given[name] for name in names],
            [g for _, g in pairs],
            create_graph=differentiable,
            allow_unused=True,
        )
    return {name: value for name, value in zip(names, found, strict=True) if value is not None}
