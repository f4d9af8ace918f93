"""What is said: the line that breaks an invariance, and the operator that cannot be seen through."""

import re

import pytest
import torch
from torch import nn

import normgeom as ng
from tests.invariance.graph import my_norms
from tests.invariance.graph.layers import exported

Kind = ng.Kind


@pytest.mark.parametrize(
    ("layer", "place"),
    [
        (my_norms.plain, "+ eps (1e-05), my_norms.py:10"),
        (my_norms.clamped, "bound by eps (1e-06), my_norms.py:15"),
        (my_norms.Own(), "+ eps (0.0001), my_norms.py:24"),
        (nn.LayerNorm(5), "+ eps (1e-05), normalization.py:"),
    ],
)
def test_an_eps_is_found_where_it_is_added(layer, place):
    (verdict,) = ng.check(layer, [ng.CaseRescale])
    assert verdict.kind is Kind.UP_TO_EPS
    assert set(verdict.engines) == {"numeric", "abstract", "graph"}
    assert place in verdict.reason


def test_an_eps_does_not_excuse_what_it_does_not_cause():
    def leaks(weight, data):
        summed = data @ weight.T
        return my_norms.plain(weight, data) + 1e-5 * summed

    row = ng.check(leaks, [ng.CaseRescale, ng.WeightMatrixRecenter])
    assert [v.kind for v in row] == [Kind.NOT_INVARIANT] * 2


def test_a_broken_invariance_names_the_line_where_it_is_lost():
    (verdict,) = ng.check(my_norms.plain, [ng.WeightVectorRescale])
    assert verdict.kind is Kind.NOT_INVARIANT
    assert "its law is lost at aten.mean, my_norms.py:9" in verdict.reason


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (my_norms.branching, r"control flow.*depends on the values of weight or data \(my_norms.py:29\)"),
        (my_norms.sorted_units, r"there is no rule for aten.sort, my_norms.py:35"),
        (my_norms.noisy, r"there is no rule for aten.rand, my_norms.py:39"),
        (my_norms.Remembers(), r"depend on the buffer seen, which aten.add, my_norms.py:48 changes"),
        (nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5)), r"there is no rule for aten.native_dropout"),
    ],
)
def test_what_cannot_be_seen_through_is_named(layer, reason, capfd):
    for engine in ("graph", "graph-symbolic"):
        (verdict,) = ng.check(layer, [ng.CaseRescale], engines=[engine])
        assert verdict.kind is Kind.UNDECIDED
        assert re.search(reason, verdict.reason)
    assert capfd.readouterr() == ("", "")


def test_a_buffer_that_the_outputs_do_not_depend_on_is_ignored():
    (verdict,) = ng.check(my_norms.Counts(), [ng.CaseRescale])
    assert verdict.kind is Kind.INVARIANT
    assert set(verdict.engines) == {"numeric", "abstract", "graph"}


def test_nothing_is_touched():
    module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
    before, random = {k: v.clone() for k, v in module.state_dict().items()}, torch.get_rng_state()
    ng.check(module, [ng.CaseRescale], engines=["graph", "graph-symbolic", "abstract"])
    assert all(torch.equal(v, before[k]) for k, v in module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)


def test_a_proof_for_every_size_needs_no_numbers():
    _, seen = exported(ng.on_summed_inputs(nn.LayerNorm(2000), inputs=1000))
    assert seen.output.meta["val"].shape == (6, 2000)
    actions = [ng.WeightMatrixRecenter, ng.CaseRescale]
    row = ng.check(nn.LayerNorm(2000), actions, inputs=1000, engines=["abstract"])
    assert [v.kind for v in row] == [Kind.INVARIANT, Kind.UP_TO_EPS]
    assert "every size" in str(row[0].proof)
    (refused,) = ng.check(nn.LayerNorm(2000), [ng.CaseRescale], inputs=1000, engines=["graph"])
    assert "ask for fewer units" in refused.reason
