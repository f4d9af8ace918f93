"""What a layer's row means for its training, and how far its own eps breaks it, size by size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from normgeom.invariance._points import Sizes
from normgeom.invariance.calling import act, evaluate
from normgeom.invariance.measure import relative_change
from normgeom.invariance.numeric import USUAL
from normgeom.invariance.table import InvarianceRow
from normgeom.layers import Layer, as_layer
from normgeom.transforms import TABLE_1

SIZES = (1.0, 0.1, 0.01, 0.001)


@dataclass(frozen=True)
class EpsBreaking:
    """How far an invariance that holds up to eps is broken, at summed inputs of several sizes.

    Attributes:
        transform: the action's class name; its scale is doubled.
        sizes: the root mean square of the summed inputs.
        changes: the largest change of an output at each size, relative to the largest output.
    """

    transform: str
    sizes: tuple[float, ...]
    changes: tuple[float, ...]


def eps_breaking(layer: Any, transform: Any, *, sizes: Sequence[float] = SIZES, **units: Any) -> EpsBreaking:
    """Measure what doubling under an action changes, with the layer's own eps, as its summed inputs shrink.

    Args:
        layer: a norm, a module, or a function of (weight, data); see `as_layer`.
        transform: a class of re-scalings.
        sizes: the sizes of the summed inputs.
        units: `units`, `inputs`, `cases` of the point.

    Raises:
        ValueError: for an action that scales nothing.

    An eps beside a variance changes `z` by the factor `2 sqrt(v + eps) / sqrt(4 v + eps)`, about
    `1 + 3 eps / 8 v`: a hundred times more where the summed inputs are ten times smaller.

    >>> import normgeom as ng
    >>> found = eps_breaking(ng.as_layer(ng.RMSNorm(), eps=1e-9), ng.DatasetRescale, sizes=[1.0, 0.1])
    >>> round(found.changes[1] / found.changes[0])
    100
    """
    if getattr(transform, "sign", None) is None:
        raise ValueError(f"transform must be a class of re-scalings; got {transform!r}.")
    subject = as_layer(layer)
    weight, data = _point(subject, units)
    summed = data.flatten(1) @ weight.flatten(1).T if weight.ndim == data.ndim == 2 else data
    usual = float(summed.square().mean().sqrt())
    shape = transform.shape(weight, data)
    element = transform(torch.full(shape, 2.0, dtype=weight.dtype) if shape else 2.0)
    changes = []
    for size in sizes:
        at = weight * (size / usual), data
        changes.append(relative_change(evaluate(subject, *at), evaluate(subject, *act(element, *at))))
    return EpsBreaking(transform.__name__, tuple(sizes), tuple(changes))


def advice(row: InvarianceRow) -> list[str]:
    """Return what follows from a row for training, a sentence for each point.

    Source: Ba et al. 2016, section 5.2; van Laarhoven 2017 for weight decay.

    >>> import normgeom as ng
    >>> advice(ng.check(ng.NoNorm(), engines="exact"))[0].startswith("No block of the weight is scale")
    True
    """
    held = {verdict.transform for verdict in row if verdict.holds}
    said = {verdict.transform for verdict in row}
    lines = [_of_scales(held)] if {"WeightMatrixRescale", "WeightVectorRescale"} <= said else []
    if "WeightMatrixRecenter" in held:
        lines.append(
            "The mean of the rows of W does nothing: 1'grad W = 0, SGD with or without momentum keeps 1'W "
            "as it was at the start, weight decay shrinks it as (1 - lr wd)^t, and Adam moves it for nothing."
        )
    if "DatasetRescale" in held:
        lines.append("The scale of the data does not matter: inputs need no scaling of the whole set.")
    if "DatasetRecenter" in held:
        lines.append("A shift of the whole data set does not matter: inputs need no centring.")
    if "CaseRescale" in held:
        lines.append("The scale of a single case (its contrast) does not matter.")
    if any(v.kind == "invariant up to eps" for v in row):
        lines.append(
            "eps matters where summed inputs are small: there the re-scalings fade, and so does all of this."
        )
    return lines


def _of_scales(held: set[str]) -> str:
    """What follows from the re-scalings of the weight."""
    if not held & {"WeightMatrixRescale", "WeightVectorRescale"}:
        return (
            "No block of the weight is scale invariant: weight decay acts on the function, and the learning "
            "rate is not divided by a squared length."
        )
    block = "Each row w_i" if "WeightVectorRescale" in held else "W as a whole (not its rows)"
    name = "w_i" if "WeightVectorRescale" in held else "W"
    return (
        f"{block} is scale invariant: its gradient is orthogonal to it, ||{name}|| grows at every SGD step, "
        f"and the effective learning rate is lr/||{name}||^2 (lr/||{name}|| for Adam). Weight decay does not "
        "regularize the function here: it sets that rate, and the angle of a step settles near sqrt(2 lr wd) "
        "for SGD."
    )


def _point(layer: Layer, asked: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """A Gaussian point of the layer's own shapes."""
    shapes = Sizes.of(layer, None, USUAL, **asked).shapes(layer)
    generator = torch.Generator().manual_seed(0)
    weight, data = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return weight, data


def scales_up_to_eps(row: InvarianceRow) -> list[Any]:
    """Return the re-scalings of a row that hold up to eps, as classes."""
    named = {transform.__name__: transform for transform in TABLE_1}
    return [
        named[v.transform]
        for v in row
        if v.kind == "invariant up to eps" and getattr(named.get(v.transform), "sign", None) is not None
    ]
