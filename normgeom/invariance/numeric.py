"""The numeric engine: sampled transforms in floating point, judged against what rounding can explain.

A verdict in a narrow type is confirmed in float64 at the same points: a change there is the layer's, a
change in the narrow type alone is rounding, overflow or underflow, and is said to be.
"""

import math
from typing import Any

import torch

from normgeom.invariance._arrays import check_arrays, sizes_of
from normgeom.invariance._points import DEGREES, Sizes, as_degree, scale_of_entries, simple_degree
from normgeom.invariance.calling import evaluate, try_once, widest
from normgeom.invariance.eps import broken_near_eps, explained_by_eps
from normgeom.invariance.measure import Measurement, measure
from normgeom.invariance.own_rounding import is_own_rounding
from normgeom.invariance.reservations import (
    BLIND,
    SINGULAR,
    out_of_range,
    too_narrow,
    unfit,
    with_reservations,
)
from normgeom.invariance.scales import broken_at_scales, only_signs
from normgeom.invariance.simple_witness import simple_witness
from normgeom.invariance.verdict import HOLDS, Kind, Verdict, subject
from normgeom.layers import Layer, ModuleLayer

USUAL = Sizes(units=5, inputs=4, cases=6)
DRAWS = 3
UNCLEAR = 8.0  # between the tolerance and this many times it, rounding and a small fault look alike
LAW = 1e-6  # how well outputs must follow a power of delta; an eps may blur it

Point = tuple[torch.Tensor, torch.Tensor]


def judge(
    layer: Layer,
    transform: Any,
    *,
    generator: torch.Generator,
    weight: torch.Tensor | None = None,
    data: torch.Tensor | None = None,
    dtype: torch.dtype = torch.float64,
    device: str | torch.device = "cpu",
    draws: int = DRAWS,
    seen: Layer | None = None,
    bounds: tuple[float, ...] = (),
    **sizes: int | None,
) -> Verdict:
    """Return the numeric verdict on one cell.

    Args:
        layer: any layer.
        transform: an action's class, whose elements are drawn, or one element.
        generator: draws points and elements (a CPU generator, whatever the device).
        weight: the weight to measure at, shape (units, inputs) or (units, inputs, *kernel);
            drawn from a Gaussian if not given.
        data: the data to measure at, shape (cases, inputs); drawn likewise.
        dtype: the type the layer is evaluated in.
        device: where it is evaluated.
        draws: how many points and elements.
        seen: the layer's graph as a layer, where that shows an eps that the layer does not tell.
        bounds: constants of the layer's graph around which it may have another law.
        sizes: `units`, `inputs`, `cases` of drawn points.
    """
    about = subject(layer, transform, "numeric")
    layer = layer.in_type(dtype) if isinstance(layer, ModuleLayer) else layer
    points = [_point(layer, transform, (weight, data), dtype, device, generator, sizes) for _ in range(draws)]
    try_once(layer, *points[0])
    evaluate(layer, *points[0])
    wide = widest(layer, *points[0])
    if reason := unfit(layer, *points[0], wide):
        return Verdict(kind=Kind.UNDECIDED, reason=reason, **about)
    measured = _measured(layer, transform, points, generator, wide)
    confirmed = measured if wide == dtype else [_again(layer, m, generator, wide) for m in measured]
    worst = max(measured, key=_badness)
    decided = _decide_at_all_scales(layer, confirmed, generator, seen, bounds)
    free = weight is None and data is None and dtype == torch.float64 and device == "cpu"
    if decided["kind"] is Kind.NOT_INVARIANT and free:
        decided |= {"witness": simple_witness(layer, transform, worst, sizes) or decided["witness"]}
    if decided["kind"] in HOLDS:
        decided = with_reservations(layer, decided, worst, measured, confirmed)
    return Verdict(**({"error": worst.error, "tolerance": worst.tolerance} | decided), **about)


def _measured(
    layer: Layer, transform: Any, points: list[Point], generator: torch.Generator, wide: torch.dtype
) -> list[Measurement]:
    """Measure at every point under one element of its own, or under the one given."""
    drawn = isinstance(transform, type)
    elements = [transform.sample(*p, generator=generator) if drawn else transform for p in points]
    return [
        measure(layer, e, *p, generator=generator, wide=wide) for e, p in zip(elements, points, strict=True)
    ]


def _decide_at_all_scales(
    layer: Layer,
    measured: list[Measurement],
    generator: torch.Generator,
    seen: Layer | None,
    bounds: tuple[float, ...],
) -> dict[str, Any]:
    """Decide at the points measured and, if it holds there, where a constant of the code matters."""
    try:
        decided = _decide(layer, measured, generator, seen)
    except torch.linalg.LinAlgError:
        return {"kind": Kind.UNDECIDED, "reason": SINGULAR}
    if decided["kind"] not in HOLDS or measured[0].weight.dtype != torch.float64 or not bounds:
        return decided
    far = broken_at_scales(layer, measured[0], generator, bounds, seen)
    return decided if far is None else _broken_at(far)


