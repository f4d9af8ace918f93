"""What the engines say of a layer's claims, from one graph for all of its checks."""

import dataclasses
from dataclasses import dataclass, field
from typing import Any

import torch

from normgeom.invariance import Verdict, graph
from normgeom.invariance._points import NotExact, Sizes, fractions, lifted_transform
from normgeom.invariance.graph.digits import NoValue, objects, precision
from normgeom.invariance.graph.eps_places import eps_places, replaced
from normgeom.invariance.graph.samples import Point
from normgeom.invariance.judges import Judges, Shapes, engines_for
from normgeom.layers import Layer, NormLayer

USUAL = Sizes(units=4, inputs=3, cases=5)
VANISHING = 1e-30  # stands for every eps: felt by no readable point, and no 0/0 as 0 would be
SEEN = 1e-12


@dataclass(eq=False)
class Evidence:
    """What is found out about a layer at the sizes of its checks, kept for the next check.

    Attributes:
        layer: the layer.
        sizes: `units`, `inputs` and `cases`, as far as they are asked for.
        dtype: the type in which the numeric engine evaluates the layer.
    """

    layer: Layer
    sizes: dict[str, int | None] = field(default_factory=dict)
    dtype: torch.dtype = torch.float64
    _graphs: graph.Graphs = field(init=False)

    def __post_init__(self) -> None:
        """Keep the graphs of this layer."""
        self._graphs = graph.Graphs(self.layer)

    def size(self, action: Any) -> Sizes:
        """Return the sizes of the points at which an action is checked."""
        return Sizes.of(self.layer, action, USUAL, **self.sizes)

    def shapes(self, action: Any = None) -> Shapes:
        """Return the shapes of weight and data of these points."""
        return self.size(action).shapes(self.layer)

    def graph(self, action: Any = None) -> graph.Graph | graph.NoGraph:
        """Return the layer's graph at these sizes, or why there is none; exported once."""
        return self._graphs.at(*self.shapes(action))

    def with_hidden_eps(self, action: Any) -> Layer | None:
        """Return the layer's graph as a layer, where its code shows an eps that the layer does not tell."""
        return (
            None
            if isinstance(self.layer, NormLayer)
            else graph.with_hidden_eps(self.layer, self.graph(action))
        )

    def eps_in_code(self, action: Any = None) -> str:
        """Return the eps that the layer's code adds, with their lines; nothing without a graph."""
        seen = None if isinstance(self.layer, NormLayer) else self.graph(action)
        return "; ".join(dict.fromkeys(map(str, eps_places(seen)))) if isinstance(seen, graph.Graph) else ""

    @property
    def has_eps(self) -> bool:
        """Whether the layer has an eps, told or found in its code."""
        return bool(self.eps_in_code()) or self.layer.eps > 0

    def verdict(self, action: Any) -> Verdict:
        """Return what the engines of `normgeom.check` say of one action, at these sizes."""
        point = {"dtype": self.dtype} | dataclasses.asdict(self.size(action))
        generator = torch.Generator().manual_seed(0)
        return Judges(self.layer, engines_for(self.layer), point, self._graphs, generator).verdict(action)

    def kept_without_rounding(self, element: Any, weight: torch.Tensor, data: torch.Tensor) -> bool:
        """Whether the layer's own graph, with 50 digits and without eps, keeps its outputs at one point."""
        seen = self.graph(type(element))
        if isinstance(self.layer, NormLayer) or isinstance(seen, graph.NoGraph):
            return False
        constants = replaced(eps_places(seen), VANISHING)
        point = Point(seen, objects(fractions(weight)), objects(fractions(data)))
        try:
            with precision():
                here = point.moved(lifted_transform(element, lambda f: f), constants)
        except (graph.NoGraph, NotExact, NoValue):
            return False
        return here.change < SEEN
