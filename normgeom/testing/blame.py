"""What a broken claim is due to, in words: the layer, its rounding, or an eps that nobody was told of."""

from typing import Any

from normgeom.invariance import Verdict, invariance_error
from normgeom.layers import Layer

GROWN = 16.0  # of weights or data: an eps must matter less there
SLACK = 2.0


def rounded(action: Any, verdict: Verdict) -> str:
    """Say that a claim holds but for the layer's rounding."""
    return (
        f"{verdict.layer} is claimed to be invariant under {action.__name__}. In exact arithmetic it is; "
        f"rounding is to blame.\n{verdict}"
    )


def broken(layer: Layer, action: Any, found: Verdict, settled: Verdict) -> str:
    """Say that a claim does not hold, with what is to blame, the witness and the line, where it is known.

    Args:
        layer: the layer.
        action: the class of the claim.
        found: a verdict with the smallest witness.
        settled: what the engines said before; its reason names a line of the code.
    """
    if "holds without rounding" in settled.reason:
        return rounded(action, found) + _line(found, settled)
    text = f"{layer.name} is claimed to be invariant under {action.__name__}, but it is not. "
    if found.scaling:
        text += f"Its outputs follow a law of their own: {found.scaling}. "
    blamed = fading(layer, found) or "The layer is to blame: neither rounding nor an eps explains it."
    return f"{text}{blamed}\n{found}{_line(found, settled)}"


def fading(layer: Layer, found: Verdict) -> str:
    """Say that a change falls as one by an eps does, when weights or data grow; nothing if it does not."""
    at = found.witness
    # A shift of fixed size fades beside anything that grows, and no eps breaks one.
    if found.scaling or at is None or getattr(at.transform, "sign", None) is None:
        return ""
    here = invariance_error(layer, at.transform, at.weight, at.data)
    grown = (at.weight * GROWN, at.data), (at.weight, at.data * GROWN)
    there = min(invariance_error(layer, at.transform, *point) for point in grown)
    if there > SLACK * here / GROWN:
        return ""
    falls = f"the change falls from {here:.2g} to {there:.2g} when weights or data grow by {GROWN:g}, as"
    if there > SLACK * here / GROWN**2:
        return (
            f"Something added before the norm, or an eps outside a root, may be to blame: {falls} for those."
        )
    return (
        f"An eps may be to blame that is not recognized in the code: {falls} for one inside a root. "
        "If so, make it an attribute `eps` of the module."
    )


def _line(found: Verdict, settled: Verdict) -> str:
    """The reason of the engines, unless the verdict printed says it already."""
    return f"\n  {settled.reason}" if settled.reason and settled.reason not in found.reason else ""
