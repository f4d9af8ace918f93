"""Where a graph adds an eps: a small positive constant, to a statistic under a root or a division.

What makes a constant an eps is what it does, not how it is written: it is small beside what it is added to,
which is never negative at any point tried, and it reaches the outputs through a root or a division alone. A
bias, which is added to what has both signs or gets into a numerator, is none. Whether an eps is all that
breaks an invariance is for the engines to say, at eps = 0 and where weight and data grow.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from normgeom.invariance.graph.constants import constant_of
from normgeom.invariance.graph.exported import Graph, operator, place
from normgeom.invariance.graph.inverting import is_root, only_under_roots
from normgeom.invariance.graph.observed import is_statistic, observed

LARGEST = 1e-2  # a larger one counts where the layer declares it
ADDS = ("aten.add", "aten.sub", "aten.addmm")
BOUNDS = ("aten.clamp", "aten.clamp_min", "aten.maximum", "aten.where")
COMPARES = ("aten.lt", "aten.le", "aten.gt", "aten.ge")


@dataclass(frozen=True, eq=False)
class EpsPlace:
    """An operand of a node that is an eps: it is added, or bounds from below.

    Attributes:
        node: the node.
        operand: which of its arguments is the eps.
        eps: its numbers, 0 where nothing is added.
        factor: what the node multiplies it by before it adds it.
        compared: operands of comparisons that choose the eps where it is larger.
    """

    node: fx.Node
    operand: int
    eps: torch.Tensor
    factor: float = 1.0
    compared: tuple[tuple[fx.Node, int], ...] = ()

    @property
    def value(self) -> float:
        """The eps, the largest if there are several."""
        return float((self.eps * self.factor).max())

    @property
    def bounds(self) -> bool:
        """Whether it is a bound."""
        return operator(self.node) in BOUNDS

    @property
    def source(self) -> Any:
        """What it is added to; None for the product of matrices that one operator adds it to."""
        return (
            None if operator(self.node) == "aten.addmm" else self.node.args[_other(self.node, self.operand)]
        )

    def __str__(self) -> str:
        """The eps with its place, `+ eps (1e-05), my_norm.py:14`."""
        what = "bound by eps" if self.bounds else "+ eps"
        outside = ", outside the root" if not self.bounds and is_root(self.source) else ""
        where = ", ".join(filter(None, [f"{what} ({self.value:.6g})", place(self.node)]))
        return where + outside


def said(places: Iterable[EpsPlace]) -> str:
    """Return the places as text; how often, where a line adds the same eps more than once."""
    texts = [str(p) for p in dict.fromkeys(places)]
    times = {text: texts.count(text) for text in texts}
    return "; ".join(text if count == 1 else f"{text} ({count} times)" for text, count in times.items())


def eps_places(graph: Graph) -> list[EpsPlace]:
    """Return the places of a graph where an eps is added, in order."""
    if "eps" not in graph.found:
        calls = [node for node in graph.needed if node not in graph.inputs]
        found = [p for p in (_place(graph, node) for node in calls) if p is not None]
        found = [p for p in found if only_under_roots(graph, p.node)]
        values = observed(graph, [_watched(p) for p in found]) if found else {}
        graph.found["eps"] = [p for p in found if _is_eps(graph, p, values[_watched(p)])]
    return graph.found["eps"]


def replaced(
    places: Iterable[EpsPlace], eps: float | Callable[[EpsPlace], float]
) -> dict[tuple[fx.Node, int], torch.Tensor]:
    """Return what stands for every operand that is an eps when all are replaced.

    Args:
        places: the places.
        eps: the number instead, or a function that gives it for a place.
    """
    constants: dict[tuple[fx.Node, int], torch.Tensor] = {}
    for p in places:
        value = eps(p) if callable(eps) else eps
        numbers = (p.eps != 0) * (value / p.factor)
        constants |= dict.fromkeys([(p.node, p.operand), *p.compared], numbers)
    return constants


def _place(graph: Graph, node: fx.Node) -> EpsPlace | None:
    """The eps of one node, None if it has none."""
    name = operator(node)
    if name not in ADDS + BOUNDS:
        return None
    for operand in _operands(name):
        eps = constant_of(graph, node.args[operand]) if len(node.args) > operand else None
        if eps is None or not isinstance(node.args[_other(node, operand)], fx.Node):
            continue
        factor = _factor(node, name, operand)
        if factor is not None and _small(graph, eps * factor):
            compared = _comparisons(graph, node, eps) if name == "aten.where" else ()
            if compared is not None:
                return EpsPlace(node, operand, eps, factor, compared)
    return None


def _operands(name: str) -> tuple[int, ...]:
    """Which arguments of an operator may be an eps."""
    return {"aten.add": (1, 0), "aten.maximum": (1, 0), "aten.where": (1, 2), "aten.addmm": (0,)}.get(
        name, (1,)
    )


def _other(node: fx.Node, operand: int) -> int:
    """Which argument meets an operand."""
    return {"aten.where": 3 - operand, "aten.addmm": 1}.get(operator(node), 1 - operand)


def _factor(node: fx.Node, name: str, operand: int) -> float | None:
    """What a node multiplies an operand by, None if that is no number."""
    given = node.kwargs.get("beta" if name == "aten.addmm" else "alpha", 1)
    if not isinstance(given, int | float) or given == 0:
        return None
    return (-1.0 if name == "aten.sub" else 1.0) * (given if operand == 1 or name == "aten.addmm" else 1.0)


def _small(graph: Graph, eps: torch.Tensor) -> bool:
    """Whether numbers are positive, or 0 but for a diagonal, and small or declared by the layer."""
    if not eps.numel() or not bool((eps >= 0).all()) or not bool(eps.any()):
        return False
    if not bool((eps > 0).all()) and not _diagonal(eps):
        return False
    return float(eps.max()) <= LARGEST or _declared(graph, eps)


def _diagonal(eps: torch.Tensor) -> bool:
    square = eps.ndim == 2 and eps.shape[0] == eps.shape[1]
    return square and torch.equal(eps, eps.diagonal().diag())


def _declared(graph: Graph, eps: torch.Tensor) -> bool:
    return all(value in graph.declared for value in eps[eps > 0].unique().tolist())


def _comparisons(graph: Graph, node: fx.Node, eps: torch.Tensor) -> tuple[tuple[fx.Node, int], ...] | None:
    """The operand by which a choice compares with the eps that it gives, None if it compares otherwise."""
    condition = node.args[0]
    if not isinstance(condition, fx.Node) or operator(condition) not in COMPARES:
        return None
    for operand in (0, 1):
        against = constant_of(graph, condition.args[operand])
        same = against is not None and against.numel() == eps.numel() == 1 and float(against) == float(eps)
        if same and condition.args[1 - operand] in node.args[1:]:
            return ((condition, operand),)
    return None


def _watched(p: EpsPlace) -> fx.Node:
    """The node whose sign shows whether an eps is added to a statistic."""
    return p.node if p.source is None else p.source


def _is_eps(graph: Graph, p: EpsPlace, values: torch.Tensor) -> bool:
    return is_statistic(values, p.eps * p.factor, declared=_declared(graph, p.eps * p.factor))
