"""The symbolic graph engine: the layer's own operators on free symbols, at the size it was exported for."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sympy.polys.polyerrors import BasePolynomialError

from normgeom.invariance._points import DEGREES, NotExact, Sizes, lifted_transform, scale_of_entries
from normgeom.invariance.graph import engine
from normgeom.invariance.graph.digits import NoValue, objects
from normgeom.invariance.graph.eps_places import EpsPlace, eps_places, replaced, said
from normgeom.invariance.graph.evaluate import Constants, evaluate, refuse_unknown, size
from normgeom.invariance.graph.exported import Graph, NoGraph, export
from normgeom.invariance.graph.samples import shapes
from normgeom.invariance.graph.summed import FreeSums, up_to_summed
from normgeom.invariance.graph.symbols import Symbols, TooMany
from normgeom.invariance.verdict import Kind, Proof, Verdict, subject
from normgeom.layers import Layer

SMALL = Sizes(units=3, inputs=2, cases=3)
ENOUGH = 2_500  # operations of one evaluation; polynomials grow with each


def judge(
    layer: Layer, transform: Any, *, generator: torch.Generator, graph: Graph | NoGraph, **_: Any
) -> Verdict:
    """Return the verdict of an identity in free symbols on one cell; a *no* comes with a rational point.

    Args:
        layer: the layer that was exported.
        transform: an action's class, whose parameter becomes free symbols, or one element.
        generator: draws the points that show a *not invariant*.
        graph: the exported layer, or why there is none.
    """
    about = subject(layer, transform, "graph-symbolic")
    try:
        if isinstance(graph, NoGraph):
            raise graph
        graph = _small(graph, layer, transform)
        refuse_unknown(graph)
        if (operations := size(graph)) > ENOUGH:
            raise NoGraph(f"{operations} operations on polynomials take long; ask for fewer units")
        return Verdict(**(_decide(layer, graph, transform, generator) | about))
    except (NoGraph, NotExact, NoValue, TooMany, BasePolynomialError) as why:
        return Verdict(kind=Kind.UNDECIDED, reason=f"graph-symbolic: {why}", **about)


def _small(graph: Graph, layer: Layer, transform: Any) -> Graph:
    """The graph at the smallest sizes that decide, or as it is if it cannot be had."""
    wanted = Sizes.of(layer, transform, SMALL).shapes(layer)
    key = ("at", wanted)
    if key not in graph.found:
        try:
            graph.found[key] = graph if wanted == shapes(graph) else export(layer, *wanted)
        except NoGraph:
            graph.found[key] = graph
    return graph.found[key]


def _decide(layer: Layer, graph: Graph, transform: Any, generator: torch.Generator) -> dict[str, Any]:
    """Return kind and evidence: where points show a change there is no identity to look for."""
    points = engine.judge(layer, transform, generator=generator, graph=graph)
    setting = _Setting(graph, transform)
    if points.kind is Kind.NOT_INVARIANT:
        found = [k for k in DEGREES if k == points.degree and setting.degree_is(k, {}, signed=True)]
        degree = found[0] if found else None
        flips = degree is not None and points.flips
        return {"kind": points.kind, "degree": degree, "flips": flips, "witness": points.witness}
    places = eps_places(graph) if engine.scales(setting.element) else []
    places = [] if points.kind is Kind.INVARIANT else places
    if setting.degree_is(0, replaced(places, 0.0)):
        return _identity(graph, places)
    raise NoGraph("the two sides differ as expressions, which proves nothing")


def _identity(graph: Graph, places: list[EpsPlace]) -> dict[str, Any]:
    """The verdict on an identity, at eps = 0 if it is one only there."""
    weight, data = shapes(graph)
    text = "the layer's own graph gives the same polynomials, roots and functions of free symbols"
    proof = Proof(
        text + (" at eps = 0" if places else ""), r"f(T(W, X)) = f(W, X)", "", weight[0], data[1], data[0]
    )
    kind = Kind.UP_TO_EPS if places else Kind.INVARIANT
    return {"kind": kind, "proof": proof, "reason": said(places)}


class _Setting:
    """Free symbols for one cell, and the outputs before and after the action."""

    def __init__(self, graph: Graph, transform: Any):
        self.graph = graph
        weight, data = shapes(graph)
        free = [f"{k}{i}" for k, s in (("w", weight), ("x", data)) for i in range(int(np.prod(s)))]
        count, moved = self._parameters(transform, weight, data)
        scales = count and transform.sign is not None
        names = [f"d{i}" for i in range(count)]
        self.symbols = Symbols(free + ([] if scales else names), names if scales else [])
        flat = objects(np.array([*self.symbols.free, None], dtype=object))[:-1]
        self.weight, self.data = (
            part.reshape(s)
            for part, s in zip(
                np.split(flat[: len(free)], [int(np.prod(weight))]), (weight, data), strict=True
            )
        )
        self.element = self._element(transform, flat[len(free) :], moved)
        self._found: dict[Any, _Sides] = {}

    @staticmethod
    def _parameters(
        transform: Any, weight: tuple[int, ...], data: tuple[int, ...]
    ) -> tuple[int, tuple[int, ...]]:
        """How many free parameters the elements of a class have, and their shape; one element has none."""
        if not isinstance(transform, type):
            return 0, ()
        if not hasattr(transform, "sign"):
            raise NotExact(f"{transform.__name__} has no symbols: it is not one of normgeom's actions")
        shape = transform.shape(np.empty(weight), np.empty(data))  # type: ignore[attr-defined]
        return int(np.prod(shape)), shape

    def _element(self, transform: Any, shifts: np.ndarray, shape: tuple[int, ...]) -> Any:
        """The element whose parameter is free: `-d` with `d > 0` for a negative scale."""
        if not isinstance(transform, type):
            return lifted_transform(transform, self.symbols.number)
        sign = transform.sign or 1  # type: ignore[attr-defined]
        values = [sign * d for d in self.symbols.positive] if self.symbols.positive else list(shifts)
        array = np.empty(len(values), dtype=object)
        array[:] = values
        return transform(array.reshape(shape) if shape else array[0])

    def degree_is(self, degree: int, constants: Constants, *, signed: bool = False) -> bool:
        """Whether every output is multiplied by `|delta|^degree`, up to a sign if `signed`."""
        among = (self._summed, self._whole) if up_to_summed(self.graph) else (self._whole,)
        return any(_follow(self._sides(of, constants), degree, signed) for of in among)

    def _sides(self, of: Any, constants: Constants) -> "_Sides":
        key = (of.__name__, bool(constants))
        if key not in self._found:
            self._found[key] = of(constants)
        return self._found[key]

    def _whole(self, constants: Constants) -> "_Sides":
        """The outputs in symbols of weight and data."""
        moved = self.element(self.weight, self.data)
        before, after = (
            evaluate(self.graph, self.symbols, *pair, constants=constants)
            for pair in ((self.weight, self.data), moved)
        )
        return _Sides(self.symbols, before, after, self._scale(before.shape))

    def _summed(self, constants: Constants) -> "_Sides":
        """The outputs in symbols of the summed inputs."""
        part = up_to_summed(self.graph)
        assert part is not None
        moved = self.element(self.weight, self.data)
        sums = FreeSums(
            self.symbols, *(evaluate(part, self.symbols, *at) for at in ((self.weight, self.data), moved))
        )
        before, after = (
            evaluate(
                self.graph, sums.symbols, self.weight, self.data, constants=constants, known={part.output: y}
            )
            for y in (sums.before, sums.after)
        )
        units = self._scale(before.shape)
        return _Sides(sums.symbols, before, after, None if units is None else [sums.scale(u) for u in units])

    def _scale(self, shape: tuple[int, ...]) -> list[Any] | None:
        """|delta| for every entry of outputs, None if the action is no free scale of them."""
        scale = scale_of_entries(self.element, shape) if self.symbols.positive and len(shape) > 1 else None
        return None if scale is None else [self.symbols.split(s)[0] for s in scale.ravel()]


@dataclass(frozen=True)
class _Sides:
    """Outputs before and after an action in some symbols, with |delta| for every entry."""

    symbols: Symbols
    before: np.ndarray
    after: np.ndarray
    scale: list[Any] | None


def _follow(sides: _Sides, degree: int, signed: bool) -> bool:
    """Whether every output is multiplied by `|delta|^degree`, up to a sign if `signed`."""
    symbols, scale = sides.symbols, sides.scale
    if degree and scale is None:
        return False
    factors = [(s if degree > 0 else symbols.inverse(s)) ** abs(degree) for s in scale or ()] or [
        symbols.number(1)
    ] * sides.before.size
    rows = zip(sides.before.ravel(), sides.after.ravel(), factors, strict=True)

    def same(v: Any, w: Any) -> bool:
        return not symbols.reduced(v - w)

    return all(same(v * f, w) or (signed and same(-v * f, w)) for v, w, f in rows)
