"""A witness of small whole numbers for what the numeric engine found, so that it can be checked by hand."""

from typing import Any

import torch

from normgeom.invariance._points import Sizes
from normgeom.invariance.exact import rational_parameter
from normgeom.invariance.measure import Measurement, measure
from normgeom.invariance.verdict import Witness
from normgeom.layers import Layer
from normgeom.layers.fitting import REFUSALS

SMALLEST = Sizes(units=3, inputs=2, cases=3)
TRIES = 8
PLAIN = 0.1  # of the change that was found: as much must be seen, so that no eps makes it
ENTRY = 2


def simple_witness(
    layer: Layer, transform: Any, worst: Measurement, sizes: dict[str, int | None]
) -> Witness | None:
    """Return the first of a few small points at which an output plainly changes, None if none does.

    Args:
        layer: the layer that changes.
        transform: an action's class or one element.
        worst: where the change was found, in float64.
        sizes: `units`, `inputs`, `cases` that were asked for.
    """
    if worst.error < PLAIN:
        return None
    generator = torch.Generator().manual_seed(0)
    small = Sizes.of(layer, transform, SMALLEST, **sizes).shapes(layer)
    for shapes in (small, (tuple(worst.weight.shape), tuple(worst.data.shape))):
        for _ in range(TRIES):
            found = _measured(layer, transform, shapes, generator)
            if found is not None and not found.within and found.error >= PLAIN * min(worst.error, 1.0):
                return found.witness()
    return None


def _measured(layer: Layer, transform: Any, shapes: Any, generator: torch.Generator) -> Measurement | None:
    """A measurement at whole numbers, None where the layer or the action takes none or gives no number."""
    weight, data = (torch.randint(-ENTRY, ENTRY + 1, shape, generator=generator).double() for shape in shapes)
    try:
        found = measure(
            layer, _element(transform, weight, data, generator), weight, data, generator=generator
        )
    except REFUSALS:
        return None
    return found if bool(found.before.isfinite().all() and found.after.isfinite().all()) else None


def _element(transform: Any, weight: torch.Tensor, data: torch.Tensor, generator: torch.Generator) -> Any:
    """An element with a simple parameter, or the one that is given."""
    if not isinstance(transform, type):
        return transform
    if not hasattr(transform, "sign"):
        return transform.sample(weight, data, generator=generator)  # type: ignore[attr-defined]
    shape = transform.shape(weight, data)  # type: ignore[attr-defined]
    parameter = rational_parameter(transform, shape, generator, True)
    return transform(torch.tensor(parameter.astype(float)) if shape else float(parameter))
