"""What the engines say of a claim: found once for all checks, as `ng.check` does, exact where it counts."""

import contextlib

import pytest
import torch
from torch import nn

import normgeom as ng
from normgeom.testing import invariance_checks
from normgeom.testing.evidence import Evidence

LAYERS = {
    "norm": ng.LayerNorm(),
    "norm with eps": ng.as_layer(ng.RMSNorm(), eps=1e-3),
    "module": nn.RMSNorm(4),
    "owner": nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4)),
    "function": lambda w, x: (x @ w.T).softmax(1),
}
GROUPS = [
    [-5, 5, -2],
    [-2, -4, -6],
    [-1, 7, 0],
    [0, -8, -7],
    [-3, 1, -5],
    [5, -12, -4],
    [3, -2, 1],
    [0, -3, 1],
]
CASES = [[0.375, 0.0, -0.125], [0.0, 0.0, -0.5], [0.0, 0.75, 0.0]]


@pytest.fixture
def exports(monkeypatch):
    """The shapes of the weights that were exported."""
    seen, export = [], torch.export.export

    def counted(module, arguments, **options):
        seen.append(tuple(arguments[0].shape))
        return export(module, arguments, **options)

    monkeypatch.setattr(torch.export, "export", counted)
    return seen


def test_a_layer_is_exported_once_for_all_its_checks(exports):
    for check in invariance_checks(nn.RMSNorm(4), ["CaseRescale", "DatasetRescale"], examples=1):
        with contextlib.suppress(AssertionError):
            check()
    assert exports == [(4, 3)]


@pytest.mark.parametrize("name", LAYERS)
def test_the_evidence_is_that_of_a_check(name):
    evidence = Evidence(ng.as_layer(LAYERS[name]))
    row = ng.check(LAYERS[name], units=4, inputs=3, cases=5)
    said = [evidence.verdict(action) for action in ng.TABLE_1]
    assert [(v.kind, v.degree, v.engines) for v in said] == [(v.kind, v.degree, v.engines) for v in row]


def test_a_point_is_judged_without_rounding():
    """Two units a group, one group of equal units: rounding looks like a fault, 50 digits do not."""
    layer, action = (
        ng.as_layer(nn.GroupNorm(4, 8)),
        ng.CaseRescale(torch.tensor([0.25, 0.25, 0.375]).double()),
    )
    weight, data = (torch.tensor(values, dtype=torch.float64) for values in (GROUPS, CASES))
    evidence = Evidence(layer, {"cases": 3})
    assert evidence.kept_without_rounding(action, weight, data)
    broken = ng.WeightVectorRescale(torch.arange(1.0, 9.0).double())
    assert not evidence.kept_without_rounding(broken, weight, data)


def test_a_true_claim_of_groups_of_two_survives_the_attack():
    (check,) = (
        c
        for c in invariance_checks(nn.GroupNorm(8, 16), ["CaseRescale"], transforms=[])
        if c.subject is ng.CaseRescale
    )
    check()
