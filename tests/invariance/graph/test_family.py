"""The three engines on the code and the numeric one, on the whole family of layers."""

import pytest
import torch

import normgeom as ng
from normgeom.invariance import graph, numeric
from tests.invariance.graph.layers import ACTIONS, FAMILY, OF_TORCH, known, verdicts

Kind = ng.Kind
every_layer = pytest.mark.parametrize("name", FAMILY)


def agree(one, other):
    return one.kind is other.kind and (None in (one.degree, other.degree) or one.degree == other.degree)


@pytest.mark.parametrize("name", OF_TORCH)
def test_every_norm_of_torch_has_a_proof_or_a_witness(name):
    for verdict in known(name)[2][: len(ng.TABLE_1)]:
        assert verdict.kind is not Kind.UNDECIDED
        if verdict.kind is Kind.NOT_INVARIANT:
            assert verdict.witness.deviation > 0
        else:
            assert verdict.proof or "eps" in verdict.reason


@every_layer
def test_digits_agree_with_floating_point(name):
    layer, seen, found = known(name)
    bare = graph.with_hidden_eps(layer, seen)
    for action, verdict in zip(ACTIONS, found, strict=True):
        expected = numeric.judge(layer, action, generator=torch.Generator().manual_seed(2), seen=bare)
        too_small = (verdict.kind, expected.kind) == (Kind.UP_TO_EPS, Kind.INVARIANT)
        assert agree(verdict, expected) or too_small or expected.kind is Kind.UNDECIDED
        assert verdict.kind is not Kind.UNDECIDED


@every_layer
def test_abstract_interpretation_is_sound(name):
    """It may find nothing; what it finds is what 50 digits find."""
    layer, seen, expected = known(name)
    for found, exact in zip(verdicts(graph.judge_abstractly, layer, seen), expected, strict=True):
        assert found.kind is Kind.UNDECIDED or agree(found, exact)


PROVED = {
    "LayerNorm": 4, "RMSNorm": 3, "GroupNorm": 4, "BatchNorm1d": 4, "BatchNorm2d": 4, "InstanceNorm2d": 5,
    "weight norm": 2, "linear, batch norm": 4, "conv, batch norm": 4, "softmax": 1, "cosine": 4,
    "outside_the_root": 4, "filter_response": 3, "mean_size": 3, "largest": 3, "query_key": 4, "pre_norm": 2,
    "standardized": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", PROVED)
def test_what_rules_alone_prove(name):
    found = verdicts(graph.judge_abstractly, *known(name)[:2], ng.TABLE_1)
    assert sum(verdict.holds for verdict in found) == PROVED[name]


SYMBOLIC = (
    "RMSNorm", "LayerNorm", "GroupNorm", "InstanceNorm2d", "BatchNorm1d eval", "weight norm", "softmax",
    "cosine", "outside_the_root", "filter_response", "mean_size", "standardized", "variance_not_deviation",
)  # fmt: skip


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbols_agree_with_digits(name):
    layer, seen, expected = known(name)
    found = verdicts(graph.judge_symbolically, layer, seen, ng.TABLE_1)
    assert all(agree(one, other) for one, other in zip(found, expected, strict=False))
