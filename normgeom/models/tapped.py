"""A pass that keeps the sensitivities of its products, and has gains and biases for each case."""

import torch

from normgeom.models.cell import Cell, State
from normgeom.models.given import Taps, Tensors, parameters, slots, with_parameters


class TappedCells:
    """What the cells of a pass saw and computed with, and what was put in for it."""

    def __init__(self) -> None:
        self.tensors: Tensors = {}
        """What the cells would compute with, on the graph of the parameters that it comes from."""
        self._vectors: Tensors = {}
        self._taps: dict[str, Taps] = {}
        self._seen: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def of(self, name: str, cell: Cell, x: torch.Tensor, state: State) -> tuple[Cell, Taps]:
        """Return a cell whose gains and biases are each case's own, and zeros for its products."""
        _refuse_computed_parts(cell)
        tensors, cases = parameters(cell), x.shape[1]
        own = {k: v.detach() if v.ndim > 1 else _for_each(v, cases) for k, v in tensors.items()}
        self.tensors |= {f"{name}.{k}": v for k, v in tensors.items()}
        self._vectors |= {f"{name}.{k}": v for k, v in own.items() if tensors[k].ndim == 1}
        zero = cell.weight_recurrent.new_zeros(1)
        shape = (*x.shape[:2], len(cell.weight_recurrent))
        taps = Taps(zero.expand(shape).requires_grad_(), zero.expand(shape).requires_grad_())
        self._taps[name], self._seen[name] = taps, (x.detach(), state[0].detach())
        return with_parameters(cell, own), taps

    def keep(self, name: str, outputs: torch.Tensor) -> None:
        """Put the hidden states that each step started from in place of the initial one."""
        x, first = self._seen[name]
        self._seen[name] = x, torch.cat([first[None], outputs.detach()[:-1]])

    def gradients(self, outputs: torch.Tensor, cotangent: torch.Tensor) -> Tensors:
        """Return each case's gradient in every tensor that the cells computed with."""
        zeros = [zero for taps in self._taps.values() for zero in (taps.input, taps.recurrent)]
        found = torch.autograd.grad(outputs, [*self._vectors.values(), *zeros], cotangent)
        each, sensitivities = dict(zip(self._vectors, found, strict=False)), iter(found[-len(zeros) :])
        for name, (into, before) in self._seen.items():
            weights = f"{name}.weight_input", f"{name}.weight_recurrent"
            each[weights[0]] = _products(next(sensitivities), into, self.tensors[weights[0]])
            each[weights[1]] = _products(next(sensitivities), before, self.tensors[weights[1]])
        return each


def _for_each(vector: torch.Tensor, cases: int) -> torch.Tensor:
    return vector.detach().expand(cases, -1).requires_grad_()


def _refuse_computed_parts(cell: Cell) -> None:
    """Raise an error for a norm that computes its gain or bias where each case's cannot be put in."""
    for name, part in cell.named_children():
        if any(slot not in part._parameters for slot in slots(part)):
            hooks = ", ".join(type(hook).__name__ for hook in part._forward_pre_hooks.values())
            raise ValueError(
                f"gain and bias of {name} must be parameters, or computed by torch.nn.utils; they are "
                f"computed beside the hooks {hooks}. Remove those, or use torch.nn.utils.parametrize."
            )


def _products(sensitivity: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the sum over steps of `sensitivity x^T` for every case: (cases, *weight.shape)."""
    if x.is_floating_point():
        return torch.bmm(sensitivity.permute(1, 2, 0), x.transpose(0, 1))
    cases, inputs = x.shape[1], weight.shape[1]
    rows = (torch.arange(cases, device=x.device) * inputs + x).flatten()
    columns = sensitivity.new_zeros(cases * inputs, len(weight)).index_add_(
        0, rows, sensitivity.flatten(0, 1)
    )
    return columns.view(cases, inputs, -1).transpose(1, 2)
