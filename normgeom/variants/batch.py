"""Statistics over the cases: batch norm and its relatives."""

import dataclasses

import torch
import torch.nn.functional as F

from normgeom.norms import BatchNorm
from normgeom.variants.statistics import CentreCases, ConstantStatistics, ScaleCases
from normgeom.variants.variant import (
    CONV,
    INVARIANT,
    LINEAR,
    NO,
    UP_TO_EPS,
    Claims,
    Symmetry,
    Variant,
    per_unit,
    summed,
)  # fmt: skip

FAMILY = "batch"
BATCH_ROW = Claims(UP_TO_EPS, NO, UP_TO_EPS, UP_TO_EPS, INVARIANT, NO)
NOTHING = Claims(NO, NO, NO, NO, NO, NO)
SCALES_ALONG = Claims(LINEAR, NO, LINEAR, LINEAR, NO, LINEAR)
RUNNING = Symmetry(
    "(W, running mean, running variance) → (cW, c mean, c² variance)",
    r"(W,\mu,\sigma^2)\to(cW,c\mu,c^2\sigma^2)",
    lambda c, weight, data, options: (
        c * weight,
        data,
        options | {"mean": c * options["mean"], "variance": c**2 * options["variance"]},
    ),
)


def batch_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Batch norm in training."""
    # The library refuses eps = 0; 1e-300 is below the rounding of any variance.
    return F.batch_norm(summed(weight, data), None, None, training=True, eps=max(eps, 1e-300))


def batch_norm_eval(
    weight: torch.Tensor, data: torch.Tensor, *, mean: float, variance: float, eps: float
) -> torch.Tensor:
    """Batch norm in evaluation, the same running statistics for every unit."""
    a = summed(weight, data)
    running_mean, running_variance = (a.new_full((a.shape[1],), value) for value in (mean, variance))
    return F.batch_norm(a, running_mean, running_variance, training=False, eps=eps)


def l1_batch_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Batch norm with the mean absolute deviation, times sqrt(pi/2), in place of sigma."""
    a = summed(weight, data)
    centred = a - a.mean(0, keepdim=True)
    return centred / ((torch.pi / 2) ** 0.5 * centred.abs().mean(0, keepdim=True) + eps)


