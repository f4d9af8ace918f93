"""What a family offers, and what families of independent outputs share.

A family says how y is distributed given a model's outputs `eta` (outputs on the last axis). In an
exponential family with cumulant A and dispersion phi,
`log p(y | eta) = sum_i (y_i eta_i - A_i(eta)) / phi + log h(y)`, so that `E[y] = A'(eta)`,
`Cov[y] = phi A''(eta)` and the Fisher information of y about eta is `A''(eta) / phi = Cov[y] / phi^2`.
Source: Ba et al. 2016, section 5.2.1; McCullagh and Nelder 1989, section 2.2.
"""

from typing import ClassVar, Protocol

import torch
from torch import Tensor


class Family(Protocol):
    """What the metric asks of an output distribution; `eta` has shape (*batch, outputs).

    Methods do not look at values, so they run under `torch.func` transforms; `check` does.
    """

    independent: ClassVar[bool]

    def check(self, eta: Tensor, /) -> None:
        """Raise a ValueError if eta lies outside the domain of the family."""

    def check_targets(self, y: Tensor, eta: Tensor, /) -> None:
        """Raise a ValueError if y has the wrong shape or values the family cannot produce."""

    def mean(self, eta: Tensor, /) -> Tensor:
        """Return E[y]."""

    def covariance(self, eta: Tensor, /) -> Tensor:
        """Return Cov[y], one matrix for each of the batch."""

    def log_prob(self, y: Tensor, eta: Tensor, /) -> Tensor:
        """Return log p(y | eta), of shape (*batch)."""

    def score(self, y: Tensor, eta: Tensor, /) -> Tensor:
        """Return the gradient of `log_prob` in eta."""

    def sample(self, eta: Tensor, /, *, generator: torch.Generator) -> Tensor:
        """Draw y."""

    def kl(self, eta_p: Tensor, eta_q: Tensor, /) -> Tensor:
        """Return KL(p || q) in nats, of shape (*batch)."""

    def fisher(self, eta: Tensor, /) -> Tensor:
        """Return the Fisher information about eta, (*batch, outputs, outputs)."""

    def fisher_root(self, eta: Tensor, /) -> Tensor:
        """Return a factor, root @ root.mT == fisher, of shape (*batch, outputs, rank)."""

    def fisher_product(self, eta: Tensor, vectors: Tensor, /) -> Tensor:
        """Return fisher @ vectors for vectors (*batch, outputs), without the matrix."""

    def fisher_diagonal(self, eta: Tensor, /) -> Tensor:
        """Return the diagonal of the Fisher information, (*batch, outputs)."""


class Elementwise:
    """Independent outputs with a diagonal Fisher information; a subclass gives it and the densities."""

    independent: ClassVar[bool] = True

    def fisher_diagonal(self, eta: Tensor, /) -> Tensor:
        """Return the diagonal of the Fisher information, (*batch, outputs)."""
        raise NotImplementedError

    def check(self, eta: Tensor, /) -> None:
        """Raise a ValueError unless every output is finite."""
        check_finite(eta, type(self).__name__)

    def fisher(self, eta: Tensor, /) -> Tensor:
        """Return the Fisher information about eta, (*batch, outputs, outputs)."""
        return torch.diag_embed(self.fisher_diagonal(eta))

    def fisher_root(self, eta: Tensor, /) -> Tensor:
        """Return the diagonal root of the Fisher information."""
        return torch.diag_embed(self.fisher_diagonal(eta).sqrt())

    def fisher_product(self, eta: Tensor, vectors: Tensor, /) -> Tensor:
        """Return fisher @ vectors for vectors (*batch, outputs), without the matrix."""
        return self.fisher_diagonal(eta) * vectors


