"""How each ATen operator answers to an action, given how its arguments do: one line an operator.

A rule sees forms, shapes and constants, and no numbers. An operator without a rule keeps what does not
change: a function of unchanged arguments is unchanged, unless it draws random numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from normgeom.invariance.graph.abstract import linear, pointwise, shaping
from normgeom.invariance.graph.abstract.forms import UNCHANGED, Form, Lost, Scaled
from normgeom.invariance.graph.abstract.operand import Operand


@dataclass(frozen=True)
class Call:
    """One call of an operator: its arguments with operands for tensors, and the shape of its result."""

    arguments: tuple[Any, ...]
    options: dict[str, Any]
    shape: tuple[int, ...]
    key: Any

    def get(self, place: int, name: str, default: Any) -> Any:
        """Return an argument by place or name."""
        if len(self.arguments) > place:
            return self.arguments[place]
        return self.options.get(name, default)

    @property
    def x(self) -> Operand:
        """The first operand; a number is unchanged."""
        first = self.arguments[0]
        return first if isinstance(first, Operand) else number(first)

    @property
    def y(self) -> Operand:
        """The second operand; a number is unchanged."""
        other = self.arguments[1]
        return other if isinstance(other, Operand) else number(other)

    @property
    def dims(self) -> tuple[int, ...]:
        """The axes of a reduction, all if none are given."""
        dims = self.get(1, "dim", None)
        dims = [dims] if isinstance(dims, int) else list(dims or range(len(self.x.shape)))
        return tuple(sorted(d % len(self.x.shape) for d in dims))

    @property
    def keepdim(self) -> bool:
        """Whether a reduction keeps its axes."""
        return bool(self.get(2, "keepdim", False))


Rule = Callable[[Call], Any]


def number(value: Any) -> Operand:
    """Return a number in the code as an operand."""
    return Operand(UNCHANGED, (), ("number", value), is_zero=value == 0)


READ = frozenset((
    "dim", "keepdim", "correction", "min", "max", "value", "ord", "padding", "ceil_mode", "count_include_pad",
    "divisor_override", "negative_slope", "start", "end", "step",
))  # fmt: skip
NO_VALUE = frozenset(("dtype", "layout", "device", "pin_memory", "non_blocking", "memory_format", "implicit"))
NEUTRAL = {"alpha": 1, "beta": 1, "rounding_mode": None, "driver": None}


def understood(call: Call) -> Call:
    """Return a call all of whose options are read by its rule, or change no value but the type's."""
    for name, value in call.options.items():
        if name in READ | NO_VALUE or (name == "alpha" and call.key[0] in ("aten.add", "aten.sub")):
            continue
        if name not in NEUTRAL or value != NEUTRAL[name]:
            raise Lost(f"there is no rule for {name}={value}")
    if any(isinstance(argument, torch.dtype) for argument in call.arguments):
        raise Lost("there is no rule for another type of the same bits")
    return call


def added(call: Call, sign: int) -> Form:
    """A sum or difference with a factor `alpha`."""
    alpha = call.options.get("alpha", 1)
    if alpha == 1:
        return pointwise.plus(call.x, call.y, call.shape, sign)
    other = Operand(
        pointwise.times(call.y, number(alpha), call.y.shape), call.y.shape, ("times", alpha, call.y.key)
    )
    return pointwise.plus(call.x, other, call.shape, sign)


def powered(call: Call) -> Form:
    """A power; the exponent must be a number in the code."""
    if isinstance(call.arguments[1], Operand) or not isinstance(call.arguments[0], Operand):
        raise Lost("a power whose exponent is a tensor")
    return pointwise.raised(call.x, call.arguments[1])


def bounded(call: Call) -> Form:
    """A clamp: by 0 it commutes with positive factors."""
    low, high = call.get(1, "min", None), call.get(2, "max", None)
    if all(bound is None or (isinstance(bound, int | float) and bound == 0) for bound in (low, high)):
        return pointwise.positively(call.x)
    raise Lost("it bounds what the action moves by a constant")


def chosen(call: Call) -> Form:
    """`where(condition, x, y)` with an unchanged condition."""
    condition, x, y = (a if isinstance(a, Operand) else number(a) for a in call.arguments)
    if condition.form != UNCHANGED:
        raise Lost("a condition that the action changes")
    return pointwise.same(x, y, call.shape)


def random(call: Call) -> Form:
    """Random numbers."""
    raise Lost("it draws random numbers")


def _over_all(rule: Callable[[Operand, tuple[int, ...], bool, str], Form], name: str) -> Rule:
    return lambda c: rule(c.x, c.dims, c.keepdim, name)


def _spread(call: Call) -> Form:
    if len(call.arguments) > 2 or isinstance(call.get(1, "dim", None), bool):
        raise Lost("there is no rule for this form of the variance")
    return linear.spread(call.x, call.dims, bool(call.options.get("keepdim", False)))


def _mean_of(call: Call) -> Form:
    return linear.reduced(call.x, call.dims, bool(call.options.get("keepdim", False)), "mean")


def _singular_values(call: Call) -> list[Form]:
    if not isinstance(call.x.form, Scaled) or call.x.form.along:
        raise Lost("singular values of what is not scaled as a whole")
    unknown = Lost("singular vectors are known but for their signs")
    return [unknown, call.x.form.to(call.x.form.power, False), unknown]  # type: ignore[list-item]