def mean_only_batch_norm(weight: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Batch norm that subtracts and does not divide."""
    a = summed(weight, data)
    return a - a.mean(0, keepdim=True)


def batch_renorm(
    weight: torch.Tensor,
    data: torch.Tensor,
    *,
    mean: float,
    variance: float,
    r_max: float,
    d_max: float,
    eps: float,
) -> torch.Tensor:
    """Batch norm corrected to running statistics; no gradient flows through the corrections r and d."""
    a = summed(weight, data)
    sigma = (a.var(0, keepdim=True, correction=0) + eps) ** 0.5
    centre, running = a.mean(0, keepdim=True), variance**0.5
    r = (sigma / running).clamp(1 / r_max, r_max).detach()
    d = ((centre - mean) / running).clamp(-d_max, d_max).detach()
    return (a - centre) / sigma * r + d


def decorrelated_batch_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """ZCA whitening over the cases: `(a - mu) (Cov + eps)^(-1/2)`."""
    a = summed(weight, data)
    # Singular values of the centred data lose half the digits that eigenvalues of their covariance lose.
    left, length, right = torch.linalg.svd(a - a.mean(0, keepdim=True), full_matrices=False)
    return left * (length / (length**2 / len(a) + eps) ** 0.5) @ right


def power_norm(weight: torch.Tensor, data: torch.Tensor, *, eps: float) -> torch.Tensor:
    """Summed inputs over their root mean square over the cases."""
    a = summed(weight, data)
    return a / ((a**2).mean(0, keepdim=True) + eps) ** 0.5


def power_norm_running(weight: torch.Tensor, data: torch.Tensor, *, mean_square: float) -> torch.Tensor:
    """Summed inputs over the root of a running mean square, the same for every unit."""
    a = summed(weight, data)
    return a / per_unit(a.new_full((a.shape[1],), mean_square), a) ** 0.5


BATCH = Variant(
    name="batch norm",
    family=FAMILY,
    formula="(a_i - mean_n a_i)/sqrt(var_n a_i + eps)",
    latex=r"(a_i-\mu_i)/\sqrt{\sigma_i^2+\epsilon},\ \mu_i,\sigma_i^2\text{ over cases}",
    source="Ioffe and Szegedy 2015, Batch Normalization",
    function=batch_norm,
    claims=BATCH_ROW,
    options={"eps": 1e-5},
    norm=BatchNorm(),
    eps_power=2,
)

MEMBERS = (
    BATCH,
    dataclasses.replace(
        BATCH,
        name="batch norm, conv",
        formula="(a_i - mean_nhw a_i)/sqrt(var_nhw a_i + eps)",
        latex=r"(a_i-\mu_i)/\sqrt{\sigma_i^2+\epsilon},\ \text{over cases and pixels}",
        source="Ioffe and Szegedy 2015, Batch Normalization",
        norm=None,
        convolution=CONV,
    ),
    Variant(
        name="batch norm, eval",
        family=FAMILY,
        formula="(a_i - m)/sqrt(v + eps), m and v running statistics",
        latex=r"(a_i-m)/\sqrt{v+\epsilon}",
        source="Ioffe and Szegedy 2015, Batch Normalization",
        function=batch_norm_eval,
        claims=NOTHING,
        options={"mean": 1.0, "variance": 2.0, "eps": 1e-5},
        norm=ConstantStatistics(1, 2),
        mode="eval",
        symmetries=(RUNNING,),
    ),
    Variant(
        name="L1 batch norm",
        family=FAMILY,
        formula="(a_i - mean_n a_i)/(sqrt(pi/2) mean_n |a_i - mean_n a_i| + eps)",
        latex=r"(a_i-\mu_i)/(\sqrt{\pi/2}\,\overline{|a_i-\mu_i|}+\epsilon)",
        source="Hoffer et al. 2018, Norm matters",
        function=l1_batch_norm,
        claims=BATCH_ROW,
        options={"eps": 1e-5},
        eps_power=1,
    ),
    Variant(
        name="mean-only batch norm",
        family=FAMILY,
        formula="a_i - mean_n a_i",
        latex=r"a_i-\mu_i",
        source="Salimans and Kingma 2016, Weight Normalization",
        function=mean_only_batch_norm,
        claims=Claims(LINEAR, NO, LINEAR, LINEAR, INVARIANT, NO),
        norm=CentreCases(),
    ),
    Variant(
        name="batch renorm",
        family=FAMILY,
        formula="r (a_i - mean_n a_i)/s_i + d, s_i = sqrt(var_n a_i + eps), "
        "r = clip(s_i/sqrt v), d = clip((mean_n a_i - m)/sqrt v), no gradient through r and d",
        latex=r"r\,(a_i-\mu_i)/\sigma_i+d,\ r=[\sigma_i/\sqrt v],\ d=[(\mu_i-m)/\sqrt v]",
        source="Ioffe 2017, Batch Renormalization",
        function=batch_renorm,
        claims=NOTHING,
        options={"mean": 1.0, "variance": 2.0, "r_max": 3.0, "d_max": 5.0, "eps": 1e-5},
        symmetries=(RUNNING,),
        gradient_only=("WeightMatrixRescale", "WeightVectorRescale", "DatasetRescale", "DatasetRecenter"),
    ),
    Variant(
        name="decorrelated (ZCA) batch norm",
        family=FAMILY,
        formula="(Cov_n a + eps)^(-1/2) (a - mean_n a)",
        latex=r"(\Sigma+\epsilon I)^{-1/2}(a-\mu),\ \Sigma\text{ over cases}",
        source="Huang et al. 2018, Decorrelated Batch Normalization",
        function=decorrelated_batch_norm,
        claims=Claims(UP_TO_EPS, NO, NO, UP_TO_EPS, INVARIANT, NO),
        options={"eps": 1e-5},
        units=3,  # no more than inputs, or the covariance is singular
        eps_power=2,
    ),
    Variant(
        name="power norm, batch",
        family=FAMILY,
        formula="a_i/sqrt(mean_n a_i^2 + eps)",
        latex=r"a_i/\sqrt{\overline{a_i^2}+\epsilon},\ \text{over cases}",
        source="Shen et al. 2020, PowerNorm (PN-V)",
        function=power_norm,
        claims=Claims(UP_TO_EPS, NO, UP_TO_EPS, UP_TO_EPS, NO, NO),
        options={"eps": 1e-5},
        norm=ScaleCases(),
        eps_power=2,
    ),
    Variant(
        name="power norm, running",
        family=FAMILY,
        formula="a_i/psi, psi^2 a running mean square",
        latex=r"a_i/\psi,\ \psi^2\text{ running}",
        source="Shen et al. 2020, PowerNorm, forward pass",
        function=power_norm_running,
        claims=SCALES_ALONG,
        options={"mean_square": 2.0},
        norm=ConstantStatistics(0, 2),
        mode="eval",
        symmetries=(
            Symmetry(
                "(W, running mean square) → (cW, c² mean square)",
                r"(W,\psi^2)\to(cW,c^2\psi^2)",
                lambda c, weight, data, options: (
                    c * weight,
                    data,
                    options | {"mean_square": c**2 * options["mean_square"]},
                ),
            ),
        ),
    ),
)
