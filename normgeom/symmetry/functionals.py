"""Random functionals of the outputs, and their gradients with respect to all parameters."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from normgeom.symmetry.probe import Probe

EXTRA_ROWS = 4
_CHECKED = 3


class Sketch:
    """Random functionals of the outputs: of all entries the first, of a share of them each other one."""

    def __init__(self, outputs: Sequence[Tensor], count: int, generator: torch.Generator) -> None:
        finite = [out.detach().isfinite() for out in outputs]
        total = sum(int(mask.sum()) for mask in finite)
        self.count = min(count, total)
        self._weights, self._owners = [], []
        order = torch.randperm(total, generator=generator) % max(self.count, 1)
        for out, mask in zip(outputs, finite, strict=True):
            inside, order = order[: int(mask.sum())], order[int(mask.sum()) :]
            owner = torch.full(out.shape, -1)
            owner[mask.cpu()] = inside
            size = float(torch.where(mask, out.detach(), 0).abs().max()) or 1.0 if out.numel() else 1.0
            draw = torch.randn(out.shape, generator=generator, dtype=torch.float64) / size
            self._weights.append(draw.to(out))
            self._owners.append(owner.to(out.device))

    def cotangents(self, k: int) -> list[Tensor]:
        """Return the k-th functional, a tensor for every output."""
        pairs = zip(self._weights, self._owners, strict=True)
        return [torch.where(o == k if k else o >= 0, w, 0.0) for w, o in pairs]

    def apply(self, outputs: Sequence[Tensor]) -> np.ndarray:
        """Return the values of all functionals."""
        values = np.zeros(self.count)
        for out, weight, owner in zip(outputs, self._weights, self._owners, strict=True):
            inside = owner >= 0
            products = (weight[inside].double() * out.detach()[inside].double()).cpu().numpy()
            values += np.bincount(owner[inside].cpu().numpy(), products, self.count)
        values[:1] = values.sum()
        return values


def plan(blocks: int, outputs: int, fields: int) -> list[int]:
    """Return how many functionals to take at each point: a few more than blocks, no more than outputs.

    Few at the first two, where the gradients are checked and summed up along shifts (`fields` of them), and
    all others at the last, which is left as soon as their rank has stopped to grow.
    """
    outputs = max(outputs, 1)
    counts = [min(outputs, max(_CHECKED, fields)), min(outputs, fields)]
    rest = max(EXTRA_ROWS, blocks + EXTRA_ROWS - sum(counts))
    points = math.ceil(rest / outputs)
    return counts + [rest // points + (k < rest % points) for k in range(points)]


def gradients_at(
    probe: Probe,
    count: int,
    *,
    values: Mapping[str, Tensor] | None = None,
    differentiable: bool = True,
) -> tuple[Sketch, Iterator[dict[str, Tensor | None]]]:
    """Return random functionals at the probe's parameters, and lazily the gradient of each, or none.

    Args:
        probe: the model.
        count: how many functionals, at most one for every output.
        values: some parameters to use instead of the probe's.
        differentiable: whether there are gradients.
    """
    point = {**probe.parameters, **(values or {})}
    leaves = {name: value.detach().requires_grad_() for name, value in point.items()}
    with torch.enable_grad():
        outputs = probe.outputs(leaves)
    sketch = Sketch(outputs, count, probe.generator)

    def gradient(k: int) -> dict[str, Tensor | None]:
        pairs = zip(outputs, sketch.cotangents(k), strict=True)
        taken = [(out, weight) for out, weight in pairs if differentiable and out.requires_grad]
        if not taken:
            return dict.fromkeys(leaves)
        probe.backwards += 1
        roots, weights = zip(*taken, strict=True)
        own = list(leaves.values())
        found = torch.autograd.grad(roots, own, weights, allow_unused=True, retain_graph=True)
        dense = [grad if grad is None else grad.to_dense() for grad in found]  # sparse ones of embeddings
        return dict(zip(leaves, dense, strict=True))

    # Nothing here holds on to a gradient, which is as large as the model.
    return sketch, map(gradient, range(sketch.count))
