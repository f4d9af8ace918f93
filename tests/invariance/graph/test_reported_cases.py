"""Reported cases of exported models and of statistics over the wrong axes."""

import pytest
import torch
import torch.nn.functional as F

import normgeom as ng
from normgeom.invariance._points import fractions
from normgeom.invariance.graph.digits import precision
from normgeom.invariance.graph.samples import outputs_at
from tests.invariance.graph.layers import exported


@pytest.mark.parametrize("offset", [0.0, 40000.0, 80000.0, 8388608.0])
def test_layer_norm_far_from_zero(offset):
    """EXP-01: the graph gives the right value at every offset, where float32 at 2^23 is off by 0.447."""
    _, seen = exported(ng.function_layer(lambda w, x: F.layer_norm(x, (4,), eps=1e-5), units=4))
    data = torch.tensor([[0.0, 1.0, 2.0, 3.0]] * 6, dtype=torch.float64) + offset
    with precision():
        exact = outputs_at(seen, fractions(torch.ones(4, 4)), fractions(data))[0].astype(float)
    assert exact == pytest.approx([-1.341635, -0.447212, 0.447212, 1.341635], abs=1e-6)


def test_layer_norm_whose_variance_leaves_half_precision():
    """EXP-02: inputs and outputs fit a half, the variance 255612 does not; the graph has no such bound."""
    _, seen = exported(ng.function_layer(lambda w, x: F.layer_norm(x, (4,), eps=1e-5), units=4))
    data = (torch.tensor([[-1.2, -0.4, 0.3, 1.3]] * 6) * 550).half().double()
    with precision():
        exact = outputs_at(seen, fractions(torch.ones(4, 4)), fractions(data))[0].astype(float)
    assert exact == pytest.approx([-1.30543, -0.43514, 0.32636, 1.41421], abs=1e-5)


def per_step(weight, data):
    """Layer norm of each of 3 positions over its units; data (cases, inputs, positions)."""
    summed = F.conv1d(data, weight).movedim(1, -1)
    return F.layer_norm(summed, summed.shape[-1:], eps=0.0).movedim(-1, 1)


def over_steps(weight, data):
    """Layer norm over units and positions together."""
    summed = F.conv1d(data, weight)
    return F.layer_norm(summed, summed.shape[1:], eps=0.0)


@pytest.mark.parametrize(("function", "holds"), [(per_step, True), (over_steps, False)])
def test_statistics_over_time_are_told_apart(function, holds):
    """SEM-06, SEM-07: both pass single-case re-scaling; only statistics of each step pass re-centering."""
    layer = ng.function_layer(function, kernel=(1,), spatial=(3,))
    row = ng.check(layer, [ng.CaseRescale, ng.WeightMatrixRecenter])
    assert row.holds == (True, holds)
    assert row[0].kind is ng.Kind.INVARIANT


def test_weight_standardization_that_multiplies_by_the_deviation():
    """SEM-03: dividing by rsqrt gives degree 2; re-centering by a constant per unit holds in both forms."""

    def standardized(weight, wrong):
        centred = weight - weight.mean(1, keepdim=True)
        factor = (centred.square().mean(1, keepdim=True)).rsqrt()
        return centred / factor if wrong else centred * factor

    for wrong, degree in ((True, 2), (False, None)):
        row = ng.check(
            ng.reparametrized(lambda w, wrong=wrong: standardized(w, wrong)),
            [ng.WeightMatrixRescale, ng.WeightVectorRecenter],
        )
        assert (row[0].degree, row[0].holds, row[1].holds) == (degree, not wrong, True)
        assert set(row[0].engines) == {"numeric", "abstract", "graph"}
