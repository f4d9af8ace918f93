"""Where engines evaluate: sizes of a point, and exact copies of a layer's and a transform's numbers."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from normgeom._types import Array
from normgeom.layers import Layer, NormLayer
from normgeom.transforms import Composition

AT_LEAST = {"units": 3, "inputs": 2, "cases": 3}
WHY = {
    "units": "with 1 unit layer norm is constant and with 2 it is only a sign",
    "inputs": "with 1 input a shift and a scale of the data cannot be told apart",
    "cases": "with 1 case batch norm is constant and with 2 it is only a sign",
}


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
        fixed = {"units": layer.units} | _fixed_by(transform)
        asked = {"units": units, "inputs": inputs, "cases": cases}
        chosen = {k: asked[k] or fixed.get(k) or getattr(default, k) for k in AT_LEAST}
        for name, size in chosen.items():
            if fixed.get(name) not in (None, size):
                raise ValueError(
                    f"{name}={size} was asked for, but {layer.name} or the transform is for "
                    f"{fixed[name]} {name}."
                )
        return cls(**chosen)


def _fixed_by(transform: Any) -> dict[str, int]:
    """The sizes that an element (not a class) fixes by the length of its parameter."""
    if isinstance(transform, Composition):
        fixed: dict[str, int] = {}
        for step in transform.steps:
            fixed |= _fixed_by(step)
        return fixed
    if isinstance(transform, type) or getattr(transform, "axis", None) is None:
        return {}
    return {transform.axis: len(transform.parameter)}


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
    """Return `a - mu` and `sigma^2` of every case and unit, as arrays of exact objects."""
    extra = (layer.bias_before,) if layer.has_bias_before else ()
    mean, variance = layer.norm.statistics(weight, data, *extra)
    centred = data @ weight.T + layer.bias_before - mean if extra else data @ weight.T - mean
    full = np.empty(centred.shape, dtype=object)
    full[...] = variance
    return centred, full
