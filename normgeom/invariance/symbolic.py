"""The symbolic engine: an identity with free symbols, at fixed small sizes, for all real values at once.

Weights, data and the action's parameter are generators of a polynomial ring over the rationals, so that an
identity holds when the difference is the zero polynomial and fails when it is not; nothing is simplified.
Roots are canonical: `sigma' = |k| sigma` where `(a' - mu') = k (a - mu)` and `sigma'^2 = k^2 sigma^2`. That
k exists is decided by one cancellation of `(a' - mu') / (a - mu)`, its sign by the positive symbols in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import sympy
import torch
from sympy.polys.fields import FracField
from sympy.polys.orderings import lex
from sympy.polys.polyerrors import ExactQuotientFailed

from normgeom._types import Array
from normgeom.invariance._points import (
    DEGREES,
    NotExact,
    OperatorsOnly,
    Sizes,
    fractions,
    lifted_layer,
    lifted_transform,
    scale_of_entries,
    statistics,
)
from normgeom.invariance.exact import find_witness, positive_somewhere
from normgeom.invariance.verdict import Kind, Proof, Verdict, subject
from normgeom.layers import Layer, NormLayer
from normgeom.transforms import Composition

SMALL = Sizes(units=3, inputs=3, cases=4)
LARGEST = 48  # symbols; beyond, products of polynomials take tens of seconds


def judge(layer: Layer, transform: Any, *, generator: torch.Generator) -> Verdict:
    """Return the symbolic verdict on one cell, at 3 units and inputs and 4 cases unless more are fixed.

    Args:
        layer: a layer; anything but a norm is undecided.
        transform: an action's class, whose parameter becomes free symbols, or one element.
        generator: draws the witness of a *not invariant*; the decision itself draws nothing.
    """
    about = subject(layer, transform, "symbolic")
    try:
        size = Sizes.of(layer, transform, SMALL)
        setting = _setting(layer, transform, size)
    except NotExact as why:
        return Verdict(kind=Kind.UNDECIDED, reason=f"symbolic: {why}", **about)
    ratios = _ratios(setting)
    if not ratios:
        return Verdict(kind=Kind.UNDECIDED, reason="the outputs are constant: the gain is 0", **about)
    if all(r is not None and r.sign == 1 and r.power == 0 for r in ratios):
        untouched = all(r.factor == 1 for r in ratios if r)
        kind = Kind.INVARIANT if untouched or not layer.eps else Kind.UP_TO_EPS
        proof = _proof(setting, ratios, eps=kind is Kind.UP_TO_EPS)
        return Verdict(kind=kind, proof=proof, **about)
    if unknown := [r for r in ratios if r is not None and r.sign == 0]:
        reason = f"symbolic: the sign of {unknown[0].factor} depends on the values"
        return Verdict(kind=Kind.UNDECIDED, reason=reason, **about)
    powers = {None if r is None else r.power for r in ratios}
    untouched = all(v == w for v, w in zip(setting.before[1].ravel(), setting.after[1].ravel(), strict=True))
    law = len(powers) == 1 and None not in powers and not np.any(fractions(setting.layer.bias))
    law = law and (untouched or not layer.eps)
    return Verdict(
        kind=Kind.NOT_INVARIANT,
        degree=powers.pop() if law else None,
        flips=law and any(r.sign < 0 for r in ratios if r),
        witness=find_witness(layer, transform, generator=generator),
        **about,
    )


@dataclass(frozen=True)
class _Ratio:
    """How one entry answers: `a' - mu' = factor (a - mu)` and `|z'| = scale^power |z|`, with a sign."""

    factor: Any
    sign: int
    power: int


@dataclass(frozen=True)
class _Setting:
    """Symbols for one cell, and what the layer makes of them before and after the action."""

    layer: NormLayer
    transform: Any
    scale: Array | None
    positive: frozenset[Any]
    before: tuple[Array, Array]
    after: tuple[Array, Array]
    size: Sizes


def _setting(layer: Layer, transform: Any, size: Sizes) -> _Setting:
    """Build the ring, the arrays of symbols and the action, and evaluate the statistics."""
    shapes = {"w": (size.units, size.inputs), "x": (size.cases, size.inputs)}
    names = [f"{k}_{{{i + 1}{d + 1}}}" for k, shape in shapes.items() for i, d in np.ndindex(shape)]
    field = _field_in([*names, *_parameter_names(transform, size)])
    ring = field.to_ring()

    def number(value: Fraction) -> Any:
        return ring.ground_new(sympy.QQ(value.numerator, value.denominator))

    lifted = lifted_layer(layer, number)
    _refuse_comparisons(layer, size)
    for gens in (ring.gens, field.gens):  # the ring is faster; the field is for norms that divide
        weight, data, free = _arrays(gens, *shapes.values())
        element = (
            _free_element(transform, free)
            if isinstance(transform, type)
            else lifted_transform(transform, number)
        )
        try:
            pairs = [statistics(lifted, *point) for point in ((weight, data), element(weight, data))]
            break
        except ExactQuotientFailed:
            continue
        except ZeroDivisionError as why:
            raise NotExact(f"the statistics of {layer.name} divide by 0") from why
    before, after = ([np.vectorize(field, otypes=[object])(array) for array in pair] for pair in pairs)
    scale = scale_of_entries(element, before[0].shape)
    return _Setting(
        lifted, transform, scale, frozenset(ring.gens[len(names) :]), tuple(before), tuple(after), size
    )  # fmt: skip


def _field_in(names: Sequence[str]) -> FracField:
    """The fractions of polynomials in these symbols, unless they are too many."""
    if len(names) > LARGEST:
        raise NotExact(f"{len(names)} symbols are more than the {LARGEST} tried; ask for fewer units")
    return FracField(names, sympy.QQ, lex)


def _refuse_comparisons(layer: Layer, size: Sizes) -> None:
    """Raise NotExact if the statistics compare values, or if their variance is never positive."""
    anything = OperatorsOnly()
    weight, data = (np.full(s, anything) for s in ((size.units, size.inputs), (size.cases, size.inputs)))
    statistics(lifted_layer(layer, lambda _: anything), weight, data)
    if not positive_somewhere(layer, size):
        raise NotExact(f"the variance of {layer.name} is not positive at any point drawn")


def _parameter_names(transform: Any, size: Sizes) -> list[str]:
    """Names of the free symbols of a class's parameter; an element has none."""
    if isinstance(transform, Composition) or (
        hasattr(transform, "parameter") and not isinstance(transform, type)
    ):
        return []
    if not hasattr(transform, "sign"):
        raise NotExact(f"{transform} has no symbols: it is not one of normgeom's actions")
    letter = r"\delta" if transform.sign else (r"\gamma" if transform.axis == "inputs" else "c")
    if transform.axis is None:
        return [letter]
    return [f"{letter}_{{{k + 1}}}" for k in range(getattr(size, transform.axis))]


