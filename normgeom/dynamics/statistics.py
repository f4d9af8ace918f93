"""What is measured of the blocks at a step, on the device and without waiting for it."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from normgeom.dynamics.angles import products, turn, wide
from normgeom.symmetry.blocks import BlockView

COLUMNS = (
    "norm",
    "gradient_norm",
    "inner",
    "column_sum",
    "column_drift",
    "update_norm",
    "along",
    "across",
)


class Statistics:
    """Lengths and products of the blocks' weights, gradients and updates.

    One copy of every tracked parameter is kept; an update is formed in its place. All lengths are those
    before the step, except that an update is seen from where it ended.
    """

    def __init__(self, views: Sequence[BlockView], parameters: Mapping[str, Tensor]) -> None:
        self.views, self.parameters = views, parameters
        self.copies = {view.parameter: torch.empty(()) for view in views}
        for name in self.copies:
            self.copies[name] = torch.empty_like(
                wide(parameters[name].detach()), memory_format=torch.contiguous_format
            )
        self._sums: list[Tensor | None] = [self._column_sums(view) for view in views]
        self._rows: dict[str, list[Tensor]] = {}

    def weights(self) -> None:
        """Take the lengths and the copies before the step."""
        names = list(self.copies)
        torch._foreach_copy_([self.copies[n] for n in names], [self.parameters[n].detach() for n in names])
        parts = [self._flat(view, self.copies[view.parameter]) for view in self.views]
        self._rows = {"norm": [_norms(part) for part in parts]}
        pairs = list(map(self._column_lengths, self.views, self._sums))
        self._rows["column_sum"] = [a for a, _ in pairs]
        self._rows["column_drift"] = [b for _, b in pairs]

    def gradients(self, scale: Tensor | None) -> None:
        """Take the lengths of the gradients, and their products with the weights."""
        lengths, inner = [], []
        for view in self.views:
            copied = self.copies[view.parameter]
            grad = self.parameters[view.parameter].grad
            if grad is None:
                lengths.append(copied.new_full((view.parts,), torch.nan))
                inner.append(lengths[-1])
                continue
            grad = wide(grad.detach().to_dense() if grad.is_sparse else grad.detach())
            if scale is not None:
                grad = grad / scale.to(grad)
            part = self._flat(view, grad)
            lengths.append(_norms(part))
            inner.append(products(self._flat(view, copied), part))
        self._rows |= {"gradient_norm": lengths, "inner": inner}

    def moved(self) -> Tensor:
        """Take the updates, and return everything as a tensor (columns, parts of all blocks)."""
        for name, copied in self.copies.items():
            torch.sub(wide(self.parameters[name].detach()), copied, out=copied)
        several = len({view.parameter for view in self.views}) < len(self.views)
        rows: dict[str, list[Tensor]] = {"update_norm": [], "along": [], "across": []}
        for view in self.views:
            update = self._flat(view, self.copies[view.parameter])
            rows["update_norm"].append(_norms(update))
            after = self._flat(view, wide(self.parameters[view.parameter].detach()))
            turned = turn(update.clone() if several else update, after)
            rows["along"].append(turned.along)
            rows["across"].append(turned.across)
        rows |= self._rows
        device = rows["norm"][0].device
        return torch.stack([torch.cat([v.to(device) for v in rows[name]]) for name in COLUMNS])

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


def _norms(parts: Tensor) -> Tensor:
    return torch.linalg.vector_norm(parts, dim=1)
