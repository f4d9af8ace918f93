"""The products of a pass: with the input, all at once, and with the hidden state, one a step."""

import torch

from normgeom.models.given import Tensors
from normgeom.models.plain.norms import summed_like
from normgeom.models.plain.run import Run


class InputProducts:
    """`LN(W_x x) + b` at all steps, or what the placement makes of it."""

    def __init__(self, run: Run) -> None:
        self._run, self._weight = run, run.given.get("weight_input")
        joint, places = run.cell.placement.joint, ("norm_input.bias", "bias")
        self._shifts = () if joint or self._weight is None else places
        self._norm = run.norm("norm_input", "bias")

    def forward(self) -> torch.Tensor:
        """Return them (steps, cases, stack)."""
        if self._weight is None:
            return self._run.given["x"]
        products, x = self._run.room.take(*self._run.gates), self._run.given["x"]
        torch.mm(x.flatten(0, 1), self._weight.t(), out=products.flatten(0, 1))
        if self._norm is not None:
            into, mean, scale = self._norm.forward(products)
            self._run.kept |= {"products": products, "mean_input": mean, "scale_input": scale}
            return into
        shift = self._run.total(*self._shifts)
        return products if shift is None else products.add_(shift)

    def backward(self, grads: torch.Tensor, wanted: set[str]) -> Tensors:
        """Return the gradients from those of what `forward` returned."""
        kept, found, shift = self._run.kept, Tensors(), grads
        if self._norm is not None:
            where = kept["products"], kept["mean_input"], kept["scale_input"]
            grads, found["norm_input.gain"], shift = self._norm.all_gradients(grads, *where)
        found |= _each(self._run.given, shift, self._shifts, wanted)
        if "weight_input" in wanted:
            found["weight_input"] = grads.flatten(0, 1).t() @ self._run.given["x"].flatten(0, 1)
        if "x" in wanted:
            found["x"] = grads.clone() if self._weight is None else grads @ self._weight
        if "tap_input" in wanted:
            found["tap_input"] = grads.clone()
        return found


class StateProducts:
    """`LN(W_h h)` at each step, or with a joint norm `LN(W_h h + W_x x) + b`."""

    def __init__(self, run: Run) -> None:
        self._joint, (place, shifts) = run.cell.placement.joint, _place(run)
        self._norm, self._shift = run.norm(place, *shifts), run.total(f"{place}.bias", *shifts)
        # a product with a transposed matrix is slower than with a copy of it
        self._transposed = run.given["weight_recurrent"].t().contiguous()
        steps, cases, stack = run.gates
        # of every step where the gradient reads them
        self._summed = run.room.take(steps if self._norm else 1, cases, stack)
        self._places = [*self._summed.unbind(0)] * (1 if self._norm else steps)
        self._statistics: list[tuple[torch.Tensor, ...]] = []

    def gates(self, t: int, h: torch.Tensor, into: torch.Tensor, out: torch.Tensor) -> None:
        """Write the sum with the products of the input, made before the norm if that is joint, to `out`."""
        if self._joint:
            out.copy_(self.forward(t, h, into))
        else:
            torch.add(self.forward(t, h), into, out=out)

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
        self._statistics.append(tuple(statistics))
        return out

    def kept(self) -> Tensors:
        """Return what the gradient reads."""
        if self._norm is None:
            return {}
        mean, scale = (torch.stack(each) for each in zip(*self._statistics, strict=True))
        return {"summed": self._summed, "mean": mean, "scale": scale}


class StateSensitivities:
    """The gradient of `StateProducts`, from the last step to the first."""

    def __init__(self, run: Run) -> None:
        self._run, (self._place, self._shifts) = run, _place(run)
        self._norm, self._weight = run.norm(self._place, *self._shifts), run.given["weight_recurrent"]
        self._each: list[torch.Tensor] = []
        if self._norm is not None:
            self._where = [run.kept[name] for name in ("summed", "mean", "scale")]
            self._read = [*zip(*(kind.unbind(0) for kind in self._where), strict=True)]

    def backward(self, t: int, grad: torch.Tensor, carried: torch.Tensor, *, beta: int = 0) -> None:
        """Make `beta * carried +` the gradient of the state, from that of what the product became."""
        if self._norm is not None:
            grad = self._norm.backward(grad, *self._read[t])
            self._each.append(grad)
        if beta:
            carried.addmm_(grad, self._weight)
        else:
            torch.mm(grad, self._weight, out=carried)

    def gradients(self, grads: torch.Tensor, wanted: set[str]) -> tuple[torch.Tensor, Tensors]:
        """Return the gradients of the products of all steps and the rest, from what `backward` was given."""
        found, shift, run = Tensors(), grads, self._run
        if self._norm is not None:
            found[f"{self._place}.gain"], shift = self._norm.gain_and_bias(grads, *self._where)
            grads = torch.stack(self._each[::-1], out=run.room.take(*run.gates))
        found |= _each(run.given, shift, (f"{self._place}.bias", *self._shifts), wanted)
        if "weight_recurrent" in wanted:
            before = run.kept["hidden"][:-1].flatten(0, 1)
            found["weight_recurrent"] = grads.flatten(0, 1).t() @ before
        if "tap_recurrent" in wanted:
            found["tap_recurrent"] = grads.clone()
        return grads, found


def _place(run: Run) -> tuple[str, tuple[str, ...]]:
    """Return the name of the norm at the products of the state, and the vectors added after it."""
    return ("norm_joint", ("bias",)) if run.cell.placement.joint else ("norm_recurrent", ())


def _each(given: Tensors, grad: torch.Tensor, names: tuple[str, ...], wanted: set[str]) -> Tensors:
    """Return the gradient of each vector of a sum, in memory of its own."""
    found = Tensors()
    for name in names:
        if name in wanted:
            grad = summed_like(grad, given[name])
            found[name] = grad.clone() if found else grad
    return found
