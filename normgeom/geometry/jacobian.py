"""How the outputs of a normalized GLM depend on its parameters, case by case, in factors.

For every norm here the derivative of output i of case n is

    d eta_ni / d w_j = M_n,ij * T_j phi_n,    d eta_ni / d b_j = [i = j],    d eta_ni / d g_j = [i = j] z_nj

with features `phi` (cases, inputs), a mixing matrix `M_n` between units, and a projection
`T_j = I - l_j r_j^T` of rank one less than full, or none. With gain g, `sigma` the root of variance plus eps,
`x` the data:

| norm | M_n | phi_n | T_j |
| --- | --- | --- | --- |
| none | diag(g) | x_n | none |
| batch, frozen | diag(g/sigma) | x_n | none |
| layer norm of the input | diag(g) | (x_n - mean)/sigma_n | none |
| weight | diag(g/sigma) | x_n | I - w_j w_j^T / sigma_j^2 |
| batch, of this data | diag(g/sigma) | x_n - mean of x | I - (S w_j) w_j^T / sigma_j^2, S = Cov x |
| layer | diag(g) (I - 11^T/H - z_n z_n^T/H) / sigma_n | x_n | none |
| RMS | diag(g) (I - z_n z_n^T/H) / sigma_n | x_n | none |

Derived from Ba et al. 2016, eq. 2, 3 and 9; eq. 13 there keeps only the diagonal of M_n.
"""

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from normgeom.geometry.glm import NormalizedGLM, Params, check_params
from normgeom.norms import (
    BatchNorm,
    FrozenBatchNorm,
    InputLayerNorm,
    LayerNorm,
    NoNorm,
    RMSNorm,
    WeightNorm,
)


@dataclass(frozen=True)
class Projection:
    """The maps `T_j = I - left_j right_j^T` of the features, one a unit; both (units, inputs)."""

    left: Tensor
    right: Tensor

    def __call__(self, vectors: Tensor, /) -> Tensor:
        """Return `T_j v` for vectors (..., units, inputs)."""
        return vectors - self.left * (vectors * self.right).sum(-1, keepdim=True)


@dataclass(frozen=True)
class GLMJacobian:
    """The factors of the derivative of a GLM's outputs; see the module.

    Attributes:
        mixing: M_n, of shape (cases, units, units), or its diagonal (cases or 1, units) if it is diagonal, or
            None for the identity.
        features: phi, of shape (cases, inputs).
        projection: T_j, or None for the identity.
        z: the normalized summed inputs (cases, units) if the model has a gain, else None.
        outputs: eta, of shape (cases, units).
    """

    mixing: Tensor | None
    features: Tensor
    projection: Projection | None
    z: Tensor | None
    outputs: Tensor

    @property
    def couples_units(self) -> bool:
        """Whether an output depends on the weights of other units."""
        return self.mixing is not None and self.mixing.ndim == 3

    def as_printed(self) -> "GLMJacobian":
        """Return the Jacobian of eq. 13 as printed: each output depends on its own weights only."""
        if self.mixing is None or not self.couples_units:
            return self
        return replace(self, mixing=self.mixing.diagonal(dim1=1, dim2=2))

    def of_cases(self, some: slice) -> "GLMJacobian":
        """Return the factors of some of the cases."""
        mixing = self.mixing if self.mixing is None or len(self.mixing) == 1 else self.mixing[some]
        z = None if self.z is None else self.z[some]
        return GLMJacobian(mixing, self.features[some], self.projection, z, self.outputs[some])

    def unit_features(self) -> Tensor:
        """Return `T_j phi_n`, of shape (cases, units or 1, inputs)."""
        features = self.features[:, None]
        return features if self.projection is None else self.projection(features)

    def push(self, weight: Tensor, bias: Tensor, gain: Tensor | None) -> Tensor:
        """Return J_n v_n, (cases, units), for a weight part (cases or 1, units, inputs) and (.., units)."""
        moved = (self.unit_features() * weight).sum(-1)
        mixed = _apply(self.mixing, moved)
        return mixed + bias if gain is None or self.z is None else mixed + bias + self.z * gain

    def pull(self, outputs: Tensor) -> tuple[Tensor, ...]:
        """Return J_n^T u_n: weight (cases, units, inputs), bias and, if there is one, gain (.., units, 1)."""
        mixed = _apply(
            self.mixing.mT if self.mixing is not None and self.couples_units else self.mixing, outputs
        )
        weight, bias = mixed[..., None] * self.unit_features(), outputs[..., None]
        return (weight, bias) if self.z is None else (weight, bias, (self.z * outputs)[..., None])


