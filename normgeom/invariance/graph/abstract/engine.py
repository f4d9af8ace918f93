"""The abstract engine: how every tensor of a layer's graph answers to an action, whatever the numbers.

The rules ask nothing of sizes but that views do not cut across an axis, so what they prove holds at every
size. Where an axis is of size 1, a law may be simpler than elsewhere: there the proof is of this size. They
may find nothing; they never call invariant what is not.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import torch

from normgeom._actions import Recenter, Rescale
from normgeom.invariance._points import as_degree
from normgeom.invariance.branches import branches
from normgeom.invariance.graph.abstract.axes import fresh
from normgeom.invariance.graph.abstract.forms import DELTA, SHIFT, UNCHANGED, Form, Scaled, Shifted, Unknown
from normgeom.invariance.graph.abstract.interpret import Answer, interpret
from normgeom.invariance.graph.eps_places import said
from normgeom.invariance.graph.exported import FAILURES, Graph, NoGraph
from normgeom.invariance.graph.samples import shapes
from normgeom.invariance.measure import size_of_summed_inputs
from normgeom.invariance.verdict import MAY_BE_NOTHING, Kind, Proof, Verdict, law, subject
from normgeom.layers import Layer

AXES = {"units": [0], "cases": [0]}
NOTHING = 1e-12


def judge(
    layer: Layer, transform: Any, *, generator: torch.Generator, graph: Graph | NoGraph, **_: Any
) -> Verdict:
    """Return the verdict of the rules on one cell, for every size.

    Args:
        layer: the layer that was exported.
        transform: an action's class, or one element, for which what holds for its class holds.
        generator: not used: nothing is drawn, but for one fixed point at which the outputs must vary.
        graph: the exported layer, or why there is none.
    """
    about = subject(layer, transform, "abstract")
    if isinstance(graph, NoGraph):
        return Verdict(kind=Kind.UNDECIDED, reason=f"abstract: {graph}", **about)
    steps = list(getattr(transform, "steps", (transform,)))
    if not steps or not all(map(_known, steps)):
        reason = f"abstract: {about['transform']} is not one of normgeom's actions"
        return Verdict(kind=Kind.UNDECIDED, reason=reason, **about)
    answers = [_answer_to(graph, step) for step in steps]
    branches_at = _branches(layer, graph)
    if _constant(layer, graph):
        reason = f"abstract: the outputs of {layer.name} are constant at this size"
        return Verdict(kind=Kind.UNDECIDED, reason=reason, **about)
    if all(answer.form == UNCHANGED for answer in answers):
        return Verdict(**(_invariant(graph, answers, branches_at) | about))
    if transform is steps[0] and isinstance(transform, type) and isinstance(answers[0].form, Scaled):
        return Verdict(**(_scaled(transform, answers[0]) | about))
    reason = "; ".join(filter(None, map(_why, answers)))
    return Verdict(kind=Kind.UNDECIDED, reason=f"abstract: {reason}", **about)


def _known(action: Any) -> bool:
    """Whether an action acts as its class attributes say: a scale or a shift along its axis."""
    kind = action if isinstance(action, type) else type(action)
    law = Rescale if issubclass(kind, Rescale) else Recenter
    return issubclass(kind, law) and all(
        getattr(kind, name) is getattr(law, name) for name in ("__call__", "_act", "_along")
    )


def _answer_to(graph: Graph, action: Any) -> Answer:
    """How the outputs answer to an action, found once for its class and whether its scales are signed."""
    kind = action if isinstance(action, type) else type(action)
    signed = may_be_negative(action)
    key = ("answer", kind, signed)
    if key not in graph.found:
        weight, data = shapes(graph)
        moved = form_of(kind, weight if kind.moves == "weight" else data, signed)  # type: ignore[attr-defined]
        forms = (moved, UNCHANGED) if kind.moves == "weight" else (UNCHANGED, moved)  # type: ignore[attr-defined]
        graph.found[key] = interpret(graph, *forms)
    return graph.found[key]


def may_be_negative(action: Any) -> bool:
    """Return whether a class draws negative scales, or an element has one, or symbols that may be."""
    if isinstance(action, type) or not action.sign:
        return action.sign == -1
    try:
        return bool((np.asarray(action.parameter, dtype=np.float64) < 0).any())
    except (TypeError, ValueError):
        return True


def form_of(action: Any, shape: tuple[int, ...], signed: bool) -> Form:
    """Return the form of the array, of this shape, that a class of actions moves."""
    inputs = [1] if action.constant_over_positions else list(range(1, len(shape)))
    axes = [] if action.axis is None else AXES.get(action.axis, inputs)
    along = fresh(shape, axes)
    return Scaled(Fraction(1), signed, along, DELTA) if action.sign else Shifted(SHIFT, along)


def _branches(layer: Layer, graph: Graph) -> tuple[str, ...]:
    """The lines of the layer's code that compare sizes: at another size its graph may be another."""
    if "branches" not in graph.found:
        point = [torch.ones(s, dtype=torch.float64) for s in shapes(graph)]
        try:
            graph.found["branches"] = branches(layer, *point)
        except FAILURES:
            graph.found["branches"] = ()
    return graph.found["branches"]


