"""The constants that a graph compares with or bounds by.

Random points may all lie on one side of a constant, where a layer has a law that it does not have elsewhere.
"""

from typing import Any

from torch import fx

from normgeom.invariance.graph.constants import constant_of
from normgeom.invariance.graph.eps_places import eps_places
from normgeom.invariance.graph.exported import Graph, NoGraph, ancestors, operator
from normgeom.invariance.graph.observed import observed

BOUNDED = ("aten.clamp", "aten.clamp_min", "aten.clamp_max", "aten.maximum", "aten.minimum", "aten.hardtanh")
SATURATE = ("aten.tanh", "aten.sigmoid", "aten.erf", "aten.exp", "aten.expm1", "aten.gelu", "aten.elu")
FAR = 16.0  # where what saturates has few digits left
COMPARED = ("aten.gt", "aten.ge", "aten.lt", "aten.le", "aten.eq", "aten.ne")


def bounds_but_eps(graph: Graph | NoGraph | None) -> tuple[float, ...]:
    """Return the sizes of the constants but 0 that what depends on weight or data is held against.

    Those that are an eps are left out; sizes of summed inputs where a function saturates no longer are in.
    """
    if not isinstance(graph, Graph):
        return ()
    if "bounds" not in graph.found:
        places = eps_places(graph)
        eps = {at for p in places for at in ((p.node, p.operand), *p.compared)}
        sizes = [abs(v) for node in graph.needed for v in _held_against(graph, node, eps)]
        sizes += _saturated(graph)
        graph.found["bounds"] = tuple(sorted({s for s in sizes if 0 < s < float("inf")}))
    return graph.found["bounds"]


def _saturated(graph: Graph) -> list[float]:
    """The sizes of summed inputs at which functions that saturate at usual points do not."""
    calls = [node for node in graph.needed if operator(node) in SATURATE and node not in graph.inputs]
    nodes = [node.all_input_nodes[0] for node in calls]
    largest = [float(values.abs().max()) for values in observed(graph, nodes).values()] if nodes else []
    return [1 / size for size in largest if FAR < size < float("inf")]


def _held_against(graph: Graph, node: fx.Node, eps: set[tuple[fx.Node, int]]) -> list[float]:
    """The constants of one node that bounds or compares what is not constant."""
    if node in graph.inputs or operator(node) not in BOUNDED + COMPARED:
        return []
    if not {graph.weight, graph.data} & set(ancestors(node)):
        return []
    operands = [argument for k, argument in enumerate(node.args) if (node, k) not in eps]
    return [v for argument in (*operands, *node.kwargs.values()) for v in _numbers(graph, argument)]


def _numbers(graph: Graph, argument: Any) -> list[float]:
    held = constant_of(graph, argument)
    return [] if held is None else held.flatten().tolist()
