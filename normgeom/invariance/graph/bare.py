"""The layer that a graph is with another number for every eps found in it, for the numeric engine."""

import copy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from normgeom._types import AnyData, AnyWeight
from normgeom.invariance.graph.eps_places import eps_places, replaced
from normgeom.invariance.graph.exported import Graph, NoGraph
from normgeom.layers import Layer


@dataclass(eq=False)
class GraphLayer:
    """A graph as a layer, in float64, at the size that it was exported for.

    Attributes:
        layer: the layer whose graph it is.
        graph: the graph.
        eps: what stands in the place of every eps found in the graph; the largest found if not given.
    """

    layer: Layer
    graph: Graph
    eps: float = -1.0
    _module: fx.GraphModule = field(init=False)

    def __post_init__(self) -> None:
        """Put the eps in its places."""
        places = eps_places(self.graph)
        given = self.eps >= 0
        self.eps = self.eps if given else max((p.value for p in places), default=0.0)
        self._module = fx.GraphModule(self.graph.module, copy.deepcopy(self.graph.module.graph))
        nodes = {node.name: node for node in self._module.graph.nodes}
        for (known, operand), numbers in replaced(places, self.eps).items() if given else ():
            node = nodes[known.name]
            node.args = tuple(
                self._operand(node, old, numbers) if k == operand else old for k, old in enumerate(node.args)
            )
        self._module.recompile()

    @property
    def name(self) -> str:
        """The layer's name."""
        return self.layer.name

    @property
    def mode(self) -> str:
        """The layer's mode."""
        return self.layer.mode

    @property
    def units(self) -> int | None:
        """The units that it was exported for."""
        return self.graph.weight.meta["val"].shape[0]

    def with_eps(self, eps: float) -> "GraphLayer":
        """Return the same graph with another eps in every place."""
        return GraphLayer(self.layer, self.graph, eps)

    def __call__(self, weight: AnyWeight, data: AnyData, /) -> torch.Tensor:
        """Return the outputs of the graph."""
        given = {"weight": weight, "data": data}
        held = [given[v] if isinstance(v, str) else _on(v, weight.device) for v in self.graph.inputs.values()]
        names = [node.name for node in self.graph.module.graph.output_node().all_input_nodes]
        return self._module(*held)[names.index(self.graph.output.name)]

    def _operand(self, node: fx.Node, old: Any, numbers: torch.Tensor) -> Any:
        """The eps as what the node's operator takes: a number, or a tensor."""
        if not isinstance(old, fx.Node):
            return float(numbers)
        name = f"_eps_{len(self._module._buffers)}"
        self._module.register_buffer(name, numbers)
        with self._module.graph.inserting_before(node):
            return self._module.graph.get_attr(name)


def _on(held: Any, device: torch.device) -> Any:
    """What a placeholder holds, on a device; a token of an effect stays as it is."""
    return held.to(device) if isinstance(held, torch.Tensor) else held


def with_hidden_eps(layer: Layer, graph: Graph | NoGraph | None) -> GraphLayer | None:
    """Return the graph as a layer if it shows an eps, whatever the layer tells, else None."""
    if not isinstance(graph, Graph):
        return None
    return GraphLayer(layer, graph) if eps_places(graph) else None