def _invariant(graph: Graph, answers: list[Answer], branches_at: tuple[str, ...]) -> dict[str, Any]:
    """The verdict on unchanged outputs: up to eps where one meets what is scaled."""
    places = said(place for answer in answers for place in answer.met)
    count = sum(node not in graph.inputs for node in graph.needed)
    text = f"by the rules of its {count} operators the outputs do not change" + (
        " at eps = 0" if places else ""
    )
    sizes, how = (0, 0, 0), "every size"
    if branches_at or any(answer.single for answer in answers):
        weight, data = shapes(graph)
        why = (
            f"the code compares sizes at {', '.join(branches_at)}"
            if branches_at
            else "it has an axis of size 1"
        )
        sizes, how = (weight[0], data[1], data[0]), f"this size, since {why}"
    proof = Proof(text, r"f(T(W, X)) = f(W, X)", "", *sizes, how=how)
    return {"kind": Kind.UP_TO_EPS if places else Kind.INVARIANT, "proof": proof, "reason": places}


def _constant(layer: Layer, graph: Graph) -> bool:
    """Whether the outputs are one constant at a random point, so that they show nothing."""
    if "constant" not in graph.found:
        generator = torch.Generator().manual_seed(0)
        point = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes(graph)]
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            outputs = layer(*point).double()
        size = max(float(outputs.abs().max()), size_of_summed_inputs(*point))
        graph.found["constant"] = bool((outputs - outputs.mean()).abs().max() <= NOTHING * size)
    return graph.found["constant"]


def _scaled(transform: Any, answer: Answer) -> dict[str, Any]:
    """The verdict on outputs that are scaled; they are not 0, since they are not constant."""
    form = answer.form
    assert isinstance(form, Scaled)
    outer = {None: [], "units": [1], "cases": [0]}.get(transform.axis, [])
    lawful = form.label == DELTA and form.along == fresh(
        answer.shape, [a for a in outer if a < len(answer.shape)]
    )
    if lawful and form.power and answer.met:
        bare = f"at eps = 0 the outputs are {law(as_degree(form.power), form.odd)}"
        return {"kind": Kind.NOT_INVARIANT, "reason": bare}
    degree = as_degree(form.power) if lawful and not answer.met else None
    return {"kind": Kind.NOT_INVARIANT, "degree": degree, "flips": degree is not None and form.odd}


def _why(answer: Answer) -> str:
    """Where the law of an action is lost."""
    if isinstance(answer.form, Unknown):
        return f"its law is lost at {answer.form.why}"
    if answer.form == UNCHANGED:
        return ""
    return f"the outputs are moved, {answer.still_moved}{MAY_BE_NOTHING}"
