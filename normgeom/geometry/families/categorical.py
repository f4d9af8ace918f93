"""The categorical family: one class of several, logits eta."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from normgeom.geometry.families._special import expm1_minus
from normgeom.geometry.families.base import check_finite


@dataclass(frozen=True)
class Categorical:
    """One class of several with logits eta: `A(eta) = log sum_i e^eta_i`, probabilities p = softmax(eta).

    y is a class index, of shape (*batch), or one-hot, of eta's shape. Means and covariances are those of
    the one-hot y: `Cov[y] = diag(p) - p p^T`, which annihilates the vector of ones. `1 - p` is summed from
    the other classes, so that saturated outputs keep their digits.

    >>> Categorical().fisher(torch.zeros(2))
    tensor([[ 0.2500, -0.2500], [-0.2500, 0.2500]])
    """

    independent: ClassVar[bool] = False

    @property
    def dispersion(self) -> float:
        """The dispersion, 1."""
        return 1.0

    def check(self, eta: Tensor, /) -> None:
        """Raise a ValueError unless every logit is finite."""
        check_finite(eta, "Categorical")

    def check_targets(self, y: Tensor, eta: Tensor, /) -> None:
        """Raise a ValueError unless y holds class indices, or is one-hot."""
        if y.shape == eta.shape:
            if not bool((((y == 0) | (y == 1)).all(-1) & (y.sum(-1) == 1)).all()):
                raise ValueError(
                    "Categorical: targets of eta's shape must be one-hot; pass class indices else."
                )
            return
        self._one_hot(y, eta)
        if bool(((y < 0) | (y >= eta.shape[-1])).any()):
            raise ValueError(
                f"Categorical: class indices must lie in 0..{eta.shape[-1] - 1}; got values from "
                f"{int(y.min())} to {int(y.max())}."
            )

    def cumulant(self, eta: Tensor, /) -> Tensor:
        """Return log sum_i e^eta_i, of shape (*batch)."""
        return torch.logsumexp(eta, -1)

    def mean(self, eta: Tensor, /) -> Tensor:
        """Return the probabilities p."""
        return torch.softmax(eta, -1)

    def covariance(self, eta: Tensor, /) -> Tensor:
        """Return diag(p) - p p^T, (*batch, outputs, outputs)."""
        p = torch.softmax(eta, -1)
        covariance = -p[..., :, None] * p[..., None, :]
        covariance.diagonal(dim1=-2, dim2=-1).copy_(p * self._complement(p))
        return covariance

    def fisher(self, eta: Tensor, /) -> Tensor:
        """Return the Fisher information about the logits, the covariance."""
        return self.covariance(eta)

    def fisher_diagonal(self, eta: Tensor, /) -> Tensor:
        """Return p (1 - p)."""
        p = torch.softmax(eta, -1)
        return p * self._complement(p)

    def fisher_root(self, eta: Tensor, /) -> Tensor:
        """Return diag(sqrt p) - p sqrt(p)^T, one column a class."""
        p = torch.softmax(eta, -1)
        root = -p[..., :, None] * p.sqrt()[..., None, :]
        root.diagonal(dim1=-2, dim2=-1).copy_(p.sqrt() * self._complement(p))
        return root

    def fisher_product(self, eta: Tensor, vectors: Tensor, /) -> Tensor:
        """Return p * (v - p . v) for vectors (*batch, outputs)."""
        p = torch.softmax(eta, -1)
        # Differences to the likeliest class: the constant they drop is in the null space.
        relative = vectors - vectors.gather(-1, p.argmax(-1, keepdim=True).expand_as(p[..., :1]))
        return p * (relative - (p * relative).sum(-1, keepdim=True))

    def log_prob(self, y: Tensor, eta: Tensor, /) -> Tensor:
        """Return log p(y | eta), of shape (*batch); y holds class indices or is one-hot."""
        return (self._one_hot(y, eta) * torch.log_softmax(eta, -1)).sum(-1)

    def score(self, y: Tensor, eta: Tensor, /) -> Tensor:
        """Return the gradient of `log_prob` in eta, one-hot y minus p."""
        return self._one_hot(y, eta) - torch.softmax(eta, -1)

    def sample(self, eta: Tensor, /, *, generator: torch.Generator) -> Tensor:
        """Draw class indices, of shape (*batch)."""
        flat = torch.softmax(eta, -1).reshape(-1, eta.shape[-1])
        return torch.multinomial(flat, 1, generator=generator).reshape(eta.shape[:-1])

    def kl(self, eta_p: Tensor, eta_q: Tensor, /) -> Tensor:
        """Return KL(p || q) in nats, of shape (*batch)."""
        p, step = torch.softmax(eta_p, -1), eta_q - eta_p
        centred = step - (p * step).sum(-1, keepdim=True)
        # log E[e^c] for the centred step c, whose first-order term is gone exactly.
        close = torch.log1p((p * expm1_minus(centred.clamp(-1, 1))).sum(-1))
        return torch.where(centred.abs().amax(-1) < 1, close, self._kl_of_a_long_step(eta_p, step))

    @staticmethod
    def _kl_of_a_long_step(eta_p: Tensor, step: Tensor) -> Tensor:
        """Return log E[e^d] - E[d], with d relative to the likeliest class, sums over the others."""
        p, top = torch.softmax(eta_p, -1), eta_p.argmax(-1, keepdim=True)
        relative = step - step.gather(-1, top)
        tilted = torch.log_softmax(eta_p, -1) + relative
        excess = (tilted.clamp(max=20).exp() - p).scatter(-1, top, 0.0).sum(-1)
        moderate = torch.log1p(excess)
        log_mean = torch.where(tilted.amax(-1) < 20, moderate, torch.logsumexp(tilted, -1))
        return log_mean - (p * relative).sum(-1)

    @staticmethod
    def _complement(p: Tensor) -> Tensor:
        """1 - p, for the likeliest class as the sum of the others."""
        top = torch.zeros_like(p).scatter(-1, p.argmax(-1, keepdim=True), 1.0)
        others = (p * (1 - top)).sum(-1, keepdim=True)
        return torch.where(top > 0, others, 1 - p)

    @staticmethod
    def _one_hot(y: Tensor, eta: Tensor) -> Tensor:
        if y.shape == eta.shape:
            return y.to(eta.dtype)
        if y.shape != eta.shape[:-1] or y.is_floating_point():
            raise ValueError(
                "Categorical: y must hold whole class indices of eta's shape without its last axis, "
                f"{tuple(eta.shape[:-1])}, or be one-hot {tuple(eta.shape)}; got {y.dtype} {tuple(y.shape)}."
            )
        return (y[..., None] == torch.arange(eta.shape[-1], device=y.device)).to(eta.dtype)
