"""What follows from a row, and how far an eps breaks it."""

import pytest
import torch

import normgeom as ng
from normgeom.invariance.advice import advice, eps_breaking


def test_the_block_that_is_scale_invariant_is_named():
    assert advice(ng.check(ng.LayerNorm(), engines="exact"))[0].startswith("W as a whole (not its rows)")
    assert advice(ng.check(ng.WeightNorm(), engines="exact"))[0].startswith("Each row w_i is scale invariant")
    assert advice(ng.check(ng.NoNorm(), engines="exact"))[0].startswith("No block of the weight")


def test_advice_says_only_what_the_row_says():
    lines = advice(ng.check(ng.BatchNorm(), [ng.DatasetRecenter], engines="exact"))
    assert len(lines) == 1
    assert "no centring" in lines[0]


@pytest.mark.parametrize("size", [1.0, 1e-2])
def test_the_breaking_is_that_of_the_law(size):
    eps = 1e-5
    layer = ng.as_layer(ng.WeightNorm(), eps=eps)
    found = eps_breaking(layer, ng.WeightMatrixRescale, sizes=[size])
    # The largest output may be any unit's, so the law at the smallest and largest variance bounds it.
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    data = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    v = (weight * size / (data @ weight.T).square().mean().sqrt()).square().sum(1)
    law = 2 * ((v + eps) / (4 * v + eps)).sqrt() - 1
    assert float(law.min()) < found.changes[0] <= float(law.max()) + 1e-12


def test_an_action_that_scales_nothing_is_refused():
    with pytest.raises(ValueError, match="must be a class of re-scalings"):
        eps_breaking(ng.LayerNorm(), ng.DatasetRecenter)
