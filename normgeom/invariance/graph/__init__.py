"""A layer's own code as evidence: exported to a graph, run on exact numbers and symbols, and interpreted."""

from normgeom.invariance.graph.abstract.engine import judge as judge_abstractly
from normgeom.invariance.graph.bare import GraphLayer, with_hidden_eps
from normgeom.invariance.graph.engine import judge
from normgeom.invariance.graph.exported import Graph, NoGraph, export

__all__ = ["Graph", "GraphLayer", "NoGraph", "export", "judge", "judge_abstractly", "with_hidden_eps"]
