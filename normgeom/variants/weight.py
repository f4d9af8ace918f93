"""Re-parametrizations of the weight: the layer is `a` of another weight, made from W alone."""

import dataclasses
import math
from typing import Any

import torch
import torch.nn.functional as F

from normgeom.norms import WeightNorm
from normgeom.variants.group import GROUPS, UNITS
from normgeom.variants.statistics import Cosine, DemodulatedWeight, StandardizedWeight
from normgeom.variants.variant import (
    CONV,
    INVARIANT,
    LINEAR,
    NO,
    UP_TO_EPS,
    Claims,
    Symmetry,
    Variant,
    summed,
)  # fmt: skip

FAMILY = "weight"
ROWS = Claims(INVARIANT, NO, INVARIANT, LINEAR, NO, LINEAR)
ROWS_UP_TO_EPS = Claims(UP_TO_EPS, NO, UP_TO_EPS, LINEAR, NO, LINEAR)


def shift_rows(
    c: float, weight: torch.Tensor, data: torch.Tensor, options: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Add `c i` to every entry of the weight of unit i = 1, 2, ..."""
    steps = torch.arange(1, len(weight) + 1).to(weight).reshape(-1, *(1 for _ in weight.shape[1:]))
    return weight + c * steps, data, options


def shift_cases(
    c: float, weight: torch.Tensor, data: torch.Tensor, options: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, dict[str, Any]]:
    """Add `c n` to every entry of case n = 1, 2, ..."""
    return weight, shift_rows(c, data, weight, options)[0], options


SHIFT_ROWS = Symmetry("w_i → w_i + c_i 1", r"w_i\to w_i+c_i\mathbf 1", shift_rows)
SHIFT_CASES = Symmetry("x_n → x_n + c_n 1", r"x_n\to x_n+c_n\mathbf 1", shift_cases)


def standardize(weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the weight with mean 0 and biased variance 1 in every row or filter."""
    axes = tuple(range(1, weight.ndim))
    variance, mean = torch.var_mean(weight, axes, keepdim=True, correction=0)
    return (weight - mean) / (variance + eps) ** 0.5


def unit_rows(weight: torch.Tensor) -> torch.Tensor:
    """Return the weight with every row or filter of length 1."""
    return weight / (weight**2).sum(tuple(range(1, weight.ndim)), keepdim=True) ** 0.5


def weight_norm(weight: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Summed inputs of a weight with rows of length 1."""
    return summed(unit_rows(weight), data)


def centred_weight_norm(weight: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Summed inputs of a weight with rows of mean 0 and length 1."""
    return summed(unit_rows(weight - weight.mean(tuple(range(1, weight.ndim)), keepdim=True)), data)


def weight_standardization(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Summed inputs of a weight with rows of mean 0 and variance 1."""
    return summed(standardize(weight, eps), data)


def standardized_group_norm(
    weight: torch.Tensor, data: torch.Tensor, *, groups: int, eps: float, group_eps: float
) -> torch.Tensor:
    """Group norm of the summed inputs of a standardized weight."""
    return F.group_norm(summed(standardize(weight, eps), data), groups, eps=group_eps)


def spectral_norm(weight: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Summed inputs of the weight over its largest singular value, filters as rows."""
    return summed(weight / torch.linalg.matrix_norm(weight.flatten(1), 2), data)


def norm_propagation(weight: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Rectified summed inputs of unit rows, standardized as if those were standard normal."""
    mean, variance = 1 / math.sqrt(2 * math.pi), 0.5 * (1 - 1 / math.pi)
    return (torch.relu(summed(unit_rows(weight), data)) - mean) / math.sqrt(variance)


def fixnorm(weight: torch.Tensor, data: torch.Tensor, *, length: float) -> torch.Tensor:
    """Inner products of weight vectors and inputs that all have one length."""
    return length**2 * summed(unit_rows(weight), unit_rows(data))


def demodulation(weight: torch.Tensor, data: torch.Tensor, *, style: float, eps: float) -> torch.Tensor:
    """Summed inputs of rows `s_d w_id` over their lengths; the style of input d = 1, 2, ... is `style d`."""
    steps = torch.arange(1, weight.shape[1] + 1).to(weight).reshape(-1, *(1 for _ in weight.shape[2:]))
    modulated = weight * (style * steps)
    squares = (modulated**2).sum(tuple(range(1, weight.ndim)), keepdim=True)
    return summed(modulated / (squares + eps) ** 0.5, data)


WEIGHT_NORM = Variant(
    name="weight norm",
    family=FAMILY,
    formula="w_i x/|w_i|",
    latex=r"w_i^\top x/\|w_i\|",
    source="Salimans and Kingma 2016, Weight Normalization",
    function=weight_norm,
    claims=ROWS,
    norm=WeightNorm(),
)
CENTRED = Variant(
    name="centred weight norm",
    family=FAMILY,
    formula="(w_i - mean w_i) x/|w_i - mean w_i|",
    latex=r"(w_i-\bar w_i)^\top x/\|w_i-\bar w_i\|",
    source="Huang et al. 2017, Centered Weight Normalization",
    function=centred_weight_norm,
    claims=ROWS,
    norm=StandardizedWeight(summed=True),
    symmetries=(SHIFT_ROWS, SHIFT_CASES),
)
STANDARDIZATION = Variant(
    name="weight standardization",
    family=FAMILY,
    formula="(w_i - mean w_i) x/sqrt(var w_i + eps)",
    latex=r"(w_i-\bar w_i)^\top x/\sqrt{\sigma_{w_i}^2+\epsilon}",
    source="Qiao et al. 2019, Weight Standardization",
    function=weight_standardization,
    claims=ROWS_UP_TO_EPS,
    options={"eps": 1e-5},
    norm=StandardizedWeight(),
    eps_power=2,
    symmetries=(SHIFT_ROWS, SHIFT_CASES),
)
WITH_GROUP = Variant(
    name="weight standardization + group norm",
    family=FAMILY,
    formula="group norm of the summed inputs of a standardized weight",
    latex=r"\mathrm{GN}((w_i-\bar w_i)^\top x/\sqrt{\sigma_{w_i}^2+\epsilon})",
    source="Qiao et al. 2019, Weight Standardization",
    function=standardized_group_norm,
    claims=Claims(UP_TO_EPS, NO, UP_TO_EPS, UP_TO_EPS, NO, UP_TO_EPS),
    options={"groups": GROUPS, "eps": 1e-5, "group_eps": 1e-5},
    units=UNITS,
    eps_power=2,
    symmetries=(SHIFT_ROWS, SHIFT_CASES),
)
SPECTRAL = Variant(
    name="spectral norm",
    family=FAMILY,
    formula="w_i x/s(W), s the largest singular value",
    latex=r"w_i^\top x/\sigma_{\max}(W)",
    source="Miyato et al. 2018, Spectral Normalization for Generative Adversarial Networks",
    function=spectral_norm,
    claims=Claims(INVARIANT, NO, NO, LINEAR, NO, LINEAR),
)
DEMODULATION = Variant(
    name="weight demodulation",
    family=FAMILY,
    formula="sum_d s_d w_id x_d/sqrt(sum_d (s_d w_id)^2 + eps)",
    latex=r"\sum_d s_d w_{id}x_d/\sqrt{\sum_d(s_dw_{id})^2+\epsilon}",
    source="Karras et al. 2020, Analyzing and Improving the Image Quality of StyleGAN",
    function=demodulation,
    claims=ROWS_UP_TO_EPS,
    options={"style": 1.0, "eps": 1e-8},
    norm=DemodulatedWeight(),
    eps_power=2,
    symmetries=(
        Symmetry(
            "s → c s",
            r"s\to cs",
            lambda c, weight, data, options: (weight, data, options | {"style": c * options["style"]}),
        ),
        Symmetry(
            "(W, s) → (cW, s/c)",
            r"(W,s)\to(cW,s/c)",
            lambda c, weight, data, options: (c * weight, data, options | {"style": options["style"] / c}),
        ),
    ),
)


def _conv(dense: Variant) -> Variant:
    """The same layer on images, filters in place of rows."""
    return dataclasses.replace(dense, name=f"{dense.name}, conv", norm=None, convolution=CONV)


MEMBERS = (
    WEIGHT_NORM,
    _conv(WEIGHT_NORM),
    CENTRED,
    STANDARDIZATION,
    _conv(STANDARDIZATION),
    WITH_GROUP,
    _conv(WITH_GROUP),
    SPECTRAL,
    _conv(SPECTRAL),
    Variant(
        name="norm propagation",
        family=FAMILY,
        formula="(relu(w_i x/|w_i|) - 1/sqrt(2 pi))/sqrt((1 - 1/pi)/2)",
        latex=r"(\mathrm{relu}(w_i^\top x/\|w_i\|)-\tfrac1{\sqrt{2\pi}})/\sqrt{\tfrac12(1-\tfrac1\pi)}",
        source="Arpit et al. 2016, Normalization Propagation",
        function=norm_propagation,
        claims=Claims(INVARIANT, NO, INVARIANT, NO, NO, NO),
    ),
    Variant(
        name="FixNorm",
        family=FAMILY,
        formula="r^2 w_i x/(|w_i| |x|)",
        latex=r"r^2\,w_i^\top x/(\|w_i\|\,\|x\|)",
        source="Nguyen and Chiang 2018, Improving Lexical Choice in Neural Machine Translation",
        function=fixnorm,
        claims=Claims(INVARIANT, NO, INVARIANT, INVARIANT, NO, INVARIANT),
        options={"length": 5.0},
        norm=Cosine(),
    ),
    DEMODULATION,
    _conv(DEMODULATION),
)
