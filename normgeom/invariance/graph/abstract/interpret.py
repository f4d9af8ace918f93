"""Running a graph on forms."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from normgeom.invariance.graph.abstract.forms import UNCHANGED, Form, Lost, Scaled, Unknown
from normgeom.invariance.graph.abstract.operand import Operand
from normgeom.invariance.graph.abstract.rules import RULES, Call
from normgeom.invariance.graph.eps_places import EpsPlace, eps_places
from normgeom.invariance.graph.exported import Graph, describe, operator


@dataclass(eq=False)
class Answer:
    """How the outputs answer, and where an eps meets what is scaled."""

    form: Form
    shape: tuple[int, ...]
    met: list[EpsPlace] = field(default_factory=list)


def interpret(graph: Graph, weight: Form, data: Form) -> Answer:
    """Return how the outputs of a graph answer, given how its weight and data do.

    Every eps is taken as 0; those that meet a scaled tensor are listed, since they break its law.
    """
    places = {place.node: place for place in eps_places(graph)}
    forms: dict[fx.Node, Any] = {}
    keys: dict[fx.Node, Any] = {}
    numbered: dict[Any, int] = {}
    met: list[EpsPlace] = []
    for node in graph.needed:
        if node in graph.inputs:
            held = graph.inputs[node]
            forms[node] = {"weight": weight, "data": data}[held] if isinstance(held, str) else UNCHANGED
            keys[node] = numbered.setdefault(node.name, len(numbered))
            continue
        structure = pytree.tree_map_only(fx.Node, keys.__getitem__, (node.args, dict(node.kwargs)))
        keys[node] = numbered.setdefault((operator(node), repr(structure)), len(numbered))
        if node in places and _scaled(first := forms[node.all_input_nodes[0]]):
            met.append(places[node])
            forms[node] = first
        else:
            forms[node] = _answer(node, forms, keys)
    return Answer(forms[graph.output], tuple(graph.output.meta["val"].shape), met)


def _scaled(form: Any) -> bool:
    return isinstance(form, Scaled) and form != UNCHANGED


def _answer(node: fx.Node, forms: dict[fx.Node, Any], keys: dict[fx.Node, Any]) -> Any:
    """Apply the rule of one node; where it has nothing to say, say where that was."""
    if operator(node) == "getitem":
        source, place = forms[node.all_input_nodes[0]], node.args[1]
        return source[place] if isinstance(source, list) and isinstance(place, int) else source
    used = [forms[source] for source in node.all_input_nodes]
    if unknown := next((form for form in used if isinstance(form, Unknown)), None):
        return unknown
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return Unknown(f"{describe(node)}: it draws random numbers")
    if all(form == UNCHANGED for form in used):
        return UNCHANGED
    rule = RULES.get(operator(node))
    if rule is None:
        return Unknown(f"{describe(node)}: there is no rule for it")
    try:
        found = rule(_call(node, forms, keys))
    except Lost as why:
        return Unknown(f"{describe(node)}: {why}")
    return (
        [Unknown(f"{describe(node)}: {f}") if isinstance(f, Lost) else f for f in found]
        if (isinstance(found, list))
        else found
    )


def _call(node: fx.Node, forms: dict[fx.Node, Any], keys: dict[fx.Node, Any]) -> Call:
    """The call of a node with its arguments as operands."""

    def operand(source: fx.Node) -> Operand:
        return Operand(forms[source], _shape(source), keys[source])

    arguments, options = pytree.tree_map_only(fx.Node, operand, (node.args, dict(node.kwargs)))
    return Call(arguments, options, _shape(node), (operator(node), keys[node]))


def _shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()
