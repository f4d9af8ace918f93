"""Families of independent counts: Bernoulli, Binomial, Poisson, NegativeBinomial.

Their formulas avoid `1 - p` and differences of cumulants, so they keep their digits at saturated outputs.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from normgeom.geometry.families._special import expm1_minus, minus_log1p
from normgeom.geometry.families.base import OneParameter, check_counts, check_negative, check_positive_number


class _Trials(OneParameter):
    """A number of independent yes/no trials with log odds eta: `A(eta) = trials log(1 + e^eta)`."""

    trials: int

    def cumulant(self, eta: Tensor, /) -> Tensor:
        """Return trials * log(1 + e^eta)."""
        return -self.trials * logsigmoid(-eta)

    def mean(self, eta: Tensor, /) -> Tensor:
        """Return trials * p, p the logistic function of eta."""
        return self.trials * torch.sigmoid(eta)

    def curvature(self, eta: Tensor, /) -> Tensor:
        """Return trials * p * (1 - p)."""
        return self.trials * torch.sigmoid(eta) * torch.sigmoid(-eta)

    def natural(self, mean: Tensor, /) -> Tensor:
        """Return the log odds of a mean."""
        return torch.log(mean) - torch.log(self.trials - mean)

    def check_targets(self, y: Tensor, eta: Tensor, /) -> None:
        """Raise a ValueError unless y has eta's shape and holds whole numbers up to the trials."""
        super().check_targets(y, eta)
        check_counts(y, type(self).__name__, self.trials)

    def _log_density(self, y: Tensor, eta: Tensor) -> Tensor:
        yes_and_no = y * logsigmoid(eta) + (self.trials - y) * logsigmoid(-eta)
        return yes_and_no if self.trials == 1 else yes_and_no + _log_choose(self.trials, y)

    def _bregman(self, eta_p: Tensor, eta_q: Tensor) -> Tensor:
        yes, no, step = torch.sigmoid(eta_p), torch.sigmoid(-eta_p), eta_q - eta_p
        # log E[e^c] for the centred step c, whose first-order term is gone exactly.
        near = step.clamp(-1, 1)
        close = torch.log1p(yes * expm1_minus(no * near) + no * expm1_minus(-yes * near))
        far = yes * (logsigmoid(eta_p) - logsigmoid(eta_q)) + no * (logsigmoid(-eta_p) - logsigmoid(-eta_q))
        return self.trials * torch.where(step.abs() < 1, close, far)


@dataclass(frozen=True)
class Bernoulli(_Trials):
    """Independent yes/no outputs with log odds eta: `A(eta) = log(1 + e^eta)`.

    >>> Bernoulli().fisher_diagonal(torch.tensor([0.0, 1000.0]))
    tensor([0.2500, 0.0000])
    """

    trials: ClassVar[int] = 1  # type: ignore[misc]

    def sample(self, eta: Tensor, /, *, generator: torch.Generator) -> Tensor:
        """Draw y, zeros and ones of eta's shape and type."""
        return torch.bernoulli(torch.sigmoid(eta), generator=generator)


@dataclass(frozen=True)
class Binomial(_Trials):
    """Independent numbers of yes among `trials`, with log odds eta: `A(eta) = trials log(1 + e^eta)`.

    >>> Binomial(4).mean(torch.tensor([0.0]))
    tensor([2.])
    """

    trials: int

    def __post_init__(self) -> None:
        """Raise an error unless the number of trials is a whole number above 0."""
        if not (isinstance(self.trials, int) and self.trials > 0):
            raise ValueError(f"Binomial: trials must be a whole number > 0; got {self.trials!r}.")

    def sample(self, eta: Tensor, /, *, generator: torch.Generator) -> Tensor:
        """Draw y, whole numbers of eta's shape and type."""
        return torch.binomial(torch.full_like(eta, self.trials), torch.sigmoid(eta), generator=generator)


