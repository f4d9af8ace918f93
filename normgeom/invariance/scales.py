"""The scales of a point at which a constant of the code or a lone sign decides, in floating point."""

import math

import torch

from normgeom.invariance.calling import evaluate
from normgeom.invariance.measure import Measurement, measure, size_of_summed_inputs
from normgeom.layers import Layer

FACTORS_AROUND = (0.25, 2.0, 4.0)
FAR = (1e-12, 1e12)
MANY, CLOSE = 24, 1.5  # of many constants, those within a factor of each other are tried as one
LEAST, LARGEST = 1e-70, 1e70  # sizes of summed inputs whose fourth power float64 holds
CLEAR = 64.0  # tolerances: far points are ill-conditioned, and a constant that matters changes much more
NUDGE, STILL = 1e-3, 1e-9


def scales_at(constants: tuple[float, ...], usual: float) -> tuple[float, ...]:
    """Return the factors that put a point, of summed inputs up to `usual`, around constants and far off.

    A constant may stand against a square, so the surroundings of its root are among them.

    >>> scales_at((100.0,), 2.0)
    (1.25, 10.0, 12.5, 20.0, 100.0, 200.0, 1e-12, 1000000000000.0)
    """
    if not constants:
        return ()
    sizes = {size for c in constants for size in (c, c**0.5)}
    near = {k * size / (usual or 1.0) for size in _apart(sorted(sizes)) for k in FACTORS_AROUND}
    return (*sorted(factor for factor in near if math.isfinite(factor)), *FAR)


def _apart(sizes: list[float]) -> list[float]:
    """Return sizes of which none is closer than a factor to the next, if there are many."""
    kept: list[float] = []
    for size in sizes:
        if len(sizes) <= MANY or not kept or size >= CLOSE * kept[-1]:
            kept.append(size)
    return kept


def broken_at_scales(
    layer: Layer, m: Measurement, generator: torch.Generator, bounds: tuple[float, ...], seen: Layer | None
) -> Measurement | None:
    """Return a measurement near one of the bounds where neither rounding nor eps explains the change."""
    base = without_eps(seen or layer)
    usual = size_of_summed_inputs(m.weight, m.data)
    for factor in scales_at(bounds, usual):
        if not LEAST < usual * factor < LARGEST:
            continue
        for at in ((m.weight * factor, m.data), (m.weight, m.data * factor)):
            bare = measure(base, m.element, *at, generator=generator, wide=m.weight.dtype)
            finite = bool(bare.before.isfinite().all() and bare.after.isfinite().all())
            if finite and bare.excess(bare.before) > CLEAR:
                return measure(layer, m.element, *at, generator=generator, wide=m.weight.dtype)
    return None


def only_signs(layer: Layer, m: Measurement, generator: torch.Generator, seen: Layer | None) -> bool:
    """Whether the outputs without eps are constant around the point: a statistic of 2 values leaves a sign.

    Then a change as small as rounding of what is divided away says nothing, and its condition is not seen.
    """
    base = without_eps(seen or layer)
    nudges = [1 + NUDGE * torch.randn(t.shape, generator=generator).to(t) for t in (m.weight, m.data)]
    before, nudged = (
        evaluate(base, m.weight, m.data),
        evaluate(base, m.weight * nudges[0], m.data * nudges[1]),
    )
    after = measure(base, m.element, m.weight, m.data, generator=generator, wide=m.weight.dtype).after
    size = float(before.abs().max()) or 1.0
    return all(float((t - before).abs().max()) <= STILL * size for t in (nudged, after))


def without_eps(layer: Layer) -> Layer:
    """Return a layer with eps 0, or as it is if it has none or does not let it be set."""
    try:
        return layer.with_eps(0.0) if layer.eps else layer
    except (AttributeError, TypeError, ValueError):
        return layer
