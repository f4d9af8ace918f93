"""Rational points and elements, and what a graph gives there before and after."""

import functools
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from normgeom.invariance._points import (
    NotExact,
    as_degree,
    fractions,
    lifted_transform,
    scale_of_entries,
    simple_degree,
)
from normgeom.invariance.exact import rational_parameter
from normgeom.invariance.graph.digits import Digits, objects
from normgeom.invariance.graph.evaluate import Constants, evaluate
from normgeom.invariance.graph.exported import Graph
from normgeom.invariance.verdict import Witness

SAME = Decimal("1e-40")


@dataclass(frozen=True, eq=False)
class Sample:
    """A rational point, an element, and the outputs before and after."""

    weight: np.ndarray
    data: np.ndarray
    element: Any
    before: np.ndarray
    after: np.ndarray

    @property
    def change(self) -> float:
        """The largest change of an output, relative to it and to the typical one among those that change."""
        moving = [(abs(v), abs(v - w)) for v, w in self._pairs() if v != w]
        typical = sorted(v for v, _ in moving)[len(moving) // 2] if moving else 0
        return float(max((off / (max(v, typical) or 1) for v, off in moving), default=0))

    @property
    def degree(self) -> int | float | None:
        """The k with `|f'| = |delta|^k |f|` in every entry, a whole number or a simple fraction."""
        scale = scale_of_entries(self.element, self.before.shape) if self.before.ndim > 1 else None
        if scale is None:
            return None
        sizes = [
            Decimal(s.numerator) / Decimal(s.denominator) for s in (abs(Fraction(s)) for s in scale.ravel())
        ]
        known = [(s, abs(v), abs(w)) for s, (v, w) in zip(sizes, self._pairs(), strict=True)]
        telling = next((row for row in known if row[0] != 1 and row[1] and row[2]), None)
        if telling is None:
            return None
        k = simple_degree(float((telling[2] / telling[1]).ln() / telling[0].ln()))
        follows = all(abs(w - v * s ** _decimal(k)) <= SAME * (1 + w) for s, v, w in known)
        return as_degree(k) if follows else None

    @property
    def flips(self) -> bool:
        """Whether an output changes its sign."""
        return any(v * w < 0 for v, w in self._pairs())

    def witness(self) -> Witness:
        """The output that changes most."""
        change = np.array([float(abs(v - w)) for v, w in self._pairs()])
        case, unit = divmod(int(change.argmax()), change.size // len(self.before))
        before, after = (
            float(array.reshape(len(array), -1)[case, unit]) for array in (self.before, self.after)
        )
        return Witness(self.weight, self.data, self.element, case, unit, before, after)

    def _pairs(self) -> Any:
        return zip(self.before.ravel(), self.after.ravel(), strict=True)


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def shapes(graph: Graph) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of weight and data that a graph was exported for."""
    return tuple(graph.weight.meta["val"].shape), tuple(graph.data.meta["val"].shape)


def rational_point(graph: Graph, generator: torch.Generator, *, simple: bool = False) -> tuple[Any, Any]:
    """Draw a weight and data of fractions; simple ones are integers up to 2."""
    spread = 2 if simple else 9

    def draw(shape: tuple[int, ...]) -> np.ndarray:
        over = fractions(torch.randint(-spread, spread + 1, shape, generator=generator).double())
        under = torch.ones(shape) if simple else torch.randint(1, 6, shape, generator=generator)
        return objects(over / fractions(under.double()))

    weight, data = shapes(graph)
    return draw(weight), draw(data)


def element_at(
    transform: Any, weight: np.ndarray, data: np.ndarray, generator: torch.Generator, *, simple: bool = False
) -> Any:
    """Draw a rational element of a class for this point, or make an element's parameter exact."""
    if not isinstance(transform, type):
        return lifted_transform(transform, lambda f: f)
    if not hasattr(transform, "sign"):
        raise NotExact(f"{transform.__name__} has no exact elements: it is not one of normgeom's actions")
    shape = transform.shape(weight, data)  # type: ignore[attr-defined]
    return transform(rational_parameter(transform, shape, generator, simple))


@functools.cache
def _digits() -> Digits:
    return Digits()


def outputs_at(
    graph: Graph, weight: np.ndarray, data: np.ndarray, *, constants: Constants | None = None
) -> np.ndarray:
    """Return the outputs of a graph at a rational point, with 50 digits."""
    digits = _digits()
    exact = (objects(np.frompyfunc(digits.number, 1, 1)(array)) for array in (weight, data))
    return evaluate(graph, digits, *exact, constants=constants)


def sample(
    graph: Graph,
    element: Any,
    weight: np.ndarray,
    data: np.ndarray,
    *,
    before: np.ndarray | None = None,
    constants: Constants | None = None,
) -> Sample:
    """Return the outputs before and after an element acts; those before are taken if they are known."""
    before = outputs_at(graph, weight, data, constants=constants) if before is None else before
    return Sample(
        weight, data, element, before, outputs_at(graph, *element(weight, data), constants=constants)
    )