@dataclass(frozen=True)
class Poisson(OneParameter):
    """Independent counts with log rate eta: `A(eta) = e^eta`.

    >>> Poisson().mean(torch.tensor([0.0]))
    tensor([1.])
    """

    def cumulant(self, eta: Tensor, /) -> Tensor:
        """Return e^eta."""
        return eta.exp()

    def mean(self, eta: Tensor, /) -> Tensor:
        """Return e^eta."""
        return eta.exp()

    def curvature(self, eta: Tensor, /) -> Tensor:
        """Return e^eta."""
        return eta.exp()

    def natural(self, mean: Tensor, /) -> Tensor:
        """Return log mean."""
        return mean.log()

    def check_targets(self, y: Tensor, eta: Tensor, /) -> None:
        """Raise a ValueError unless y has eta's shape and holds whole numbers."""
        super().check_targets(y, eta)
        check_counts(y, "Poisson")

    def sample(self, eta: Tensor, /, *, generator: torch.Generator) -> Tensor:
        """Draw y, whole numbers of eta's shape and type."""
        return torch.poisson(eta.exp(), generator=generator)

    def _log_density(self, y: Tensor, eta: Tensor) -> Tensor:
        return y * eta - eta.exp() - torch.lgamma(y + 1)

    def _bregman(self, eta_p: Tensor, eta_q: Tensor) -> Tensor:
        return eta_p.exp() * expm1_minus(eta_q - eta_p)


@dataclass(frozen=True)
class NegativeBinomial(OneParameter):
    """Independent counts of successes before `total` failures, eta = log(probability of success) < 0.

    `A(eta) = -total log(1 - e^eta)`. This is the natural parameter, not the log odds that
    `torch.distributions.NegativeBinomial(logits=...)` takes. A model with outputs of any sign takes a
    transfer function, for instance `NonCanonical.from_mean(NegativeBinomial(3.0), torch.exp)`.

    >>> NegativeBinomial(3.0).mean(torch.tensor([math.log(0.5)]))
    tensor([3.])
    """

    total: float

    def __post_init__(self) -> None:
        """Raise an error unless the total is positive."""
        check_positive_number(self.total, "NegativeBinomial", "total")

    def check(self, eta: Tensor, /) -> None:
        """Raise a ValueError unless every output is negative."""
        check_negative(eta, "NegativeBinomial")

    def check_targets(self, y: Tensor, eta: Tensor, /) -> None:
        """Raise a ValueError unless y has eta's shape and holds whole numbers."""
        super().check_targets(y, eta)
        check_counts(y, "NegativeBinomial")

    def cumulant(self, eta: Tensor, /) -> Tensor:
        """Return -total * log(1 - e^eta)."""
        return -self.total * _log_failure(eta)

    def mean(self, eta: Tensor, /) -> Tensor:
        """Return total * p / (1 - p)."""
        return self.total / torch.expm1(-eta)

    def curvature(self, eta: Tensor, /) -> Tensor:
        """Return total * p / (1 - p)^2."""
        return self.total / (torch.expm1(-eta) * -torch.expm1(eta))

    def natural(self, mean: Tensor, /) -> Tensor:
        """Return log(mean / (mean + total))."""
        return -torch.log1p(self.total / mean)

    def sample(self, eta: Tensor, /, *, generator: torch.Generator) -> Tensor:
        """Draw y, whole numbers of eta's shape and type, as Poisson counts with Gamma rates."""
        standard = torch._standard_gamma(torch.full_like(eta, self.total), generator=generator)
        return torch.poisson(standard / torch.expm1(-eta), generator=generator)

    def _log_density(self, y: Tensor, eta: Tensor) -> Tensor:
        ways = torch.lgamma(y + self.total) - torch.lgamma(y + 1) - math.lgamma(self.total)
        return ways + y * eta + self.total * _log_failure(eta)

    def _bregman(self, eta_p: Tensor, eta_q: Tensor) -> Tensor:
        odds, step = 1 / torch.expm1(-eta_p), eta_q - eta_p
        return self.total * (minus_log1p(-odds * torch.expm1(step)) + odds * expm1_minus(step))


def _log_failure(eta: Tensor) -> Tensor:
    """log(1 - e^eta) for eta < 0."""
    return torch.log(-torch.expm1(eta))


def _log_choose(trials: int, y: Tensor) -> Tensor:
    return math.lgamma(trials + 1) - torch.lgamma(y + 1) - torch.lgamma(trials - y + 1)
