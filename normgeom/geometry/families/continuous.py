"""Families of real outputs: Gaussian, Gamma, and the Gaussian whose variance is an output too."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from normgeom.geometry.families._special import expm1_minus, minus_log1p
from normgeom.geometry.families.base import (
    Elementwise,
    OneParameter,
    check_finite,
    check_negative,
    check_positive_number,
)

_LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Gaussian(OneParameter):
    """Independent Gaussian outputs with mean eta and known variance: A(eta) = eta^2 / 2, phi = dispersion.

    The squared-error loss `sum (y - eta)^2` is -log p for dispersion 1/2, up to a constant.

    >>> Gaussian(0.5).fisher(torch.zeros(2))
    tensor([[2., 0.], [0., 2.]])
    """

    dispersion: float = 1.0

    def __post_init__(self) -> None:
        """Raise an error for a dispersion that is not positive."""
        check_positive_number(self.dispersion, "Gaussian", "dispersion")

    def cumulant(self, eta: Tensor, /) -> Tensor:
        """Return eta^2 / 2."""
        return eta**2 / 2

    def mean(self, eta: Tensor, /) -> Tensor:
        """Return eta."""
        return eta

    def curvature(self, eta: Tensor, /) -> Tensor:
        """Return 1."""
        return torch.ones_like(eta)

    def natural(self, mean: Tensor, /) -> Tensor:
        """Return the mean itself."""
        return mean

    def sample(self, eta: Tensor, /, *, generator: torch.Generator) -> Tensor:
        """Draw y, of eta's shape."""
        return eta + math.sqrt(self.dispersion) * _normal(eta, generator)

    def _log_density(self, y: Tensor, eta: Tensor) -> Tensor:
        return -((y - eta) ** 2 / self.dispersion + math.log(self.dispersion) + _LOG_2PI) / 2

    def _bregman(self, eta_p: Tensor, eta_q: Tensor) -> Tensor:
        return (eta_q - eta_p) ** 2 / 2


@dataclass(frozen=True)
class Gamma(OneParameter):
    """Independent Gamma outputs of known shape, natural parameter eta = -1/mean < 0.

    `A(eta) = -log(-eta)`, `phi = 1/shape`; the rate is `-shape * eta`. A model with outputs of any sign
    takes a transfer function instead, for instance the log link
    `NonCanonical.from_mean(Gamma(2.0), torch.exp)`.

    >>> Gamma(2.0).variance(torch.tensor([-0.5]))
    tensor([2.])
    """

    shape: float = 1.0

    def __post_init__(self) -> None:
        """Raise an error for a shape that is not positive."""
        check_positive_number(self.shape, "Gamma", "shape")

    @property
    def dispersion(self) -> float:
        """The dispersion, 1 / shape."""
        return 1 / self.shape

    def check(self, eta: Tensor, /) -> None:
        """Raise a ValueError unless every output is negative."""
        check_negative(eta, "Gamma")

    def check_targets(self, y: Tensor, eta: Tensor, /) -> None:
        """Raise a ValueError unless y has eta's shape and is positive."""
        super().check_targets(y, eta)
        if bool((y <= 0).any()):
            raise ValueError(f"Gamma: targets must be positive; got a smallest one of {float(y.min()):.4g}.")

    def cumulant(self, eta: Tensor, /) -> Tensor:
        """Return -log(-eta)."""
        return -torch.log(-eta)

    def mean(self, eta: Tensor, /) -> Tensor:
        """Return -1 / eta."""
        return -1 / eta

    def curvature(self, eta: Tensor, /) -> Tensor:
        """Return 1 / eta^2."""
        return eta**-2

    def natural(self, mean: Tensor, /) -> Tensor:
        """Return -1 / mean."""
        return -1 / mean

    def sample(self, eta: Tensor, /, *, generator: torch.Generator) -> Tensor:
        """Draw y, of eta's shape."""
        standard = torch._standard_gamma(torch.full_like(eta, self.shape), generator=generator)
        return standard / (-self.shape * eta)

    def _log_density(self, y: Tensor, eta: Tensor) -> Tensor:
        rate = -self.shape * eta
        return (
            self.shape * torch.log(rate)
            + (self.shape - 1) * torch.log(y)
            - rate * y
            - math.lgamma(self.shape)
        )

    def _bregman(self, eta_p: Tensor, eta_q: Tensor) -> Tensor:
        return minus_log1p((eta_q - eta_p) / eta_p)


