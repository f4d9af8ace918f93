"""Statistics over a part of a case: groups of units, single channels, and the mixture of scopes."""

import torch
import torch.nn.functional as F

from normgeom.variants.layer import LAYER_ROW, RMS_ROW
from normgeom.variants.statistics import GroupedLayerNorm
from normgeom.variants.variant import CONV, INVARIANT, NO, UP_TO_EPS, Claims, Variant, summed

FAMILY = "group"
UNITS, GROUPS = 6, 2  # three units a group: two would leave a sign only


def group_norm(weight: torch.Tensor, data: torch.Tensor, *, groups: int, eps: float) -> torch.Tensor:
    """Layer norm within each of equal groups of units."""
    return F.group_norm(summed(weight, data), groups, eps=eps)


def instance_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Mean and variance over the pixels of one channel of one case."""
    return F.instance_norm(summed(weight, data), eps=eps)


def switchable_norm(
    weight: torch.Tensor,
    data: torch.Tensor,
    *,
    mean_weights: tuple[float, float, float],
    variance_weights: tuple[float, float, float],
    eps: float,
) -> torch.Tensor:
    """Softmax-weighted means and variances of instance, layer and batch norm."""
    a = summed(weight, data)
    moments = [torch.var_mean(a, axes, keepdim=True, correction=0) for axes in ((2, 3), (1, 2, 3), (0, 2, 3))]
    shares = [torch.softmax(a.new_tensor(w), 0) for w in (mean_weights, variance_weights)]
    mean = sum(share * m for share, (_, m) in zip(shares[0], moments, strict=True))
    variance = sum(share * v for share, (v, _) in zip(shares[1], moments, strict=True))
    return (a - mean) / (variance + eps) ** 0.5


MEMBERS = (
    Variant(
        name="group norm",
        family=FAMILY,
        formula="(a_i - mean_g a)/sqrt(var_g a + eps), g the group of unit i",
        latex=r"(a_i-\mu_{g(i)})/\sqrt{\sigma_{g(i)}^2+\epsilon}",
        source="Wu and He 2018, Group Normalization",
        function=group_norm,
        claims=LAYER_ROW,
        options={"groups": GROUPS, "eps": 1e-5},
        norm=GroupedLayerNorm(
            torch.eye(GROUPS).repeat_interleave(UNITS // GROUPS, 0).repeat_interleave(UNITS // GROUPS, 1)
        ),
        units=UNITS,
        eps_power=2,
    ),
    Variant(
        name="group norm, conv",
        family=FAMILY,
        formula="(a_i - mean_ghw a)/sqrt(var_ghw a + eps), g the group of channel i",
        latex=r"(a_i-\mu_{g(i)})/\sqrt{\sigma_{g(i)}^2+\epsilon},\ \text{with pixels}",
        source="Wu and He 2018, Group Normalization",
        function=group_norm,
        claims=RMS_ROW,
        options={"groups": GROUPS, "eps": 1e-5},
        convolution=CONV,
        units=UNITS,
        eps_power=2,
    ),
    Variant(
        name="instance norm, conv",
        family=FAMILY,
        formula="(a_i - mean_hw a_i)/sqrt(var_hw a_i + eps)",
        latex=r"(a_i-\mu_{ni})/\sqrt{\sigma_{ni}^2+\epsilon},\ \text{over pixels}",
        source="Ulyanov et al. 2016, Instance Normalization",
        function=instance_norm,
        claims=Claims(UP_TO_EPS, NO, UP_TO_EPS, UP_TO_EPS, INVARIANT, UP_TO_EPS),
        options={"eps": 1e-5},
        convolution=CONV,
        eps_power=2,
    ),
    Variant(
        name="switchable norm, conv",
        family=FAMILY,
        formula="(a_i - sum_k p_k mean_k)/sqrt(sum_k q_k var_k + eps), "
        "k = instance, layer, batch; p and q softmaxes",
        latex=r"(a_i-\textstyle\sum_k p_k\mu_k)/\sqrt{\textstyle\sum_k q_k\sigma_k^2+\epsilon}",
        source="Luo et al. 2019, Differentiable Learning-to-Normalize via Switchable Normalization",
        function=switchable_norm,
        claims=Claims(UP_TO_EPS, NO, NO, UP_TO_EPS, NO, NO),
        options={"mean_weights": (1.0, 1.0, 1.0), "variance_weights": (1.0, 1.0, 1.0), "eps": 1e-5},
        convolution=CONV,
        eps_power=2,
    ),
)
