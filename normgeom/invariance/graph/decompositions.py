"""The fused normalizations of ATen, written out in the operators that the rules know.

A wrong formula here cannot pass: what the graph gives is compared with what the layer gives.
"""

from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
Tensor = torch.Tensor


def _standardized(x: Tensor, dims: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (x - mean) rstd, with mean, rstd and the biased variance."""
    mean = x.mean(dims, keepdim=True)
    centred = x - mean
    variance = (centred * centred).mean(dims, keepdim=True)
    rstd = torch.rsqrt(variance + eps)
    return centred * rstd, mean, rstd, variance


def _affine(x: Tensor, weight: Tensor | None, bias: Tensor | None, shape: list[int]) -> Tensor:
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def layer_norm(
    x: Tensor, shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`native_layer_norm`: statistics over the last axes."""
    z, mean, rstd, _ = _standardized(x, list(range(x.ndim - len(shape), x.ndim)), eps)
    return _affine(z, weight, bias, list(shape)), mean, rstd


def group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    cases: int,
    units: int,
    positions: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`native_group_norm`: statistics over the units and positions of a group."""
    z, mean, rstd, _ = _standardized(x.reshape(cases, groups, units // groups * positions), [2], eps)
    shape = [1, units] + [1] * (x.ndim - 2)
    return _affine(z.reshape(x.shape), weight, bias, shape), mean[..., 0], rstd[..., 0]


def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """`_native_batch_norm_legit_functional`: statistics over cases and positions, and the new averages."""
    shape = [1, -1] + [1] * (x.ndim - 2)
    if not training and running_mean is not None and running_var is not None:
        rstd = torch.rsqrt(running_var.reshape(shape) + eps)
        z = (x - running_mean.reshape(shape)) * rstd
        return _affine(z, weight, bias, shape), x.new_empty(0), x.new_empty(0), running_mean, running_var
    dims = [d for d in range(x.ndim) if d != 1]
    z, mean, rstd, variance = _standardized(x, dims, eps)
    saved, saved_rstd, variance = (statistic.flatten() for statistic in (mean, rstd, variance))
    if running_mean is not None and running_var is not None:
        count = x.numel() / x.shape[1]
        running_mean = (1 - momentum) * running_mean + momentum * saved
        running_var = (1 - momentum) * running_var + momentum * count / max(count - 1, 1) * variance
    return _affine(z, weight, bias, shape), saved, saved_rstd, running_mean, running_var


def batch_norm_without_averages(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`_native_batch_norm_legit.no_stats`."""
    return batch_norm(x, weight, bias, None, None, training, momentum, eps)[:3]


def batch_norm_frozen(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`_native_batch_norm_legit_no_training`."""
    return batch_norm(x, weight, bias, running_mean, running_var, False, momentum, eps)[:3]


def softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """`_softmax`."""
    shifted = torch.exp(x - x.amax(dim, keepdim=True))
    return shifted / shifted.sum(dim, keepdim=True)


def log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """`_log_softmax`."""
    shifted = x - x.amax(dim, keepdim=True)
    return shifted - torch.log(torch.exp(shifted).sum(dim, keepdim=True))


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """`_weight_norm_interface`: g v/|v|, the length along all axes but one."""
    dims = [d for d in range(v.ndim) if d != dim]
    length = (v * v).sum(dims, keepdim=True).sqrt()
    return v * (g / length), length


def hypotenuse(x: Tensor, y: Tensor) -> Tensor:
    """`hypot`."""
    return (x * x + y * y).sqrt()


def distances(x: Tensor, y: Tensor, p: float, mode: int | None) -> Tensor:
    """`_cdist_forward`: lengths of the differences of all pairs."""
    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, dim=-1)


def covariance(
    x: Tensor, *, correction: int = 1, fweights: Tensor | None = None, aweights: Tensor | None = None
) -> Tensor:
    """`cov`, which compares values where it is not needed, so that it cannot be exported as it is.

    Raises:
        NotImplementedError: for weighted observations.
    """
    if fweights is not None or aweights is not None:
        raise NotImplementedError("torch.cov with weights has no graph")
    rows = x if x.ndim > 1 else x.unsqueeze(0)
    centred = rows - rows.mean(1, keepdim=True)
    return (centred @ centred.T / max(rows.shape[1] - correction, 0)).squeeze()


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    aten.native_layer_norm.default: layer_norm,
    aten.native_group_norm.default: group_norm,
    aten._native_batch_norm_legit_functional.default: batch_norm,
    aten._native_batch_norm_legit.no_stats: batch_norm_without_averages,
    aten._native_batch_norm_legit_no_training.default: batch_norm_frozen,
    aten._softmax.default: softmax,
    aten._log_softmax.default: log_softmax,
    aten._weight_norm_interface.default: weight_norm,
    aten.hypot.default: hypotenuse,
    aten._cdist_forward.default: distances,
}
FUNCTIONS: dict[Any, Callable[..., Any]] = {torch.cov: covariance, Tensor.cov: covariance}
