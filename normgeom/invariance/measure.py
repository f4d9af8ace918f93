"""Measuring: a layer's outputs before and after one transform, and what rounding can explain of the change.

The error is the largest change of an output over the largest output. Its tolerance is the unit roundoff of
the type times the condition number of the layer at the point, measured in float64 by relative perturbations
of weight and data: for layer norm that is about offset/sigma, so the tolerance grows with it, and a layer
that loses more digits than its problem must is not excused.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

from normgeom.invariance.verdict import Witness
from normgeom.layers import Layer, NormLayer

PROBES = 2
ELEMENTWISE = 6.0  # roundoffs of the type that a norm makes one after another
PER_ROOT_INPUT = 2.0  # roundoffs of the accumulator that a sum over the inputs makes


@dataclass(frozen=True)
class Measurement:
    """One transform at one point.

    Attributes:
        weight: the weight, shape (units, inputs).
        data: the data, shape (cases, inputs).
        element: the transform.
        before: the outputs.
        after: the outputs after the transform.
        error: the largest change over the largest output.
        tolerance: what rounding can explain of it.
        predicted: what the layer's eps should make of it, None if its statistics are not known.
        off_law: how far the outputs are from that prediction, entry by entry.
    """

    weight: torch.Tensor
    data: torch.Tensor
    element: Any
    before: torch.Tensor
    after: torch.Tensor
    error: float
    tolerance: float
    predicted: float | None = None
    off_law: float | None = None

    @property
    def within(self) -> bool:
        """Whether rounding can explain the change (a change that is not a number is never explained)."""
        return self.error <= self.tolerance

    def witness(self) -> Witness:
        """Return the output that changed most."""
        change = (self.after - self.before).abs().reshape(len(self.before), -1)
        case, unit = divmod(int(change.argmax()), change.shape[1])
        before, after = (t.reshape(len(t), -1)[case, unit].item() for t in (self.before, self.after))
        return Witness(self.weight, self.data, self.element, case, unit, before, after)


def measure(
    layer: Layer,
    element: Any,
    weight: torch.Tensor,
    data: torch.Tensor,
    *,
    generator: torch.Generator,
    wide: torch.dtype = torch.float64,
) -> Measurement:
    """Apply one element at one point and compare.

    Args:
        layer: any layer.
        element: a transform.
        weight: shape (units, inputs).
        data: shape (cases, inputs).
        generator: draws the probes of the tolerance.
        wide: the widest type in which the layer can be evaluated, for the condition number.
    """
    points = ((weight, data), element(weight, data))
    before, after = (evaluate(layer, *at) for at in points)
    dtype = max((before.dtype, weight.dtype), key=lambda t: torch.finfo(t).eps)
    if wide == dtype:
        known = [(*at, out) for at, out in zip(points, (before, after), strict=True)]
    else:
        exact = weight.to(wide), data.to(wide)
        known = [(*at, evaluate(layer, *at)) for at in (exact, element(*exact))]
    roundoff = torch.finfo(dtype).eps / 2
    kappa = max(_condition(layer, *at, generator=generator, roundoff=roundoff) for at in known)
    law = _law_of_eps(layer, element, weight, data, before) if layer.eps else None
    return Measurement(
        weight,
        data,
        element,
        before,
        after,
        error=relative_change(before, after),
        tolerance=rounding_tolerance(dtype, weight.shape[-1], kappa),
        predicted=None if law is None else relative_change(before, law),
        off_law=None if law is None else relative_change(law, after),
    )


def evaluate(
    layer: Layer, weight: torch.Tensor, data: torch.Tensor, *, seed: int | None = None
) -> torch.Tensor:
    """Return a layer's outputs, leaving the random state alone; a seed sets it for this call.

    Raises:
        TypeError: if the outputs are not a floating-point tensor.
        ValueError: if the layer changes its input, or if the outputs do not have a row per case.
    """
    given = weight.clone(), data.clone()
    index = weight.device.index or 0
    with torch.no_grad(), torch.random.fork_rng(devices=[index] if weight.is_cuda else []):
        if seed is not None:
            torch.default_generator.manual_seed(seed)
            if weight.is_cuda:
                torch.cuda.default_generators[index].manual_seed(seed)
        outputs = layer(*given)
    if not isinstance(outputs, torch.Tensor) or not outputs.is_floating_point():
        raise TypeError(f"{layer.name} must return a floating-point tensor; got {type(outputs).__name__}.")
    if not (_same(given[0], weight) and _same(given[1], data)):
        raise ValueError(f"{layer.name} changes its weight or data in place; it must return new tensors.")
    if outputs.ndim == 0 or len(outputs) != len(data):
        raise ValueError(
            f"{layer.name} must return one row for each of the {len(data)} cases; "
            f"got shape {tuple(outputs.shape)}."
        )
    return outputs


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one, other) or torch.equal(one.nan_to_num(), other.nan_to_num())


def relative_change(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return the largest change over the largest output, `max |after - before| / max |before|`."""
    if before.shape != after.shape:
        raise ValueError(
            f"a transform must keep the outputs' shape; got {tuple(before.shape)}, then {tuple(after.shape)}."
        )
    before, after = before.double(), after.double()
    size = before.abs().max()
    return float((after - before).abs().max() / size) if size > 0 else float((after - before).abs().max())


