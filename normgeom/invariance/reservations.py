"""Why the numeric engine decides nothing, or not without a reservation."""

from typing import Any

import torch

from normgeom.invariance.calling import act, evaluate
from normgeom.invariance.measure import Measurement, size_of_summed_inputs
from normgeom.invariance.verdict import NOT_A_FUNCTION, Kind
from normgeom.layers import Layer, ModuleLayer

BLIND = 0.3  # a tolerance this large decides nothing
NOTHING = 1e3  # roundoffs of the summed inputs: outputs that vary less are constant

SINGULAR = (
    "numeric: the outputs change, and without eps there are none: a matrix of statistics is singular at this "
    "size (more inputs and cases than units make it regular)"
)


def unfit(layer: Layer, weight: torch.Tensor, data: torch.Tensor, wide: torch.dtype) -> str:
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


def too_narrow(worst: Measurement) -> str:
    """Say whether a change that a wider type does not show is overflow, underflow or lost digits."""
    name, info = _short(worst.before.dtype), torch.finfo(worst.before.dtype)
    if sizes := out_of_range(worst):
        return (
            f"numeric: summed inputs of size {min(sizes):.2g} to {max(sizes):.2g} leave the range that "
            f"{name} can square ({info.tiny**0.5:.2g} to {info.max**0.5:.2g}); use a wider type"
        )
    return (
        f"numeric: in {name} the outputs move by {worst.error:.2g}, where rounding of the inputs explains "
        f"{worst.tolerance:.2g}, yet in float64 they do not move: the layer's own arithmetic in {name} loses "
        "the digits (a variance from E[x^2] - E[x]^2, or a narrow accumulator?)"
    )


def out_of_range(m: Measurement) -> list[float]:
    """The sizes of the summed inputs, before and after, if the type cannot square one of them."""
    info = torch.finfo(m.before.dtype)
    exact = m.weight.double(), m.data.double()
    sizes = [size_of_summed_inputs(*at) for at in (exact, act(m.element, *exact))]
    largest = (info.max / max(m.weight.shape[0], m.data[:, 0].numel())) ** 0.5
    fits = min(sizes) > info.tiny**0.5 and max(sizes) < largest
    return [] if fits else sizes


def with_reservations(
    layer: Layer,
    decided: dict[str, Any],
    worst: Measurement,
    measured: list[Measurement],
    confirmed: list[Measurement],
) -> dict[str, Any]:
    """Return what holds in the wide type, undecided where rounding hides it or buffers change it."""
    if worst.tolerance > BLIND:
        return {"kind": Kind.UNDECIDED, "reason": _blind(worst)}
    if confirmed is not measured and not _same_within_rounding(measured, confirmed):
        return {"kind": Kind.UNDECIDED, "reason": too_narrow(worst)}
    return decided | (_buffers(layer, measured[0]) if isinstance(layer, ModuleLayer) else {})


def _same_within_rounding(narrow: list[Measurement], wide: list[Measurement]) -> bool:
    """Whether the outputs change in the narrow type as they do in the wide one, but for its rounding."""
    return all(
        float(((n.after.double() - n.before.double() - (w.after - w.before)).abs() / n.allowed).max()) <= 2
        for n, w in zip(narrow, wide, strict=True)
    )


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
