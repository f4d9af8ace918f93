"""The engines, what each can take, and what they say together of one layer under one action."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from normgeom.invariance import exact, graph, numeric, symbolic
from normgeom.invariance._arrays import sizes_of
from normgeom.invariance._points import AT_LEAST, Sizes
from normgeom.invariance.calling import act
from normgeom.invariance.measure import relative_change
from normgeom.invariance.settling import settle
from normgeom.invariance.verdict import Kind, Verdict, subject
from normgeom.layers import Layer, NormLayer

ENGINES: dict[str, Callable[..., Verdict]] = {
    "numeric": numeric.judge,
    "exact": exact.judge,
    "symbolic": symbolic.judge,
    "graph": graph.judge,
    "graph-symbolic": graph.judge_symbolically,
    "abstract": graph.judge_abstractly,
}
OF_NORMS = ("numeric", "exact", "symbolic")
OF_CODE = ("numeric", "abstract", "graph")
ON_GRAPHS = ("graph", "graph-symbolic", "abstract")
STILL = 1e-12  # a change relative to the largest entry that is only rounding of the element

Shapes = tuple[tuple[int, ...], tuple[int, ...]]


def engines_for(layer: Layer) -> tuple[str, ...]:
    """Return the names of the engines that are asked of a layer if none are named."""
    return OF_NORMS if isinstance(layer, NormLayer) else OF_CODE


@dataclass(frozen=True, eq=False)
class Judges:
    """Several engines for one layer.

    Attributes:
        layer: what `as_layer` returns.
        engines: names of `ENGINES`, in the order in which they are asked.
        point: what the numeric engine is told: `weight`, `data`, `dtype`, `device`, and sizes, where given.
        graphs: the layer's graphs, to which new ones are added.
        generator: seeds a generator of its own for each engine and action.
    """

    layer: Layer
    engines: Sequence[str]
    point: dict[str, Any]
    graphs: graph.Graphs
    generator: torch.Generator

    @property
    def sizes(self) -> dict[str, int | None]:
        """The `units`, `inputs` and `cases` asked for."""
        return {name: self.point.get(name) for name in AT_LEAST}

    def shapes(self, transform: Any) -> Shapes:
        """Return the shapes of the arrays given, else those of a transform's points."""
        arrays = self.point.get("weight"), self.point.get("data")
        known = sizes_of(self.layer, *arrays, self.sizes)
        drawn = Sizes.of(self.layer, transform, numeric.USUAL, **known).shapes(self.layer)
        first, second = (
            shape if array is None else tuple(array.shape) for shape, array in zip(drawn, arrays, strict=True)
        )
        return first, second

    def graph(self, transform: Any) -> graph.Graph | graph.NoGraph | None:
        """Return the layer's graph at these shapes, or why there is none; None if no engine takes graphs."""
        return self.graphs.at(*self.shapes(transform)) if set(self.engines) & set(ON_GRAPHS) else None

    def verdict(self, transform: Any) -> Verdict:
        """Return what all engines say of one transform.

        Raises:
            EnginesDisagree: if two engines decide it differently.
        """
        if self._moves_nothing(transform):
            reason = "the element given moves neither weight nor data, so it decides nothing"
            return Verdict(kind=Kind.UNDECIDED, reason=reason, **subject(self.layer, transform, ""))
        seen = self.graph(transform)
        told: dict[str, dict[str, Any]] = {name: {"graph": seen} for name in ON_GRAPHS}
        hidden, bounds = graph.with_hidden_eps(self.layer, seen), graph.bounds_but_eps(seen)
        told["numeric"] = self.point | {"seen": hidden, "bounds": bounds}
        said = []
        for name in self.engines:
            fork = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=self.generator)))
            verdict = ENGINES[name](self.layer, transform, generator=fork, **told.get(name, {}))
            said.append(graph.without_rounding(verdict, seen) if name in ON_GRAPHS else verdict)
        return settle(said)

    def _moves_nothing(self, transform: Any) -> bool:
        """Whether an element (a class is drawn, and always moves) is the identity to rounding."""
        if isinstance(transform, type):
            return False
        size = Sizes.of(self.layer, transform, numeric.USUAL, **self.sizes)
        generator = torch.Generator().manual_seed(0)
        weight, data = (
            torch.randn(shape, generator=generator, dtype=torch.float64) for shape in size.shapes(self.layer)
        )
        moved = act(transform, weight, data)
        return all(
            a.shape == b.shape and relative_change(a, b) < STILL
            for a, b in zip((weight, data), moved, strict=True)
        )
