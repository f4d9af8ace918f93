"""Anything that maps (weight, data) to outputs, seen by the engines as one kind of object.

`as_layer` goes by one rule; the constructors beside it say what is meant. Evaluating a layer twice gives the
same outputs, and what it was made of is left as found.
"""

import dataclasses
import math
from typing import Any

import torch
from torch import nn

from normgeom._types import Data, NumberOrPerUnit, Weight
from normgeom.layers.constructors import function_layer, on_summed_inputs, owning_weight
from normgeom.layers.norm_layer import NormLayer
from normgeom.layers.protocol import Layer
from normgeom.layers.weights import begins_with_weight, own_matrices
from normgeom.norms import BatchNorm


def as_layer(
    layer: Any,
    *,
    eps: float | None = None,
    gain: NumberOrPerUnit = 1.0,
    bias: NumberOrPerUnit = 0.0,
    bias_before: NumberOrPerUnit = 0.0,
    name: str = "",
) -> Layer:
    """Return a layer for a norm, a module, a function of (weight, data), or a layer.

    A module whose first part is linear or convolutional owns its weight (`owning_weight`). Any other acts on
    summed inputs (`on_summed_inputs`), also one with linear parts later: for a norm before its weight, say
    `owning_weight`. A matrix that the module keeps itself is ambiguous, and an error. Beside these there is
    `reparametrized`, for a function of the weight alone.

    Args:
        layer: a norm (an object with `statistics`, or a norm class), an `nn.Module`, or a callable
            `(weight, data) -> outputs`.
        eps: for a norm, added to the variance (default 0); for a module, replaces its own.
        gain: for a norm, multiplies the normalized summed inputs; a number or shape (units,).
        bias: for a norm, added after the gain.
        bias_before: for a norm, added to the summed inputs before they are normalized.
        name: what tables call the layer.

    Raises:
        TypeError: if the object is none of these, or an option does not apply to it.
        ValueError: for values that are not finite, a module that cannot be judged alone, or one that keeps a
            matrix itself.

    >>> as_layer(BatchNorm, eps=1e-5).eps
    1e-05
    >>> as_layer(nn.LayerNorm(4)).name
    'LayerNorm'
    >>> as_layer(nn.Sequential(nn.Linear(7, 4), nn.LayerNorm(4))).units
    4
    """
    if eps is not None and not (math.isfinite(eps) and eps >= 0):
        raise ValueError(f"eps must be a finite number >= 0; got {eps}.")
    around = {"gain": gain, "bias": bias, "bias_before": bias_before}
    if isinstance(layer, type) and hasattr(layer, "statistics"):
        layer = layer()
    if hasattr(layer, "statistics"):
        parameters = {option: _per_unit(option, value) for option, value in around.items()}
        return NormLayer(layer, eps or 0.0, label=name, **parameters)
    if any(_given(value, 1.0 if option == "gain" else 0.0) for option, value in around.items()):
        raise TypeError(
            f"gain, bias and bias_before apply to a norm; got {type(layer).__name__}, which has its own."
        )
    if callable(layer) and not isinstance(layer, type | Layer | nn.Module):
        if eps is not None:
            raise TypeError("eps inside a plain function cannot be set; leave it out.")
        return function_layer(layer, name=name)
    return _other_layer(layer, eps, name)


def _other_layer(layer: Any, eps: float | None, name: str) -> Layer:
    """Return the layer of a module, or a layer as it is, with another eps and name if given."""
    if isinstance(layer, nn.Module):
        layer = _module_layer(layer, name)
    elif isinstance(layer, type):
        raise TypeError(f"a layer must be an object, not a class; got {layer!r}. Call it with its sizes.")
    elif not isinstance(layer, Layer):
        raise TypeError(
            "a layer must be a norm (with statistics(weight, data)), an nn.Module that acts on summed "
            f"inputs, or a function of (weight, data); got {layer!r}."
        )
    elif name and dataclasses.is_dataclass(layer):
        fields = {one.name for one in dataclasses.fields(layer)} & {"label", "name"}
        layer = dataclasses.replace(layer, **dict.fromkeys(fields, name))
    return layer if eps is None else layer.with_eps(eps)


def _module_layer(module: nn.Module, name: str) -> Layer:
    """Return the layer of a module, by where its weight is; raise an error if that is not clear."""
    if begins_with_weight(module):
        return owning_weight(module, name=name)
    if matrices := own_matrices(module):
        first, has = next(iter(matrices)), ", ".join(f"{own} {shape}" for own, shape in matrices.items())
        raise ValueError(
            f"{type(module).__name__} is ambiguous: a module must begin with the linear or convolutional "
            f"part that owns its weight, or keep no matrix; it has {has}. Use ng.owning_weight(module, "
            f"weight={first!r}) if that is the weight, ng.on_summed_inputs(module) if one comes before it."
        )
    return on_summed_inputs(module, name=name)


def frozen_batch_norm(weight: Weight, data: Data, **options: Any) -> Layer:
    """Return batch norm in evaluation mode, with the statistics of this weight and data.

    `options` are those of `as_layer`; a bias before the norm is part of what the statistics saw.
    """
    norm = BatchNorm().freeze(weight, data, options.get("bias_before", 0))
    return as_layer(norm, **options)


def _per_unit(name: str, value: Any) -> Any:
    """Return a parameter, a list as a tensor; raise an error unless it is a finite number or vector."""
    values = torch.as_tensor(value, dtype=torch.float64)
    if values.ndim > 1 or not values.isfinite().all():
        raise ValueError(f"{name} must be finite, and a number or of shape (units,); got {values}.")
    return values if isinstance(value, list | tuple) else value


def _given(value: Any, default: float) -> bool:
    """Whether an option differs from its default."""
    return not (isinstance(value, int | float) and value == default)