@dataclass(frozen=True)
class MeanVarianceGaussian(Elementwise):
    """Independent Gaussian outputs with two parameters each: mean and log variance.

    The first half of eta holds the means, the second half the log variances. The Fisher information is
    `1/variance` for a mean and 1/2 for a log variance, with no cross term: it is the expectation over y.
    (The Hessian at one y has the cross term `(y - mean)/variance` and is indefinite.)

    >>> MeanVarianceGaussian().fisher(torch.tensor([3.0, 0.0]))
    tensor([[1.0000, 0.0000], [0.0000, 0.5000]])
    """

    def check(self, eta: Tensor, /) -> None:
        """Raise a ValueError unless eta is finite and its last axis is even."""
        self._halves(eta)
        check_finite(eta, "MeanVarianceGaussian")

    def check_targets(self, y: Tensor, eta: Tensor, /) -> None:
        """Raise a ValueError unless y is finite and has one number for every two outputs."""
        check_finite(self._matching(y, eta), "MeanVarianceGaussian", what="targets")

    def mean(self, eta: Tensor, /) -> Tensor:
        """Return E[y], the first half of eta."""
        return self._halves(eta)[0]

    def variance(self, eta: Tensor, /) -> Tensor:
        """Return Var[y], exp of the second half of eta."""
        return self._halves(eta)[1].exp()

    def covariance(self, eta: Tensor, /) -> Tensor:
        """Return Cov[y], diagonal, (*batch, outputs/2, outputs/2)."""
        return torch.diag_embed(self.variance(eta))

    def fisher_diagonal(self, eta: Tensor, /) -> Tensor:
        """Return 1/variance for the means and 1/2 for the log variances."""
        log_variance = self._halves(eta)[1]
        return torch.cat([(-log_variance).exp(), torch.full_like(log_variance, 0.5)], -1)

    def log_prob(self, y: Tensor, eta: Tensor, /) -> Tensor:
        """Return log p(y | eta), summed over outputs; y has shape (*batch, outputs/2)."""
        mean, log_variance = self._halves(eta)
        squared = (self._matching(y, eta) - mean) ** 2 * (-log_variance).exp()
        return -(squared + log_variance + _LOG_2PI).sum(-1) / 2

    def score(self, y: Tensor, eta: Tensor, /) -> Tensor:
        """Return the gradient of `log_prob` in eta."""
        mean, log_variance = self._halves(eta)
        precision, error = (-log_variance).exp(), self._matching(y, eta) - mean
        return torch.cat([error * precision, (error**2 * precision - 1) / 2], -1)

    def sample(self, eta: Tensor, /, *, generator: torch.Generator) -> Tensor:
        """Draw y, of shape (*batch, outputs/2)."""
        mean, log_variance = self._halves(eta)
        return mean + (log_variance / 2).exp() * _normal(mean, generator)

    def kl(self, eta_p: Tensor, eta_q: Tensor, /) -> Tensor:
        """Return KL(p || q) in nats, summed over outputs."""
        (mean_p, log_p), (mean_q, log_q) = self._halves(eta_p), self._halves(eta_q)
        shift = (mean_p - mean_q) ** 2 * (-log_q).exp()
        return (shift + expm1_minus(log_p - log_q)).sum(-1) / 2

    @staticmethod
    def _halves(eta: Tensor) -> tuple[Tensor, Tensor]:
        outputs = eta.shape[-1]
        if outputs % 2:
            raise ValueError(
                "MeanVarianceGaussian: eta must hold means, then as many log variances; "
                f"got an odd number of outputs, {outputs}."
            )
        return eta[..., : outputs // 2], eta[..., outputs // 2 :]

    @classmethod
    def _matching(cls, y: Tensor, eta: Tensor) -> Tensor:
        mean = cls._halves(eta)[0]
        if y.shape != mean.shape:
            raise ValueError(
                "MeanVarianceGaussian: y must have one number for every two outputs, "
                f"{tuple(mean.shape)}; got {tuple(y.shape)}."
            )
        return y.to(eta.dtype)


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=like.dtype, device=like.device)
