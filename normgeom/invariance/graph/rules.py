"""What each ATen operator does to arrays of exact numbers: one line an operator.

A rule takes the arithmetic (50 digits or symbols) and the operator's own arguments, with object arrays for
tensors. An operator without a rule is named, never skipped.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from normgeom.invariance.graph.contractions import convolve, pool
from normgeom.invariance.graph.digits import objects
from normgeom.invariance.graph.linear_algebra import (
    inverse,
    singular,
    solved,
    solved_by_parts,
    symmetric,
    triangular,
)

Rule = Callable[..., Any]


def each(function: Callable[..., Any], *arrays: Any) -> np.ndarray:
    """Apply a function to every entry of arrays that broadcast."""
    arrays = tuple(objects(array) for array in arrays)
    return objects(np.frompyfunc(function, len(arrays), 1)(*arrays))


def lifted(a: Any, value: Any) -> Any:
    """Return an operand as an array: a number in the code becomes a constant."""
    return value if isinstance(value, np.ndarray) else objects(a.constant(value))


def binary(name: str) -> Rule:
    """Two operands, of which the second may be multiplied by `alpha`."""
    operations = {
        "add": lambda a, x, y: x + y,
        "sub": lambda a, x, y: x - y,
        "mul": lambda a, x, y: x * y,
        "div": lambda a, x, y: each(a.divide, x, y),
    }

    def rule(a: Any, x: Any, y: Any, *, alpha: Any = 1) -> Any:
        x, y = lifted(a, x), lifted(a, y)
        return operations[name](a, x, y if alpha == 1 else y * a.constant(alpha))

    return rule


def function(name: str) -> Rule:
    """An elementary function of every entry."""
    return lambda a, x: each(lambda v: a.function(name, v), x)


def comparison(name: str) -> Rule:
    """A comparison of two operands."""
    return lambda a, x, y: each(lambda v, w: a.compare(name, v, w), x, lifted(a, y))


def axes(x: np.ndarray, dims: Any) -> tuple[int, ...]:
    """Axes as a tuple: all of them where none are given."""
    dims = [dims] if isinstance(dims, int) else list(dims or range(x.ndim))
    return tuple(d % x.ndim for d in dims) if x.ndim else ()


def total(a: Any, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """A sum over axes."""
    return x.sum(axis=axes(x, dims), keepdims=keepdim)


def mean(a: Any, x: Any, dims: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """A mean over axes."""
    count = math.prod(x.shape[d] for d in axes(x, dims))
    return total(a, x, dims, keepdim) * a.divide(a.number(1), a.number(count))


def variance(a: Any, x: Any, dims: Any = None, *, correction: Any = 1, keepdim: bool = False) -> Any:
    """A variance over axes, divided by the count less the correction."""
    count = math.prod(x.shape[d] for d in axes(x, dims))
    left = max(count - (1 if correction is None else correction), 0)
    centred = x - mean(a, x, dims, True)
    return total(a, centred * centred, dims, keepdim) * a.divide(a.number(1), a.number(left))


def extreme(name: str) -> Rule:
    """The largest or smallest entry along axes."""

    def rule(a: Any, x: Any, dims: Any = None, keepdim: bool = False) -> Any:
        over = axes(x, dims)
        rows = np.moveaxis(x, over, range(len(over))).reshape(-1, *_without(x.shape, over))
        best = rows[0]
        for row in rows[1:]:
            best = each(getattr(a, name), best, row)
        return np.expand_dims(objects(best), over) if keepdim else best

    return rule


def _without(shape: tuple[int, ...], over: tuple[int, ...]) -> list[int]:
    return [size for axis, size in enumerate(shape) if axis not in over]


def power(a: Any, x: Any, exponent: Any) -> Any:
    """A power with a constant exponent."""
    if isinstance(x, int | float) or isinstance(exponent, np.ndarray):
        return each(
            lambda v, w: a.function("exp", w * a.function("log", v)), lifted(a, x), lifted(a, exponent)
        )
    whole = float(exponent).is_integer()
    value = int(exponent) if whole else a.constant(exponent)
    return each(lambda v: a.power(v, value), x)


def clamp(a: Any, x: Any, low: Any = None, high: Any = None) -> Any:
    """Bounds from below and above."""
    x = x if low is None else each(a.larger, x, lifted(a, low))
    return x if high is None else each(a.smaller, x, lifted(a, high))


def leaky(a: Any, x: Any, slope: float = 0.01) -> Any:
    """Leaky relu."""
    return each(lambda v: a.choose(a.compare("gt", v, a.number(0)), v, v * a.constant(slope)), x)


def sigmoid(a: Any, x: Any) -> Any:
    """1 / (1 + exp(-x))."""
    return each(lambda v: a.divide(a.number(1), a.number(1) + a.function("exp", -v)), x)


def elu(a: Any, x: Any, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Any:
    """The exponential linear unit: `scale alpha (exp(input_scale x) - 1)` below 0."""
    alpha, scale, inner = (a.constant(v) for v in (alpha, scale, input_scale))

    def below(v: Any) -> Any:
        return alpha * (a.function("exp", v * inner) - 1)

    return each(lambda v: scale * a.choose(a.compare("gt", v, a.number(0)), v, below(v)), x)


def gelu(a: Any, x: Any, *, approximate: str = "none") -> Any:
    """The Gaussian error linear unit, exact or by tanh."""
    half = a.constant(0.5)
    if approximate == "tanh":
        inner = a.constant(math.sqrt(2 / math.pi))
        cubic = a.constant(0.044715)
        return each(lambda v: half * v * (1 + a.function("tanh", inner * (v + cubic * v**3))), x)
    return each(lambda v: half * v * (1 + a.function("erf", v * a.constant(math.sqrt(0.5)))), x)


def cut(a: Any, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """A slice along one axis."""
    return x[(slice(None),) * (dim % x.ndim) + (slice(start, end, step),)]


def expand(a: Any, x: Any, sizes: Any, **_: Any) -> Any:
    """Broadcasting to a shape, -1 for a size as it is."""
    full = [1] * (len(sizes) - x.ndim) + list(x.shape)
    return np.broadcast_to(x, [have if want == -1 else want for have, want in zip(full, sizes, strict=True)])


def padded(a: Any, x: Any, pads: Any, value: Any = 0.0) -> Any:
    """Padding with a constant; torch counts axes from the last."""
    widths = [(0, 0)] * (x.ndim - len(pads) // 2)
    widths += [(pads[i], pads[i + 1]) for i in range(len(pads) - 2, -1, -2)]
    return np.pad(x, widths, constant_values=a.constant(value))


def added_product(a: Any, bias: Any, x: Any, y: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """`beta bias + alpha x @ y`."""
    return bias * a.constant(beta) + (x @ y) * a.constant(alpha)


def filled(a: Any, shape: Any, value: Any, **_: Any) -> Any:
    """An array of one value."""
    return np.broadcast_to(objects(a.constant(value)), tuple(shape))


def length(a: Any, x: Any, order: Any = 2, dims: Any = None, keepdim: bool = False, **_: Any) -> Any:
    """A norm of vectors along axes, of order 1, 2 or infinity."""
    size = each(lambda v: a.function("abs", v), x)
    if order == 2:
        return each(lambda v: a.function("sqrt", v), total(a, x * x, dims, keepdim))
    if order == 1:
        return total(a, size, dims, keepdim)
    if order == float("inf"):
        return extreme("larger")(a, size, dims, keepdim)
    whole = int(order) if float(order).is_integer() else a.constant(order)
    powers = total(a, each(lambda v: a.power(v, whole), size), dims, keepdim)
    return each(lambda v: a.power(v, a.constant(1 / order)), powers)


def as_it_is(a: Any, x: Any, *_: Any, **__: Any) -> Any:
    """Copies, types and memory layouts do not change exact numbers."""
    return x


RULES: dict[str, Rule] = {
    **{f"aten.{n}": binary(n) for n in ("add", "sub", "mul", "div")},
    **{
        f"aten.{n}": function(n)
        for n in ("sqrt", "exp", "expm1", "log", "log1p", "log2", "tanh", "sin", "cos")
    },
    **{f"aten.{n}": function(n) for n in ("erf", "abs", "sign", "floor", "ceil", "atan")},
    **{f"aten.{n}": comparison(n) for n in ("lt", "le", "gt", "ge", "eq", "ne")},
    **{
        f"aten.{n}": as_it_is
        for n in ("clone", "alias", "detach", "_to_copy", "lift_fresh_copy", "contiguous")
    },
    "aten.neg": lambda a, x: -x,
    "aten.reciprocal": lambda a, x: each(lambda v: a.divide(a.number(1), v), x),
    "aten.rsqrt": lambda a, x: each(lambda v: a.divide(a.number(1), a.function("sqrt", v)), x),
    "aten.pow": power,
    "aten.square": lambda a, x: x * x,
    "aten.sum": total,
    "aten.mean": mean,
    "aten.var": variance,
    "aten.var_mean": lambda a, x, *d, **k: (
        variance(a, x, *d, **k),
        mean(a, x, d[0] if d else None, bool(k.get("keepdim"))),
    ),
    "aten.linalg_vector_norm": length,
    "aten.amax": extreme("larger"),
    "aten.amin": extreme("smaller"),
    "aten.maximum": lambda a, x, y: each(a.larger, x, y),
    "aten.minimum": lambda a, x, y: each(a.smaller, x, y),
    "aten.clamp": clamp,
    "aten.clamp_min": lambda a, x, low: clamp(a, x, low),
    "aten.clamp_max": lambda a, x, high: clamp(a, x, None, high),
    "aten.relu": lambda a, x: clamp(a, x, 0),
    "aten.hardtanh": lambda a, x, low=-1.0, high=1.0: clamp(a, x, low, high),
    "aten.leaky_relu": leaky,
    "aten.sigmoid": sigmoid,
    "aten.elu": elu,
    "aten.gelu": gelu,
    "aten.exp2": lambda a, x: each(lambda v: a.function("exp", v * a.function("log", a.number(2))), x),
    "aten.where": lambda a, c, x, y: each(a.choose, c, lifted(a, x), lifted(a, y)),
    **{f"aten.{n}_and": lambda a, x, y: x * y for n in ("logical", "bitwise")},
    **{f"aten.{n}_or": lambda a, x, y: x + y - x * y for n in ("logical", "bitwise")},
    "aten.bitwise_not": lambda a, x: each(lambda v: a.compare("eq", v, a.number(0)), x),
    "aten.logical_not": lambda a, x: each(lambda v: a.compare("eq", v, a.number(0)), x),
    "aten.mm": lambda a, x, y: x @ y,
    "aten.bmm": lambda a, x, y: np.matmul(x, y),
    "aten.addmm": added_product,
    "aten.convolution": lambda a, *arguments: convolve(*arguments, zero=a.number(0)),
    "aten.avg_pool1d": pool,
    "aten.avg_pool2d": pool,
    "aten.avg_pool3d": pool,
    "aten.permute": lambda a, x, dims: x.transpose(dims),
    "aten.t": lambda a, x: x.T,
    "aten.transpose": lambda a, x, i, j: np.swapaxes(x, i, j),
    "aten.view": lambda a, x, shape: x.reshape(shape),
    "aten.reshape": lambda a, x, shape: x.reshape(shape),
    "aten._unsafe_view": lambda a, x, shape: x.reshape(shape),
    "aten.unsqueeze": lambda a, x, d: np.expand_dims(x, d),
    "aten.squeeze": lambda a, x, dims: x.reshape(
        [s for d, s in enumerate(x.shape) if s != 1 or d not in axes(x, dims)]
    ),
    "aten.expand": expand,
    "aten.slice": cut,
    "aten.select": lambda a, x, d, i: np.take(x, i, axis=d),
    "aten.flip": lambda a, x, dims: np.flip(x, dims),
    "aten.cat": lambda a, xs, d=0: np.concatenate(xs, axis=d),
    "aten.stack": lambda a, xs, d=0: np.stack(xs, axis=d),
    "aten.split_with_sizes": lambda a, x, sizes, d=0: np.split(x, np.cumsum(sizes)[:-1], axis=d),
    "aten.cumsum": lambda a, x, d, **_: np.cumsum(x, axis=d),
    "aten.diagonal": lambda a, x, offset=0, i=0, j=1: np.diagonal(x, offset, i, j),
    "aten.constant_pad_nd": padded,
    "aten.full": filled,
    "aten.full_like": lambda a, x, value, **_: filled(a, x.shape, value),
    "aten.scalar_tensor": lambda a, value, **_: filled(a, (), value),
    "aten.arange": lambda a, *n, **_: objects([a.constant(float(v)) for v in np.arange(*n)]),
    "aten._linalg_eigh": symmetric,
    "aten._linalg_svd": singular,
    "aten.linalg_inv_ex": inverse,
    "aten.linalg_cholesky_ex": triangular,
    "aten._linalg_solve_ex": solved,
    "aten.linalg_solve_triangular": solved_by_parts,
    "getitem": lambda a, xs, i: xs[i],
}
