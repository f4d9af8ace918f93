"""Rational points and elements, and what a graph gives there before and after."""

import functools
from dataclasses import dataclass, field
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
    """A rational point, grown by two factors, an element, and the outputs before and after."""

    point: "Point"
    grown: tuple[int | Fraction, int | Fraction]
    element: Any
    before: np.ndarray
    after: np.ndarray

    @functools.cached_property
    def change(self) -> float:
        """The largest change of an output, relative to it and to the typical one among those that change."""
        off, sizes = _floats(self.after - self.before), _floats(self.before)
        sizes, off = sizes[off != 0], off[off != 0]
        if not len(off):
            return 0.0
        typical = np.partition(sizes, len(sizes) // 2)[len(sizes) // 2]
        largest = np.maximum(sizes, typical)
        return float((off / np.where(largest > 0, largest, 1.0)).max())

    @property
    def degree(self) -> int | float | None:
        """The k with `|f'| = |delta|^k |f|` in every entry, a whole number or a simple fraction."""
        scale = scale_of_entries(self.element, self.before.shape) if self.before.ndim > 1 else None
        if scale is None:
            return None
        sizes = [_decimal(abs(Fraction(s))) for s in scale.ravel()]
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
        weight, data = (a * g for a, g in zip((self.point.weight, self.point.data), self.grown, strict=True))
        return Witness(weight, data, self.element, case, unit, before, after)

    def _pairs(self) -> Any:
        return zip(self.before.ravel(), self.after.ravel(), strict=True)


def _floats(values: np.ndarray) -> np.ndarray:
    """The sizes of numbers of 50 digits; what is too large for a float is a large one."""
    return np.nan_to_num(np.abs(values.ravel().astype(np.float64)), nan=np.inf, posinf=1e300)


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
    exact = (
        array if isinstance(array.flat[0], Decimal) else objects(np.frompyfunc(digits.number, 1, 1)(array))
        for array in (weight, data)
    )
    return evaluate(graph, digits, *exact, constants=constants)


@dataclass(eq=False)
class Point:
    """A rational point of a graph, with the outputs there that are known.

    Attributes:
        graph: the graph.
        weight: fractions, shape (units, inputs).
        data: fractions, shape (cases, inputs).
    """

    graph: Graph
    weight: np.ndarray
    data: np.ndarray
    _known: dict[Any, np.ndarray] = field(default_factory=dict)

    @functools.cached_property
    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Weight and data with 50 digits."""
        weight, data = (
            objects(np.frompyfunc(_digits().number, 1, 1)(array)) for array in (self.weight, self.data)
        )
        return weight, data

    def outputs(self, constants: Constants | None = None, grown: Any = (1, 1)) -> np.ndarray:
        """Return the outputs, with other constants, and weight and data times two factors."""
        names = [(node.name, k, tuple(v.flatten().tolist())) for (node, k), v in (constants or {}).items()]
        key = (tuple(names), grown)
        if key not in self._known:
            self._known[key] = outputs_at(self.graph, *self._grown(grown), constants=constants)
        return self._known[key]

    def moved(self, element: Any, constants: Constants | None = None, grown: Any = (1, 1)) -> Sample:
        """Return the outputs before and after an element acts."""
        arrays = self._grown(grown)
        try:
            after = lifted_transform(element, _digits().number)(*arrays)
        except TypeError:  # an action of one's own that computes with fractions
            after = element(*(a * g for a, g in zip((self.weight, self.data), grown, strict=True)))
        before = self.outputs(constants, grown)
        return Sample(self, grown, element, before, outputs_at(self.graph, *after, constants=constants))

    def _grown(self, grown: Any) -> tuple[np.ndarray, np.ndarray]:
        factors = [_digits().number(g) for g in grown]
        weight, data = (array if g == 1 else array * g for array, g in zip(self.arrays, factors, strict=True))
        return weight, data
