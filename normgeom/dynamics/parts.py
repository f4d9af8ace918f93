"""What is measured of blocks that are parts of tensors, a vector of numbers for each."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from normgeom.optimizers.angles import products, turn, wide
from normgeom.symmetry.blocks import BlockView


class Parts:
    """Lengths and products of rows, gates and heads. One copy of every tensor is kept."""

    def __init__(self, views: Sequence[BlockView], parameters: Mapping[str, Tensor]) -> None:
        self.views, self.parameters = views, parameters
        self.copies = {
            view.parameter: torch.empty_like(
                wide(parameters[view.parameter].detach()), memory_format=torch.contiguous_format
            )
            for view in views
        }
        self._first = [self._column_sums(view) for view in views]
        self._rows: dict[str, list[Tensor]] = {}

    def start_from(self, other: "Parts") -> None:
        """Take the first column sums from the same tensors in another type."""
        self._first = [
            None if old is None or new is None else old.to(new)
            for old, new in zip(other._first, self._first, strict=True)
        ]

    def weights(self) -> None:
        """Take the lengths and the copies before the step."""
        for name, copied in self.copies.items():
            copied.copy_(self.parameters[name])
        parts = [self._flat(view, self.copies[view.parameter]) for view in self.views]
        lengths = list(map(self._column_lengths, self.views, self._first))
        self._rows = {
            "norm": [_norms(part) for part in parts],
            "column_sum": [length for length, _ in lengths],
            "column_drift": [drift for _, drift in lengths],
        }

    def gradients(self, scale: Tensor | None) -> None:
        """Take the lengths of the gradients, and their products with the weights."""
        lengths, inner = [], []
        for view in self.views:
            copied, grad = self.copies[view.parameter], self.parameters[view.parameter].grad
            if grad is None:
                lengths.append(copied.new_full((view.parts,), torch.nan))
                inner.append(lengths[-1])
                continue
            part = self._flat(view, seen_gradient(grad, scale))
            lengths.append(_norms(part))
            inner.append(products(self._flat(view, copied), part))
        self._rows |= {"gradient_norm": lengths, "inner": inner}

    def moved(self) -> dict[str, list[Tensor]]:
        """Take the updates, and return all columns."""
        for name, copied in self.copies.items():
            torch.sub(wide(self.parameters[name].detach()), copied, out=copied)
        rows: dict[str, list[Tensor]] = {"update_norm": [], "along": [], "across": []}
        for view in self.views:
            update = self._flat(view, self.copies[view.parameter]).clone()
            rows["update_norm"].append(_norms(update))
            turned = turn(update, self._flat(view, wide(self.parameters[view.parameter].detach())))
            rows["along"].append(turned.along)
            rows["across"].append(turned.across)
        return self._rows | rows

    @staticmethod
    def _flat(view: BlockView, value: Tensor) -> Tensor:
        return view.split(value).flatten(1)

    def _column_sums(self, view: BlockView) -> Tensor | None:
        """`1ᵀW` of every part, or None where a part has one row or no columns."""
        if view.rows == 1 or len(view.shape) < 2:
            return None
        return view.split(wide(self.parameters[view.parameter].detach())).sum(1)

    def _column_lengths(self, view: BlockView, first: Tensor | None) -> tuple[Tensor, Tensor]:
        """The lengths of `1ᵀW` and of its change since the start."""
        now = self._column_sums(view)
        if now is None or first is None:
            undefined = self.copies[view.parameter].new_full((view.parts,), torch.nan)
            return undefined, undefined
        return _norms(now), _norms(now - first)


def seen_gradient(grad: Tensor, scale: Tensor | None) -> Tensor:
    """A gradient as the optimizer uses it: dense, at least float32, without the scale of AMP."""
    grad = wide(grad.to_dense() if grad.is_sparse else grad)
    return grad if scale is None else grad / scale.to(grad)


def _norms(parts: Tensor) -> Tensor:
    return torch.linalg.vector_norm(parts, dim=1)
