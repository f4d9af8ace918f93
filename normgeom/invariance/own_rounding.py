"""How far a layer's own arithmetic moves its outputs, whatever the conditioning of its problem says.

A layer that solves a linear system on its way loses digits that no perturbation of weight and data shows.
"""

import torch

from normgeom.invariance.calling import act, evaluate
from normgeom.invariance.measure import Measurement, bend_of
from normgeom.layers import Layer

STEP = 2.0**-40  # so short that curvature does not bend a line, and rounding does
PROBES = 3
ALIKE = 16.0


def own_rounding(
    layer: Layer, weight: torch.Tensor, data: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """Return how far three points of a short line lie from one, for every output.

    Args:
        layer: any layer.
        weight: shape (units, inputs), in float64.
        data: shape (cases, inputs), in float64.
        generator: draws the lines.
    """
    start = evaluate(layer, weight, data)
    bends = []
    for _ in range(PROBES):
        first, second = (
            torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t) for t in (weight, data)
        )
        bends.append(bend_of(layer, weight, data, start, (first, second), STEP))
    return torch.stack(bends).amax(0).nan_to_num(nan=0.0, posinf=0.0)


def is_own_rounding(layer: Layer, m: Measurement, generator: torch.Generator) -> bool:
    """Return whether the largest change looks like the rounding of the layer's arithmetic."""
    points = ((m.weight, m.data), act(m.element, m.weight, m.data))
    rounding = max(float(own_rounding(layer, *at, generator).max()) for at in points)
    change = float((m.after.double() - m.before.double()).abs().max())
    return change <= ALIKE * rounding
