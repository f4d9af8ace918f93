"""The exact engine: the identity at rational points, without rounding.

`z' = z` is the same as `(a - mu)^2 sigma'^2 = (a' - mu')^2 sigma^2` with equal signs, which fractions decide.
Equality at several random points makes an identity of polynomials certain up to the chance of meeting a
root; one inequality refutes it, and the smallest one found is kept as a witness.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import sympy
import torch
from sympy.polys.orderings import lex
from sympy.polys.rings import PolyElement, PolyRing

from normgeom._types import Array
from normgeom.invariance._points import (
    DEGREES,
    NotExact,
    Sizes,
    fractions,
    lifted_layer,
    lifted_transform,
    scale_of_entries,
    statistics,
)
from normgeom.invariance.verdict import Kind, Verdict, Witness, subject
from normgeom.layers import Layer, NormLayer
from normgeom.transforms import WeightMatrixRescale

SMALL = Sizes(units=3, inputs=3, cases=4)
_RATIONALS = PolyRing("q", sympy.QQ, lex)
POINTS = 4
TRIES = 60
WITNESSES = 8  # how many to find before the shortest is chosen


def judge(layer: Layer, transform: Any, *, generator: torch.Generator) -> Verdict:
    """Return the exact verdict on one cell.

    Args:
        layer: a layer; anything but a norm is undecided.
        transform: an action's class, whose elements are drawn, or one element.
        generator: draws the points, of 3 units and inputs and 4 cases unless more are fixed.
    """
    about = subject(layer, transform, "exact")
    try:
        lifted = lifted_layer(layer, lambda f: f)
        size = Sizes.of(layer, transform, SMALL)
        drawn = [_evaluate(lifted, *_point(transform, size, generator, spread=9)) for _ in range(POINTS)]
    except NotExact as why:
        return Verdict(kind=Kind.UNDECIDED, reason=f"exact: {why}", **about)
    points = [point for point in drawn if point is not None]
    if not points:
        reason = "exact: a variance is not positive at every point drawn"
        return Verdict(kind=Kind.UNDECIDED, reason=reason, **about)
    if not points[0].seen.any():
        return Verdict(kind=Kind.UNDECIDED, reason="the outputs are constant: the gain is 0", **about)
    broken = [point for point in points if point.changed.any()]
    if not broken:
        untouched = all(point.untouched for point in points)
        return Verdict(kind=Kind.INVARIANT if untouched or not layer.eps else Kind.UP_TO_EPS, **about)
    blurred = layer.eps > 0 and any((p.variance != p.variance_after).any() for p in points)
    degree, flips = (None, False) if blurred or np.any(fractions(lifted.bias)) else _law(points)
    return Verdict(
        kind=Kind.NOT_INVARIANT,
        degree=degree,
        flips=flips,
        witness=find_witness(layer, transform, generator=generator) or broken[0].witness(),
        **about,
    )


def find_witness(layer: Layer, transform: Any, *, generator: torch.Generator) -> Witness | None:
    """Return the shortest of a few points of small integers where `z` changes, or None if none is found."""
    lifted = lifted_layer(layer, lambda f: f)
    size = Sizes.of(layer, transform, SMALL)
    found: list[Witness] = []
    for spread in (attempt // 20 + 1 for attempt in range(TRIES)):
        try:
            point = _evaluate(lifted, *_point(transform, size, generator, spread=spread, simple=True))
        except NotExact:
            break
        if point is not None and point.changed.any():
            found.append(point.witness())
        if len(found) == WITNESSES:
            break
    return min(found, key=lambda w: len(str(w)), default=None)


def positive_somewhere(layer: Layer, size: Sizes) -> bool:
    """Whether the variances of a norm are all positive at one of a few points drawn."""
    lifted, generator = lifted_layer(layer, lambda f: f), torch.Generator().manual_seed(0)
    still = WeightMatrixRescale(Fraction(1))
    return any(_evaluate(lifted, *_point(still, size, generator, spread=9)) for _ in range(POINTS))


@dataclass(frozen=True, eq=False)
class _Point:
    """A rational point, one element, and the statistics before and after it acts (cases, units)."""

    weight: Array
    data: Array
    element: Any
    seen: Array  # where the gain is not 0
    centred: Array
    variance: Array
    centred_after: Array
    variance_after: Array

    @property
    def changed(self) -> Array:
        """Where `z` differs and a gain lets it be seen."""
        same = self.centred**2 * self.variance_after == self.centred_after**2 * self.variance
        return self.seen & ~(same & (np.sign(self.centred) == np.sign(self.centred_after)))

    @property
    def untouched(self) -> bool:
        """Whether the action leaves the statistics themselves alone, so that no eps can matter."""
        return bool(
            (self.centred == self.centred_after).all() and (self.variance == self.variance_after).all()
        )

    def follows(self, degree: int) -> bool:
        """Whether `|z'| = |delta|^degree |z|` in every entry."""
        scale = scale_of_entries(self.element, self.centred.shape)
        if scale is None:
            return False
        scaled = (np.abs(scale) ** degree * self.centred) ** 2 * self.variance_after
        return bool((self.centred_after**2 * self.variance == scaled).all())

    def witness(self) -> Witness:
        """Spell out the first entry that changes."""
        case, unit = (int(i) for i in np.argwhere(self.changed)[0])
        numbers = [
            sympy.sympify(Fraction(array[case, unit]))
            for array in (self.centred, self.variance, self.centred_after, self.variance_after)
        ]
        before, after = numbers[0] / sympy.sqrt(numbers[1]), numbers[2] / sympy.sqrt(numbers[3])
        detail = (
            f"  before: a - mu = {numbers[0]}, sigma^2 = {numbers[1]}, z = {before}\n"
            f"  after:  a - mu = {numbers[2]}, sigma^2 = {numbers[3]}, z = {after}"
        )
        return Witness(self.weight, self.data, self.element, case, unit, before, after, "z", detail)


def _evaluate(layer: NormLayer, weight: Array, data: Array, element: Any) -> _Point | None:
    """Evaluate the statistics before and after, or return None where a variance is not positive."""
    try:
        before, after = (_fractions(layer, *at) for at in ((weight, data), element(weight, data)))
    except ZeroDivisionError:
        return None
    if (before[1] <= 0).any() or (after[1] <= 0).any():
        return None
    seen = np.broadcast_to(np.asarray(layer.gain, dtype=object) != 0, before[0].shape)
    return _Point(weight, data, element, seen, *before, *after)


def _fractions(layer: NormLayer, weight: Array, data: Array) -> list[Array]:
    """Return the statistics as fractions; a float in the norm's own code is taken as the decimal it shows."""
    found = statistics(layer, weight, data)
    if any(isinstance(v, float) for array in found for v in array.ravel()):
        constants = [np.vectorize(_RATIONALS.ground_new, otypes=[object])(array) for array in (weight, data)]
        found = statistics(layer, *constants)
    return [np.vectorize(lambda v: _fraction(v, layer.name), otypes=[object])(array) for array in found]


