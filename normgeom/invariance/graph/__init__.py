"""A layer's own code as evidence: exported to a graph, run on exact numbers and symbols, and interpreted."""

from normgeom.invariance.graph.abstract.engine import judge as judge_abstractly
from normgeom.invariance.graph.bare import GraphLayer, with_hidden_eps
from normgeom.invariance.graph.bounds import bounds_but_eps
from normgeom.invariance.graph.engine import judge
from normgeom.invariance.graph.exported import Graph, NoGraph, export
from normgeom.invariance.graph.kept import Graphs
from normgeom.invariance.graph.narrow import without_rounding
from normgeom.invariance.graph.symbolic_engine import judge as judge_symbolically

__all__ = [
    "Graph",
    "GraphLayer",
    "Graphs",
    "NoGraph",
    "bounds_but_eps",
    "export",
    "judge",
    "judge_abstractly",
    "judge_symbolically",
    "with_hidden_eps",
    "without_rounding",
]
