"""The parts of a scan by themselves, each with a fault that it must notice."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from normgeom.symmetry.differences import GradientCheck, are_right
from normgeom.symmetry.functionals import gradients_at, plan
from normgeom.symmetry.partitions import natural_parts, whole_blocks
from normgeom.symmetry.probe import Probe
from normgeom.symmetry.span import Span
from normgeom.symmetry.trials import Trial
from normgeom.symmetry.unitwise import Layout
from tests.symmetry.scanned import BATCH, seeded


def probe_of(make):
    return Probe(seeded(make), BATCH, select=None, generator=torch.Generator().manual_seed(0))


def net():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


@pytest.mark.parametrize(("fault", "right"), [(0.0, True), (1e-3, False)])
def test_gradients_that_are_a_little_off_are_not_right(fault, right):
    probe = probe_of(net)
    sketch, gradients = gradients_at(probe, 3)
    check = GradientCheck(probe)
    for gradient in gradients:
        check.add({name: (1 + fault) * g for name, g in gradient.items()})
    assert are_right(check.error(sketch), probe.unit) == right


def test_a_check_of_gradients_leaves_the_parameters_up_to_rounding():
    probe = probe_of(net)
    before = copy.deepcopy(probe.parameters)
    sketch, gradients = gradients_at(probe, 3)
    check = GradientCheck(probe)
    for gradient in gradients:
        check.add(gradient)
    check.error(sketch)
    torch.testing.assert_close(probe.parameters, before, rtol=1e-15, atol=1e-17)


@pytest.mark.parametrize("rank", [1, 3, 6])
def test_the_span_of_rows_has_their_rank_whatever_their_scales(rank):
    draws = np.random.default_rng(rank)
    rows = draws.normal(size=(12, rank)) @ draws.normal(size=(rank, 8)) * 10.0 ** np.arange(-12, 12, 3)
    span = Span(1e-8)
    for row in rows:
        span.add(row)
    assert (len(span.basis), span.idle) == (rank, 12 - rank)
    span.add(rows[0] * (1 + 1e-3 * np.eye(8)[7]))
    assert len(span.basis) == rank + 1


@pytest.mark.parametrize(("blocks", "outputs"), [(3, 1), (3, 1000), (100, 7), (200, 10_000)])
def test_functionals_are_a_few_more_than_blocks_and_no_more_than_outputs(blocks, outputs):
    counts = plan(blocks, outputs, 1)
    assert sum(counts) >= blocks + 4
    assert len(counts) >= 3
    assert max(counts) <= outputs


@pytest.mark.parametrize("by", ["unit", "head"])
def test_what_shares_a_factor_is_summed_up(by):
    """`<spread(c), s> = <c, gather(s)>` for queries (12 units, 3 heads) that share one key head (4 units)."""
    layer = nn.Linear(4, 12)
    queries = whole_blocks(layer, dict(layer.named_parameters()))[0]
    layout = Layout(by, {queries: 0}, 4, 4)
    factors = torch.randn(layout.factors, dtype=torch.float64)
    slopes = np.random.default_rng(0).normal(size=(2, 12))
    spread, gathered = layout.spread(factors, queries), layout.gather(slopes, queries)
    assert (spread.shape, gathered.shape) == ((12,), (2, layout.factors))
    np.testing.assert_allclose(slopes @ spread.numpy(), gathered @ factors.numpy(), rtol=1e-12)


def test_transforms_that_hold_are_told_from_those_that_do_not():
    trial = Trial(probe_of(lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))))
    own = trial.probe.parameters

    def pair(factor, wrong=1.0):
        return lambda start: {
            **start,
            "0.weight": start.get("0.weight", own["0.weight"]) * factor,
            "0.bias": start.get("0.bias", own["0.bias"]) * factor,
            "2.weight": start.get("2.weight", own["2.weight"]) / factor * wrong,
        }

    transforms = [pair(2.0), pair(3.0), pair(1.5, 1 + 1e-9), pair(0.4), pair(0.7)]
    assert [change <= trial.tolerance for change in trial.settle(transforms)] == [
        True,
        True,
        False,
        True,
        True,
    ]
    before = trial.probe.forwards
    trial.settle([pair(2.0), pair(3.0), pair(0.4), pair(0.7)])
    assert trial.probe.forwards == before + 1
    assert trial.settle([]) == []


def test_heads_of_keys_that_queries_share():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.num_heads, self.head_dim = 4, 3
            self.q_proj, self.k_proj, self.o_proj = nn.Linear(8, 12), nn.Linear(8, 6), nn.Linear(12, 8)

    model = nn.Sequential(Attention())
    parts = {
        (block.view.parameter, part.kind): part.view.parts
        for block in whole_blocks(model, dict(model.named_parameters()))
        for part in natural_parts(model, block)
        if "head" in part.kind
    }
    assert parts["0.q_proj.weight", "head"] == parts["0.o_proj.weight", "head of inputs"] == 4
    assert parts["0.k_proj.weight", "head"] == parts["0.k_proj.bias", "head"] == 2
