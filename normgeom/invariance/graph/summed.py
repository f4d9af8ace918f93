"""Free symbols for the summed inputs themselves, where weight and data reach the outputs through them alone.

An identity in free summed inputs is one in weights and data, and has much shorter polynomials. The converse
does not hold: summed inputs are not free, so that a difference here proves nothing.
"""

import dataclasses
from typing import Any

import numpy as np
from torch import fx

from normgeom.invariance.graph.digits import objects
from normgeom.invariance.graph.exported import Graph, operator
from normgeom.invariance.graph.symbols import Symbols

SUMS = ("aten.mm", "aten.bmm", "aten.addmm", "aten.convolution")


def up_to_summed(graph: Graph) -> Graph | None:
    """Return the part of a graph that ends with the summed inputs, None if weight or data pass them by."""
    for node in graph.needed:
        part = dataclasses.replace(graph, output=node, found={})
        if operator(node) in SUMS and {graph.weight, graph.data} <= set(part.needed):
            return None if {graph.weight, graph.data} & set(_beyond(graph, node)) else part
    return None


def _beyond(graph: Graph, cut: fx.Node) -> list[fx.Node]:
    """The nodes that the outputs depend on otherwise than through one node."""
    seen, stack = {graph.output}, [graph.output]
    while stack:
        node = stack.pop()
        for source in node.all_input_nodes if node is not cut else ():
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return list(seen)


class FreeSums:
    """Symbols for the summed inputs before an action, and what the action makes of them.

    Attributes:
        symbols: the new symbols.
        before: one symbol an entry.
        after: the same times its scale, or plus a shift: one symbol for each shift that differs.
    """

    def __init__(self, old: Symbols, before: np.ndarray, after: np.ndarray):
        self._old = old
        pairs = list(zip(before.ravel(), after.ravel(), strict=True))
        ratios = [self._ratio(v, w) for v, w in pairs]
        shifts = list(dict.fromkeys(old.reduced(w - v) for v, w in pairs)) if None in ratios else []
        names = [f"y{i}" for i in range(len(pairs))] + [f"s{i}" for i in range(len(shifts))]
        self.symbols = Symbols(names, [f"d{i}" for i in range(len(old.positive))])
        flat = objects(np.array([*self.symbols.free, None], dtype=object))[:-1]
        self.before = flat[: len(pairs)].reshape(before.shape)
        if shifts:
            by = {shift: symbol for shift, symbol in zip(shifts, flat[len(pairs) :], strict=True) if shift}
            values = [y + by.get(old.reduced(w - v), 0) for y, (v, w) in zip(flat, pairs, strict=False)]
        else:
            values = [y * self.scale(ratio) for y, ratio in zip(flat, ratios, strict=False)]
        self.after = objects(np.array([*values, None], dtype=object))[:-1].reshape(before.shape)

    def scale(self, unit: Any) -> Any:
        """Return a number times powers of the action's parameters in the new symbols."""
        ((monomial, coefficient),) = unit.terms()
        first, count = self._old.first_positive, len(self._old.positive)
        value = self.symbols.ring.ground_new(coefficient)
        for k, symbol in enumerate(self.symbols.positive):
            value *= symbol ** monomial[first + k]
            value *= self.symbols.inverse(symbol) ** monomial[first + count + k]
        return value

    def _ratio(self, v: Any, w: Any) -> Any:
        """The positive or negative factor between two values, None if there is none."""
        (unit, rest), (other, same) = self._old.split(v), self._old.split(w)
        if not rest or rest not in (same, -same):
            return None
        factor = self._old.reduced(other * self._old.inverse(unit))
        return factor if rest == same else -factor
