"""What the values of a graph are like at random points in floating point: of which sign, and how large."""

from typing import Any

import torch
from torch import fx

from normgeom.invariance.graph.exported import Graph
from normgeom.invariance.graph.samples import shapes

POINTS = 16
SIGNS = ((1, 1), (-1, 1), (1, -1))  # what is odd in weight or data changes its sign
ROUNDING = 1e-10
USUAL = 0.1  # an eps is a small part of a statistic at ordinary points


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps the values of some nodes."""

    def __init__(self, graph: Graph, wanted: set[str]):
        super().__init__(graph.module)
        self.wanted = wanted
        self.seen: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.name in self.wanted:
            self.seen[n.name] = value
        return value


def observed(graph: Graph, nodes: list[fx.Node]) -> dict[fx.Node, torch.Tensor]:
    """Return the values of nodes at random Gaussian points, stacked along a first axis.

    Args:
        graph: an exported layer.
        nodes: nodes whose values are tensors.
    """
    generator = torch.Generator().manual_seed(0)
    seen: dict[fx.Node, list[torch.Tensor]] = {node: [] for node in nodes}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for _ in range(POINTS):
            point = [torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes(graph)]
            for signs in SIGNS:
                given = dict(
                    zip(("weight", "data"), (k * t for k, t in zip(signs, point, strict=True)), strict=True)
                )
                recorder = _Recorder(graph, {node.name for node in nodes})
                recorder.run(*[given[v] if isinstance(v, str) else v for v in graph.inputs.values()])
                for node in nodes:
                    seen[node].append(recorder.seen[node.name].detach())
    return {node: torch.stack(values) for node, values in seen.items()}


def is_statistic(values: torch.Tensor, eps: torch.Tensor, *, declared: bool = False) -> bool:
    """Return whether values are never negative where an eps is added, and usually larger than it.

    Args:
        values: a node's values at several points, stacked along the first axis.
        eps: what is added to it, 0 where nothing is.
        declared: whether the layer calls it an eps, so that it counts whatever its size.

    >>> is_statistic(torch.tensor([[2.0], [3.0]]), torch.tensor(1e-5))
    True
    >>> is_statistic(torch.tensor([[2.0], [-3.0]]), torch.tensor(1e-5))
    False
    """
    values, eps = torch.broadcast_tensors(values.double(), eps)
    met = values[eps > 0]
    small = declared or bool(eps.max() <= USUAL * met.mean())
    return small and bool((met >= -ROUNDING * met.abs().max()).all())