def glm_jacobian(model: NormalizedGLM, params: Params, data: Tensor) -> GLMJacobian:
    """Return the factors of the derivative of `model(params, data)` in the parameters.

    Raises:
        TypeError: for a norm whose derivative is not in the table.
        ValueError: if the shapes do not fit, or outputs or spreads are not finite or are 0.
    """
    check_params(params, data)
    z = model.normalized(params, data)
    mixing, features, projection = _factors(model.norm, params["weight"], data, z, model.eps)
    gain = params.get("gain")
    if gain is not None:
        mixing = (
            gain[None] if mixing is None else gain[:, None] * mixing if mixing.ndim == 3 else gain * mixing
        )
    outputs = (z if gain is None else gain * z) + params["bias"]
    check_outputs(model, outputs)
    return GLMJacobian(mixing, features, projection, None if gain is None else z, outputs)


def check_outputs(model: NormalizedGLM, outputs: Tensor) -> None:
    """Raise a ValueError if outputs are not finite or lie outside the family's domain."""
    # A finite sum has finite terms; only another one is worth a closer look.
    bad = None if bool(torch.isfinite(outputs.sum())) else ~torch.isfinite(outputs)
    if bad is not None and bool(bad.any()):
        raise ValueError(
            f"the outputs must be finite; {int(bad.sum())} of {outputs.numel()} are not, in "
            f"{int(bad.any(1).sum())} cases. {type(model.norm).__name__} divides by the spread of its summed "
            "inputs, and 0/0 is NaN: drop cases or units that have none, or set eps > 0."
        )
    model.family.check(outputs)


def _apply(mixing: Tensor | None, vectors: Tensor) -> Tensor:
    """Return `M_n v_n`, for a mixing matrix, its diagonal, or None for the identity."""
    if mixing is None:
        return vectors
    return (mixing @ vectors[..., None])[..., 0] if mixing.ndim == 3 else mixing * vectors


def mix(mixing: Tensor | None, weights: Tensor) -> Tensor:
    """Return `M_n^T A_n`, for a mixing matrix, its diagonal, or None for the identity."""
    if mixing is None:
        return weights
    return mixing.mT @ weights if mixing.ndim == 3 else mixing[:, :, None] * weights


Factors = tuple[Tensor | None, Tensor, Projection | None]


@singledispatch
def _factors(norm: Any, weight: Tensor, data: Tensor, z: Tensor, eps: float) -> Factors:
    """Mixing without the gain, features and projection."""
    raise TypeError(
        f"there is no closed form for {type(norm).__name__}; there is for NoNorm, WeightNorm, BatchNorm, "
        "FrozenBatchNorm, LayerNorm, RMSNorm and InputLayerNorm. Use normgeom.geometry.fisher, which "
        "differentiates any model."
    )


@_factors.register
def _(norm: NoNorm, weight: Tensor, data: Tensor, z: Tensor, eps: float) -> Factors:
    return None, data, None


@_factors.register
def _(norm: FrozenBatchNorm, weight: Tensor, data: Tensor, z: Tensor, eps: float) -> Factors:
    return _inverse_spread(norm, weight, data, eps), data, None


@_factors.register
def _(norm: InputLayerNorm, weight: Tensor, data: Tensor, z: Tensor, eps: float) -> Factors:
    centred = data - data.mean(1, keepdim=True)
    return None, centred * _inverse_spread(norm, weight, data, eps), None


@_factors.register
def _(norm: WeightNorm, weight: Tensor, data: Tensor, z: Tensor, eps: float) -> Factors:
    inverse = _inverse_spread(norm, weight, data, eps)
    direction = weight * inverse.T
    return inverse, data, Projection(direction, direction)


@_factors.register
def _(norm: BatchNorm, weight: Tensor, data: Tensor, z: Tensor, eps: float) -> Factors:
    inverse = _inverse_spread(norm, weight, data, eps)
    centred, direction = data - data.mean(0), weight * inverse.T
    # S w_j / sigma_j = mean_n x_n z_nj, which needs no covariance matrix.
    return inverse, centred, Projection(z.T @ centred / len(data), direction)


@_factors.register
def _(norm: LayerNorm, weight: Tensor, data: Tensor, z: Tensor, eps: float) -> Factors:
    units = len(weight)
    mixing = _without(z) - 1 / units
    return mixing * _inverse_spread(norm, weight, data, eps)[:, :, None], data, None


@_factors.register
def _(norm: RMSNorm, weight: Tensor, data: Tensor, z: Tensor, eps: float) -> Factors:
    return _without(z) * _inverse_spread(norm, weight, data, eps)[:, :, None], data, None


def has_closed_form(model: object) -> bool:
    """Whether the model is a GLM whose norm is in the table."""
    if not isinstance(model, NormalizedGLM):
        return False
    return _factors.dispatch(type(model.norm)) is not _factors.dispatch(object)


def _without(z: Tensor) -> Tensor:
    """I - z_n z_n^T / H."""
    units = z.shape[1]
    same = torch.eye(units, dtype=z.dtype, device=z.device)
    return same - z[:, :, None] * z[:, None, :] / units


def _inverse_spread(norm: Any, weight: Tensor, data: Tensor, eps: float) -> Tensor:
    return (norm.statistics(weight, data)[1] + eps).rsqrt()
