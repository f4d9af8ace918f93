"""The constants that a graph compares with or bounds by.

Random points may all lie on one side of a constant, where a layer has a law that it does not have elsewhere.
"""

from typing import Any

import torch
from torch import fx

from normgeom.invariance.graph.exported import Graph, ancestors, operator

BOUNDED = ("aten.clamp", "aten.clamp_min", "aten.clamp_max", "aten.maximum", "aten.minimum", "aten.hardtanh")
COMPARED = ("aten.gt", "aten.ge", "aten.lt", "aten.le", "aten.eq", "aten.ne")
PASSES = ("aten.clone", "aten.alias", "aten.detach", "aten._to_copy", "aten.lift_fresh_copy", "aten.expand",
          "aten.view", "aten.unsqueeze", "aten.abs", "aten.reshape")  # fmt: skip
FILLS = {"aten.full": 1, "aten.full_like": 1, "aten.scalar_tensor": 0}


def constants_of(graph: Graph, argument: Any) -> list[float]:
    """Return the numbers that an operand holds whatever weight and data are, none if it depends on them."""
    while isinstance(argument, fx.Node) and argument not in graph.inputs and operator(argument) in PASSES:
        argument = argument.args[0]
    if isinstance(argument, fx.Node) and operator(argument) in FILLS:
        argument = argument.args[FILLS[operator(argument)]]
    if isinstance(argument, fx.Node):
        held = graph.inputs.get(argument)
        return held.detach().double().flatten().tolist() if isinstance(held, torch.Tensor) else []
    return [float(argument)] if isinstance(argument, int | float) else []


def bounds(graph: Graph) -> tuple[float, ...]:
    """Return the sizes of the finite constants but 0 that what depends on weight or data is held against."""
    if "bounds" not in graph.found:
        sizes = [abs(v) for node in graph.needed for v in _held_against(graph, node)]
        graph.found["bounds"] = tuple(sorted({s for s in sizes if 0 < s < float("inf")}))
    return graph.found["bounds"]


def _held_against(graph: Graph, node: fx.Node) -> list[float]:
    """The constants of one node that bounds or compares what is not constant."""
    if node in graph.inputs or operator(node) not in BOUNDED + COMPARED:
        return []
    if not {graph.weight, graph.data} & set(ancestors(node)):
        return []
    return [v for argument in (*node.args, *node.kwargs.values()) for v in constants_of(graph, argument)]
