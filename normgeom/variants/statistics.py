"""Members of the zoo as statistics, `z = (a - mu)/sigma`, for the engines that compute without rounding."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from normgeom._types import Array, Data, Statistic, Weight
from normgeom.norms import summed_inputs

Pair = tuple[Statistic, Statistic]


@dataclass(frozen=True)
class ConstantStatistics:
    """Running statistics: the same mean and variance for every unit, whatever the data."""

    mean: int
    variance: int

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return the two constants."""
        return self.mean, self.variance


@dataclass(frozen=True)
class CentreCases:
    """`mu_i = mean_n a_ni`, sigma 1: batch norm without its division."""

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return the mean of shape (1, units), and 1."""
        return summed_inputs(weight, data).mean(axis=0, keepdims=True), 1


@dataclass(frozen=True)
class ScaleCases:
    """`mu = 0`, `sigma_i^2 = mean_n a_ni^2`: batch norm without its mean."""

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return 0 and the mean square of shape (1, units)."""
        return 0, (summed_inputs(weight, data) ** 2).mean(axis=0, keepdims=True)


@dataclass(frozen=True)
class CentreUnits:
    """`mu_n = mean_i a_ni`, sigma 1: layer norm without its division."""

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return the mean of shape (cases, 1), and 1."""
        return summed_inputs(weight, data).mean(axis=1, keepdims=True), 1


@dataclass(frozen=True)
class ScaleUnits:
    """`mu = 0`, `sigma_n^2` the variance over units: layer norm that divides and does not subtract."""

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return 0 and the variance of shape (cases, 1)."""
        return 0, _moments(summed_inputs(weight, data))[1]


@dataclass(frozen=True)
class PartialRMS:
    """`mu = 0`, `sigma_n^2` the mean square of the first units, a fraction `share` of them rounded up."""

    share: float

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return 0 and the mean square of shape (cases, 1)."""
        first = summed_inputs(weight, data)[:, : first_units(weight.shape[0], self.share)]
        return 0, (first**2).mean(axis=1, keepdims=True)


@dataclass(frozen=True)
class CompressedRMS:
    """`mu = 0`, `sigma_n^2 = (sum_i a_ni^2 + (sum_i a_ni)^2)/(H + 1)`, H units."""

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return 0 and the mean square of shape (cases, 1)."""
        a = summed_inputs(weight, data)
        return 0, ((a**2).sum(axis=1) + a.sum(axis=1) ** 2)[:, None] / (weight.shape[0] + 1)


@dataclass(frozen=True)
class GroupedLayerNorm:
    """Mean and variance over the units of a group, per case. `member[i, j]` is 1 if i and j share a group."""

    member: Any

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return mean and variance, each of shape (cases, units)."""
        a, tensor = summed_inputs(weight, data), isinstance(weight, torch.Tensor)
        member = self.member.to(weight) if tensor else self.member
        count = member.sum(axis=0)
        mean = a @ member / count
        return mean, (a - mean) ** 2 @ member / count


@dataclass(frozen=True)
class StandardizedWeight:
    """`mu_ni = m_i sum_d x_nd`, `sigma_i^2` the variance of `w_i`, m_i its mean: standardized rows.

    `summed` multiplies the variance by the number of inputs: rows of length 1 in place of variance 1.
    """

    summed: bool = False

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return mean (cases, units) and variance (1, units)."""
        mean, variance = _moments(weight)
        times = weight.shape[1] if self.summed else 1
        return data.sum(axis=1)[:, None] * mean[:, 0][None, :], times * variance[:, 0][None, :]


@dataclass(frozen=True)
class Cosine:
    """`mu = 0`, `sigma_ni = |w_i| |x_n|`; centred, `w_i` and `x_n` without their own means."""

    centred: bool = False

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return mean and squared lengths, of shape (cases, units)."""
        if self.centred:
            (w_mean, w), (x_mean, x) = _moments(weight), _moments(data)
            return weight.shape[1] * x_mean * w_mean.T, weight.shape[1] ** 2 * x * w.T
        return 0, (data**2).sum(axis=1)[:, None] * (weight**2).sum(axis=1)[None, :]


@dataclass(frozen=True)
class DemodulatedWeight:
    """`W diag(s) x` over the lengths of the rows of `W diag(s)`, the style s being 1, 2, ... as in the zoo.

    `mu_ni = sum_d (1 - s_d) w_id x_nd`, since a is `W x`; `sigma_i^2 = sum_d (s_d w_id)^2`.
    """

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return mean (cases, units) and squared lengths (1, units)."""
        modulated = weight * _counting(weight)
        return data @ (weight - modulated).T, (modulated**2).sum(axis=1)[None, :]


@dataclass(frozen=True)
class ResidualLayerNorm:
    """Layer norm of `alpha x + W x`; the mean is that over units less `alpha x`, since a is `W x`."""

    alpha: float = 1

    def statistics(self, weight: Weight, data: Data) -> Pair:
        """Return mean (cases, units) and variance (cases, 1)."""
        mean, variance = _moments(summed_inputs(weight, data) + self.alpha * data)
        return mean - self.alpha * data, variance


def first_units(units: int, share: float) -> int:
    """Return how many units a share of them is, rounded up."""
    return -int(-units * share // 1)


def _counting(like: Array) -> Array:
    """1, 2, ... along axis 1, as the kind, type and device of an array."""
    numbers = range(1, like.shape[1] + 1)
    if isinstance(like, torch.Tensor):
        return torch.tensor(numbers, dtype=like.dtype, device=like.device)[None, :]
    return np.array(numbers, dtype=object)[None, :]


def _moments(array: Array) -> tuple[Array, Array]:
    """Mean and biased variance along axis 1, which is kept."""
    mean = array.mean(axis=1, keepdims=True)
    return mean, ((array - mean) ** 2).mean(axis=1, keepdims=True)
