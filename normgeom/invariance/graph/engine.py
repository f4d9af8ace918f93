"""The graph engine: the layer's own operators on numbers of 50 digits, at random rational points.

Equality to 40 digits at several points and elements is an identity but for a coincidence of 40 digits; a
change is a counterexample.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import torch

from normgeom.invariance._points import NotExact
from normgeom.invariance.graph.bounds import bounds_but_eps
from normgeom.invariance.graph.digits import NoValue, precision
from normgeom.invariance.graph.eps_places import EpsPlace, eps_places, replaced, said
from normgeom.invariance.graph.evaluate import Constants, refuse_unknown, size
from normgeom.invariance.graph.exported import Graph, NoGraph, operator
from normgeom.invariance.graph.fading import broken_by_eps_alone, change_with
from normgeom.invariance.graph.samples import SAME, Point, Sample, element_at, rational_point
from normgeom.invariance.measure import size_of_summed_inputs
from normgeom.invariance.scales import scales_at
from normgeom.invariance.verdict import Kind, Proof, Verdict, law, subject
from normgeom.layers import Layer

POINTS, FEWER = 3, 2
MANY_OPERATIONS = 50_000  # with thousands of outputs, two points tell as much
TRIES = 4
SEEN = 1e-12  # a smaller change may come from a constant of the code that was rounded
CHEAP = 3_000  # up to here a point of small integers is looked for
ENOUGH = 300_000  # operations of one evaluation; beyond, one takes seconds
UNIT, MANY = 2.0**-52, 64  # how far rounding moves an ill-conditioned layer
LARGE_EPS, LARGE_BOUND = 0.375, 1e6  # where an eps must matter if it matters at all


def judge(
    layer: Layer, transform: Any, *, generator: torch.Generator, graph: Graph | NoGraph, **_: Any
) -> Verdict:
    """Return the verdict of the layer's own code on one cell.

    Args:
        layer: the layer that was exported.
        transform: an action's class, whose elements are drawn, or one element.
        generator: draws points and elements.
        graph: the exported layer, or why there is none.
    """
    about = subject(layer, transform, "graph")
    try:
        if isinstance(graph, NoGraph):
            raise graph
        refuse_unknown(graph)
        if (operations := size(graph)) > ENOUGH:
            raise NoGraph(f"{operations} operations on numbers of 50 digits take long; ask for fewer units")
        with precision():
            return Verdict(**(_decide(graph, layer, transform, generator) | about))
    except (NoGraph, NotExact, NoValue) as why:
        return Verdict(kind=Kind.UNDECIDED, reason=f"graph: {why}", **about)


def _decide(graph: Graph, layer: Layer, transform: Any, generator: torch.Generator) -> dict[str, Any]:
    """Return kind and evidence; the first point that no eps explains decides."""
    samples: list[Sample] = []
    places: list[EpsPlace] = []
    for point in _points(graph, layer, generator):
        element = element_at(transform, point.weight, point.data, generator)
        try:
            here = point.moved(element)
        except NoValue:
            continue
        places = eps_places(graph) if scales(element) else []
        if here.change > SAME and not (places and broken_by_eps_alone(here, places, first=not samples)):
            return _broken(graph, transform, here, generator)
        samples.append(here)
    if not samples:
        raise NoValue("the layer has no value at the points drawn")
    far = _broken_at_scales(samples[0], replaced(places, 0.0))
    if far is not None:
        return {"kind": Kind.NOT_INVARIANT, "witness": far.witness()}
    if max(s.change for s in samples) > SAME or change_with(samples[0], _enlarged(places)) > SAME:
        return _up_to_eps(places, max(s.change for s in samples))
    return {"kind": Kind.INVARIANT, "tolerance": float(SAME), "proof": _proof(graph, samples)}


def _broken_at_scales(here: Sample, constants: Constants) -> Sample | None:
    """The point scaled to where a constant of the code matters, if the outputs change there without eps."""
    point = here.point
    arrays = (torch.tensor(array.astype(float)) for array in (point.weight, point.data))
    factors = scales_at(bounds_but_eps(point.graph), size_of_summed_inputs(*arrays))
    for factor in map(Fraction, factors):
        for grown in ((factor, 1), (1, factor)):
            try:
                if point.moved(here.element, constants, grown).change > SEEN:
                    return point.moved(here.element, grown=grown)
            except NoValue:
                continue
    return None


def _points(graph: Graph, layer: Layer, generator: torch.Generator) -> list[Point]:
    """The points of a graph with its outputs there, drawn once and compared with the layer's."""
    if "points" not in graph.found:
        points = [
            Point(graph, *rational_point(graph, generator))
            for _ in range(POINTS if size(graph) < MANY_OPERATIONS else FEWER)
        ]
        _refuse_another_function(graph, layer, points[0])
        values = np.concatenate([point.outputs().ravel() for point in points])
        if max(values) - min(values) <= SAME:
            raise NoGraph(f"the outputs of {layer.name} are constant at this size")
        graph.found["points"] = points
    return graph.found["points"]


