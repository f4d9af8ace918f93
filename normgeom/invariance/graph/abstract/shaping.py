"""Rules of operators that move entries without changing them."""

from collections.abc import Callable
from typing import Any

from normgeom.invariance.graph.abstract.axes import Along, fresh, moved, reshaped, varies
from normgeom.invariance.graph.abstract.forms import UNCHANGED, Form, Lost, Offset, Scaled, Shifted
from normgeom.invariance.graph.abstract.operand import Operand

Shape = tuple[int, ...]


def with_along(form: Form, along: Along, label: Any = None) -> Form:
    """Return a form with another index map, and another label if one is given."""
    if isinstance(form, Offset):
        raise Lost("it takes apart what the action scales in part")
    if isinstance(form, Scaled):
        return Scaled(form.power, form.odd, along, label or form.label) if form != UNCHANGED else form
    assert isinstance(form, Shifted)
    return Shifted(label or form.label, along)


def _each(x: Operand, rule: Callable[[Operand], Form]) -> Offset:
    """Move what is scaled and its offset alike."""
    form = x.form
    assert isinstance(form, Offset)
    scaled = rule(Operand(form.scaled, x.shape, x.key))
    shift = rule(Operand(Shifted(form.label, form.along), x.shape, x.key))
    assert isinstance(scaled, Scaled)
    assert isinstance(shift, Shifted)
    return Offset(scaled, shift.label, shift.along)


def viewed(x: Operand, shape: Shape) -> Form:
    """A view."""
    if isinstance(x.form, Offset):
        return _each(x, lambda part: viewed(part, shape))
    along = reshaped(x.form.along, x.shape, shape)  # type: ignore[union-attr]
    if along is None:
        raise Lost("a view cuts across the axis along which it varies")
    return with_along(x.form, along)


def permuted(x: Operand, dims: list[int]) -> Form:
    """A permutation of the axes."""
    if isinstance(x.form, Offset):
        return _each(x, lambda part: permuted(part, dims))
    places = {axis % len(x.shape): place for place, axis in enumerate(dims)}
    return with_along(x.form, moved(x.form.along, places))  # type: ignore[union-attr]


def expanded(x: Operand, shape: Shape) -> Form:
    """Broadcasting to a shape."""
    if isinstance(x.form, Offset):
        return _each(x, lambda part: expanded(part, shape))
    more = len(shape) - len(x.shape)
    return with_along(x.form, moved(x.form.along, {a: a + more for a in range(len(x.shape))}))  # type: ignore[union-attr]


def taken(x: Operand, axis: int, shape: Shape, key: Any, *, keeps: bool) -> Form:
    """A part along one axis: the same form if it does not vary there, else a scale or shift of its own."""
    axis %= len(x.shape)
    along: Along = x.form.along  # type: ignore[union-attr]
    places = {a: a if keeps or a < axis else a - 1 for a in range(len(x.shape)) if keeps or a != axis}
    if axis not in varies(along):
        return with_along(x.form, moved(along, places))
    own = {places[a] for a in varies(along) if a in places}
    label = ("part", key, x.form.label, along)  # type: ignore[union-attr]
    return with_along(x.form, fresh(shape, own), label)


def joined(parts: list[Operand], axis: int, shape: Shape, *, new: bool) -> Form:
    """Tensors of one form put side by side."""
    forms = {part.form for part in parts}
    if len(forms) > 1:
        raise Lost("it joins what the action moves differently")
    form = forms.pop()
    axis %= len(shape)
    if not new and axis in varies(form.along):  # type: ignore[union-attr]
        raise Lost("it joins along the axis along which it varies")
    places = {a: a + (new and a >= axis) for a in range(len(shape))}
    return with_along(form, moved(form.along, places))  # type: ignore[union-attr]


def padded(x: Operand, pads: list[int], value: float, shape: Shape, key: Any) -> Form:
    """Padding with a constant, zeros for what is scaled."""
    form = x.form
    over = {len(shape) - 1 - i // 2 for i, width in enumerate(pads) if width}
    if isinstance(form, Scaled) and (value == 0 or form == UNCHANGED) and not varies(form.along) & over:
        return form
    if isinstance(form, Shifted):
        return Shifted((key, form.label, form.along), fresh(shape, varies(form.along) | over))
    raise Lost("it pads what the action scales")
