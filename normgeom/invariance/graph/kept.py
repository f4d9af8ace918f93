"""The graphs of one layer, exported once for each size."""

from dataclasses import dataclass, field

from normgeom.invariance.graph.exported import Graph, NoGraph, export
from normgeom.layers import Layer

Shape = tuple[int, ...]


@dataclass
class Graphs:
    """The graphs of a layer by the shapes of its weight and data, each exported when it is first asked for.

    Pass one to several calls of `check`, and the layer is exported once: `check(layer, graphs=graphs)`.
    It holds copies of the layer's parameters as they were: make a new one when they change.

    Attributes:
        layer: what `as_layer` returns.
    """

    layer: Layer
    _known: dict[tuple[Shape, Shape], Graph | NoGraph] = field(default_factory=dict)

    def at(self, weight: Shape, data: Shape) -> Graph | NoGraph:
        """Return the graph for these shapes, or why there is none."""
        if (weight, data) not in self._known:
            try:
                self._known[weight, data] = export(self.layer, weight, data)
            except NoGraph as why:
                self._known[weight, data] = why
        return self._known[weight, data]
