"""Divisions by a length over the units of one case, without a mean."""

import torch
import torch.nn.functional as F

from normgeom.norms import RMSNorm
from normgeom.variants.layer import RMS_ROW
from normgeom.variants.statistics import CompressedRMS, PartialRMS, first_units
from normgeom.variants.variant import Variant, summed

FAMILY = "root mean square"


def rms_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Root-mean-square norm over the units."""
    a = summed(weight, data)
    return F.rms_norm(a, a.shape[1:], eps=eps)


def partial_rms_norm(weight: torch.Tensor, data: torch.Tensor, *, share: float, eps: float) -> torch.Tensor:
    """Root-mean-square norm with the statistic of the first units alone, a share of them rounded up."""
    a = summed(weight, data)
    first = a[:, : first_units(a.shape[1], share)]
    return a / ((first**2).mean(1, keepdim=True) + eps) ** 0.5


def compressed_rms_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Root-mean-square norm of a vector of mean 0 whose last entry, minus the sum of the rest, is dropped."""
    a = summed(weight, data)
    squares = (a**2).sum(1, keepdim=True) + a.sum(1, keepdim=True) ** 2
    return a / (squares / (a.shape[1] + 1) + eps) ** 0.5


def scale_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Summed inputs over their length, times the gain's initial value, the root of the number of units."""
    a = summed(weight, data)
    return a.shape[1] ** 0.5 * F.normalize(a, dim=1, eps=eps)


MEMBERS = (
    Variant(
        name="RMSNorm",
        family=FAMILY,
        formula="a_i/sqrt(mean_j a_j^2 + eps)",
        latex=r"a_i/\sqrt{\overline{a^2}+\epsilon}",
        source="Zhang and Sennrich 2019, Root Mean Square Layer Normalization, eq. 4",
        function=rms_norm,
        claims=RMS_ROW,
        options={"eps": 1e-6},
        norm=RMSNorm(),
        eps_power=2,
    ),
    Variant(
        name="pRMSNorm",
        family=FAMILY,
        formula="a_i/sqrt(mean_(j <= k) a_j^2 + eps), k a share of the units",
        latex=r"a_i/\sqrt{\overline{a_{1\ldots k}^2}+\epsilon},\ k=\lceil pH\rceil",
        source="Zhang and Sennrich 2019, Root Mean Square Layer Normalization",
        function=partial_rms_norm,
        claims=RMS_ROW,
        options={"share": 0.0625, "eps": 1e-6},
        norm=PartialRMS(0.0625),
        eps_power=2,
    ),
    Variant(
        name="CRMSNorm",
        family=FAMILY,
        formula="a_i/sqrt((sum_j a_j^2 + (sum_j a_j)^2)/(H + 1) + eps)",
        latex=r"a_i/\sqrt{(\sum a_j^2+(\sum a_j)^2)/(H+1)+\epsilon}",
        source="Jiang et al. 2023, Pre-RMSNorm and Pre-CRMSNorm Transformers",
        function=compressed_rms_norm,
        claims=RMS_ROW,
        options={"eps": 1e-5},
        norm=CompressedRMS(),
        eps_power=2,
    ),
    Variant(
        name="ScaleNorm",
        family=FAMILY,
        formula="sqrt(H) a_i/max(|a|, eps)",
        latex=r"\sqrt H\,a_i/\max(\|a\|,\epsilon)",
        source="Nguyen and Salazar 2019, Transformers without Tears",
        function=scale_norm,
        claims=RMS_ROW,
        options={"eps": 1e-5},
        norm=RMSNorm(),
        eps_power=1,
    ),
)
