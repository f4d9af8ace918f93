"""Rules of operators that act entry by entry: one line or two an operator."""

import math
from fractions import Fraction
from typing import Any

from normgeom.invariance.graph.abstract.axes import Along, fresh, moved, varies
from normgeom.invariance.graph.abstract.forms import UNCHANGED, Form, Lost, Offset, Scaled, Shifted
from normgeom.invariance.graph.abstract.operand import Operand


def aligned(operand: Operand, ndim: int) -> Along:
    """Return the index map of an operand broadcast to `ndim` axes (axes count from the last)."""
    if isinstance(operand.form, Scaled | Shifted | Offset):
        shift = ndim - len(operand.shape)
        return moved(operand.form.along, {axis: axis + shift for axis in range(len(operand.shape))})
    return ()


def times(x: Operand, y: Operand, shape: tuple[int, ...], sign: int = 1) -> Form:
    """A product, or with sign -1 a quotient."""
    one, two = x.form, y.form
    if isinstance(one, Scaled) and isinstance(two, Scaled):
        return _product(one, two, aligned(x, len(shape)), aligned(y, len(shape)), sign)
    if isinstance(one, Shifted) and two == UNCHANGED:
        return _scaled_shift(one, x, y, shape, "mul" if sign > 0 else "div")
    if isinstance(two, Shifted) and one == UNCHANGED and sign > 0:
        return _scaled_shift(two, y, x, shape, "mul")
    raise Lost("a shift meets a factor that the action moves")


def _product(one: Scaled, two: Scaled, along: Along, other: Along, sign: int) -> Scaled:
    if two == UNCHANGED:
        return Scaled(one.power, one.odd, along, one.label)
    if one == UNCHANGED:
        return Scaled(sign * two.power, two.odd, other, two.label)
    if (along, one.label) != (other, two.label):
        raise Lost("two factors have scales of different axes")
    return Scaled(Fraction(0), False, along, one.label).to(one.power + sign * two.power, one.odd != two.odd)


def _scaled_shift(form: Shifted, x: Operand, by: Operand, shape: tuple[int, ...], name: str) -> Shifted:
    """A shift times an unchanged factor: another shift, which varies where either does."""
    along = aligned(x, len(shape))
    if not by.shape or all(size == 1 for size in by.shape):
        return Shifted((name, by.key, form.label), along)
    own = {axis + len(shape) - len(by.shape) for axis, size in enumerate(by.shape) if size > 1}
    return Shifted((name, by.key, form.label, along), fresh(shape, varies(along) | own))


def plus(x: Operand, y: Operand, shape: tuple[int, ...], sign: int = 1) -> Form:
    """A sum, or with sign -1 a difference."""
    one, two = x.form, y.form
    along, other = aligned(x, len(shape)), aligned(y, len(shape))
    if sign < 0 and x.key == y.key:
        return UNCHANGED
    if isinstance(one, Scaled) and isinstance(two, Scaled):
        if (
            x.is_zero
            or y.is_zero
            or (one.power, one.odd, one.label, along) == (two.power, two.odd, two.label, other)
        ):
            kept, at = (two, other) if x.is_zero else (one, along)
            return Scaled(kept.power, kept.odd, at, kept.label)
        return _offset(x, y, shape, sign)
    if isinstance(one, Offset) and isinstance(two, Offset):
        return _difference(one, two, along, other, sign)
    if isinstance(one, Shifted) and two == UNCHANGED:
        return Shifted(one.label, along)
    if isinstance(two, Shifted) and one == UNCHANGED:
        return Shifted(two.label if sign > 0 else ("neg", two.label), other)
    if isinstance(one, Shifted) and isinstance(two, Shifted):
        if sign < 0 and (one.label, along) == (two.label, other):
            return UNCHANGED
        at = fresh(shape, varies(along) | varies(other))
        return Shifted(("plus", sign, one.label, along, two.label, other), at)
    raise Lost("it adds what the action scales to what it shifts")


