"""Where a graph adds an eps: a small positive constant, on what is not negative, under a root or division."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from normgeom.invariance.graph.bounds import bounds, constants_of
from normgeom.invariance.graph.exported import Graph, NoGraph, operator, place

LARGEST = 1e-2  # a larger one counts where the layer declares it
ADDS = ("aten.add",)
BOUNDS = ("aten.clamp", "aten.clamp_min", "aten.maximum")
ROOTS = ("aten.rsqrt", "aten.sqrt", "aten.reciprocal", "aten.div", "aten.pow", "aten.log")
ALWAYS = (
    "aten.abs",
    "aten.linalg_vector_norm",
    "aten.relu",
    "aten.exp",
    "aten.sqrt",
    "aten.rsqrt",
    "aten.var",
    "aten.sigmoid",
)
KEEPS = (
    "aten.sum", "aten.mean", "aten.amax", "aten.amin", "aten.view", "aten.expand", "aten.unsqueeze",
    "aten.squeeze", "aten.clone", "aten._to_copy", "aten.permute", "aten.slice", "aten.select", "aten.cumsum",
    "aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d", "aten.constant_pad_nd", "aten.reshape",
    "aten.div", "aten.mul", "aten.add", "aten.where", "aten.cat", "aten.reciprocal", "aten.alias",
    "aten.mm", "aten.bmm", "aten.maximum",
)  # fmt: skip


@dataclass(frozen=True)
class EpsPlace:
    """A node that adds an eps, or bounds by one from below.

    Attributes:
        node: the node.
        value: the eps.
        bounds: whether it is a bound.
    """

    node: fx.Node
    value: float
    bounds: bool

    def __str__(self) -> str:
        """The eps with its place, `+ eps (1e-05), my_norm.py:14`."""
        what = "bound by eps" if self.bounds else "+ eps"
        return f"{what} ({self.value:g}), {place(self.node)}"


def eps_places(graph: Graph) -> list[EpsPlace]:
    """Return the places of a graph where an eps is added, in order."""
    if "eps" not in graph.found:
        found = [_place(graph, node) for node in graph.needed if node not in graph.inputs]
        graph.found["eps"] = [p for p in found if p is not None and _reaches_root(graph, p.node)]
    return graph.found["eps"]


def bounds_but_eps(graph: Graph | NoGraph | None) -> tuple[float, ...]:
    """Return the constants that a graph bounds by or compares with, but for those that are an eps."""
    if not isinstance(graph, Graph):
        return ()
    return tuple(size for size in bounds(graph) if size not in {p.value for p in eps_places(graph)})


def _place(graph: Graph, node: fx.Node) -> EpsPlace | None:
    """The eps of one node, None if it has none."""
    name = operator(node)
    if name not in ADDS + BOUNDS or len(node.args) < 2 or not isinstance(node.args[0], fx.Node):
        return None
    value = _small(graph, node.args[1])
    if value is None or not nonnegative(graph, node.args[0]):
        return None
    return EpsPlace(node, value, name in BOUNDS)


def _small(graph: Graph, argument: Any) -> float | None:
    """A constant or a parameter of one number that is positive, and small or declared by the layer."""
    values = constants_of(graph, argument)
    if len(values) != 1 or isinstance(argument, int):
        return None
    small = 0 < values[0] <= LARGEST or (values[0] > 0 and values[0] in graph.declared)
    return values[0] if small else None


def nonnegative(graph: Graph, node: Any) -> bool:
    """Whether a node is never negative, from the operators that it is made of."""
    if isinstance(node, int | float):
        return node >= 0
    if node in graph.inputs:
        held = graph.inputs[node]
        return isinstance(held, torch.Tensor) and bool((held >= 0).all())
    name = operator(node)
    if name == "aten.pow":
        return node.args[1] in (2, 4) or nonnegative(graph, node.args[0])
    if name == "aten.mul" and node.args[0] is node.args[1]:
        return True
    if name in ("aten.clamp", "aten.clamp_min", "aten.maximum") and nonnegative(graph, node.args[1]):
        return True
    if name == "getitem":
        return operator(node.args[0]) == "aten.var_mean" and node.args[1] == 0
    if name in KEEPS:
        sources = (
            [s for s in node.args if isinstance(s, int | float)]
            if name in ("aten.mul", "aten.div", "aten.add")
            else []
        )
        return all(nonnegative(graph, s) for s in [*node.all_input_nodes, *sources])
    return name in ALWAYS


def _reaches_root(graph: Graph, node: fx.Node) -> bool:
    """Whether a node's value gets under a root, a logarithm or into a division."""
    below = {node}
    for later in graph.needed:
        if later not in below and below & set(later.all_input_nodes):
            if operator(later) in ROOTS:
                return True
            below.add(later)
    return False
