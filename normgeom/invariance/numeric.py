"""The numeric engine: sampled transforms in floating point, judged against what rounding can explain.

A verdict in a narrow type is confirmed in float64 at the same points: a change there is the layer's, a
change in the narrow type alone is rounding, overflow or underflow, and is said to be.
"""

import math
from typing import Any

import torch

from normgeom.invariance._arrays import check_arrays, sizes_of
from normgeom.invariance._points import DEGREES, Sizes, as_degree, scale_of_entries, simple_degree
from normgeom.invariance.calling import act, evaluate, try_once, widest
from normgeom.invariance.eps import broken_near_eps, explained_by_eps
from normgeom.invariance.measure import Measurement, measure, size_of_summed_inputs
from normgeom.invariance.own_rounding import is_own_rounding
from normgeom.invariance.scales import broken_at_scales, only_signs
from normgeom.invariance.simple_witness import simple_witness
from normgeom.invariance.verdict import NOT_A_FUNCTION, Kind, Verdict, subject
from normgeom.layers import Layer, ModuleLayer

USUAL = Sizes(units=5, inputs=4, cases=6)
DRAWS = 3
UNCLEAR = 8.0  # between the tolerance and this many times it, rounding and a small fault look alike
BLIND = 0.3  # a tolerance this large decides nothing
LAW = 1e-6  # how well outputs must follow a power of delta; an eps may blur it
NOTHING = 1e3  # roundoffs of the summed inputs: outputs that vary less are constant

SINGULAR = (
    "numeric: the outputs change, and without eps there are none: a matrix of statistics is singular at this "
    "size (more inputs and cases than units make it regular)"
)

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
    if reason := _unfit(layer, *points[0], wide):
        return Verdict(kind=Kind.UNDECIDED, reason=reason, **about)
    drawn = isinstance(transform, type)
    elements = [transform.sample(*p, generator=generator) if drawn else transform for p in points]
    measured = [
        measure(layer, e, *p, generator=generator, wide=wide) for e, p in zip(elements, points, strict=True)
    ]
    confirmed = measured if wide == dtype else [_again(layer, m, generator, wide) for m in measured]
    worst = max(measured, key=_badness)
    try:
        decided = _decide(layer, confirmed, generator, seen)
    except torch.linalg.LinAlgError:
        decided = {"kind": Kind.UNDECIDED, "reason": SINGULAR}
    if decided["kind"] in (Kind.INVARIANT, Kind.UP_TO_EPS) and wide == torch.float64 and bounds:
        far = broken_at_scales(layer, confirmed[0], generator, bounds, seen)
        decided = decided if far is None else _broken_at(far)
    if decided["kind"] is Kind.NOT_INVARIANT and weight is None and data is None and dtype == torch.float64:
        simple = simple_witness(layer, transform, worst, sizes) if device == "cpu" else None
        decided |= {"witness": simple or decided["witness"]}
    if decided["kind"] in (Kind.INVARIANT, Kind.UP_TO_EPS):
        if worst.tolerance > BLIND:
            decided = {"kind": Kind.UNDECIDED, "reason": _blind(worst)}
        elif wide != dtype and not _same_within_rounding(measured, confirmed):
            decided = {"kind": Kind.UNDECIDED, "reason": _narrow(worst)}
        elif isinstance(layer, ModuleLayer):
            decided |= _buffers(layer, measured[0])
    return Verdict(**({"error": worst.error, "tolerance": worst.tolerance} | decided), **about)


def _decide(
    layer: Layer, measured: list[Measurement], generator: torch.Generator, seen: Layer | None
) -> dict[str, Any]:
    """Return kind and evidence from measurements in the widest type."""
    worst = max(measured, key=_badness)
    if not math.isfinite(worst.error):
        return {"kind": Kind.UNDECIDED, "reason": _narrow(worst)}
    unmoved = all(m.within or _rounded(layer, m, generator, seen) for m in measured)
    if unmoved and not broken_near_eps(layer, measured, generator, seen):
        return {"kind": Kind.INVARIANT}
    if explained_by_eps(layer, measured, generator, seen):
        most = max(measured, key=lambda m: m.error)
        return {"kind": Kind.UP_TO_EPS, "predicted": most.predicted, "error": most.error}
    if _out_of_range(worst):
        return {"kind": Kind.UNDECIDED, "reason": _narrow(worst)}
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


