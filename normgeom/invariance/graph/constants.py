"""What a graph computes from its constants alone, whatever weight and data are."""

from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from normgeom.invariance.graph.exported import Graph

FAILED = (RuntimeError, TypeError, ValueError, NotImplementedError)


def constant_of(graph: Graph, argument: Any) -> torch.Tensor | None:
    """Return the numbers that an operand holds whatever weight and data are, None if it depends on them.

    Args:
        graph: an exported layer.
        argument: an operand of one of its nodes: a node, or a number in the code.
    """
    if isinstance(argument, fx.Node):
        held = _known(graph).get(argument)
        return held.detach().double() if isinstance(held, torch.Tensor) else None
    if isinstance(argument, bool) or not isinstance(argument, int | float):
        return None
    return torch.tensor(float(argument), dtype=torch.float64)


def _known(graph: Graph) -> dict[fx.Node, Any]:
    """The values of all nodes that depend neither on weight nor on data, nor on random numbers."""
    if "constants" not in graph.found:
        known = {node: value for node, value in graph.inputs.items() if not isinstance(value, str)}
        for node in graph.needed:
            if node not in graph.inputs and _can_be_known(node, known):
                try:
                    known[node] = _called(node, known)
                except FAILED:
                    continue
        graph.found["constants"] = known
    return graph.found["constants"]


def _can_be_known(node: fx.Node, known: dict[fx.Node, Any]) -> bool:
    random = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
    return callable(node.target) and not random and all(source in known for source in node.all_input_nodes)


def _called(node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    assert callable(node.target)
    with torch.no_grad():
        arguments, options = pytree.tree_map_only(fx.Node, known.__getitem__, (node.args, dict(node.kwargs)))
        return node.target(*arguments, **options)