class OneParameter(Elementwise):
    """Independent outputs of a one-parameter exponential family, in its natural parameter.

    A subclass gives the cumulant A, its first two derivatives, the log base measure and the Bregman
    divergence of A; the rest follows from them.
    """

    @property
    def dispersion(self) -> float:
        """The dispersion phi: 1 unless the family has one."""
        return 1.0

    def cumulant(self, eta: Tensor, /) -> Tensor:
        """Return A(eta), one number an output."""
        raise NotImplementedError

    def mean(self, eta: Tensor, /) -> Tensor:
        """Return E[y] = A'(eta)."""
        raise NotImplementedError

    def curvature(self, eta: Tensor, /) -> Tensor:
        """Return A''(eta), one number an output."""
        raise NotImplementedError

    def natural(self, mean: Tensor, /) -> Tensor:
        """Return the natural parameter with this mean, the inverse of A' (the canonical link)."""
        raise NotImplementedError

    def sample(self, eta: Tensor, /, *, generator: torch.Generator) -> Tensor:
        """Draw y, of eta's shape."""
        raise NotImplementedError

    def _log_density(self, y: Tensor, eta: Tensor) -> Tensor:
        raise NotImplementedError

    def _bregman(self, eta_p: Tensor, eta_q: Tensor) -> Tensor:
        """A(q) - A(p) - A'(p) (q - p), without cancellation."""
        raise NotImplementedError

    def variance(self, eta: Tensor, /) -> Tensor:
        """Return Var[y] = phi A''(eta), one number an output."""
        return self.dispersion * self.curvature(eta)

    def covariance(self, eta: Tensor, /) -> Tensor:
        """Return Cov[y], diagonal, (*batch, outputs, outputs)."""
        return torch.diag_embed(self.variance(eta))

    def fisher_diagonal(self, eta: Tensor, /) -> Tensor:
        """Return A''(eta) / phi = Var[y] / phi^2."""
        return self.curvature(eta) / self.dispersion

    def log_prob(self, y: Tensor, eta: Tensor, /) -> Tensor:
        """Return log p(y | eta), summed over outputs."""
        return self._log_density(same_shape(y, eta, type(self).__name__), eta).sum(-1)

    def score(self, y: Tensor, eta: Tensor, /) -> Tensor:
        """Return the gradient of `log_prob` in eta, (y - E[y]) / phi."""
        return (same_shape(y, eta, type(self).__name__) - self.mean(eta)) / self.dispersion

    def kl(self, eta_p: Tensor, eta_q: Tensor, /) -> Tensor:
        """Return KL(p || q) in nats, summed over outputs: the Bregman divergence of A over phi."""
        return (self._bregman(eta_p, eta_q) / self.dispersion).sum(-1)

    def check_targets(self, y: Tensor, eta: Tensor, /) -> None:
        """Raise a ValueError if y has the wrong shape or values the family cannot produce."""
        check_finite(same_shape(y, eta, type(self).__name__), type(self).__name__, what="targets")


def same_shape(y: Tensor, eta: Tensor, family: str) -> Tensor:
    """Return y as eta's type, or raise a ValueError if its shape differs."""
    if y.shape != eta.shape:
        raise ValueError(
            f"{family}: y must have the shape of eta, one number an output; got y {tuple(y.shape)} and "
            f"eta {tuple(eta.shape)}."
        )
    return y.to(eta.dtype)


class NotFinite(ValueError):
    """Parameters, outputs, their cumulant or derivatives are not finite, as in a run that diverges."""


def check_finite(values: Tensor, family: str, what: str = "eta") -> None:
    """Raise a ValueError unless all values are finite."""
    if bool(torch.isfinite(values.sum())):
        return
    bad = int((~torch.isfinite(values)).sum())
    if bad:
        raise NotFinite(
            f"{family}: {what} must be finite; got {bad} values of {values.numel()} that are not."
        )


def check_negative(eta: Tensor, family: str) -> None:
    """Raise a ValueError unless all natural parameters are below 0."""
    check_finite(eta, family)
    if bool((eta >= 0).any()):
        raise NotFinite(
            f"{family}: the natural parameter must be negative; got a largest one of {float(eta.max()):.3g}. "
            "Start from a negative bias, or use a transfer function: "
            f"NonCanonical.from_mean({family}(...), torch.exp)."
        )


def check_counts(y: Tensor, family: str, most: float = float("inf")) -> None:
    """Raise a ValueError unless y holds whole numbers from 0 to `most`."""
    if bool(((y < 0) | (y > most) | (y != y.round())).any()):
        upto = "" if most == float("inf") else f" up to {most:g}"
        raise ValueError(
            f"{family}: targets must be whole numbers from 0{upto}; got values from "
            f"{float(y.min()):.4g} to {float(y.max()):.4g}."
        )


def check_positive_number(value: float, family: str, name: str) -> None:
    """Raise a ValueError unless the setting is a finite number above 0."""
    if not (isinstance(value, int | float) and 0 < value < float("inf")):
        raise ValueError(f"{family}: {name} must be a finite number > 0; got {value!r}.")