def _vector_length(call: Call) -> Form:
    if call.get(1, "ord", 2) == 0:
        raise Lost("the number of entries that differ from 0 is no length")
    dims = call.get(2, "dim", None)
    dims = [dims] if isinstance(dims, int) else list(dims or range(len(call.x.shape)))
    return linear.length(
        call.x, tuple(d % len(call.x.shape) for d in dims), bool(call.get(3, "keepdim", False))
    )


def _pooled(axes: int) -> Rule:
    def rule(call: Call) -> Form:
        fills = any(_numbers(call.get(3, "padding", 0))) or bool(call.get(4, "ceil_mode", False))
        plain = not fills and call.get(6, "divisor_override", None) is None
        return linear.pooled(call.x, axes, plain, call.shape, ("pool", *call.key[1:]))

    return rule


def _numbers(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


def _flipped(call: Call) -> Form:
    x = call.x
    for axis in call.arguments[1]:
        x = Operand(shaping.taken(x, axis, call.shape, call.key, keeps=True), x.shape, x.key)
    return x.form


def _transposed(call: Call) -> Form:
    return shaping.permuted(call.x, [1, 0]) if len(call.shape) == 2 else call.x.form


def _parts(call: Call) -> list[Form]:
    axis = call.get(2, "dim", 0) % len(call.x.shape)
    shapes = [tuple(n if a == axis else s for a, s in enumerate(call.x.shape)) for n in call.arguments[1]]
    return [shaping.taken(call.x, axis, s, (call.key, i), keeps=True) for i, s in enumerate(shapes)]


HALF = Fraction(1, 2)
RULES: dict[str, Rule] = {
    **{f"aten.{n}": lambda c: c.x.form for n in ("clone", "alias", "detach", "_to_copy", "lift_fresh_copy")},
    **{f"aten.{n}": _over_all(linear.reduced, n) for n in ("sum", "mean", "amax", "amin")},
    **{
        f"aten.{n}": lambda c: pointwise.compared(c.x, c.y, c.shape)
        for n in ("lt", "le", "gt", "ge", "eq", "ne")
    },
    **{f"aten.{n}": lambda c: pointwise.larger(c.x, c.y, c.shape) for n in ("maximum", "minimum")},
    **{
        f"aten.{n}": lambda c: shaping.viewed(c.x, c.shape)
        for n in ("view", "reshape", "_unsafe_view", "unsqueeze", "squeeze")
    },
    **{f"aten.avg_pool{n}d": _pooled(n) for n in (1, 2, 3)},
    **{f"aten.{n}": lambda c: linear.product(c.x, c.y, c.shape) for n in ("mm", "bmm")},
    "aten.add": lambda c: added(c, 1),
    "aten.sub": lambda c: added(c, -1),
    "aten.mul": lambda c: pointwise.times(c.x, c.y, c.shape),
    "aten.div": lambda c: pointwise.times(c.x, c.y, c.shape, -1),
    "aten.neg": lambda c: pointwise.times(c.x, number(-1), c.shape),
    "aten.pow": powered,
    "aten.square": lambda c: pointwise.raised(c.x, 2),
    "aten.sqrt": lambda c: pointwise.raised(c.x, HALF),
    "aten.rsqrt": lambda c: pointwise.raised(c.x, -HALF),
    "aten.reciprocal": lambda c: pointwise.raised(c.x, -1),
    "aten.abs": lambda c: pointwise.size(c.x),
    "aten.sign": lambda c: pointwise.sign(c.x),
    "aten.log": lambda c: pointwise.logarithm(c.x),
    "aten.relu": lambda c: pointwise.positively(c.x),
    "aten.leaky_relu": lambda c: pointwise.positively(c.x),
    "aten.clamp": bounded,
    "aten.clamp_min": bounded,
    "aten.where": chosen,
    "aten.var": _spread,
    "aten.var_mean": lambda c: [_spread(c), _mean_of(c)],
    "aten.linalg_vector_norm": _vector_length,
    "aten.addmm": lambda c: linear.added_product(c.x, c.y, c.arguments[2], c.shape),
    "aten.convolution": lambda c: linear.convolved(c.x, c.y, c.arguments[2], c.arguments[3:], c.shape),
    "aten.permute": lambda c: shaping.permuted(c.x, c.arguments[1]),
    "aten.t": _transposed,
    "aten.expand": lambda c: shaping.expanded(c.x, c.shape),
    "aten.slice": lambda c: shaping.taken(c.x, c.get(1, "dim", 0), c.shape, c.key, keeps=True),
    "aten.select": lambda c: shaping.taken(c.x, c.get(1, "dim", 0), c.shape, c.key, keeps=False),
    "aten.flip": _flipped,
    "aten.cat": lambda c: shaping.joined(c.arguments[0], c.get(1, "dim", 0), c.shape, new=False),
    "aten.stack": lambda c: shaping.joined(c.arguments[0], c.get(1, "dim", 0), c.shape, new=True),
    "aten.split_with_sizes": _parts,
    "aten.constant_pad_nd": lambda c: shaping.padded(
        c.x, c.arguments[1], c.get(2, "value", 0.0), c.shape, c.key
    ),
    "aten._linalg_svd": _singular_values,
}