def _same_within_rounding(narrow: list[Measurement], wide: list[Measurement]) -> bool:
    """Whether the outputs change in the narrow type as they do in the wide one, but for its rounding."""
    return all(
        float(((n.after.double() - n.before.double() - (w.after - w.before)).abs() / n.allowed).max()) <= 2
        for n, w in zip(narrow, wide, strict=True)
    )


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


def _unfit(layer: Layer, weight: torch.Tensor, data: torch.Tensor, wide: torch.dtype) -> str:
    """Say why nothing can be decided at this point, or return an empty string."""
    first, second = (evaluate(layer, weight, data, seed=seed) for seed in (0, 1))
    finite = first.isfinite()
    if not finite.all():
        at = tuple(int(i) for i in (~finite).nonzero()[0])
        return (
            f"numeric: {int((~finite).sum())} outputs are not finite before any transform, first "
            f"{first[at].item()} at {at}: a variance is 0 there, or values overflow {_short(first.dtype)}"
        )
    if not torch.equal(first, second):
        return (
            f"{layer.name} gives different outputs for equal inputs (random numbers, or buffers that a call "
            f"changes), {NOT_A_FUNCTION}"
        )
    exact = weight.to(wide), data.to(wide)
    outputs = evaluate(layer, *exact, seed=0)
    size = max(float(outputs.abs().max()), size_of_summed_inputs(*exact))
    if float((outputs - outputs.mean()).abs().max()) <= NOTHING * torch.finfo(outputs.dtype).eps * size:
        return f"the outputs of {layer.name} are constant at this size, so every invariance holds vacuously"
    return ""


def _narrow(worst: Measurement) -> str:
    """Say whether a change that a wider type does not show is overflow, underflow or lost digits."""
    name, info = _short(worst.before.dtype), torch.finfo(worst.before.dtype)
    if sizes := _out_of_range(worst):
        return (
            f"numeric: summed inputs of size {min(sizes):.2g} to {max(sizes):.2g} leave the range that "
            f"{name} can square ({info.tiny**0.5:.2g} to {info.max**0.5:.2g}); use a wider type"
        )
    return (
        f"numeric: in {name} the outputs move by {worst.error:.2g}, where rounding of the inputs explains "
        f"{worst.tolerance:.2g}, yet in float64 they do not move: the layer's own arithmetic in {name} loses "
        "the digits (a variance from E[x^2] - E[x]^2, or a narrow accumulator?)"
    )


def _out_of_range(m: Measurement) -> list[float]:
    """The sizes of the summed inputs, before and after, if the type cannot square one of them."""
    info = torch.finfo(m.before.dtype)
    exact = m.weight.double(), m.data.double()
    sizes = [size_of_summed_inputs(*at) for at in (exact, act(m.element, *exact))]
    largest = (info.max / max(m.weight.shape[0], m.data[:, 0].numel())) ** 0.5
    fits = min(sizes) > info.tiny**0.5 and max(sizes) < largest
    return [] if fits else sizes


def _blind(worst: Measurement) -> str:
    return (
        f"numeric: rounding alone can move the outputs by {worst.tolerance:.2g} of their size in "
        f"{_short(worst.before.dtype)}: the summed inputs are large against their spread; use a wider type"
    )


def _buffers(layer: ModuleLayer, m: Measurement) -> dict[str, Any]:
    """Say which buffers a call changes, and decide nothing if the outputs depend on them."""
    after, changed = layer.called_once(m.weight, m.data)
    if not changed:
        return {}
    again = evaluate(after, *act(m.element, m.weight, m.data)).double()
    if bool(((again - m.after.double()).abs() > m.allowed).any()):
        reason = (
            f"the outputs depend on the buffers {', '.join(changed)}, which a call changes: fix them first"
        )
        return {"kind": Kind.UNDECIDED, "reason": f"{reason} (a call in training, or .eval())"}
    return {"reason": f"a call changes the buffers {', '.join(changed)}; copies were used"}


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
