"""Whether all that a node does to the outputs goes through a root, a logarithm or a division by it."""

from typing import Any

from torch import fx

from normgeom.invariance.graph.exported import Graph, operator

ROOTS = (
    "aten.rsqrt", "aten.sqrt", "aten.reciprocal", "aten.log", "aten.log2", "aten.linalg_inv_ex",
    "aten._linalg_eigh", "aten._linalg_svd", "aten.linalg_cholesky_ex", "aten._linalg_solve_ex", "aten.hypot",
)  # fmt: skip

PASSES = ("aten.view", "aten.expand", "aten.unsqueeze", "aten.squeeze", "aten.clone", "aten.alias",
          "aten.mul", "aten.div", "aten._to_copy", "aten.reshape")  # fmt: skip


def only_under_roots(graph: Graph, node: fx.Node) -> bool:
    """Return whether every way from a node to the outputs goes through a root or a division by it."""
    free, met = {node}, False
    if node is graph.output:
        return False
    for later in graph.needed:
        for source in set(later.all_input_nodes) & free:
            if inverts(later, source):
                met = True
            elif later is graph.output:
                return False
            else:
                free.add(later)
    return met


def inverts(node: fx.Node, source: fx.Node) -> bool:
    """Return whether a node takes a root or logarithm of one of its arguments, or divides by it."""
    name = operator(node)
    if name == "aten.pow":
        return source is node.args[0] and _is_root(node.args[1])
    if name == "aten.div":
        return source is not node.args[0]
    if name == "aten.linalg_solve_triangular":
        return source is node.args[0]
    return name in ROOTS


def is_root(node: Any) -> bool:
    """Return whether a node is a root or a length, up to factors and its shape."""
    while isinstance(node, fx.Node) and operator(node) in PASSES:
        node = node.args[0]
    if not isinstance(node, fx.Node):
        return False
    half = operator(node) == "aten.pow" and node.args[1] == 0.5
    return bool(half) or operator(node) in ("aten.sqrt", "aten.linalg_vector_norm")


def _is_root(exponent: Any) -> bool:
    return isinstance(exponent, int | float) and (exponent < 0 or not float(exponent).is_integer())
