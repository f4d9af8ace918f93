"""What is measured of whole tensors: few calls for all of them, since calls cost more than small tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor

from normgeom.dynamics.parts import seen_gradient
from normgeom.optimizers.angles import wide


class Wholes:
    """Lengths and products of tensors. One copy of every one is kept; the update is formed in its place."""

    def __init__(self, parameters: Sequence[Tensor], axes: Sequence[int]) -> None:
        self.parameters = parameters
        contiguous = torch.contiguous_format
        self.copies = [torch.empty_like(wide(p.detach()), memory_format=contiguous) for p in parameters]
        self._flat = [copied.view(-1) for copied in self.copies]
        self._undefined = [copied.new_full((), torch.nan) for copied in self.copies]
        # Column sums are of tensors with several rows of several columns.
        self._axes = {k: axis for k, axis in enumerate(axes) if parameters[k].ndim > 1}
        self._axes = {k: axis for k, axis in self._axes.items() if parameters[k].shape[axis] > 1}
        self._first = [wide(parameters[k].detach()).sum(axis) for k, axis in self._axes.items()]
        self._rows: dict[str, Sequence[Tensor]] = {}

    def start_from(self, other: "Wholes") -> None:
        """Take the first column sums from the same tensors in another type."""
        self._first = [old.to(new) for old, new in zip(other._first, self._first, strict=True)]

    def weights(self) -> None:
        """Take the lengths and the copies before the step."""
        torch._foreach_copy_(self.copies, list(self.parameters))
        sums = [self.copies[k].sum(axis) for k, axis in self._axes.items()]
        lengths, drifts = list(self._undefined), list(self._undefined)
        if sums:
            found = torch._foreach_norm([*sums, *torch._foreach_sub(sums, self._first)])
            for place, k in enumerate(self._axes):
                lengths[k], drifts[k] = found[place], found[place + len(sums)]
        self._rows = {
            "norm": torch._foreach_norm(self.copies),
            "column_sum": lengths,
            "column_drift": drifts,
        }

    def gradients(self, scale: Tensor | None) -> None:
        """Take the lengths of the gradients, and their products with the weights."""
        found = {k: seen_gradient(p.grad, scale) for k, p in enumerate(self.parameters) if p.grad is not None}
        lengths, inner = list(self._undefined), list(self._undefined)
        if found:
            for k, length in zip(found, torch._foreach_norm(list(found.values())), strict=True):
                lengths[k], inner[k] = length, torch.dot(self._flat[k], found[k].reshape(-1))
        self._rows |= {"gradient_norm": lengths, "inner": inner}

    def moved(self) -> dict[str, Sequence[Tensor]]:
        """Take the updates, and return all columns. The formulas are those of `angles.turn`, for a list."""
        after = [wide(p) for p in self.parameters]
        torch._foreach_sub_(self.copies, after)  # what was taken away: before - after
        norms = torch._foreach_norm(after)
        inner = [torch.dot(a, b.reshape(-1)) for a, b in zip(self._flat, after, strict=True)]
        shares = torch._foreach_div(torch._foreach_div(inner, norms), norms)
        updates = torch._foreach_norm(self.copies)
        torch._foreach_addcmul_(self.copies, after, shares, value=-1)
        along = torch._foreach_addcmul(norms, norms, shares)
        rows = {"update_norm": updates, "along": along, "across": torch._foreach_norm(self.copies)}
        return self._rows | rows