def _fraction(value: Any, name: str) -> Fraction:
    """Return one value as a fraction, or raise NotExact."""
    if isinstance(value, PolyElement):
        constant = value.coeff(1)
        return Fraction(int(constant.numerator), int(constant.denominator))
    if not isinstance(value, Fraction | int):
        raise NotExact(f"the statistics of {name} gave {type(value).__name__}: they use more than + - * / **")
    return Fraction(value)


def _point(
    transform: Any, size: Sizes, generator: torch.Generator, *, spread: int, simple: bool = False
) -> tuple[Array, Array, Any]:
    """Draw integers up to `spread` for weight and data, and an element; a simple one moves one number."""
    shapes = (size.units, size.inputs), (size.cases, size.inputs)
    weight, data = (
        fractions(torch.randint(-spread, spread + 1, shape, generator=generator).double()) for shape in shapes
    )
    if not isinstance(transform, type):
        return weight, data, lifted_transform(transform, lambda f: f)
    if not hasattr(transform, "sign"):
        raise NotExact(f"{transform.__name__} has no exact elements: it is not one of normgeom's actions")
    shape = transform.shape(weight, data)  # type: ignore[attr-defined]
    return weight, data, transform(rational_parameter(transform, shape, generator, simple))


def rational_parameter(
    transform: Any, shape: tuple[int, ...], generator: torch.Generator, simple: bool
) -> Any:
    """A rational parameter: scales with the class's sign, or shifts; a simple one moves one entry only."""
    if transform.sign is None:
        neutral, choices = Fraction(0), [Fraction(f) for f in (1, 2, -1, 3, -3, -2)]
    else:
        scales = (Fraction(2), Fraction(3), Fraction(1, 2), Fraction(1, 3), Fraction(5, 2))
        neutral, choices = Fraction(transform.sign), [transform.sign * f for f in scales]
    values = np.full(shape, neutral, dtype=object)
    if simple:
        values[(0,) * len(shape)] = choices[0]
    else:
        for index in np.ndindex(shape):
            values[index] = choices[int(torch.randint(len(choices), (), generator=generator))]
    return values if shape else values[()]


def _law(points: list[_Point]) -> tuple[int | None, bool]:
    """Return the degree k of `z' = ±|delta|^k z` over all points, and whether a sign flips."""
    degree = next((k for k in DEGREES if all(point.follows(k) for point in points)), None)
    signs = (bool((point.centred * point.centred_after < 0).any()) for point in points)
    return degree, degree is not None and any(signs)
