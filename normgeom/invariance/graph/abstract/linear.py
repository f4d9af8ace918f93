"""Rules of operators that sum: reductions, products of matrices, convolutions, pooling."""

from collections.abc import Iterable
from typing import Any

from normgeom.invariance.graph.abstract.axes import Along, fresh, moved, varies
from normgeom.invariance.graph.abstract.forms import UNCHANGED, Form, Lost, Offset, Scaled, Shifted
from normgeom.invariance.graph.abstract.operand import Operand
from normgeom.invariance.graph.abstract.pointwise import plus, times

Shape = tuple[int, ...]


def without(along: Along, ndim: int, dims: Iterable[int], keepdim: bool) -> Along:
    """Return an index map after a reduction over axes that it does not vary along."""
    over = set(dims)
    left = [axis for axis in range(ndim) if axis not in over]
    return along if keepdim else moved(along, {axis: place for place, axis in enumerate(left)})


def reduced(x: Operand, dims: tuple[int, ...], keepdim: bool, name: str) -> Form:
    """A sum, mean, maximum or minimum over axes."""
    form, ndim = x.form, len(x.shape)
    over = set(dims)
    if isinstance(form, Scaled):
        if varies(form.along) & over:
            raise Lost("it sums over an axis along which the scales differ")
        if form.odd and name in ("amax", "amin"):
            raise Lost("the largest of what may change its sign")
        return Scaled(form.power, form.odd, without(form.along, ndim, over, keepdim), form.label)
    if isinstance(form, Offset):
        return _reduced_offset(form, x, dims, keepdim, name)
    if not isinstance(form, Shifted):
        raise Lost("it sums what is unknown")
    if not varies(form.along) & over and name != "sum":
        return Shifted(form.label, without(form.along, ndim, over, keepdim))
    if name in ("amax", "amin"):
        raise Lost("the largest of what is shifted by different amounts")
    left = [axis for axis in range(ndim) if axis not in over]
    places = {axis: axis if keepdim else left.index(axis) for axis in left}
    shape = [1 if axis in over else size for axis, size in enumerate(x.shape) if keepdim or axis not in over]
    at = fresh(tuple(shape), {places[axis] for axis in varies(form.along) - over})
    return Shifted((name, dims, keepdim, x.shape, form.label, form.along), at)


def _reduced_offset(form: Offset, x: Operand, dims: tuple[int, ...], keepdim: bool, name: str) -> Form:
    """A mean over axes along which neither the scale nor the offset varies."""
    if name != "mean" or (varies(form.along) | varies(form.scaled.along)) & set(dims):
        raise Lost("it sums over an axis along which what is added differs")
    at, own = (without(along, len(x.shape), dims, keepdim) for along in (form.along, form.scaled.along))
    scaled = form.scaled
    return Offset(Scaled(scaled.power, scaled.odd, own, scaled.label), form.label, at)


def spread(x: Operand, dims: tuple[int, ...], keepdim: bool) -> Form:
    """A variance over axes: a common shift cancels, a common scale is squared."""
    form = x.form
    if isinstance(form, Shifted):
        if varies(form.along) & set(dims):
            raise Lost("the variance of what is shifted by different amounts")
        return UNCHANGED
    mean = reduced(x, dims, keepdim, "mean")
    mean = mean.scaled if isinstance(mean, Offset) else mean
    assert isinstance(mean, Scaled)
    return mean.to(2 * mean.power, False)


def length(x: Operand, dims: tuple[int, ...], keepdim: bool) -> Form:
    """A norm over axes."""
    if not isinstance(x.form, Scaled):
        raise Lost("the length of what the action shifts, or scales in part")
    form = reduced(x, dims, keepdim, "mean")
    assert isinstance(form, Scaled)
    return form.to(form.power, False)


def product(x: Operand, y: Operand, shape: Shape) -> Form:
    """A product of matrices, (..., i, k) and (..., k, j)."""
    one, two, last = x.form, y.form, len(shape) - 1
    if isinstance(one, Scaled) and isinstance(two, Scaled):
        if last in varies(one.along) or last - 1 in varies(two.along):
            raise Lost("it sums over an axis along which the scales differ")
        return times(x, y, shape)
    if isinstance(one, Shifted) and two == UNCHANGED:
        free = (varies(one.along) - {last}) | {last} | _batch(y, last)
        return Shifted(("left", y.key, one.label, one.along), fresh(shape, free))
    if isinstance(two, Shifted) and one == UNCHANGED:
        free = (varies(two.along) - {last - 1}) | {last - 1} | _batch(x, last)
        return Shifted(("right", x.key, two.label, two.along), fresh(shape, free))
    raise Lost("a product of two factors of which one is shifted")


def _batch(x: Operand, last: int) -> set[int]:
    return {axis for axis in range(last - 1) if x.shape[axis] > 1}


def added_product(bias: Operand, x: Operand, y: Operand, shape: Shape) -> Form:
    """`bias + x @ y`."""
    return plus(bias, Operand(product(x, y, shape), shape, ("product", x.key, y.key)), shape)


def convolved(x: Operand, weight: Operand, bias: Any, options: tuple[Any, ...], shape: Shape) -> Form:
    """A convolution; `options` are stride, padding, dilation, transposed, output padding, groups."""
    form = _convolved(x, weight, options, shape)
    if bias is None:
        return form
    along = Operand(bias.form, (*bias.shape, *(1,) * (len(shape) - 2)), bias.key)
    if bias.form != UNCHANGED:
        raise Lost("a bias that the action moves")
    return plus(Operand(form, shape, ("convolution", repr(options), x.key, weight.key)), along, shape)


def _convolved(x: Operand, weight: Operand, options: tuple[Any, ...], shape: Shape) -> Form:
    one, two, how = x.form, weight.form, repr(options)
    padded, transposed, groups = any(options[1]), bool(options[3]), int(options[5])
    positions = set(range(2, len(shape)))
    if isinstance(one, Scaled) and isinstance(two, Scaled):
        unit = 1 if transposed else 0
        if varies(one.along) - {0} or varies(two.along) - {unit} or (transposed and groups > 1 and two.along):
            raise Lost("it sums over an axis along which the scales differ")
        at = moved(two.along, {unit: 1})
        return times(
            Operand(one, shape, x.key), Operand(Scaled(two.power, two.odd, at, two.label), shape, ""), shape
        )
    if isinstance(one, Shifted) and two == UNCHANGED:
        free = {1} | (varies(one.along) & {0})
        free |= positions if padded or transposed or varies(one.along) & positions else set()
        return Shifted(("data", how, weight.key, one.label, one.along), fresh(shape, free))
    if isinstance(two, Shifted) and one == UNCHANGED:
        common = not transposed and groups == 1 and 0 not in varies(two.along)
        free = {0} | positions | (set() if common else {1})
        return Shifted(("filter", how, x.key, two.label, two.along), fresh(shape, free))
    raise Lost("a convolution of two factors of which one is shifted")


def pooled(x: Operand, axes: int, plain: bool, shape: Shape, key: Any) -> Form:
    """A mean over windows of the last axes; of a constant it is that constant if it is `plain`."""
    form, over = x.form, set(range(len(shape) - axes, len(shape)))
    if isinstance(form, Scaled):
        if varies(form.along) & over:
            raise Lost("it sums over an axis along which the scales differ")
        return form
    if not isinstance(form, Shifted):
        raise Lost("it sums what is unknown")
    if plain and not varies(form.along) & over:
        return form
    return Shifted((key, form.label, form.along), fresh(shape, varies(form.along) | over))
