"""Whether an eps is to blame: for a broken invariance, or for one that only ordinary points seem to have."""

from typing import Any

import torch

from normgeom.invariance.measure import Measurement, measure, size_of_summed_inputs
from normgeom.invariance.own_rounding import is_own_rounding
from normgeom.invariance.scales import only_signs
from normgeom.layers import FunctionLayer, Layer, NormLayer

BARE = 4.0  # tolerances: a decomposition makes more roundoffs than a norm, and eps is what is on trial
GROWN = 256.0  # the factor of weights or data at which an eps must matter less
SLACK = 2.0  # an eps outside the root falls as 1/GROWN to first order only


def explained_by_eps(
    layer: Layer, measured: list[Measurement], generator: torch.Generator, seen: Layer | None = None
) -> bool:
    """Whether eps alone breaks the invariance.

    Where the statistics are known, every output must follow the law of eps, which says the same as equality
    at eps = 0 and has no 0/0. Elsewhere the layer is evaluated without eps, and compared where it is finite
    and no larger than rounding over a root of nothing would make it. An eps that the layer does not tell is
    the one that `seen`, its graph as a layer, has.
    """
    layer = seen or layer
    if not layer.eps:
        return False
    if all(m.law is not None for m in measured):
        return all(m.excess(m.law) <= 1 for m in measured if m.law is not None)
    if isinstance(layer, FunctionLayer) or not _scales(measured[0].element):
        return False
    try:
        bare = layer.with_eps(0.0)
    except (AttributeError, TypeError):
        return False
    return all(_holds_bare(bare, m, generator) and _fades(layer, m, generator) for m in measured)


def broken_near_eps(
    layer: Layer, measured: list[Measurement], generator: torch.Generator, seen: Layer | None = None
) -> bool:
    """Whether a layer's or its graph's eps, invisible at ordinary points, shows at small ones (a clamp)."""
    layer = seen or layer
    if isinstance(layer, NormLayer) or not layer.eps or not _scales(measured[0].element):
        return False
    m = measured[0]
    usual = size_of_summed_inputs(m.weight, m.data) or 1.0
    small = (_scaled(m, size / usual) for size in (layer.eps**0.5, layer.eps, layer.eps / 8))
    wide = m.weight.dtype
    return any(not measure(layer, m.element, *at, generator=generator, wide=wide).within for at in small)


def _scaled(m: Measurement, factor: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The point of a measurement with the array that its action moves, else the weight, times a factor."""
    if getattr(m.element, "moves", "weight") == "data":
        return m.weight, m.data * factor
    return m.weight * factor, m.data


def _scales(element: Any) -> bool:
    """Whether an element scales anything: eps does nothing to a pure shift."""
    return any(getattr(step, "sign", None) is not None for step in getattr(element, "steps", (element,)))


def _holds_bare(bare: Layer, m: Measurement, generator: torch.Generator) -> bool:
    """Whether the layer without eps is invariant, where that is no 0/0."""
    again = measure(bare, m.element, m.weight, m.data, generator=generator, wide=m.weight.dtype)
    usual = (again.before.abs() <= 1e6 * m.before.abs().max()) & again.after.isfinite()
    change = (again.after - again.before).abs() / again.allowed
    if usual.any() and not (change[usual] <= BARE).all():
        sees = bool(usual.all()) and not only_signs(bare, again, generator, None)
        return sees and is_own_rounding(bare, again, generator)
    return bool(usual.any())


def _fades(layer: Layer, m: Measurement, generator: torch.Generator) -> bool:
    """Whether the change falls as eps must make it fall when the weights grow, or the data."""
    for weight, data in ((m.weight * GROWN, m.data), (m.weight, m.data * GROWN)):
        grown = measure(layer, m.element, weight, data, generator=generator, wide=m.weight.dtype)
        if grown.error <= SLACK * m.error / GROWN + grown.tolerance:
            return True
    return False
