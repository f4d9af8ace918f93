"""Statistics over the units of one case: layer norm, its two halves, its two forms on images."""

import torch
import torch.nn.functional as F

from normgeom.norms import LayerNorm
from normgeom.variants.statistics import CentreUnits, ScaleUnits
from normgeom.variants.variant import CONV, INVARIANT, LINEAR, NO, UP_TO_EPS, Claims, Variant, summed

FAMILY = "layer"
LAYER_ROW = Claims(UP_TO_EPS, INVARIANT, NO, UP_TO_EPS, NO, UP_TO_EPS)
RMS_ROW = Claims(UP_TO_EPS, NO, NO, UP_TO_EPS, NO, UP_TO_EPS)


def layer_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Layer norm over every axis but the cases."""
    a = summed(weight, data)
    return F.layer_norm(a, a.shape[1:], eps=eps)


def layer_norm_per_pixel(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Layer norm over the channels of every pixel."""
    a = summed(weight, data).movedim(1, -1)
    return F.layer_norm(a, a.shape[-1:], eps=eps).movedim(-1, 1)


def centre_only(weight: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Layer norm that subtracts and does not divide."""
    a = summed(weight, data)
    return a - a.mean(1, keepdim=True)


def scale_only(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Layer norm that divides by sigma and does not subtract."""
    a = summed(weight, data)
    return a / (a.var(1, keepdim=True, correction=0) + eps) ** 0.5


def detached_layer_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Layer norm whose statistics pass no gradient."""
    a = summed(weight, data)
    variance, mean = torch.var_mean(a.detach(), 1, keepdim=True, correction=0)
    return (a - mean) / (variance + eps) ** 0.5


MEMBERS = (
    Variant(
        name="layer norm",
        family=FAMILY,
        formula="(a_i - mean_j a_j)/sqrt(var_j a_j + eps)",
        latex=r"(a_i-\mu)/\sqrt{\sigma^2+\epsilon},\ \mu,\sigma^2\text{ over units}",
        source="Ba et al. 2016, Layer Normalization, eq. 3",
        function=layer_norm,
        claims=LAYER_ROW,
        options={"eps": 1e-5},
        norm=LayerNorm(),
        eps_power=2,
    ),
    Variant(
        name="layer norm [C, H, W], conv",
        family=FAMILY,
        formula="(a_i - mean_jhw a_j)/sqrt(var_jhw a_j + eps)",
        latex=r"(a_i-\mu)/\sqrt{\sigma^2+\epsilon},\ \text{over channels and pixels}",
        source="Ba et al. 2016, Layer Normalization",
        function=layer_norm,
        claims=RMS_ROW,
        options={"eps": 1e-5},
        convolution=CONV,
        eps_power=2,
    ),
    Variant(
        name="layer norm per pixel, conv",
        family=FAMILY,
        formula="(a_ihw - mean_j a_jhw)/sqrt(var_j a_jhw + eps)",
        latex=r"(a_i-\mu)/\sqrt{\sigma^2+\epsilon},\ \text{over channels, per pixel}",
        source="Liu et al. 2022, A ConvNet for the 2020s",
        function=layer_norm_per_pixel,
        claims=LAYER_ROW,
        options={"eps": 1e-6},
        convolution=CONV,
        eps_power=2,
    ),
    Variant(
        name="layer norm, centre only",
        family=FAMILY,
        formula="a_i - mean_j a_j",
        latex=r"a_i-\mu",
        source="Ba et al. 2016, Layer Normalization, eq. 3 with sigma = 1",
        function=centre_only,
        claims=Claims(LINEAR, INVARIANT, NO, LINEAR, NO, LINEAR),
        norm=CentreUnits(),
    ),
    Variant(
        name="layer norm, scale only",
        family=FAMILY,
        formula="a_i/sqrt(var_j a_j + eps)",
        latex=r"a_i/\sqrt{\sigma^2+\epsilon}",
        source="Ba et al. 2016, Layer Normalization, eq. 3 with mu = 0 in the numerator",
        function=scale_only,
        claims=RMS_ROW,
        options={"eps": 1e-5},
        norm=ScaleUnits(),
        eps_power=2,
    ),
    Variant(
        name="layer norm, detached",
        family=FAMILY,
        formula="(a_i - mean_j a_j)/sqrt(var_j a_j + eps), no gradient through mean and variance",
        latex=r"(a_i-[\mu])/\sqrt{[\sigma^2]+\epsilon},\ [\cdot]\text{ without gradient}",
        source="Xu et al. 2019, Understanding and Improving Layer Normalization, DetachNorm",
        function=detached_layer_norm,
        claims=LAYER_ROW,
        options={"eps": 1e-5},
        norm=LayerNorm(),
        eps_power=2,
        gradient_broken=("WeightMatrixRescale", "WeightMatrixRecenter", "DatasetRescale", "CaseRescale"),
    ),
)