def _arrays(gens: Sequence[Any], *shapes: tuple[int, ...]) -> list[Array]:
    """Cut generators into arrays of the shapes given, and a vector of what is left."""
    flat = np.empty(len(gens), dtype=object)
    flat[:] = gens
    out, start = [], 0
    for shape in shapes:
        stop = start + int(np.prod(shape))
        out.append(flat[start:stop].reshape(shape))
        start = stop
    return [*out, flat[start:]]


def _free_element(transform: Any, free: Array) -> Any:
    """The element whose parameter is free: `-delta` with `delta > 0` for a negative scale."""
    signed = -free if transform.sign == -1 else free
    return transform(signed if transform.axis else signed[0])


def _ratios(setting: _Setting) -> list["_Ratio | None"]:
    """How every entry with a gain answers, up to the first that follows no law (None)."""
    shape = setting.before[0].shape
    gain = np.broadcast_to(np.asarray(setting.layer.gain, dtype=object), shape)
    out: list[_Ratio | None] = []
    for at in np.ndindex(shape):
        if gain[at] == 0:
            continue
        before, after = ([array[at] for array in pair] for pair in (setting.before, setting.after))
        scale = None if setting.scale is None else setting.scale[at]
        out.append(_ratio(before, after, scale, setting.positive))
        if out[-1] is None:
            break
    return out


