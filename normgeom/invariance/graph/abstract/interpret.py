"""Running a graph on forms."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from normgeom.invariance.graph.abstract.forms import UNCHANGED, Form, Lost, Scaled, Unknown
from normgeom.invariance.graph.abstract.operand import Operand
from normgeom.invariance.graph.abstract.rules import RULES, Call, understood
from normgeom.invariance.graph.eps_places import EpsPlace, eps_places
from normgeom.invariance.graph.exported import Graph, describe, operator

REDUCES = ("aten.sum", "aten.mean", "aten.amax", "aten.amin", "aten.linalg_vector_norm")
SUMS = ("aten.mm", "aten.bmm", "aten.addmm", "aten.convolution")
ALONE = ("aten.add", "aten.sub", "aten.clamp", "aten.clamp_min", "aten.maximum")
KEEPS_SINGLE = ("aten.unsqueeze", "getitem")
COMPARES = tuple(f"aten.{name}" for name in ("lt", "le", "gt", "ge", "eq", "ne"))


@dataclass(eq=False)
class Answer:
    """How the outputs answer, where an eps meets what is scaled, and whether an axis of size 1 was met."""

    form: Form
    shape: tuple[int, ...]
    met: list[EpsPlace] = field(default_factory=list)
    single: bool = False
    still_moved: str = ""


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
            keys[node] = ("node", numbered.setdefault(node.name, len(numbered)))
            continue
        structure = pytree.tree_map_only(fx.Node, keys.__getitem__, (node.args, dict(node.kwargs)))
        keys[node] = ("node", numbered.setdefault((str(node.target), repr(structure)), len(numbered)))
        if node in places and _adds_eps_alone(places[node]) and _grows(first := forms[places[node].source]):
            met.append(places[node])
            forms[node] = first
        else:
            forms[node] = _answer(node, forms, keys)
    single = any(_meets_single(node, graph) and forms[node] != UNCHANGED for node in graph.needed)
    return Answer(forms[graph.output], _shape(graph.output), met, single, _still_moved(graph, forms))


def _still_moved(graph: Graph, forms: dict[fx.Node, Any]) -> str:
    """The last operator that could have taken the action away and has not, else the one that passes it on."""

    def moving(node: fx.Node) -> list[fx.Node]:
        return [source for source in node.all_input_nodes if forms[source] != UNCHANGED]

    moved = [node for node in graph.needed if node not in graph.inputs and forms[node] != UNCHANGED]
    meeting = [node for node in moved if len(set(moving(node))) > 1]
    summing = [node for node in moved if operator(node) in SUMS and moving(node)]
    how = "and stay so after" if meeting else "and nothing takes that away after"
    last = (meeting or summing or moved)[-1:]
    return f"{how} {describe(last[0])}" if last else "as they come"


def _adds_eps_alone(p: EpsPlace) -> bool:
    """Whether a node does no more than add an eps or bound by one: no upper bound, no new axes."""
    if p.source is None or operator(p.node) not in ALONE:
        return False
    return all(bound is None for bound in p.node.args[2:]) and _shape(p.node) == _shape(p.source)


def _meets_single(node: fx.Node, graph: Graph) -> bool:
    """Whether a node has an axis that may be of size 1 at this size alone, so that its law looks simpler.

    The axes that a reduction keeps and those put in for broadcasting are of size 1 at every size.
    """
    ones = _shape(node).count(1)
    if node in graph.inputs or operator(node) in KEEPS_SINGLE or "keepdim" in node.kwargs:
        return node in graph.inputs and ones > 0
    kept = (len(node.args) > 2 and node.args[2] is True) or (len(node.args) > 3 and node.args[3] is True)
    return not (kept and operator(node) in REDUCES) and ones > max(
        (_shape(source).count(1) for source in node.all_input_nodes), default=0
    )


def _grows(form: Any) -> bool:
    """Whether a tensor grows with the scale, so that an eps added to it matters less and less."""
    return isinstance(form, Scaled) and form.power > 0


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
        refuse_cast(node)
        found = rule(understood(_call(node, forms, keys)))
    except Lost as why:
        return Unknown(f"{describe(node)}: {why}")
    return (
        [Unknown(f"{describe(node)}: {f}") if isinstance(f, Lost) else f for f in found]
        if (isinstance(found, list))
        else found
    )


def refuse_cast(node: fx.Node) -> None:
    """Raise Lost where the action moves what is cast to integers, or to a type that float32 is wider than."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or operator(node) in COMPARES:
        return
    if not value.is_floating_point():
        raise Lost(f"its result is of type {value.dtype}, which rounds what the action moves")
    widths = [torch.finfo(value.dtype).bits, *_widths(node)]
    if widths[0] < 32 and widths[0] < max(widths):
        raise Lost(f"a cast to {value.dtype} rounds what the action moves")


def _widths(node: fx.Node) -> list[int]:
    values = [source.meta.get("val") for source in node.all_input_nodes]
    return [
        torch.finfo(v.dtype).bits for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()
    ]


def _call(node: fx.Node, forms: dict[fx.Node, Any], keys: dict[fx.Node, Any]) -> Call:
    """The call of a node with its arguments as operands."""

    def operand(source: fx.Node) -> Operand:
        return Operand(forms[source], _shape(source), keys[source])

    arguments, options = pytree.tree_map_only(fx.Node, operand, (node.args, dict(node.kwargs)))
    return Call(arguments, options, _shape(node), (operator(node), keys[node]))


def _shape(node: fx.Node) -> tuple[int, ...]:
    value = node.meta.get("val")
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()
