"""Responses relative to other responses: filter response, EvoNorm, local and global response norm."""

import dataclasses

import torch
import torch.nn.functional as F

from normgeom.variants.batch import NOTHING
from normgeom.variants.group import GROUPS, UNITS
from normgeom.variants.layer import RMS_ROW
from normgeom.variants.variant import (
    CONV,
    INVARIANT,
    LINEAR,
    NO,
    UP_TO_EPS,
    Claim,
    Claims,
    Symmetry,
    Variant,
    summed,
)  # fmt: skip

FAMILY = "response"
PIXELS = (2, 3)


def filter_response_norm(weight: torch.Tensor, data: torch.Tensor, *, tau: float, eps: float) -> torch.Tensor:
    """Responses over their root mean square over the pixels, cut off below tau."""
    a = summed(weight, data)
    return (a / ((a**2).mean(PIXELS, keepdim=True) + eps) ** 0.5).clamp(min=tau)


def evonorm_b0(weight: torch.Tensor, data: torch.Tensor, *, v: float, eps: float) -> torch.Tensor:
    """Responses over the larger of the batch's sigma and of `v a` plus the instance's sigma."""
    a = summed(weight, data)
    batch, instance = (
        (a.var(axes, keepdim=True, correction=0) + eps) ** 0.5 for axes in ((0, *PIXELS), PIXELS)
    )
    return a / torch.maximum(batch, v * a + instance)


def evonorm_s0(
    weight: torch.Tensor, data: torch.Tensor, *, v: float, groups: int, eps: float
) -> torch.Tensor:
    """Swish of the responses over the sigma of their group."""
    a = summed(weight, data)
    grouped = a.reshape(len(a), groups, -1)
    sigma = (grouped.var(2, keepdim=True, correction=0) + eps) ** 0.5
    return ((grouped * torch.sigmoid(v * grouped)) / sigma).reshape(a.shape)


def local_response_norm(
    weight: torch.Tensor, data: torch.Tensor, *, size: int, alpha: float, beta: float, k: float
) -> torch.Tensor:
    """Responses over a power of the mean square of neighbouring units, zeros beyond the ends."""
    a = summed(weight, data)
    spread = a if a.ndim > 2 else a[:, :, None]
    return F.local_response_norm(spread, size, alpha, beta, k).reshape(a.shape)


def global_response_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Responses times their channel's length over the mean length, plus the responses; gain 1."""
    a = summed(weight, data)
    length = (a**2).sum(PIXELS, keepdim=True) ** 0.5
    return a * length / (length.mean(1, keepdim=True) + eps) + a


LOCAL = Variant(
    name="local response norm",
    family=FAMILY,
    formula="a_i/(k + alpha mean_(|j - i| <= size/2) a_j^2)^beta",
    latex=r"a_i/(k+\alpha\,\overline{a_j^2})^\beta,\ j\text{ near }i",
    source="Krizhevsky et al. 2012, ImageNet Classification with Deep Convolutional Networks",
    function=local_response_norm,
    claims=NOTHING,
    options={"size": 5, "alpha": 1e-4, "beta": 0.75, "k": 1.0},
)
HALF = Claim("not invariant", -0.5)

MEMBERS = (
    Variant(
        name="filter response norm + TLU, conv",
        family=FAMILY,
        formula="max(a_i/sqrt(mean_hw a_i^2 + eps), tau)",
        latex=r"\max(a_i/\sqrt{\overline{a_i^2}+\epsilon},\tau),\ \text{over pixels}",
        source="Singh and Krishnan 2020, Filter Response Normalization Layer",
        function=filter_response_norm,
        claims=Claims(UP_TO_EPS, NO, UP_TO_EPS, UP_TO_EPS, NO, UP_TO_EPS),
        options={"tau": 0.0, "eps": 1e-6},
        convolution=CONV,
        eps_power=2,
    ),
    Variant(
        name="EvoNorm B0, conv",
        family=FAMILY,
        formula="a_i/max(sqrt(var_nhw a_i + eps), v a_i + sqrt(var_hw a_i + eps))",
        latex=r"a_i/\max(\sqrt{\sigma_i^2+\epsilon},\ v a_i+\sqrt{\sigma_{ni}^2+\epsilon})",
        source="Liu et al. 2020, Evolving Normalization-Activation Layers",
        function=evonorm_b0,
        claims=Claims(UP_TO_EPS, NO, UP_TO_EPS, UP_TO_EPS, NO, NO),
        options={"v": 1.0, "eps": 1e-5},
        convolution=CONV,
        eps_power=2,
    ),
    Variant(
        name="EvoNorm S0, conv",
        family=FAMILY,
        formula="a_i sigmoid(v a_i)/sqrt(var_ghw a + eps), g the group of channel i",
        latex=r"a_i\,\mathrm{sigmoid}(v a_i)/\sqrt{\sigma_{g(i)}^2+\epsilon}",
        source="Liu et al. 2020, Evolving Normalization-Activation Layers",
        function=evonorm_s0,
        claims=NOTHING,
        options={"v": 1.0, "groups": GROUPS, "eps": 1e-5},
        convolution=CONV,
        units=UNITS,
        symmetries=(
            Symmetry(
                "(W, v) → (cW, v/c)",
                r"(W,v)\to(cW,v/c)",
                lambda c, weight, data, options: (c * weight, data, options | {"v": options["v"] / c}),
            ),
        ),
    ),
    LOCAL,
    dataclasses.replace(
        LOCAL,
        name="local response norm, k = 0",
        formula="a_i/(alpha mean_(|j - i| <= size/2) a_j^2)^beta",
        latex=r"a_i/(\alpha\,\overline{a_j^2})^{3/4},\ j\text{ near }i",
        claims=Claims(HALF, NO, NO, HALF, NO, HALF),
        options={"size": 3, "alpha": 1.0, "beta": 0.75, "k": 0.0},
    ),
    dataclasses.replace(
        LOCAL,
        name="local response norm, k = 0, beta = 1/2",
        formula="a_i/sqrt(alpha mean_(|j - i| <= size/2) a_j^2)",
        latex=r"a_i/\sqrt{\alpha\,\overline{a_j^2}},\ j\text{ near }i",
        claims=dataclasses.replace(
            RMS_ROW, **dict.fromkeys(("weight_matrix_rescale", "dataset_rescale", "case_rescale"), INVARIANT)
        ),
        options={"size": 3, "alpha": 1.0, "beta": 0.5, "k": 0.0},
    ),
    Variant(
        name="GRN, conv",
        family=FAMILY,
        formula="a_i l_i/(mean_j l_j + eps) + a_i, l_i the length of channel i over its pixels",
        latex=r"a_i\,\ell_i/(\bar\ell+\epsilon)+a_i,\ \ell_i=\|a_i\|_{hw}",
        source="Woo et al. 2023, ConvNeXt V2",
        function=global_response_norm,
        claims=Claims(LINEAR, NO, NO, LINEAR, NO, LINEAR),
        options={"eps": 1e-6},
        convolution=CONV,
        eps_power=1,
    ),
)