def _decide(
    layer: Layer, measured: list[Measurement], generator: torch.Generator, seen: Layer | None
) -> dict[str, Any]:
    """Return kind and evidence from measurements in the widest type."""
    worst = max(measured, key=_badness)
    if not math.isfinite(worst.error):
        return {"kind": Kind.UNDECIDED, "reason": too_narrow(worst)}
    unmoved = all(m.within or _rounded(layer, m, generator, seen) for m in measured)
    if unmoved and not broken_near_eps(layer, measured, generator, seen):
        return {"kind": Kind.INVARIANT}
    if explained_by_eps(layer, measured, generator, seen):
        most = max(measured, key=lambda m: m.error)
        return {"kind": Kind.UP_TO_EPS, "predicted": most.predicted, "error": most.error}
    if out_of_range(worst):
        return {"kind": Kind.UNDECIDED, "reason": too_narrow(worst)}
    if _badness(worst) < UNCLEAR and worst.error < BLIND:
        reason = f"numeric: {worst.error:.2g} is too close to the tolerance to tell rounding from a fault"
        return {"kind": Kind.UNDECIDED, "reason": reason}
    if only_signs(layer, worst, generator, seen):
        reason = "numeric: a statistic of 2 values: only a sign survives, so rounding and a fault look alike"
        return {"kind": Kind.UNDECIDED, "reason": reason}
    if worst.weight.dtype == torch.float64 and is_own_rounding(layer, worst, generator):
        reason = f"numeric: {worst.error:.2g} is what rounding in the layer's own arithmetic makes"
        return {"kind": Kind.UNDECIDED, "reason": reason}
    degree, flips = _law(measured)
    return {"kind": Kind.NOT_INVARIANT, "degree": degree, "flips": flips, "witness": worst.witness()}


def _rounded(layer: Layer, m: Measurement, generator: torch.Generator, seen: Layer | None) -> bool:
    """Whether a change just beyond the tolerance is what the layer's own arithmetic rounds, as measured."""
    near = m.weight.dtype == torch.float64 and _badness(m) < UNCLEAR
    return near and is_own_rounding(layer, m, generator) and not only_signs(layer, m, generator, seen)


def _broken_at(m: Measurement) -> dict[str, Any]:
    """The evidence of a change at a scale of the point where a constant of the code matters."""
    return {"kind": Kind.NOT_INVARIANT, "error": m.error, "tolerance": m.tolerance, "witness": m.witness()}


def _again(layer: Layer, m: Measurement, generator: torch.Generator, dtype: torch.dtype) -> Measurement:
    """Repeat a measurement in another type."""
    return measure(layer, m.element, m.weight.to(dtype), m.data.to(dtype), generator=generator, wide=dtype)


def _badness(m: Measurement) -> float:
    return m.excess(m.before)


def _law(measured: list[Measurement]) -> tuple[int | float | None, bool]:
    """Return the k of `f' = ±|delta|^k f`, if every entry of every draw follows it."""
    among = (*DEGREES, *_measured_degree(measured[0]))
    found = next((k for k in among if all(_follows(m, k) for m in measured)), None)
    flips = any(bool((m.before.double() * m.after.double() < 0).any()) for m in measured)
    return found, found is not None and flips


def _sizes(m: Measurement) -> torch.Tensor | None:
    """The |delta| that every entry of the outputs meets, None if the action is no scale of them."""
    scale = scale_of_entries(m.element, tuple(m.before.shape)) if m.before.ndim >= 2 else None
    return None if scale is None else torch.as_tensor(scale.astype(float)).abs().to(m.before.device)


def _measured_degree(m: Measurement) -> list[int | float]:
    """The simple fraction nearest to the power of delta in a typical entry, none if nothing tells."""
    delta = _sizes(m)
    if delta is None:
        return []
    powers = (m.after.double() / m.before.double()).abs().log() / delta.log()
    powers = powers[powers.isfinite()]
    return [as_degree(simple_degree(float(powers.median())))] if powers.numel() else []


def _follows(m: Measurement, k: int | float) -> bool:
    """Whether `|f'| = |delta|^k |f|` in every entry of one draw."""
    delta = _sizes(m)
    if delta is None:
        return False
    before, after = m.before.double().abs(), m.after.double().abs()
    change, blur = (delta**k * before - after).abs(), LAW * delta**k * before if k else 0.0
    return bool((change <= m.allowed * delta**k + blur).all())


def _point(
    layer: Layer,
    transform: Any,
    given: tuple[torch.Tensor | None, torch.Tensor | None],
    dtype: torch.dtype,
    device: str | torch.device,
    generator: torch.Generator,
    sizes: dict[str, int | None],
) -> Point:
    """Return a point whose weight and data are those given, checked, or drawn from a Gaussian."""
    check_arrays(*given)
    size = Sizes.of(layer, transform, USUAL, **sizes_of(layer, *given, sizes))
    weight, data = (
        (torch.randn(shape, generator=generator, dtype=torch.float64) if array is None else array)
        for array, shape in zip(given, size.shapes(layer), strict=True)
    )
    return weight.to(device, dtype), data.to(device, dtype)
