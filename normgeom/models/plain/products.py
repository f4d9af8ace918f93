"""The products of a pass: with the input, all at once, and with the hidden state, one a step."""

from typing import Any

import torch

from normgeom.models.cell import Cell
from normgeom.models.given import Tensors
from normgeom.models.plain.norms import StepNorm, summed_like


def step_norm(cell: Cell, given: Tensors, name: str, *shifts: str) -> StepNorm | None:
    """Return the norm of a place, its bias with the shifts that are added after it; None if there is none."""
    if f"{name}.gain" not in given:
        return None
    part: Any = cell._modules[name]
    bias = total(given, f"{name}.bias", *shifts)
    assert bias is not None
    return StepNorm(part.segments, part.eps, given[f"{name}.gain"], bias)


def total(given: Tensors, *names: str) -> torch.Tensor | None:
    """Return the sum of those vectors that there are."""
    found = [given[name] for name in names if name in given]
    return sum(found[1:], found[0]) if found else None


class InputProducts:
    """`LN(W_x x) + b` at all steps, or what the placement makes of it."""

    def __init__(self, cell: Cell, given: Tensors) -> None:
        self._given, self._joint = given, cell.placement.joint
        self._norm = step_norm(cell, given, "norm_input", "bias") if "weight_input" in given else None

    def forward(self) -> tuple[torch.Tensor, Tensors]:
        """Return them (steps, cases, stack), in memory of their own, and what the gradient reads."""
        x, weight = self._given["x"], self._given.get("weight_input")
        products = x if weight is None else x @ weight.t()
        if self._norm is not None:
            into, mean, scale = self._norm.forward(products)
            return into, {"products": products, "mean_input": mean, "scale_input": scale}
        shift = None if self._joint else total(self._given, "norm_input.bias", "bias")
        return (products if shift is None else products + shift), {}

    def backward(self, kept: Tensors, grads: torch.Tensor, wanted: set[str]) -> Tensors:
        """Return the gradients from those of what `forward` returned."""
        given, found, shift = self._given, Tensors(), grads
        if self._norm is not None:
            where = kept["products"], kept["mean_input"], kept["scale_input"]
            grads, found["norm_input.gain"], shift = self._norm.whole(grads, *where)
        shifts = ("norm_input.bias",) if self._joint else ("norm_input.bias", "bias")
        found |= _each(shift, given, shifts, wanted)
        weight = given.get("weight_input")
        found |= {"tap_input": grads, "x": grads}
        if weight is not None and "x" in wanted:
            found["x"] = grads @ weight
        if "weight_input" in wanted:
            found["weight_input"] = grads.flatten(0, 1).t() @ given["x"].flatten(0, 1)
        return found


class StateProducts:
    """`LN(W_h h)` at each step, or with a joint norm `LN(W_h h + W_x x) + b`."""

    def __init__(self, cell: Cell, given: Tensors, steps: int) -> None:
        self._joint, (place, shifts) = cell.placement.joint, state_place(cell)
        self._norm, self._shift = (
            step_norm(cell, given, place, *shifts),
            total(given, f"{place}.bias", *shifts),
        )
        weight = given["weight_recurrent"]
        # a product with a transposed matrix is slower than with a copy of it
        self._transposed = weight.t().contiguous()
        # of every step where the gradient reads them
        self._summed = weight.new_empty(steps if self._norm else 1, len(given["h"]), len(weight))
        self._places = [*self._summed.unbind(0)] * (1 if self._norm else steps)
        self._statistics: list[tuple[torch.Tensor, torch.Tensor]] = []

    def gates(self, t: int, h: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        """Return the sum with the products of the input, which is made before the norm if that is joint."""
        return self.forward(t, h, into) if self._joint else self.forward(t, h).add_(into)

    def forward(self, t: int, h: torch.Tensor, into: torch.Tensor | None = None) -> torch.Tensor:
        """Return what the product of a state becomes, in memory that is free until the next step.

        `into` is added before the norm.
        """
        summed = self._places[t]
        if self._norm is None and self._shift is not None:
            return torch.addmm(self._shift, h, self._transposed, out=summed)
        torch.mm(h, self._transposed, out=summed)
        if into is not None:
            summed.add_(into)
        if self._norm is None:
            return summed
        out, *statistics = self._norm.forward(summed)
        self._statistics.append((statistics[0], statistics[1]))
        return out

    def kept(self) -> Tensors:
        """Return what the gradient reads."""
        if self._norm is None:
            return {}
        mean, scale = (torch.stack(each) for each in zip(*self._statistics, strict=True))
        return {"summed": self._summed, "mean": mean, "scale": scale}


class StateSensitivities:
    """The gradient of `StateProducts`, from the last step to the first."""

    def __init__(self, cell: Cell, given: Tensors, kept: Tensors) -> None:
        self._place, self._shifts = state_place(cell)
        self._given, self._kept = given, kept
        self._norm = step_norm(cell, given, self._place, *self._shifts)
        self._weight = given["weight_recurrent"]
        self._read = (
            [*zip(*(kept[n].unbind(0) for n in ("summed", "mean", "scale")), strict=True)]
            if self._norm
            else []
        )
        self._each: list[torch.Tensor] = []

    def backward(self, t: int, grad: torch.Tensor, carried: torch.Tensor, *, beta: int = 0) -> None:
        """From the gradient of what the product became, make that of the state: `beta * carried + it`."""
        if self._norm is not None:
            grad = self._norm.backward(grad, *self._read[t])
            self._each.append(grad)
        if beta:
            carried.addmm_(grad, self._weight)
        else:
            torch.mm(grad, self._weight, out=carried)

    def gradients(self, grads: torch.Tensor, wanted: set[str]) -> Tensors:
        """Return the gradients from those of what the products became, at all steps."""
        found, shift = Tensors(), grads
        if self._norm is not None:
            where = (self._kept[name] for name in ("summed", "mean", "scale"))
            found[f"{self._place}.gain"], shift = self._norm.vectors(grads, *where)
            grads = torch.stack(self._each[::-1])
        found |= _each(shift, self._given, (f"{self._place}.bias", *self._shifts), wanted)
        if "weight_recurrent" in wanted:
            before = self._kept["hidden"][:-1].flatten(0, 1)
            found["weight_recurrent"] = grads.flatten(0, 1).t() @ before
        return found | {"tap_recurrent": grads}


def state_place(cell: Cell) -> tuple[str, list[str]]:
    """Return the name of the norm at the product of the state, and of the vectors that are added after it."""
    return ("norm_joint", ["bias"]) if cell.placement.joint else ("norm_recurrent", [])


def _each(grad: torch.Tensor, given: Tensors, names: tuple[str, ...], wanted: set[str]) -> Tensors:
    """Return the gradient of each vector of a sum, in memory of its own."""
    found = Tensors()
    for name in names:
        if name in wanted:
            grad = summed_like(grad, given[name])
            found[name] = grad.clone() if found else grad
    return found
