"""The exact Fisher matrix of a normalized GLM, without automatic differentiation.

With the factors of `jacobian.py` and the Fisher information S_n of the outputs (`Cov[y]/phi^2` in the natural
parameter), the blocks between the parameters of units j and k are means over cases of

    w_j w_k:  T_j (M^T S M)_jk phi phi^T T_k^T      b_j b_k:  S_jk
    w_j b_k:  T_j (M^T S)_jk phi                    b_j g_k:  S_jk z_k
    w_j g_k:  T_j (M^T S)_jk z_k phi                g_j g_k:  z_j S_jk z_k

Kronecker case by case; projections act once, on the sums. Source: Ba et al. 2016, eq. 13 and 14, corrected
for layer norm and RMSNorm, where mu and sigma couple the units.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from normgeom.geometry.families import Family
from normgeom.geometry.glm import NormalizedGLM, Params
from normgeom.geometry.jacobian import GLMJacobian, Projection, glm_jacobian
from normgeom.geometry.matrix import FisherMatrix, Kind, ParameterOrder

Reduction = Literal["mean", "sum"]

_FEATURES_A_BLOCK = 16
_PRODUCTS_AT_ONCE = 2**22


def closed_form_fisher(
    model: NormalizedGLM,
    params: Params,
    data: Tensor,
    *,
    reduction: Reduction = "mean",
    order: Kind = "neuron",
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
    return _assemble(glm_jacobian(model, params, data), model.family, params, reduction, order, "exact")


def eq13_as_printed(
    model: NormalizedGLM,
    params: Params,
    data: Tensor,
    *,
    reduction: Reduction = "mean",
    order: Kind = "neuron",
) -> FisherMatrix:
    """Return the Fisher matrix as eq. 13 and 14 of the paper print it.

    It uses `chi_i = x - d mu_i/d w_i - z_i d sigma_i/d w_i` and takes output i to depend on w_i alone. For
    layer norm that is `chi_i = x (1 - 1/H - z_i^2/H)`, the diagonal of the exact mixing matrix: the result
    is not the Fisher matrix, and does not annihilate the directions that leave the model unchanged. For
    the other norms but RMSNorm it equals `closed_form_fisher`.

    Arguments and errors are those of `closed_form_fisher`. Source: Ba et al. 2016, eq. 13 and 14.
    """
    jacobian = glm_jacobian(model, params, data).as_printed()
    return _assemble(jacobian, model.family, params, reduction, order, "eq. 13 as printed")


@dataclass(frozen=True)
class _Sums:
    """Sums over cases of the blocks between units, before projections; units first."""

    ww: Tensor
    wb: Tensor
    wg: Tensor | None
    bb: Tensor
    bg: Tensor | None
    gg: Tensor | None


def _assemble(
    jacobian: GLMJacobian, family: Family, params: Params, reduction: Reduction, order: Kind, kind: str
) -> FisherMatrix:
    """The blocks at their places in a labelled matrix."""
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction must be 'mean' or 'sum'; got {reduction!r}.")
    weighting = family.fisher(jacobian.outputs)
    if reduction == "mean":
        weighting = weighting / len(weighting)
    matrix = _place(_sums(jacobian, weighting))
    names = ("weight", "bias", "gain") if "gain" in params else ("weight", "bias")
    layout = ParameterOrder.of({name: params[name] for name in names}, kind="neuron")
    return FisherMatrix(matrix, layout, kind, reduction).to_order(order)


def _sums(jacobian: GLMJacobian, weighting: Tensor) -> _Sums:
    """All sums over cases, each as a matrix product."""
    phi, z, (units, inputs) = jacobian.features, jacobian.z, _sizes(jacobian)
    if jacobian.couples_units:
        mixed = jacobian.mixing.mT @ weighting
        both = mixed @ jacobian.mixing
    else:
        mixed = jacobian.mixing[:, :, None] * weighting
        both = mixed * jacobian.mixing[:, None, :]
    ww = _weighted_grams(both, phi).reshape(units, inputs, units, inputs)
    wb = (_columns(mixed) @ phi).reshape(units, units, inputs)
    wg = bg = gg = None
    if z is not None:
        wg = (_columns(mixed * z[:, None, :]) @ phi).reshape(units, units, inputs)
        weighted = weighting * z[:, None, :]
        bg, gg = weighted.sum(0), torch.einsum("njk,nj->jk", weighted, z)
    sums = _Sums(ww, wb, wg, weighting.sum(0), bg, gg)
    return sums if jacobian.projection is None else _project(sums, jacobian.projection)


def _weighted_grams(weights: Tensor, features: Tensor) -> Tensor:
    """Return `sum_n A_n,jk phi_n phi_n^T` at [j, :, k, :], as a matrix (units * inputs, units * inputs).

    Both symmetries are used: pairs j <= k of units, and blocks of features on or right of the diagonal.
    One matrix product a block, (pairs, cases) by (cases, products of features).
    """
    cases, units, inputs = *weights.shape[:2], features.shape[1]
    first, second = torch.triu_indices(units, units, device=weights.device)
    pairs = _columns(weights)[first * units + second]
    grams = features.new_zeros(len(pairs), inputs, inputs)
    for start in range(0, inputs, _FEATURES_A_BLOCK):
        rows = slice(start, start + _FEATURES_A_BLOCK)
        width = min(_FEATURES_A_BLOCK, inputs - start)
        total = None
        chunk = max(1, _PRODUCTS_AT_ONCE // (width * (inputs - start)))
        for some in range(0, cases, chunk):
            here = features[some : some + chunk]
            products = (here[:, rows, None] * here[:, None, start:]).flatten(1)
            part = pairs[:, some : some + chunk]
            total = part @ products if total is None else total.addmm_(part, products)
        if total is not None:
            grams[:, rows, start:] = total.reshape(-1, width, inputs - start)
            grams[:, start + width :, rows] = grams[:, rows, start + width :].mT
    return _unpack(grams, first, second, units)


def _unpack(grams: Tensor, first: Tensor, second: Tensor, units: int) -> Tensor:
    """The whole matrix from one gram for each pair of units: gathers rows, each contiguous."""
    inputs = grams.shape[-1]
    pair = torch.empty(units, units, dtype=torch.long, device=grams.device)
    pair[first, second] = pair[second, first] = torch.arange(len(first), device=grams.device)
    row = torch.arange(inputs, device=grams.device)
    wanted = (pair[:, None, :] * inputs + row[None, :, None]).flatten()
    return grams.reshape(-1, inputs).index_select(0, wanted).reshape(units * inputs, units * inputs)


def _project(sums: _Sums, project: Projection) -> _Sums:
    """T_j on the left of every weight row, T_k on the right of every weight column."""
    # Rows: the vectors along axis 1 of ww, one for each unit of axis 0; then the same for columns.
    right = project(sums.ww)
    both = project(right.permute(2, 3, 0, 1)).permute(2, 3, 0, 1)
    turned = [None if part is None else project(part.transpose(0, 1)).transpose(0, 1) for part in (sums.wb, sums.wg)]
    wb, wg = turned
    assert wb is not None
    return _Sums(both, wb, wg, sums.bb, sums.bg, sums.gg)


def _place(sums: _Sums) -> Tensor:
    """The neuron-major matrix."""
    units, inputs = sums.ww.shape[:2]
    size = inputs + (1 if sums.wg is None else 2)
    whole = sums.ww.new_empty(units, size, units, size)
    whole[:, :inputs, :, :inputs] = sums.ww
    b, g = inputs, inputs + 1
    borders = [(b, sums.wb), (g, sums.wg)]
    for column, border in borders:
        if border is not None:
            whole[:, :inputs, :, column] = border.transpose(1, 2)
            whole[:, column, :, :inputs] = border.transpose(0, 1)
    whole[:, b, :, b] = sums.bb
    if sums.bg is not None and sums.gg is not None:
        whole[:, b, :, g], whole[:, g, :, b], whole[:, g, :, g] = sums.bg, sums.bg.T, sums.gg
    return whole.reshape(units * size, units * size)


def _columns(weights: Tensor) -> Tensor:
    """(cases, units, units) as (units * units, cases)."""
    return weights.permute(1, 2, 0).reshape(-1, len(weights))


def _sizes(jacobian: GLMJacobian) -> tuple[int, int]:
    return jacobian.outputs.shape[1], jacobian.features.shape[1]
