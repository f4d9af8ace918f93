"""Seeded faults: norms with a small mistake, each of which every engine must reject."""

from dataclasses import dataclass

import pytest
import torch

import normgeom as ng
from normgeom.invariance import exact, numeric, symbolic
from tests.oracles import normalized

ENGINES = {"numeric": numeric.judge, "exact": exact.judge, "symbolic": symbolic.judge}


def moments(array, axis):
    mean = array.mean(axis=axis, keepdims=True)
    return mean, ((array - mean) ** 2).mean(axis=axis, keepdims=True)


@dataclass(frozen=True)
class VarianceOff:
    """Layer norm whose variance is centred 0.1 % of the mean away."""

    def statistics(self, weight, data):
        summed = data @ weight.T
        mean, variance = moments(summed, 1)
        return mean, variance + (mean / 1000) ** 2


@dataclass(frozen=True)
class VarianceLeaks:
    """Layer norm with 0.1 % of the data's mean square in its variance."""

    def statistics(self, weight, data):
        mean, variance = moments(data @ weight.T, 1)
        return mean, variance + (data**2).mean(axis=1, keepdims=True) / 1000


@dataclass(frozen=True)
class WrongAxis:
    """Layer norm with its mean taken over the cases."""

    def statistics(self, weight, data):
        summed = data @ weight.T
        return summed.mean(axis=0, keepdims=True), moments(summed, 1)[1]


@dataclass(frozen=True)
class MeanOff:
    """Batch norm whose mean is 0.1 % too small."""

    def statistics(self, weight, data):
        mean, variance = moments(data @ weight.T, 0)
        return mean * 999 / 1000, variance


@dataclass(frozen=True)
class HiddenEps:
    """Layer norm with an eps that it does not declare."""

    def statistics(self, weight, data):
        mean, variance = moments(data @ weight.T, 1)
        return mean, variance + torch.finfo(torch.float32).eps if isinstance(variance, torch.Tensor) else (
            variance + 1
        )


@dataclass(frozen=True)
class HalfUnbiased:
    """Layer norm that adds biased variances over units and unbiased ones over cases."""

    def statistics(self, weight, data):
        mean, variance = moments(data @ weight.T, 1)
        return mean, variance + moments(data @ weight.T, 0)[1] * len(data) / (len(data) - 1)


FAULTS = [
    (VarianceOff, ng.WeightMatrixRecenter),
    (VarianceLeaks, ng.WeightMatrixRescale),
    (WrongAxis, ng.WeightMatrixRecenter),
    (WrongAxis, ng.CaseRescale),
    (MeanOff, ng.DatasetRecenter),
    (HiddenEps, ng.WeightMatrixRescale),
    (HiddenEps, ng.CaseRescale),
    (HalfUnbiased, ng.CaseRescale),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("fault", "action"), FAULTS, ids=lambda v: v.__name__)
def test_every_engine_rejects_every_fault(engine, fault, action):
    verdict = ENGINES[engine](ng.as_layer(fault()), action, generator=torch.Generator().manual_seed(0))
    assert verdict.kind is ng.Kind.NOT_INVARIANT
    assert verdict.witness is not None


def test_an_undeclared_eps_is_a_plain_no_and_a_declared_one_is_not():
    assert not ng.check(HiddenEps(), [ng.CaseRescale])[0].holds
    assert ng.check(ng.LayerNorm(), [ng.CaseRescale], eps=1e-7)[0].kind is ng.Kind.UP_TO_EPS


@pytest.mark.parametrize("factor", [1.001, 5 / 4], ids=["0.1 percent", "unbiased"])
def test_a_constant_factor_keeps_the_invariances_and_fails_the_values(factor, point):
    """Scaling the variance by a constant is no matter of invariance: the values find it."""

    class Scaled:
        def statistics(self, weight, data):
            mean, variance = moments(data @ weight.T, 1)
            return mean, variance * factor

    assert ng.check(Scaled(), [ng.CaseRescale], engines=["numeric"])[0].holds
    expected = torch.tensor(normalized("ln", point[0].tolist(), point[1].tolist()), dtype=torch.float64)
    assert not torch.allclose(ng.normalize(Scaled(), *point), expected, rtol=1e-4)
