"""Where engines evaluate: sizes of a point, and exact copies of a layer's and a transform's numbers."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from sympy.polys.polyerrors import ExactQuotientFailed

from normgeom._types import Array
from normgeom.layers import Layer, NormLayer, convolution_of
from normgeom.norms import statistics_of
from normgeom.transforms import Composition

PARTS = 12  # the largest denominator of a degree
DEGREES = (0, 1, -1, 2, -2, 3, -3, 4, -4)  # the powers of a scale that are looked for

AT_LEAST = {"units": 3, "inputs": 2, "cases": 3}
WHY = {
    "units": "with 1 unit layer norm is constant and with 2 it is only a sign",
    "inputs": "with 1 input a shift and a scale of the data cannot be told apart",
    "cases": "with 1 case batch norm is constant and with 2 it is only a sign",
}


def simple_degree(value: float) -> Fraction:
    """Return the fraction with a small denominator that is nearest to a measured power of a scale."""
    return Fraction(value).limit_denominator(PARTS)


def as_degree(power: Fraction) -> int | float:
    """Return a power of a scale as a whole number if it is one.

    >>> as_degree(Fraction(-1)), as_degree(Fraction(-1, 2))
    (-1, -0.5)
    """
    return int(power) if power.denominator == 1 else float(power)


class NotExact(Exception):
    """The layer or transform cannot be evaluated without rounding; the message says why."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of one point."""

    units: int
    inputs: int
    cases: int

    def __post_init__(self) -> None:
        """Raise an error for sizes at which invariances appear that do not exist."""
        for name, least in AT_LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(
                    f"a check needs at least {least} {name}; got {getattr(self, name)}: {WHY[name]}, "
                    "so invariances would hold vacuously."
                )

    @classmethod
    def of(
        cls,
        layer: Layer,
        transform: Any,
        default: "Sizes",
        *,
        units: int | None = None,
        inputs: int | None = None,
        cases: int | None = None,
    ) -> "Sizes":
        """Return the sizes asked for, else those that the layer's and the element's parameters fix."""
        asked = [
            ("the call", name, size)
            for name, size in (("units", units), ("inputs", inputs), ("cases", cases))
        ]
        chosen: dict[str, tuple[int, str]] = {}
        own = [(layer.name, name, getattr(layer, name, None)) for name in ("units", "inputs")]
        for who, name, size in [*asked, *own, *_fixed_by(transform, convolution_of(layer).groups)]:
            if size is None:
                continue
            if not isinstance(size, int):
                raise TypeError(f"{name} must be a whole number; got {size!r}.")
            if chosen.setdefault(name, (size, who))[0] != size:
                first, owner = chosen[name]
                raise ValueError(f"{name} must be one number; {owner} is for {first} and {who} for {size}.")
        return cls(**{k: chosen[k][0] if k in chosen else getattr(default, k) for k in AT_LEAST})

    def shapes(self, layer: Layer) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of the weight and the data that a layer takes at these sizes."""
        weight, data = convolution_of(layer).shapes(self.units, self.inputs, self.cases)
        return getattr(layer, "weight_shape", weight), data


def _fixed_by(transform: Any, groups: int) -> list[tuple[str, str, int]]:
    """The sizes that an element (not a class) fixes by the length of its parameter."""
    steps = transform.steps if isinstance(transform, Composition) else (transform,)
    return [
        (
            type(step).__name__,
            step.axis,
            len(step.parameter) * (groups if (step.axis, step.moves) == ("inputs", "weight") else 1),
        )
        for step in steps
        if not isinstance(step, type) and getattr(step, "axis", None) is not None
    ]


def fractions(values: Any) -> Any:
    """Return exact fractions for a number or an array of floats."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().to(torch.float64).numpy()
    array = np.asarray(values)
    return _map(Fraction, array if array.dtype == object else array.astype(np.float64))


def lifted_layer(layer: Layer, number: Callable[[Fraction], Any]) -> NormLayer:
    """Return the layer with every parameter made exact: `number` of its fraction.

    Raises:
        NotExact: if the layer is not a norm with statistics.
    """
    if not isinstance(layer, NormLayer):
        raise NotExact(
            f"{layer.name} is not a norm with statistics(weight, data), so only its values are seen"
        )
    own: Any = vars(layer.norm).items() if dataclasses.is_dataclass(layer.norm) else ()
    arrays = {k: _map(number, fractions(v)) for k, v in own if isinstance(v, torch.Tensor | np.ndarray)}
    norm: Any = dataclasses.replace(layer.norm, **arrays) if arrays else layer.norm  # type: ignore[type-var]
    before = _map(number, fractions(layer.bias_before)) if layer.has_bias_before else 0.0
    return dataclasses.replace(layer, norm=norm, bias_before=before, gain=fractions(layer.gain))


def lifted_transform(transform: Any, number: Callable[[Fraction], Any]) -> Any:
    """Return an element with its parameter made exact."""
    if isinstance(transform, Composition):
        return Composition(tuple(lifted_transform(step, number) for step in transform.steps))
    if not hasattr(transform, "parameter"):
        raise NotExact(f"{transform} has no exact form: it is not one of normgeom's actions")
    return type(transform)(_map(number, fractions(transform.parameter)))


def _map(number: Callable[[Any], Any], values: Any) -> Any:
    """Apply a function to a number, or to every entry of an array."""
    array = np.asarray(values)
    out = np.empty(array.shape, dtype=object)
    for index, value in np.ndenumerate(array):
        out[index] = number(value)
    return out if array.ndim else out[()]


def statistics(layer: NormLayer, weight: Array, data: Array) -> tuple[Array, Array]:
    """Return `a - mu` and `sigma^2` of every case and unit, as arrays of exact objects.

    Raises:
        NotExact: if the norm's statistics do not run on these objects, with what they did.
        ZeroDivisionError: if they divide by 0 at this point.
    """
    extra = (layer.bias_before,) if layer.has_bias_before else ()
    try:
        mean, variance = statistics_of(layer.norm, weight, data, *extra)
        summed = data @ weight.T
        centred = (summed + layer.bias_before if extra else summed) - mean
        full = np.empty(centred.shape, dtype=object)
        full[...] = variance
    except (ExactQuotientFailed, ZeroDivisionError):
        raise
    except (ArithmeticError, AttributeError, IndexError, RuntimeError, TypeError, ValueError) as why:
        raise NotExact(f"the statistics of {layer.name} do not run on exact numbers: {why}") from why
    return centred, full


class OperatorsOnly:
    """Stands for every value at once: it can be added, multiplied, divided and raised, and not compared.

    Symbols have no order, so statistics that compare values have no identity; SymPy's polynomials would
    compare by their leading terms.
    """

    def _same(self, *_: Any) -> "OperatorsOnly":
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _same
    __truediv__ = __rtruediv__ = __pow__ = __neg__ = __pos__ = _same
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise TypeError("they compare values")

    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = __ne__ = __abs__ = __eq__


def scale_of_entries(element: Any, shape: tuple[int, ...]) -> Array | None:
    """Return the scale of each entry of the outputs, None if the action is no scale or has other axes."""
    if getattr(element, "sign", None) is None:
        return None
    if element.axis is None:
        return np.full(shape, element.parameter, dtype=object)
    delta = element.parameter
    delta = delta.cpu().numpy() if isinstance(delta, torch.Tensor) else np.asarray(delta)
    along = 1 if element.axis == "units" else 0
    if len(delta) != shape[along]:
        return None
    return np.broadcast_to(delta.reshape((1,) * along + (-1,) + (1,) * (len(shape) - along - 1)), shape)
