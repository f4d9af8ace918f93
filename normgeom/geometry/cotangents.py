"""The cotangents that turn a Jacobian into Fisher rows: a root of the Fisher information, or scores.

With `S S^T` the Fisher information of the outputs, `sum_r (S_r^T J)^T (S_r^T J) = J^T S S^T J`. With scores
`s = d log p(y) / d eta`, `(s^T J)^T (s^T J)` is the outer product of the gradient of one log-likelihood.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch


class Cotangents(Protocol):
    """Some rows a case, each a cotangent of the outputs."""

    @property
    def count(self) -> int:
        """The number of rows a case."""

    def take(self, start: int, stop: int) -> torch.Tensor:
        """Return rows start to stop: (rows, cases, ..., outputs)."""


Maker = Callable[[torch.Tensor, Any], Cotangents]
"""From (natural parameters, indices of the cases) to cotangents."""


@dataclass(frozen=True, eq=False)
class RootRows:
    """Columns of a root of the Fisher information, (cases, ..., outputs, rank), one position at a time."""

    root: torch.Tensor

    @property
    def count(self) -> int:
        """Positions times rank."""
        return math.prod(self.root.shape[1:-2]) * self.root.shape[-1]

    def take(self, start: int, stop: int) -> torch.Tensor:
        """Return rows start to stop, row k being column `k % rank` at position `k // rank`."""
        root = self.root.flatten(1, -3) if self.root.ndim > 3 else self.root[:, None]
        cases, positions, outputs, rank = root.shape
        if positions == 1:
            return root[:, 0, :, start:stop].movedim(-1, 0).reshape(-1, *self.root.shape[:-1])
        out = root.new_zeros(stop - start, cases, positions, outputs)
        for k in range(start, stop):
            out[k - start, :, k // rank] = root[:, k // rank, :, k % rank]
        return out.reshape(-1, *self.root.shape[:-1])


@dataclass(frozen=True, eq=False)
class ScoreRows:
    """Given cotangents, (rows, cases, ..., outputs)."""

    scores: torch.Tensor

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.scores)

    def take(self, start: int, stop: int) -> torch.Tensor:
        """Return rows start to stop."""
        return self.scores[start:stop]


def exact(family: Any) -> Maker:
    """Return the maker of exact rows: the expectation over y is taken in closed form."""

    def make(eta: torch.Tensor, index: Any) -> Cotangents:
        family.check(eta.detach())
        return RootRows(family.fisher_root(eta.detach()))

    return make


def observed(family: Any, targets: torch.Tensor) -> Maker:
    """Return the maker of one row a case: the score of the target that was observed."""

    def make(eta: torch.Tensor, index: Any) -> Cotangents:
        family.check(eta.detach())
        family.check_targets(targets[index], eta.detach())
        return ScoreRows(family.score(targets[index], eta.detach())[None])

    return make


def sampled(family: Any, samples: int, generator: torch.Generator) -> Maker:
    """Return the maker of rows from samples of y: scores over sqrt(samples)."""

    def make(eta: torch.Tensor, index: Any) -> Cotangents:
        eta = eta.detach()
        family.check(eta)
        draws = [
            family.score(family.sample(eta, generator=generator), eta) / math.sqrt(samples)
            for _ in range(samples)
        ]
        return ScoreRows(torch.stack(draws))

    return make