def widest(layer: Layer, weight: torch.Tensor, data: torch.Tensor) -> torch.dtype:
    """Return float64 if the layer can be evaluated in it, else the type of the weight."""
    try:
        evaluate(layer, weight.double(), data.double())
    except (RuntimeError, TypeError):
        return weight.dtype
    return torch.float64


def rounding_tolerance(dtype: torch.dtype, inputs: int, kappa: float) -> float:
    """Return what rounding can explain: roundoffs times the condition number of the layer.

    `(6 u + 2 sqrt(inputs) u_sum) max(1, kappa)`, u the unit roundoff of the type and u_sum that of the
    accumulator (float32 for half types).
    """
    roundoff = torch.finfo(dtype).eps / 2
    summing = min(roundoff, torch.finfo(torch.float32).eps / 2)
    return (ELEMENTWISE * roundoff + PER_ROOT_INPUT * inputs**0.5 * summing) * max(kappa, 1.0)


def condition_number(
    layer: Layer,
    weight: torch.Tensor,
    data: torch.Tensor,
    *,
    generator: torch.Generator,
    roundoff: float = 2.0**-53,
) -> float:
    """Return the largest relative change of the outputs over the relative change of the inputs.

    Weight and data are perturbed entry by entry by a relative +-h, h the larger of `roundoff` (that of the
    type under test) and the root of the roundoff of the type they come in, so that the layer's own rounding
    does not enter. For layer norm it is about offset/sigma.
    """
    outputs = evaluate(layer, weight, data)
    return _condition(layer, weight, data, outputs, generator=generator, roundoff=roundoff)


def _condition(
    layer: Layer,
    weight: torch.Tensor,
    data: torch.Tensor,
    outputs: torch.Tensor,
    *,
    generator: torch.Generator,
    roundoff: float,
) -> float:
    step = max(roundoff, (torch.finfo(weight.dtype).eps / 2) ** 0.5)

    def nudge(array: torch.Tensor) -> torch.Tensor:
        signs = torch.randint(0, 2, array.shape, generator=generator) * 2 - 1
        return array * (1 + step * signs.to(array))

    changes = [relative_change(outputs, evaluate(layer, nudge(weight), nudge(data))) for _ in range(PROBES)]
    return max(c if math.isfinite(c) else 1.0 for c in changes) / step


def eps_law(variance: Any, variance_after: Any, eps: float) -> Any:
    """Return `z'/z` under an action that leaves `z` unchanged at eps = 0 and takes v to v'.

    `z'/z = sqrt(v'/v) sqrt(v + eps) / sqrt(v' + eps)`; for a scale by delta this is
    `delta sqrt(v + eps) / sqrt(delta^2 v + eps)`.

    >>> round(float(eps_law(torch.tensor(1e-4), torch.tensor(4e-4), 1e-3)), 4)
    1.7728
    """
    return ((variance_after / variance) * (variance + eps) / (variance_after + eps)) ** 0.5


def _law_of_eps(
    layer: Layer, element: Any, weight: torch.Tensor, data: torch.Tensor, outputs: torch.Tensor
) -> torch.Tensor | None:
    """Return the outputs that the layer's eps should give after the action, None without statistics."""
    if not isinstance(layer, NormLayer):
        return None
    weight, data, outputs = weight.double(), data.double(), outputs.double()
    extra = (torch.as_tensor(layer.bias_before).to(weight),) if layer.has_bias_before else ()
    norm: Any = layer.norm
    before, after = (norm.statistics(*at, *extra)[1] for at in ((weight, data), element(weight, data)))
    if isinstance(before, int | float):
        return None
    ratio = torch.where((before == 0) & (after == 0), 1.0, eps_law(before, after, layer.eps))
    bias = torch.as_tensor(layer.bias).to(weight)
    return ratio * (outputs - bias) + bias
