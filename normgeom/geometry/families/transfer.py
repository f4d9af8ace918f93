"""Non-canonical transfer functions: the natural parameter is a function of the model's output."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from normgeom.geometry.families.base import Elementwise, OneParameter


@dataclass(frozen=True)
class NonCanonical(Elementwise):
    """A one-parameter family whose natural parameter is `natural(eta)`, elementwise.

    With mean `f(eta) = A'(natural(eta))` the Fisher information about eta is
    `f'(eta)^2 / Var[y] = natural'(eta)^2 A''(natural(eta)) / phi`, the expectation over y (the Hessian at
    one y has a further term). Source: Ba et al. 2016, section 5.2.1, where f is the transfer function.

    A `natural` that is right at large outputs keeps the family right there: for the probit model
    `lambda e: torch.special.log_ndtr(e) - torch.special.log_ndtr(-e)`. From a mean that rounds to the
    boundary, as `from_mean` may have, no information can be recovered.

    >>> from normgeom.geometry.families import Gamma
    >>> log_link = NonCanonical.from_mean(Gamma(2.0), torch.exp)
    >>> log_link.fisher_diagonal(torch.tensor([-3.0, 0.0, 3.0]))
    tensor([2., 2., 2.])
    """

    family: OneParameter
    natural: Callable[[Tensor], Tensor]

    def __post_init__(self) -> None:
        """Raise an error unless the family has one natural parameter an output."""
        if not isinstance(self.family, OneParameter):
            raise TypeError(
                "NonCanonical needs a family of independent outputs with one natural parameter each; "
                f"got {type(self.family).__name__}. Put the function into the model instead."
            )

    @classmethod
    def from_mean(cls, family: OneParameter, mean: Callable[[Tensor], Tensor]) -> Self:
        """Return the family with mean `mean(eta)`, an elementwise function into the family's means."""
        return cls(family, lambda eta: family.natural(mean(eta)))

    @property
    def dispersion(self) -> float:
        """The dispersion of the family."""
        return self.family.dispersion

    def check(self, eta: Tensor, /) -> None:
        """Raise a ValueError if the natural parameters lie outside the family's domain."""
        self.family.check(self.natural(eta))

    def check_targets(self, y: Tensor, eta: Tensor, /) -> None:
        """Raise a ValueError if y has the wrong shape or values the family cannot produce."""
        self.family.check_targets(y, eta)

    def cumulant(self, eta: Tensor, /) -> Tensor:
        """Return A(natural(eta))."""
        return self.family.cumulant(self.natural(eta))

    def mean(self, eta: Tensor, /) -> Tensor:
        """Return E[y]."""
        return self.family.mean(self.natural(eta))

    def variance(self, eta: Tensor, /) -> Tensor:
        """Return Var[y], one number an output."""
        return self.family.variance(self.natural(eta))

    def covariance(self, eta: Tensor, /) -> Tensor:
        """Return Cov[y], diagonal, (*batch, outputs, outputs)."""
        return self.family.covariance(self.natural(eta))

    def log_prob(self, y: Tensor, eta: Tensor, /) -> Tensor:
        """Return log p(y | eta), summed over outputs."""
        return self.family.log_prob(y, self.natural(eta))

    def score(self, y: Tensor, eta: Tensor, /) -> Tensor:
        """Return the gradient of `log_prob` in eta."""
        natural, slope = self._natural_and_slope(eta)
        return slope * self.family.score(y, natural)

    def sample(self, eta: Tensor, /, *, generator: torch.Generator) -> Tensor:
        """Draw y, of eta's shape."""
        return self.family.sample(self.natural(eta), generator=generator)

    def kl(self, eta_p: Tensor, eta_q: Tensor, /) -> Tensor:
        """Return KL(p || q) in nats, summed over outputs."""
        return self.family.kl(self.natural(eta_p), self.natural(eta_q))

    def fisher_diagonal(self, eta: Tensor, /) -> Tensor:
        """Return natural'^2 A'' / phi, (*batch, outputs)."""
        natural, slope = self._natural_and_slope(eta)
        return slope**2 * self.family.fisher_diagonal(natural)

    def _natural_and_slope(self, eta: Tensor) -> tuple[Tensor, Tensor]:
        # An elementwise function has a diagonal Jacobian: one backward pass with ones gives it.
        natural, pull = torch.func.vjp(self.natural, eta)  # type: ignore[misc]
        return natural, pull(torch.ones_like(natural))[0]
