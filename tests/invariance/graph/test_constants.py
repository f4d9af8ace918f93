"""Constants of the code: declared eps of any size, bounds that random points do not reach, narrow casts."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import normgeom as ng
from normgeom.invariance.graph import export, kept
from normgeom.invariance.settling import EnginesDisagree, settle
from normgeom.invariance.verdict import Verdict

Kind = ng.Kind


def on_sums(function):
    return lambda weight, data: function(data @ weight.T)


def layer_norm(summed):
    return F.layer_norm(summed, summed.shape[-1:])


def kinds(layer, *actions, **options):
    return [verdict.kind for verdict in ng.check(layer, list(actions), **options)]


@pytest.mark.parametrize("eps", [0.01, 0.1])
@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.BatchNorm1d, nn.RMSNorm])
def test_a_declared_eps_counts_whatever_its_size(norm, eps):
    assert kinds(norm(5, eps=eps), ng.WeightMatrixRescale) == [Kind.UP_TO_EPS]
    assert kinds(norm(5), ng.WeightMatrixRescale, eps=eps) == [Kind.UP_TO_EPS]


def test_an_undeclared_constant_that_is_large_is_no_eps():
    def large(summed):
        return summed / (summed.square().mean(1, keepdim=True) + 0.5).sqrt()

    assert kinds(on_sums(large), ng.WeightMatrixRescale) == [Kind.NOT_INVARIANT]


REGIMES = {
    "a clamp far out": lambda z: layer_norm(z.clamp(-1e4, 1e4)),
    "a clamp near": lambda z: layer_norm(z.clamp(-10, 10)),
    "a choice far out": lambda z: torch.where(z.norm() > 1e4, z, z / z.norm(dim=1, keepdim=True)),
    "a large bound": lambda z: z / z.norm(dim=1, keepdim=True).clamp(min=1.0),
}


@pytest.mark.parametrize("name", REGIMES)
@pytest.mark.parametrize("engine", ["graph", "numeric"])
def test_a_constant_is_tried_at_its_own_scale(name, engine):
    (verdict,) = ng.check(on_sums(REGIMES[name]), [ng.WeightMatrixRescale], engines=["graph", "numeric"])
    assert verdict.kind is Kind.NOT_INVARIANT
    assert engine in verdict.engines
    assert verdict.witness.deviation > 0


@pytest.mark.parametrize(
    "bounded",
    [
        lambda z: F.normalize(z, dim=1, eps=1e-2),
        lambda z: z / torch.maximum(z.norm(dim=1, keepdim=True), torch.tensor(1e-6, dtype=z.dtype)),
        lambda z: F.relu6(layer_norm(z)),
    ],
)
def test_an_eps_that_bounds_and_a_bound_after_the_norm_break_nothing(bounded):
    assert kinds(on_sums(bounded), ng.WeightMatrixRescale, ng.DatasetRescale) == [Kind.UP_TO_EPS] * 2


@pytest.mark.parametrize("eps", [0.0, 1e-5])
def test_two_units_a_group_leave_a_sign_and_no_disagreement(eps):
    row = ng.check(nn.GroupNorm(3, 6, eps=eps), [ng.WeightMatrixRescale, ng.WeightVectorRescale])
    assert [v.holds for v in row] == [True, False]


def test_only_a_sign_survives_is_said():
    (verdict,) = ng.check(nn.GroupNorm(3, 6), [ng.WeightMatrixRescale], engines=["numeric"])
    assert verdict.kind is Kind.UNDECIDED
    assert "only a sign survives" in verdict.reason


def test_a_cast_to_half_is_named_and_left_to_the_numbers():
    def half(weight, data):
        return layer_norm((data @ weight.T).half()).to(data.dtype)

    (verdict,) = ng.check(half, [ng.WeightMatrixRescale])
    assert verdict.engines == ("numeric",)
    assert "narrow cast to float16 at test_constants.py:" in verdict.reason


def test_what_is_no_function_is_undecided_in_every_column():
    noise = np.random.default_rng(0)
    row = ng.check(on_sums(lambda z: layer_norm(z) * float(noise.standard_normal())))
    assert {v.kind for v in row} == {Kind.UNDECIDED}
    assert all("is not a function of weight and data" in v.reason for v in row)


@pytest.mark.parametrize(("engine", "told"), [("exact", True), ("graph", False)])
def test_statistics_are_blamed_only_where_there_are_some(engine, told):
    said = [
        Verdict("layer", "CaseRescale", kind, engines=(name,))
        for kind, name in ((Kind.INVARIANT, "numeric"), (Kind.NOT_INVARIANT, engine))
    ]
    with pytest.raises(EnginesDisagree) as raised:
        settle(said)
    assert ("statistics()" in str(raised.value)) is told


@pytest.mark.parametrize("count", [5, 7, 40])
def test_every_constant_is_tried_however_many_there_are(count):
    """The law is another one in a window at the smallest of them; larger ones do not hide it."""

    def many(summed):
        scaled = summed / summed.norm(dim=1, keepdim=True)
        for bound in 10.0 ** torch.linspace(4, 9, count, dtype=summed.dtype):
            scaled = torch.where(summed.norm() > bound, scaled * 1.0, scaled)
        window = (summed.norm() > 1e-3) & (summed.norm() < 1e-2)
        return torch.where(window, summed, scaled)

    (verdict,) = ng.check(on_sums(many), [ng.WeightMatrixRescale], engines=["graph", "numeric"])
    assert verdict.kind is Kind.NOT_INVARIANT
    assert {"graph", "numeric"} == set(verdict.engines)


def test_the_layer_is_exported_once_for_several_checks(monkeypatch):
    layer = ng.as_layer(nn.LayerNorm(5))
    graphs = kept.Graphs(layer)
    exports = []
    monkeypatch.setattr(kept, "export", lambda *at: exports.append(at) or export(*at))
    rows = [ng.check(layer, [action], graphs=graphs) for action in ng.TABLE_1]
    assert len(exports) == 1
    assert [row.holds[0] for row in rows] == list(ng.check(layer).holds)


def test_graphs_of_another_layer_are_refused():
    other = kept.Graphs(ng.as_layer(nn.LayerNorm(5)))
    with pytest.raises(ValueError, match=r"graphs must be those of .* checked, RMSNorm; got LayerNorm"):
        ng.check(nn.RMSNorm(5), graphs=other)


def test_a_constant_near_the_largest_number_is_no_scale_of_a_point():
    def huge(summed):
        return layer_norm(summed).clamp(max=1e308)

    assert kinds(on_sums(huge), ng.CaseRescale) == [Kind.UP_TO_EPS]
