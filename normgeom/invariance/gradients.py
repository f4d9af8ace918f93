"""The infinitesimal form of an invariance: the gradient has no part along the action's tangent."""

from typing import Any

import torch

from normgeom.invariance.calling import act, evaluate
from normgeom.layers import Layer, as_layer

WIDTHS = 5e-2, 1e-3, 1e-6


def gradient_identity_error(
    layer: Any, element: Any, weight: torch.Tensor, data: torch.Tensor, *, generator: torch.Generator
) -> float:
    r"""Return the part of the gradient along an action, relative to the lengths of gradient and tangent.

    `|<grad_W L, T W - W> + <grad_X L, T X - X>| / (|grad L| |T(W, X) - (W, X)|)`, where L is a random linear
    function of the outputs. For every action of Table 1, `T(W, X) - (W, X)` is a tangent: a re-scaling gives
    `(delta - 1) W`, so that 0 says `<w, grad> = 0`; a re-centering gives `1 gamma^T`, so that 0 says
    `1^T grad = 0`. An invariant function gives 0; 0 does not make a function invariant (batch renorm), and an
    invariant function whose backward pass is not its derivative need not give 0 (detached statistics).

    Args:
        layer: as for `check`; its backward pass is what is measured.
        element: one element of an action that is linear in its parameter.
        weight: shape (units, inputs), or filters.
        data: shape (cases, inputs), or images.
        generator: draws L.

    Raises:
        TypeError: for a class in place of an element.

    Source: Ba et al. 2016, section 5.2; van Laarhoven 2017, L2 Regularization versus Batch and Weight
    Normalization, eq. 3.

    >>> import normgeom as ng
    >>> weight, data = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -1.0]])
    >>> double, draw = ng.WeightMatrixRescale(2.0), torch.Generator().manual_seed(0)
    >>> gradient_identity_error(ng.WeightNorm(), double, weight, data, generator=draw) < 1e-6
    True
    """
    if isinstance(element, type):
        raise TypeError(f"one element is needed, such as {element.__name__}(...); got the class.")
    slope, length, _ = _slope(as_layer(layer), element, weight, data, generator)
    return abs(slope) / (length or 1.0)


def backward_gap(
    layer: Layer, element: Any, weight: torch.Tensor, data: torch.Tensor, generator: torch.Generator
) -> float:
    """Return how far the backward pass is from the slope of the outputs along an action.

    It is measured against the lengths of gradient and tangent, as `gradient_identity_error` is; the slope by
    differences of several widths, of which the closest counts: a kink spoils wide ones, rounding narrow ones.

    Args:
        layer: any layer.
        element: one element of an action that is linear in its parameter.
        weight: shape (units, inputs), or filters, in float64.
        data: shape (cases, inputs), or images, in float64.
        generator: draws a linear function of the outputs.
    """
    slope, length, along = _slope(layer, element, weight, data, generator)
    moved = act(element, weight, data)

    def value(t: float) -> float:
        at = [array + t * (end - array) for array, end in zip((weight, data), moved, strict=True)]
        return float((evaluate(layer, *at) * along).sum())

    found = ((value(h) - value(-h)) / (2 * h) for h in WIDTHS)
    return min(abs(slope - one) for one in found) / (length or 1.0)


def _slope(
    layer: Layer, element: Any, weight: torch.Tensor, data: torch.Tensor, generator: torch.Generator
) -> tuple[float, float, torch.Tensor]:
    """The slope along an action by autograd, the length of gradient times tangent, and the function."""
    tangents = [
        moved - array for moved, array in zip(act(element, weight, data), (weight, data), strict=True)
    ]
    at = weight.clone().requires_grad_(), data.clone().requires_grad_()
    with torch.random.fork_rng(devices=[]):
        outputs = layer(*at)
    along = torch.randn(outputs.shape, generator=generator, dtype=torch.float64).to(outputs)
    gradients = torch.autograd.grad(outputs, at, along, materialize_grads=True)
    inner = sum(float((g * t).sum()) for g, t in zip(gradients, tangents, strict=True))
    lengths = [sum(float((part**2).sum()) for part in parts) ** 0.5 for parts in (gradients, tangents)]
    return inner, lengths[0] * lengths[1], along