def _offset(x: Operand, y: Operand, shape: tuple[int, ...], sign: int) -> Offset:
    """What is scaled and what is not, added."""
    moving, still = (y, x) if x.form == UNCHANGED else (x, y)
    if still.form != UNCHANGED or (moving is y and sign < 0):
        raise Lost("it adds what the action scales differently")
    form = moving.form
    assert isinstance(form, Scaled)
    scaled = Scaled(form.power, form.odd, aligned(moving, len(shape)), form.label)
    own = {axis + len(shape) - len(still.shape) for axis, size in enumerate(still.shape) if size > 1}
    return Offset(scaled, ("offset", sign, still.key, scaled), fresh(shape, own | varies(scaled.along)))


def _difference(one: Offset, two: Offset, along: Along, other: Along, sign: int) -> Form:
    """Two tensors with one offset: it cancels."""
    if sign > 0 or (one.label, along) != (two.label, other) or one.scaled != two.scaled:
        raise Lost("it adds what the action scales to what it does not")
    return one.scaled


def raised(x: Operand, exponent: Any) -> Form:
    """A power with a constant exponent."""
    form = x.form
    if not isinstance(form, Scaled):
        raise Lost("a power of what the action shifts")
    power = simple_fraction(exponent)
    if form.odd and power.denominator != 1:
        raise Lost("a root of what may change its sign")
    return form.to(form.power * power, form.odd and power % 2 == 1)


def simple_fraction(exponent: Any) -> Fraction:
    """The fraction that an exponent in the code is the floating-point number of."""
    if isinstance(exponent, int | float | Fraction) and math.isfinite(exponent):
        power = Fraction(exponent).limit_denominator(10**6)
        if float(power) == float(exponent):
            return power
    raise Lost(f"the exponent {exponent} is no simple fraction")


def size(x: Operand) -> Form:
    """An absolute value."""
    if not isinstance(x.form, Scaled):
        raise Lost("the size of what the action shifts")
    return x.form.to(x.form.power, False)


def positively(x: Operand) -> Form:
    """A function that commutes with positive factors: relu, leaky relu, a maximum with 0."""
    if not isinstance(x.form, Scaled) or x.form.odd:
        raise Lost("it treats signs differently, and the action may change or shift them")
    return x.form


def sign(x: Operand) -> Form:
    """The sign."""
    if not isinstance(x.form, Scaled):
        raise Lost("the sign of what the action shifts")
    return x.form.to(Fraction(0), x.form.odd)


def logarithm(x: Operand) -> Form:
    """A logarithm turns a scale into a shift."""
    if not isinstance(x.form, Scaled) or x.form.odd:
        raise Lost("a logarithm of what the action shifts")
    return Shifted(("log", x.form.power, x.form.label), x.form.along) if x.form.power else UNCHANGED


def same(x: Operand, y: Operand, shape: tuple[int, ...]) -> Form:
    """Two operands that answer alike, or of which one is 0: a maximum, a choice."""
    one, two = x.form, y.form
    if isinstance(one, Shifted) and isinstance(two, Shifted):
        if (one.label, aligned(x, len(shape))) == (two.label, aligned(y, len(shape))):
            return Shifted(one.label, aligned(x, len(shape)))
    elif isinstance(one, Scaled) and isinstance(two, Scaled):
        form = plus(x, y, shape)
        if isinstance(form, Scaled):  # an offset would be that of a sum
            return form
    raise Lost("it compares what the action moves differently")


def larger(x: Operand, y: Operand, shape: tuple[int, ...]) -> Form:
    """A maximum or minimum."""
    form = same(x, y, shape)
    if isinstance(form, Scaled) and form.odd:
        raise Lost("it compares what may change its sign")
    return form


def compared(x: Operand, y: Operand, shape: tuple[int, ...]) -> Form:
    """A comparison of what answers alike does not change."""
    larger(x, y, shape)
    return UNCHANGED
