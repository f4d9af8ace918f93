"""Points where a statistic is 0, as checks of their own: outputs and gradients must be finite there."""

from collections.abc import Callable
from typing import Any

import torch

from normgeom.testing.evidence import Evidence

Point = tuple[torch.Tensor, torch.Tensor]


def _zero_weight(weight: torch.Tensor, data: torch.Tensor) -> Point:
    return torch.zeros_like(weight), data


def _equal_units(weight: torch.Tensor, data: torch.Tensor) -> Point:
    return weight[:1].expand_as(weight).clone(), data


def _equal_cases(weight: torch.Tensor, data: torch.Tensor) -> Point:
    return weight, data[:1].expand_as(data).clone()


def _zero_case(weight: torch.Tensor, data: torch.Tensor) -> Point:
    return weight, torch.cat([torch.zeros_like(data[:1]), data[1:]])


DEGENERATE: dict[str, Callable[[torch.Tensor, torch.Tensor], Point]] = {
    "zero_weight": _zero_weight,
    "equal_units": _equal_units,
    "equal_cases": _equal_cases,
    "zero_case": _zero_case,
}


def check_finite(evidence: Evidence, name: str) -> None:
    """Raise an AssertionError unless outputs and gradients are finite at a degenerate point."""
    __tracebackhide__ = True
    layer, generator = evidence.layer, torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in evidence.shapes()]
    weight, data = (t.to(evidence.dtype).requires_grad_() for t in DEGENERATE[name](drawn[0], drawn[1]))
    outputs = layer(weight, data)
    _refuse_not_finite(evidence, name, "outputs", outputs)
    if outputs.requires_grad:
        grads = torch.autograd.grad(outputs.float().square().sum(), (weight, data), allow_unused=True)
        for of, grad in zip(("weight", "data"), grads, strict=True):
            if grad is not None:
                _refuse_not_finite(evidence, name, f"gradient of the {of}", grad)


def _refuse_not_finite(evidence: Evidence, name: str, what: str, values: torch.Tensor) -> None:
    __tracebackhide__ = True
    bad: Any = ~values.isfinite()
    if bool(bad.any()):
        at, layer = tuple(int(i) for i in bad.nonzero()[0]), evidence.layer
        eps = evidence.eps_in_code() or (f"eps {layer.eps:g}" if layer.eps else "no eps")
        raise AssertionError(
            f"the {what} of {layer.name} must be finite at the point {name!r} ({eps}); "
            f"got {values[at].item()} at {at}, {int(bad.sum())} in all. An eps inside the root keeps them so."
        )
