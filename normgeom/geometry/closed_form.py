"""The exact Fisher matrix of a normalized GLM, without automatic differentiation.

With the factors of `jacobian.py` and the Fisher information S_n of the outputs (`Cov[y]/phi^2` in the natural
parameter), the blocks between the parameters of units j and k are means over cases of

    w_j w_k:  T_j (M^T S M)_jk phi phi^T T_k^T      b_j b_k:  S_jk
    w_j b_k:  T_j (M^T S)_jk phi                    b_j g_k:  S_jk z_k
    w_j g_k:  T_j (M^T S)_jk z_k phi                g_j g_k:  z_j S_jk z_k

Kronecker case by case; projections act once, on the sums. Source: Ba et al. 2016, eq. 13 and 14, corrected
for layer norm and RMSNorm, where mu and sigma couple the units.
"""

import itertools
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from normgeom.geometry.glm import NAMES, NormalizedGLM, Params, check_problem
from normgeom.geometry.gram import columns, weighted_grams
from normgeom.geometry.jacobian import GLMJacobian, glm_jacobian, mix
from normgeom.geometry.matrix import FisherMatrix, Kind, ParameterOrder
from normgeom.geometry.memory import fresh
from normgeom.norms import BatchNorm

Reduction = Literal["mean", "sum"]

_BETWEEN_UNITS_AT_ONCE = 2**24


def closed_form_fisher(
    model: NormalizedGLM,
    params: Params,
    data: Tensor,
    *,
    reduction: Reduction = "mean",
    order: Kind = "neuron",
    chunk_size: int | None = None,
) -> FisherMatrix:
    """Return the exact Fisher matrix of a normalized GLM, by its closed form.

    `F = mean_n J_n^T S_n J_n`, the expectation over y taken exactly; for batch norm J_n includes the
    dependence of the statistics on the weights. eps > 0 and every family of `families` are exact too.

    Args:
        model: a GLM with one of the norms of `normgeom.norms`.
        params: `weight`, `bias` and, if there is one, `gain`.
        data: shape (cases, inputs).
        reduction: `mean` or `sum` over cases.
        order: `neuron`, the paper's (w_1, b_1, g_1, w_2, ...), or `tensor`.
        chunk_size: cases taken at once, each with matrices between units; default: 2^24 entries of them.

    Raises:
        TypeError: for a norm without a closed form.
        ValueError: for shapes that do not fit, or outputs that are not finite or outside the family's domain.

    Source: Ba et al. 2016, section 5.2; see the module for where eq. 13 as printed is not exact.

    >>> from normgeom.geometry.families import Gaussian
    >>> from normgeom.norms import NoNorm
    >>> glm = NormalizedGLM(NoNorm(), Gaussian(0.5))
    >>> params = {"weight": torch.zeros(1, 2), "bias": torch.zeros(1)}
    >>> closed_form_fisher(glm, params, torch.tensor([[1.0, 2.0]])).matrix
    tensor([[2., 4., 2.],
            [4., 8., 4.],
            [2., 4., 2.]])
    """
    matrix = _over_cases(model, params, data, reduction, chunk_size, printed=False)
    return _labelled(matrix, params, reduction, order, "exact")


def eq13_as_printed(
    model: NormalizedGLM,
    params: Params,
    data: Tensor,
    *,
    reduction: Reduction = "mean",
    order: Kind = "neuron",
    chunk_size: int | None = None,
) -> FisherMatrix:
    """Return the Fisher matrix as eq. 13 and 14 of the paper print it.

    It uses `chi_i = x - d mu_i/d w_i - z_i d sigma_i/d w_i` and takes output i to depend on w_i alone. For
    layer norm that is `chi_i = x (1 - 1/H - z_i^2/H)`, the diagonal of the exact mixing matrix: the result
    is not the Fisher matrix, and does not annihilate the directions that leave the model unchanged. For
    the other norms but RMSNorm it equals `closed_form_fisher`.

    Arguments and errors are those of `closed_form_fisher`. Source: Ba et al. 2016, eq. 13 and 14.
    """
    matrix = _over_cases(model, params, data, reduction, chunk_size, printed=True)
    return _labelled(matrix, params, reduction, order, "eq. 13 as printed")


