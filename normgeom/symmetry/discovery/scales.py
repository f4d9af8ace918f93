"""Names for fields that multiply every entry by an exponent: whole and per-row scales, hidden pairs."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from normgeom.symmetry.discovery.algebra import Algebra
from normgeom.symmetry.discovery.layout import Described, Layout, listed, symbol
from normgeom.symmetry.discovery.readable import Independent, readable

_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Pattern:
    """Which parameters are scaled together: name, axis (None: all of it) and exponent of each."""

    kind: str
    parts: tuple[tuple[str, int | None, int], ...] = ()


def name_scales(layout: Layout, algebra: Algebra, picked: Independent) -> list[Described]:
    """Return the scales of an algebra by kind, of those that are new to what was picked before."""
    groups = dict[Pattern, list[Tensor]]()
    left = list(_leftover(layout, algebra))
    by_group = [(pattern, exponents) for pattern, exponents in left if pattern.kind == "per-group scale"]
    for pattern, exponents in [*by_index(layout), *by_group, *whole_parameters(layout), *left]:
        field = layout.scaling(exponents / exponents.norm())[None]
        if bool(algebra.contains(field)[0]) and picked.adds(algebra.coordinates(field)[0]):
            groups.setdefault(pattern, []).append(exponents)
    return [_described(layout, pattern, found) for pattern, found in groups.items()]


def by_index(layout: Layout) -> Iterator[tuple[Pattern, Tensor]]:
    """Yield each row and each column of every parameter."""
    for name, shape in layout.shapes.items():
        for axis, kind in enumerate(("per-row scale", "per-column scale")[: len(shape)]):
            if shape[axis] > 1:
                pattern = Pattern(kind, ((name, axis, 1),))
                yield from ((pattern, layout.direction(name, axis, i)) for i in range(shape[axis]))


def whole_parameters(layout: Layout) -> Iterator[tuple[Pattern, Tensor]]:
    """Yield the whole of every parameter."""
    for name in layout.shapes:
        yield Pattern("whole scale", ((name, None, 1),)), layout.direction(name)


def named_scales(layout: Layout) -> list[Described]:
    """Return all scales that have a name, whether or not a layer has them."""
    groups = dict[Pattern, list[Tensor]]()
    for pattern, exponents in (*by_index(layout), *whole_parameters(layout)):
        groups.setdefault(pattern, []).append(exponents)
    return [_described(layout, pattern, found) for pattern, found in groups.items()]


def _leftover(layout: Layout, algebra: Algebra) -> Iterator[tuple[Pattern, Tensor]]:
    """All scales in the algebra, in a readable basis."""
    scalings = torch.stack([layout.scaling(e) for e in torch.eye(layout.size, dtype=torch.float64)])
    _, values, basis = torch.linalg.svd(algebra.seen(scalings).T)
    for exponents in readable(basis[int((values > algebra.loose).sum()) :]):
        yield _pattern(layout, exponents), exponents


def _pattern(layout: Layout, exponents: Tensor) -> Pattern:
    """What a scale is that is no candidate."""
    parts: list[tuple[str, int | None, int]] = []
    rows: tuple[int, ...] = ()
    for name, shape in layout.shapes.items():
        inside = exponents[layout.part(name)].reshape(shape)
        if not bool(inside.any()):
            continue
        value = float(inside[inside != 0][0])
        if not value.is_integer() or not bool(
            torch.isin(inside, torch.tensor([0.0, value]).to(inside)).all()
        ):
            return Pattern("scale of entries")
        axis, some = _place(inside != 0)
        if axis is None and some:
            return Pattern("scale of entries")
        parts, rows = [*parts, (name, axis, int(value))], some if axis is not None else rows
    if len(parts) == 1:
        return Pattern("per-group scale" if rows else "whole scale", tuple(parts))
    axes = {axis for _, axis, _ in parts}
    if axes == {None}:
        return Pattern("joint scale", tuple(parts))
    return Pattern("scale of entries") if len(rows) > 1 else Pattern("joint scale per unit", tuple(parts))


def _place(scaled: Tensor) -> tuple[int | None, tuple[int, ...]]:
    """Along which axis some indices are scaled as a whole, and which; (None, ()) for all entries.

    (None, (0,)) is for entries that are not whole indices of an axis.
    """
    if bool(scaled.all()):
        return None, ()
    for axis in range(scaled.ndim):
        along = scaled.movedim(axis, 0).flatten(1) if scaled.ndim > 1 else scaled[:, None]
        if bool((along.all(1) == along.any(1)).all()):
            return axis, tuple(along.any(1).nonzero()[:, 0].tolist())
    return None, (0,)


def _described(layout: Layout, pattern: Pattern, found: list[Tensor]) -> Described:
    fields = torch.stack([layout.scaling(exponents) for exponents in found])
    if pattern.kind == "scale of entries":
        return Described(pattern.kind, *layout.written(fields[0]), fields)
    each = "" if pattern.kind in ("whole scale", "joint scale") else "ᵢ"
    text = ", ".join(_moved(name, axis, power, each) for name, axis, power in pattern.parts)
    formula = r",\; ".join(_formula(name, axis, power, each) for name, axis, power in pattern.parts)
    return Described(pattern.kind, text + _which(layout, pattern, found), formula, fields)


def _which(layout: Layout, pattern: Pattern, found: list[Tensor]) -> str:
    """The rows that have a scale of their own, where not all have; the groups of rows."""
    name, axis, _ = pattern.parts[0]
    if axis is None:
        return ""
    scaled = [_place(e[layout.part(name)].reshape(layout.shapes[name]) != 0)[1] for e in found]
    if pattern.kind == "per-group scale":
        return " for " + "; ".join(listed(rows) for rows in scaled)
    whole = len(found) == layout.shapes[name][axis]
    return "" if whole else f" for {listed(sorted(rows[0] for rows in scaled if rows))}"


def _moved(name: str, axis: int | None, power: int, each: str) -> str:
    entry = name if axis is None else f"{name}[{':, ' * axis}i]"
    factor = f"c{each}" + ("" if power == 1 else str(power).translate(_SUPERSCRIPT))
    return f"{entry} → {factor} {entry}"


def _formula(name: str, axis: int | None, power: int, each: str) -> str:
    before = r"\cdot " * (axis or 0)
    entry = symbol(name) if axis is None else f"{symbol(name)}_{{{before}i}}"
    factor = f"c{'_i' if each else ''}" + ("" if power == 1 else f"^{{{power}}}")
    return rf"{entry} \to {factor}\,{entry}"
