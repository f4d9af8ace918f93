"""What a row of yes and no does not say of a layer: of its gradient, its sizes, its scale, its input."""

import math
from typing import Any

import torch

from normgeom.invariance.branches import branches
from normgeom.invariance.calling import evaluate
from normgeom.invariance.gradients import backward_gap, gradient_identity_error
from normgeom.invariance.graph import Graph, NoGraph, with_hidden_eps
from normgeom.invariance.scales import without_eps
from normgeom.layers import Layer, ModuleLayer, NormLayer, OnSummedInputs
from normgeom.layers.fitting import REFUSALS

GAP = 1e-2  # a backward pass that is not the derivative is off by a good part of it
SAME = 1e-6
STEP = 1e-3

Point = tuple[torch.Tensor, torch.Tensor]
Shapes = tuple[tuple[int, ...], tuple[int, ...]]


def remarks(layer: Layer, seen: Graph | NoGraph | None, shapes: Shapes) -> tuple[str, ...]:
    """Return what else there is to know of a layer, a sentence each.

    Args:
        layer: any layer; a norm of statistics has nothing to hide.
        seen: the layer's graph, for the lines of its code.
        shapes: of its weight and data.
    """
    if isinstance(layer, NormLayer):
        return ()
    point = point_of(shapes)
    found = (
        of_sizes(layer, point),
        _of_no_gradient(layer, point),
        _of_writing(layer, point, seen),
        _of_scale(layer, point, seen),
    )
    return tuple(filter(None, found))


def point_of(shapes: Shapes) -> Point:
    """Return a Gaussian point."""
    generator = torch.Generator().manual_seed(0)
    weight, data = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return weight, data


def of_gradient(layer: Layer, transform: Any, point: Point, seen: Graph | NoGraph | None) -> str:
    """Return what is wrong with the backward pass along an action, or an empty string."""
    generator = torch.Generator().manual_seed(0)
    element = transform.sample(*point, generator=generator) if isinstance(transform, type) else transform  # type: ignore[attr-defined]
    try:
        gap = backward_gap(layer, element, *point, generator)
        if gap < GAP:
            return ""
        error = gradient_identity_error(layer, element, *point, generator=generator)
    except REFUSALS:
        return ""
    cut = seen.detached if isinstance(seen, Graph) else ()
    where = f" (detached at {', '.join(cut)})" if cut else ""
    return (
        f"the gradient identity fails, by {error:.2g} of the gradient's length: the backward pass is not the "
        f"derivative of the outputs{where}"
    )


def of_sizes(layer: Layer, point: Point) -> str:
    """Return where the code compares a size, or an empty string."""
    try:
        lines = branches(layer, *point)
    except REFUSALS:
        return ""
    compared = f"the code compares sizes ({', '.join(lines)}): what is said holds at the sizes of this check"
    return compared if lines else ""


def _of_no_gradient(layer: Layer, point: Point) -> str:
    """Say that the outputs carry no gradient although they change with weight and data."""
    weight, data = (array.clone().requires_grad_() for array in point)
    try:
        with torch.random.fork_rng(devices=[]):
            outputs = layer(weight, data)
        moved = evaluate(layer, *(array + STEP * array.roll(1, 0) for array in point))
    except REFUSALS:
        return ""
    still = outputs.requires_grad or bool(torch.isclose(moved, outputs, rtol=0.0, atol=STEP**2).all())
    return "" if still else "the outputs carry no gradient, although they change with weight and data"


def _of_writing(layer: Layer, point: Point, seen: Graph | NoGraph | None) -> str:
    """Say that a module writes into its input."""
    if not isinstance(layer, OnSummedInputs):
        return ""
    module = layer.in_double().module
    summed = layer.convolution(*point)
    kept = summed.clone()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            module(summed)
    except REFUSALS:
        return ""
    lines = f" ({', '.join(seen.in_place)})" if isinstance(seen, Graph) and seen.in_place else ""
    return "" if torch.equal(summed, kept) else f"the module changes its input in place{lines}"


def _of_scale(layer: Layer, point: Point, seen: Graph | NoGraph | None) -> str:
    """Say that the outputs have the variance (n - 1)/n that a division by n - 1 leaves."""
    layer = with_hidden_eps(layer, seen) or (layer.in_double() if isinstance(layer, ModuleLayer) else layer)
    try:
        outputs = evaluate(without_eps(layer), *point).double()
    except REFUSALS:
        return ""
    positions = list(range(2, outputs.ndim))
    over = {"units": [1, *positions], "cases": [0, *positions], "positions": positions}
    for name, axes in over.items() if outputs.ndim > 1 else ():
        n = math.prod(outputs.shape[axis] for axis in axes)
        spread = outputs.var(axes, correction=0) if n > 2 else outputs
        if bool(((spread - (n - 1) / n).abs() < SAME).all()):
            return f"the outputs have variance (n - 1)/n over the {n} {name}: a variance is divided by n - 1"
    return ""