@torch.no_grad()
def _over_cases(
    model: NormalizedGLM,
    params: Params,
    data: Tensor,
    reduction: Reduction,
    chunk_size: int | None,
    *,
    printed: bool,
) -> Tensor:
    """The sum or mean over cases, a chunk at a time, neuron-major."""
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean' or 'sum'; got {reduction!r}.")
    check_problem(model, params, data)
    chunk = chunk_size or max(1, _BETWEEN_UNITS_AT_ONCE // len(params["bias"]) ** 2)
    total: Tensor | None = None
    for jacobian in _chunks(model, params, data, chunk):
        weighting = model.family.fisher(jacobian.outputs)
        weighting = weighting / len(data) if reduction == "mean" else weighting
        part = summed_over_cases(jacobian.as_printed() if printed else jacobian, weighting)
        total = part if total is None else total.add_(part)
    if total is None:
        raise ValueError("data must hold at least one case; got none.")
    return total


def _chunks(model: NormalizedGLM, params: Params, data: Tensor, chunk: int) -> Iterator[GLMJacobian]:
    """The factors of so many cases at a time; batch norm needs all cases for its statistics."""
    slices = [slice(start, start + chunk) for start in range(0, len(data), chunk)]
    if isinstance(model.norm, BatchNorm) and len(slices) > 1:
        whole = glm_jacobian(model, params, data)
        return (whole.of_cases(some) for some in slices)
    return (glm_jacobian(model, params, data[some]) for some in slices)


def _labelled(matrix: Tensor, params: Params, reduction: Reduction, order: Kind, kind: str) -> FisherMatrix:
    own = {name: params[name] for name in NAMES if name in params}
    layout = ParameterOrder.of(own, kind=order)
    if order == "tensor":
        matrix = _tensor_by_tensor(matrix, [value[0].numel() for value in own.values()])
    return FisherMatrix(matrix, layout, kind, reduction)


def _tensor_by_tensor(matrix: Tensor, widths: list[int]) -> Tensor:
    """Re-order a neuron-major matrix block by block; `widths` are each tensor's entries a unit."""
    units, out = len(matrix) // sum(widths), fresh(matrix, *matrix.shape)
    whole = matrix.view(units, sum(widths), units, sum(widths))
    edges = [0, *itertools.accumulate(widths)]
    for first, last in itertools.pairwise(edges):
        for left, right in itertools.pairwise(edges):
            target = out[units * first : units * last, units * left : units * right]
            shape = (units, last - first, units, right - left)
            target.unflatten(1, shape[2:]).unflatten(0, shape[:2]).copy_(whole[:, first:last, :, left:right])
    return out


def summed_over_cases(jacobian: GLMJacobian, weighting: Tensor) -> Tensor:
    """Return `sum_n J_n^T weighting_n J_n`, neuron-major, each block as a matrix product."""
    phi, z, project = jacobian.features, jacobian.z, jacobian.projection
    units, inputs = weighting.shape[-1], phi.shape[1]
    size = inputs + (1 if z is None else 2)
    mixed = mix(jacobian.mixing, weighting)
    whole = weighted_grams(mix(jacobian.mixing, mixed.mT), phi, size)
    if project is not None:
        inner = whole[:, :inputs, :, :inputs]
        # The features of one unit come last in turn: T_k on the right, then T_j on the left.
        inner.copy_(project(inner))
        inner.copy_(project(inner.permute(2, 3, 0, 1)).permute(2, 3, 0, 1))
    for column, scale in ((inputs, None), (inputs + 1, z))[: size - inputs]:
        weights = mixed if scale is None else mixed * scale[:, None, :]
        border = (columns(weights) @ phi).reshape(units, units, inputs).transpose(0, 1)
        border = border if project is None else project(border)
        whole[:, column, :, :inputs] = border
        whole[:, :inputs, :, column] = border.permute(1, 2, 0)
    return _fill_outputs(whole, inputs, weighting, z).reshape(units * size, units * size)


def _fill_outputs(whole: Tensor, bias: int, weighting: Tensor, z: Tensor | None) -> Tensor:
    """Fill in the blocks between biases and gains."""
    whole[:, bias, :, bias] = weighting.sum(0)
    if z is not None:
        gain, weighted = bias + 1, weighting * z[:, None, :]
        whole[:, bias, :, gain] = weighted.sum(0)
        whole[:, gain, :, bias] = weighted.sum(0).T
        whole[:, gain, :, gain] = torch.einsum("njk,nj->jk", weighted, z)
    return whole