def _refuse_another_function(graph: Graph, layer: Layer, point: Point) -> None:
    """Raise NoGraph if the graph's exact outputs are not those of the layer, to its rounding."""
    at = [torch.tensor(array.astype(float)) for array in (point.weight, point.data)]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        given, near = (layer(*(k * array for array in at)).double().numpy() for k in (1, 1 + UNIT))
    expected = point.outputs().astype(float)
    narrowest = min((torch.finfo(t).bits for t in _types(graph)), default=64)
    allowed = {64: 1e-9, 32: 1e-4}.get(narrowest, 0.1)
    rounding = MANY * np.nan_to_num(np.abs(near - given)).max()
    same = given.shape == expected.shape and np.allclose(given, expected, allowed, allowed + rounding)
    if not same:
        off = "shape" if given.shape != expected.shape else f"{np.abs(given - expected).max():.2g}"
        used = ", ".join(dict.fromkeys(operator(n) for n in graph.needed if n not in graph.inputs))
        raise NoGraph(f"the rules give other outputs than the layer (off by {off}): one of {used} is wrong")


def _types(graph: Graph) -> set[torch.dtype]:
    """The floating-point types that a graph computes in."""
    values = [node.meta.get("val") for node in graph.needed]
    return {v.dtype for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()}


def _broken(graph: Graph, transform: Any, here: Sample, generator: torch.Generator) -> dict[str, Any]:
    """The evidence of a change that no eps explains."""
    if here.change < SEEN:
        reason = (
            f"graph: the outputs change by {here.change:.1g}, as a rounded constant of the code may make them"
        )
        return {"kind": Kind.UNDECIDED, "reason": reason}
    degree = here.degree
    simple = _simple(graph, transform, generator) if size(graph) < CHEAP else None
    return {
        "kind": Kind.NOT_INVARIANT,
        "degree": degree,
        "flips": degree is not None and here.flips,
        "witness": (simple or here).witness(),
        "reason": _degree_without_eps(graph, here) if degree is None else "",
    }


def _degree_without_eps(graph: Graph, here: Sample) -> str:
    """The law that the outputs follow but for an eps, in words; an empty string if there is none."""
    places = eps_places(graph) if scales(here.element) else []
    try:
        bare = here.point.moved(here.element, replaced(places, 0.0))
    except NoValue:
        return ""
    return (
        "" if not places or not bare.degree else f"at eps = 0 the outputs are {law(bare.degree, bare.flips)}"
    )


def scales(element: Any) -> bool:
    """Whether an element scales anything: eps does nothing to a pure shift."""
    return any(getattr(step, "sign", None) is not None for step in getattr(element, "steps", (element,)))


def _enlarged(places: list[EpsPlace]) -> Constants:
    return replaced(places, lambda p: LARGE_BOUND if p.bounds else LARGE_EPS)


def _up_to_eps(places: list[EpsPlace], change: float) -> dict[str, Any]:
    """The verdict with the places where eps is added."""
    return {"kind": Kind.UP_TO_EPS, "error": change, "reason": said(places)}


def _proof(graph: Graph, samples: list[Sample]) -> Proof:
    """Say what was evaluated."""
    count = sum(node not in graph.inputs for node in graph.needed)
    text = (
        f"the outputs of the layer's own graph ({count} operators) agree to 40 digits at {len(samples)} "
        "random rational points, each with its own element"
    )
    weight, data = samples[0].point.weight.shape, samples[0].point.data.shape
    return Proof(text, r"f(T(W, X)) = f(W, X)", "", weight[0], data[1], data[0], how="50 digits")


def _simple(graph: Graph, transform: Any, generator: torch.Generator) -> Sample | None:
    """A point of small integers where the outputs change visibly, None if a few tries find none."""
    for _ in range(TRIES):
        point = Point(graph, *rational_point(graph, generator, simple=True))
        try:
            found = point.moved(element_at(transform, point.weight, point.data, generator, simple=True))
        except NoValue:
            continue
        if found.change > 1e-3:
            return found
    return None