def _ratio(before: list[Any], after: list[Any], scale: Any, positive: frozenset[Any]) -> _Ratio | None:
    """Decide one entry by one cancellation and products of polynomials."""
    (centred, variance), (centred_after, variance_after) = before, after
    if not centred or not centred_after:
        same = centred == centred_after
        return _Ratio(centred.field.one, 1, 0) if same else None
    factor = centred_after / centred
    sign = _sign(factor.numer, positive) * _sign(factor.denom, positive)
    if _equal_squares(factor, variance, variance_after):
        return _Ratio(factor, sign, 0)
    if scale is None or sign == 0:
        return None
    size = centred.field(scale)
    size = size if _sign(size.numer, positive) > 0 else -size
    for power in DEGREES[1:]:
        if _equal_squares(factor / size**power, variance, variance_after):
            return _Ratio(factor, sign, power)
    return None


def _equal_squares(factor: Any, variance: Any, variance_after: Any) -> bool:
    """Whether `sigma'^2 = factor^2 sigma^2`, without a cancellation."""
    left = variance_after.numer * factor.denom**2 * variance.denom
    return bool(left == factor.numer**2 * variance.numer * variance_after.denom)


def _sign(polynomial: Any, positive: frozenset[Any]) -> int:
    """1 or -1 if the polynomial has one sign because its symbols are positive, else 0."""
    used = {g for g, degree in zip(polynomial.ring.gens, polynomial.degrees(), strict=True) if degree > 0}
    signs = {1 if c > 0 else -1 for c in polynomial.coeffs()}
    return signs.pop() if len(signs) == 1 and used <= positive else 0


def _proof(setting: _Setting, ratios: list[_Ratio | None], *, eps: bool) -> Proof:
    """Write down what was decided, in general and for the first entry."""
    factor, reads = _common_factor(setting, ratios)
    if factor == "1":
        text = "a' - mu' = a - mu and sigma'^2 = sigma^2, so z' = z for every eps"
        latex = r"a'-\mu' = a-\mu,\quad \sigma'^2=\sigma^2 \;\Rightarrow\; z'=z"
    else:
        text = f"a' - mu' = k (a - mu) and sigma'^2 = k^2 sigma^2 with k = {reads} > 0, so z' = z"
        latex = (
            rf"a'-\mu' = {factor}\,(a-\mu),\quad \sigma'^2={factor}^2\sigma^2,\quad {factor}>0"
            r" \;\Rightarrow\; z'=z"
        )
    if eps:
        text += " at eps = 0; with eps, z'/z = k sqrt(sigma^2 + eps)/sqrt(k^2 sigma^2 + eps)"
        latex += (
            rf"\ (\epsilon=0),\quad \frac{{z'}}{{z}}=\frac{{{factor}\sqrt{{\sigma^2+\epsilon}}}}"
            rf"{{\sqrt{{{factor}^2\sigma^2+\epsilon}}}}"
        )
    labels = (r"a_{11}-\mu", r"\sigma^2", r"a'_{11}-\mu'", r"\sigma'^2")
    entries = [_short(array[0, 0]) for array in (*setting.before, *setting.after)]
    instance = r" \\ ".join(f"{label} &= {entry}" for label, entry in zip(labels, entries, strict=True))
    size = setting.size
    return Proof(
        text, latex, rf"\begin{{aligned}} {instance} \end{{aligned}}", size.units, size.inputs, size.cases
    )


def _short(fraction: Any, terms: int = 12) -> str:
    """LaTeX of a fraction of polynomials; a long polynomial is cut, and says how long it is."""
    if fraction.denom != 1 or len(fraction.numer) <= terms:
        return str(sympy.latex(fraction.as_expr()))
    numer = fraction.numer
    start = sum((numer.ring.term_new(*term) for term in numer.terms()[:terms]), numer.ring.zero)
    return rf"{sympy.latex(start.as_expr())} + \cdots \text{{ ({len(numer)} terms)}}"


def _common_factor(setting: _Setting, ratios: list[_Ratio | None]) -> tuple[str, str]:
    """Return k as LaTeX and as text: a number, delta, or delta with the index of the unit or case."""
    factors = {r.factor for r in ratios if r is not None}
    if len(factors) == 1:
        latex = sympy.latex(factors.pop().as_expr())
        return latex, latex.replace("\\", "")
    index = {"units": "i", "cases": "n"}.get(getattr(setting.transform, "axis", None) or "", "ni")
    return rf"\delta_{{{index}}}", f"delta_{index}"
