"""The metric of the gains, exact and as eq. 32 to 35 of the paper print it.

Exact, for every norm: `F_gg(i, j) = E[Cov[y_i, y_j | x] z_i z_j] / phi^2`. Eq. 33 (layer norm) and eq. 34
(weight norm, `z_i = a_i/||w_i||`) are this. Eq. 32 (batch norm) drops `z_i z_j`: exact only where the
covariance does not depend on x. Eq. 35 gives the KL of a step in two gains by its cross term alone.
"""

from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from normgeom.geometry.glm import NormalizedGLM, Params, check_problem
from normgeom.geometry.jacobian import check_outputs
from normgeom.norms import BatchNorm, LayerNorm, NoNorm, WeightNorm, summed_inputs


def gain_metric(model: NormalizedGLM, params: Params, data: Tensor) -> Tensor:
    """Return the block of the Fisher matrix between the gains, (units, units), exact for every norm.

    >>> from normgeom.geometry.families import Gaussian
    >>> glm = NormalizedGLM(BatchNorm(), Gaussian(0.5))
    >>> params = {"weight": torch.ones(1, 1), "bias": torch.zeros(1), "gain": torch.ones(1)}
    >>> gain_metric(glm, params, torch.tensor([[1.0], [2.0], [4.0]]))
    tensor([[2.0000]])
    """
    check_problem(model, params, data)
    z = model.normalized(params, data)
    return _mean_weighted(_information(model, params, data), z)


def gain_metric_as_printed(model: NormalizedGLM, params: Params, data: Tensor) -> Tensor:
    """Return the gain block as eq. 32 (batch norm), 33 (layer norm) or 34 (weight norm) prints it.

    Raises:
        TypeError: for a norm that the paper gives no gain metric for.
    """
    check_problem(model, params, data)
    return _as_printed(model.norm, model, params, data)


def radial_metric(model: NormalizedGLM, params: Params, data: Tensor) -> Tensor:
    """Return the metric of a standard GLM along its weight vectors, (units, units).

    `u_i^T F_ww(i, j) u_j` with `u_i = w_i/||w_i||`.
    Equal to the gain metric of the weight-normalized model with gains `||w_i||`, which has the same outputs:
    the right-hand side of eq. 35, up to its factor 1/2. The model must have no normalization and no gain.

    Raises:
        ValueError: for a model with a normalization or a gain.
    """
    if not isinstance(model.norm, NoNorm) or "gain" in params:
        raise ValueError(
            "the radial metric of eq. 35 is that of NormalizedGLM(NoNorm(), ...) without a gain; "
            f"got {type(model.norm).__name__}{' with a gain' if 'gain' in params else ''}."
        )
    check_problem(model, params, data)
    weight = params["weight"]
    along = summed_inputs(weight, data) / torch.linalg.vector_norm(weight, dim=1)
    return _mean_weighted(_information(model, params, data), along)


def eq35_as_printed(metric: Tensor, units: tuple[int, int], steps: tuple[float, float]) -> Tensor:
    """Return eq. 35 as printed for steps in two gains, `delta_i delta_j metric_ij / 2`."""
    (i, j), (first, second) = units, steps
    return first * second * metric[i, j] / 2


def two_gain_kl(metric: Tensor, units: tuple[int, int], steps: tuple[float, float]) -> Tensor:
    """Return the quadratic form that eq. 35 stands for, `delta^T metric delta / 2` for steps in two gains.

    >>> two_gain_kl(torch.eye(2), (0, 1), (1.0, 2.0)), eq35_as_printed(torch.eye(2), (0, 1), (1.0, 2.0))
    (tensor(2.5000), tensor(0.))
    """
    step = torch.tensor(steps).to(metric)
    block = metric[list(units)][:, list(units)]
    return step @ block @ step / 2


def _information(model: NormalizedGLM, params: Params, data: Tensor) -> Tensor:
    eta = model(params, data)
    check_outputs(model, eta)
    return model.family.fisher(eta)


def _mean_weighted(information: Tensor, along: Tensor) -> Tensor:
    return torch.einsum("nij,ni,nj->ij", information, along, along) / len(along)


@singledispatch
def _as_printed(norm: Any, model: NormalizedGLM, params: Params, data: Tensor) -> Tensor:
    raise TypeError(
        f"the paper prints a gain metric for BatchNorm, LayerNorm and WeightNorm; got {type(norm).__name__}."
    )


@_as_printed.register
def _(norm: BatchNorm, model: NormalizedGLM, params: Params, data: Tensor) -> Tensor:
    return _information(model, params, data).mean(0)


@_as_printed.register
def _(norm: LayerNorm, model: NormalizedGLM, params: Params, data: Tensor) -> Tensor:
    a = summed_inputs(params["weight"], data)
    mu, sigma = a.mean(1, keepdim=True), a.var(1, correction=0, keepdim=True).sqrt()
    return _mean_weighted(_information(model, params, data), (a - mu) / sigma)


@_as_printed.register
def _(norm: WeightNorm, model: NormalizedGLM, params: Params, data: Tensor) -> Tensor:
    weight = params["weight"]
    along = summed_inputs(weight, data) / torch.linalg.vector_norm(weight, dim=1)
    return _mean_weighted(_information(model, params, data), along)
